"""Writers to be killed: a process that forks one writer per line of input, so that a life costs no start of Python.

A line is ``LIFE FSYNC ROWS``. The writer appends batches of ROWS events for ever and says ``ack LIFE COUNT`` on standard
output after each append that returned; COUNT is how many events of this life are then acknowledged.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import pyarrow as pa

from streamwork.log import EventLog


def write(path: str, life: int, fsync: str, rows: int) -> None:
    log = EventLog(path, fsync=fsync)
    lives = pa.array(np.full(rows, life))
    cards = pa.array([f"card-{number % 101}" for number in range(rows)])
    count = 0
    while True:
        numbers = pa.array(np.arange(count, count + rows))
        log.append(pa.RecordBatch.from_arrays([lives, numbers, cards], schema=log.settings.schema))
        count += rows
        os.write(1, f"ack {life} {count}\n".encode())


def main(path: str) -> None:
    pa.array(np.arange(1))  # Arrow imports pandas when it first meets an array of numpy's: once, not in every life
    for line in sys.stdin:
        life, fsync, rows = line.split()
        if (child := os.fork()) == 0:
            write(path, int(life), fsync, int(rows))
        os.write(1, f"pid {child}\n".encode())
        os.waitpid(child, 0)
        os.write(1, b"dead\n")


if __name__ == "__main__":
    main(sys.argv[1])
