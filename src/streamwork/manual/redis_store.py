"""`RedisStore`: state by hand in Redis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from streamwork.connectors.address import Address, needed
from streamwork.errors import JobFailed, WrongUse
from streamwork.manual.store import Changes, ManualStore, Saved, Seat, Stored, fenced, other_instances

# KEYS: the instance, the instances of the job. ARGV: the name of the instance, how many there are
_BEGIN = """
local stored = redis.call('HGET', KEYS[1], 'instances')
if stored and stored ~= ARGV[2] then return {tonumber(stored)} end
redis.call('HSET', KEYS[1], 'instances', ARGV[2])
redis.call('SADD', KEYS[2], ARGV[1])
return {-1, redis.call('HINCRBY', KEYS[1], 'fence', 1)}
"""

# KEYS: the instance, its records. ARGV: fence, offsets, how many are written, name and content of each, names that are removed
_SAVE = """
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'offsets', ARGV[2])
local at = 4
for i = 1, tonumber(ARGV[3]) do
  redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1])
  at = at + 2
end
while at <= #ARGV do
  redis.call('HDEL', KEYS[2], ARGV[at])
  at = at + 1
end
return 1
"""


class RedisStore(ManualStore):
    """One hash per instance, and one with its records, below `prefix`. A save is one script, so it happens whole or not at all."""

    def __init__(self, url: str, prefix: str) -> None:
        if not prefix or prefix.startswith("streamwork_"):
            raise WrongUse("SW-SINK-PREFIX", f"{prefix!r} cannot be the prefix of keys", "choose another prefix")
        self.address = Address.of_url(url, ("redis", "rediss", "unix"))
        self.prefix = prefix
        self._connection: Any = None

    def begin(self, component: str, instance: int, instances: int) -> tuple[Seat, Saved]:
        place = f"{component}/{instance}"
        stored, *fence = self._call("eval", _BEGIN, 2, *self._keys(place, "@instances"), place, instances)
        if stored != -1:
            raise other_instances(component, stored, instances)
        name, records = self._keys(place, f"{place}/records")
        offsets = self._call("hget", name, "offsets")
        found = self._call("hgetall", records)
        return Seat(component, instance, fence[0]), Saved(_offsets(offsets), found)

    def save(self, seat: Seat, offsets: Mapping[str, int], changes: Changes) -> None:
        place = f"{seat.component}/{seat.instance}"
        written = [part for name, content in changes.items() if content is not None for part in (name, content)]
        removed = [name for name, content in changes.items() if content is None]
        given = [seat.fence, msgspec.json.encode(dict(offsets)), len(written) // 2, *written, *removed]
        if not self._call("eval", _SAVE, 2, *self._keys(place, f"{place}/records"), *given):
            raise fenced(seat)

    def all(self) -> list[Stored]:
        found = []
        for place in sorted(name.decode() for name in self._call("smembers", *self._keys("@instances"))):
            component, _, instance = place.rpartition("/")
            row = self._call("hgetall", *self._keys(place))
            numbers = int(instance), int(row[b"instances"]), int(row[b"fence"])
            found.append(Stored(component, *numbers, _offsets(row.get(b"offsets"))))
        return sorted(found, key=lambda one: (one.component, one.instance))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _keys(self, *names: str) -> tuple[str, ...]:
        return tuple(f"{self.prefix}:{name}" for name in names)

    def _call(self, command: str, *given: Any) -> Any:
        redis = needed("redis", "redis")
        try:
            if self._connection is None:
                self._connection = redis.Redis.from_url(self.address.whole)
            return getattr(self._connection, command)(*given)
        except redis.RedisError as error:
            self.close()
            raise JobFailed(
                "SW-MANUAL-STORE",
                f"the store at {self.address!r} failed: {self.address.redact(str(error))}",
                "check that the server runs and has memory left; the job restarts",
            ) from self.address.cause(error)


def _offsets(text: bytes | None) -> dict[str, int]:
    return {} if text is None else msgspec.json.decode(text, type=dict[str, int])
