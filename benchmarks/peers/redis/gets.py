"""The same keys in Redis: written once, then read with MGET by hiredis, and decoded to records.

usage: gets.py URL COUNTS.bin KEYS.bin AT_A_TIME REPEATS    (little-endian int64)
prints one JSON object: the keys per second of each repeat
"""

import json
import sys
import time
from pathlib import Path

import msgspec
import redis


class Count(msgspec.Struct):
    count: int = 0
    total: float = 0.0


def main() -> None:
    url, counts_file, keys_file, at_a_time, repeats = sys.argv[1], *sys.argv[2:4], *map(int, sys.argv[4:])
    counts, keys = numbers(counts_file), numbers(keys_file)
    client = redis.Redis.from_url(url, socket_timeout=600)
    for start in range(0, len(counts), 10_000):
        some = range(start, min(start + 10_000, len(counts)))
        client.mset({f"per-card:{n}": msgspec.json.encode(Count(counts[n], float(counts[n]))) for n in some})
    decode = msgspec.json.Decoder(Count).decode
    names = [f"per-card:{n}" for n in keys]
    speeds = []
    for _ in range(repeats):
        began, found = time.perf_counter(), []
        for start in range(0, len(names), at_a_time):
            found += [None if raw is None else decode(raw) for raw in client.mget(names[start : start + at_a_time])]
        speeds.append(len(names) / (time.perf_counter() - began))
        if [one.count for one in found] != [counts[n] for n in keys]:
            sys.exit("a count is wrong")
    client.flushdb()
    print(json.dumps({"keys_per_s": speeds}))


def numbers(path: str) -> list[int]:
    return memoryview(Path(path).read_bytes()).cast("q").tolist()


main()
