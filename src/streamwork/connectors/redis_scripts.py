"""What RedisSink does inside Redis: each script runs alone, so what it has checked is still true when it writes.

KEYS[1] is the ledger row, a hash. A script that turns a driver away answers with an array of its reason and a detail.

Which write of a key counts is decided by its *stamp*, FENCE:EPOCH; a higher fence is newer, and of one fence the higher epoch.
A key that is there has its stamp in `__fence` and `__epoch`. One that was deleted has left a tombstone: its stamp, in a hash of
its own (KEYS[2], key -> stamp), so that readers find nothing under the key. A tombstone costs memory, so it has to go in the end:

    1  KEYS removes the key and sets the tombstone, in one script. From then on an older stamp does not get in by this key.
    2  ADVANCE sets `floor` of the ledger row to the stamp of its commit. From then on no such stamp or older gets in by any key.
    3  ADVANCE forgets all tombstones, in the same script as 2.

Why 3 loses nothing. A tombstone that is newer than this commit would be of a higher fence, or of a later commit of the same
driver. Either would have changed the row before its first key, its fence or its mark, and ADVANCE would have been turned away.
So every tombstone is as old as the commit or older, and the commit's stamp is the floor now. A write that KEYS lets in is newer
than the floor, hence newer than every tombstone that was forgotten: none of them could have kept it out. The floor never sinks.

    the driver dies            a reader sees           what is left           what an older write meets
    before 1                   the key as it was       -                      the key's stamp
    between 1 and 2            no key                  the tombstone          the tombstone
    after 3                    no key                  the floor              the floor

A driver that stops between 1 and 2 is followed by one that offers the same rows again, under a higher fence: it deletes the key
again, and its ADVANCE forgets the tombstones of both. So there are never more tombstones than deletes since the last commit
that came to its end. Time has no part in it: a tombstone that went away after a while would let in whoever slept for longer.
"""

from __future__ import annotations

_FENCE = """
local registered = tonumber(redis.call('HGET', KEYS[1], 'fence') or '-1')
if registered > tonumber(ARGV[1]) then return {'fenced', tostring(registered)} end
"""

# A stamp as two numbers, and how they compare. What is not there is older than anything.
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

# ARGV: fence, manifest as judged, position as judged, a field and its new value. A second time it changes nothing.
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

# KEYS: row, tombstones. ARGV: fence, mark, manifest, position, epoch. A second time, because the first answer was lost, it
# changes nothing.
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

# ARGV[3] has the values of all keys, one after the other: each its length in 4 bytes, then its bytes; None is FFFFFFFF. A key
# that is deleted has FFFFFFFE in place of all its values. One argument, because clients take long over many. What there was is
# removed: a field that is None now must not be there any more.
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

# The same without a ledger: written at once, and compared with nothing. So a delete leaves no tombstone either.
AT_ONCE = (
    _TYPES
    + _NEXT
    + """
for i = 3, #KEYS do replace(KEYS[i], following({})) end
return {'done', ''}
"""
)
