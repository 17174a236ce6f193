"""The Lua scripts of RedisSink. Redis runs a script atomically, so its checks still hold when it writes.

KEYS[1] is the ledger row, a hash. A script that refuses a driver returns an array of the reason and a detail.

The *stamp* of a write, FENCE:EPOCH, decides which write of a key wins: the higher fence, and within a fence the higher epoch.
An existing key has its stamp in `__fence` and `__epoch`. A deleted key has a tombstone: its stamp, in a separate hash
(KEYS[2], key -> stamp), so that readers find nothing under the key. Tombstones use memory, so they are removed:

    1  KEYS removes the key and sets the tombstone, in one script. From then on this key refuses older stamps.
    2  ADVANCE sets `floor` of the ledger row to the stamp of its commit. From then on every key refuses that stamp and older ones.
    3  ADVANCE removes all tombstones, in the same script as 2.

Why 3 is safe. A tombstone that is newer than this commit would be of a higher fence, or of a later commit of the same
driver. Either would have changed the fence or the mark of the row before its first key, and ADVANCE would have been refused.
So no tombstone is newer than the commit, whose stamp is now the floor. A write that KEYS accepts is newer
than the floor, hence newer than every removed tombstone: none of them would have refused it. The floor never decreases.

    the driver dies            a reader sees           left in Redis          an older write is refused by
    before 1                   the old value           -                      the key's stamp
    between 1 and 2            no key                  the tombstone          the tombstone
    after 3                    no key                  the floor              the floor

After a driver that stops between 1 and 2, the next driver commits the same rows again, under a higher fence: it deletes the key
again, and its ADVANCE removes the tombstones of both. So there are never more tombstones than deletes since the last
completed commit. Tombstones do not expire: an expired tombstone would accept the write of a driver that was suspended for longer.
"""

from __future__ import annotations

_FENCE = """
local registered = tonumber(redis.call('HGET', KEYS[1], 'fence') or '-1')
if registered > tonumber(ARGV[1]) then return {'fenced', tostring(registered)} end
"""

# A stamp as two numbers, and their order. A missing stamp is older than any other.
_STAMP = """
local function stamp(text)
  if not text then return -1, -1 end
  local fence, epoch = string.match(text, '^(%d+):(%d+)$')
  return tonumber(fence), tonumber(epoch)
end
local function older(f, e, fence, epoch)
  return f < fence or (f == fence and e < epoch)
end
"""

# KEYS: row, owners. ARGV: fence, target, owner
REGISTER = (
    """
for _, other in ipairs(redis.call('HKEYS', KEYS[2])) do
  local a, b = other .. ':', ARGV[2] .. ':'
  if other ~= ARGV[2] and redis.call('HGET', KEYS[2], other) == ARGV[3] then return {'moved', other} end
  if other ~= ARGV[2] and (string.sub(a, 1, #b) == b or string.sub(b, 1, #a) == a) then
    return {'overlaps', other}
  end
end
local owner = redis.call('HGET', KEYS[2], ARGV[2])
if owner and owner ~= ARGV[3] then return {'owned', owner} end
"""
    + _FENCE
    + """
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
redis.call('HSETNX', KEYS[1], 'manifest_sha256', '')
redis.call('HSETNX', KEYS[1], 'mark', '')
return {'done', ''}
"""
)

# ARGV: fence, expected manifest, expected position, a field and its new value. Running it twice changes nothing.
CHANGE = (
    _FENCE
    + """
if redis.call('HGET', KEYS[1], ARGV[4]) == ARGV[5] then return {'done', ''} end
local sha = redis.call('HGET', KEYS[1], 'manifest_sha256') or ''
local position = redis.call('HGET', KEYS[1], 'position') or ''
if sha ~= ARGV[2] or position ~= ARGV[3] then return {'changed', ''} end
redis.call('HSET', KEYS[1], ARGV[4], ARGV[5])
return {'done', ''}
"""
)

_FORGET = "redis.call('UNLINK', KEYS[2])"

# KEYS: row, tombstones. ARGV: fence, mark, manifest, position, epoch. Running it again, after a lost answer, changes nothing.
ADVANCE = (
    _FENCE
    + _STAMP
    + """
local mark = redis.call('HGET', KEYS[1], 'mark')
if mark ~= ARGV[2] then
  if mark == '' and redis.call('HGET', KEYS[1], 'manifest_sha256') == ARGV[3] then return {'done', ''} end
  return {'changed', ''}
end
redis.call('HSET', KEYS[1], 'mark', '', 'manifest_sha256', ARGV[3], 'position', ARGV[4])
local f, e = stamp(redis.call('HGET', KEYS[1], 'floor'))
if older(f, e, tonumber(ARGV[1]), tonumber(ARGV[5])) then
  redis.call('HSET', KEYS[1], 'floor', ARGV[1] .. ':' .. ARGV[5])
end
"""
    + _FORGET
    + """
return {'done', ''}
"""
)

_TYPES = """
for i = 3, #KEYS do
  local kind = redis.call('TYPE', KEYS[i])['ok']
  if kind ~= 'hash' and kind ~= 'none' then return {'rejected', KEYS[i] .. ' is a ' .. kind} end
end
"""

# ARGV[3] has the values of all keys in sequence: each its length in 4 bytes, then its bytes; None is FFFFFFFF. A key
# that is deleted has FFFFFFFE in place of all its values. One argument, because clients are slow with many. The old hash is
# removed first, so that no field remains that is None now.
_NEXT = """
local at = 1
local function following(put)
  for j = 4, #ARGV do
    local size
    size, at = struct.unpack('>I4', ARGV[3], at)
    if size == 4294967294 then return nil end
    if size ~= 4294967295 then
      put[#put + 1] = ARGV[j]
      put[#put + 1] = string.sub(ARGV[3], at, at + size - 1)
      at = at + size
    end
  end
  return put
end
local function replace(key, put)
  redis.call('DEL', key)
  if put then redis.call('HSET', key, unpack(put)) end
end
"""

_FLOOR = """
local f, e = stamp(redis.call('HGET', KEYS[1], 'floor'))
if not older(f, e, tonumber(ARGV[1]), tonumber(ARGV[2])) then return {'changed', ''} end
"""
_BURY = "redis.call('HSET', KEYS[2], KEYS[i], ARGV[1] .. ':' .. ARGV[2])"

# KEYS: row, tombstones, keys. ARGV: fence, epoch, values, names of the fields
KEYS = (
    _FENCE
    + _STAMP
    + _FLOOR
    + _TYPES
    + _NEXT
    + """
local fence, epoch = tonumber(ARGV[1]), tonumber(ARGV[2])
local graves = redis.call('EXISTS', KEYS[2]) == 1
for i = 3, #KEYS do
  local put = following({'__fence', ARGV[1], '__epoch', ARGV[2]})
  local stored = redis.call('HMGET', KEYS[i], '__fence', '__epoch')
  local f, e = tonumber(stored[1] or '-1'), tonumber(stored[2] or '-1')
  if graves and not stored[1] then f, e = stamp(redis.call('HGET', KEYS[2], KEYS[i])) end
  if not older(fence, epoch, f, e) then
    replace(KEYS[i], put)
    if not put then
      """
    + _BURY
    + """
    elseif graves then
      redis.call('HDEL', KEYS[2], KEYS[i])
    end
  end
end
return {'done', ''}
"""
)

# KEYS without a ledger, for immediate writes: no stamp is compared, and a delete leaves no tombstone.
AT_ONCE = (
    _TYPES
    + _NEXT
    + """
for i = 3, #KEYS do replace(KEYS[i], following({})) end
return {'done', ''}
"""
)
