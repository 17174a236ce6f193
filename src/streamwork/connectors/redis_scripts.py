"""What RedisSink does inside Redis: each script runs alone, so what it has checked is still true when it writes.

KEYS[1] is the ledger row, a hash. A script that turns a driver away answers with an array of its reason and a detail.
"""

from __future__ import annotations

_FENCE = """
local registered = tonumber(redis.call('HGET', KEYS[1], 'fence') or '-1')
if registered > tonumber(ARGV[1]) then return {'fenced', tostring(registered)} end
"""

# KEYS: row, owners. ARGV: fence, target, owner
REGISTER = (
    """
for _, other in ipairs(redis.call('HKEYS', KEYS[2])) do
  local a, b = other .. ':', ARGV[2] .. ':'
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

# ARGV: fence, mark, manifest, position. A second time, because the first answer was lost, it changes nothing.
ADVANCE = (
    _FENCE
    + """
local mark = redis.call('HGET', KEYS[1], 'mark')
if mark ~= ARGV[2] then
  if mark == '' and redis.call('HGET', KEYS[1], 'manifest_sha256') == ARGV[3] then return {'done', ''} end
  return {'changed', ''}
end
redis.call('HSET', KEYS[1], 'mark', '', 'manifest_sha256', ARGV[3], 'position', ARGV[4])
return {'done', ''}
"""
)

_TYPES = """
for i = 2, #KEYS do
  local kind = redis.call('TYPE', KEYS[i])['ok']
  if kind ~= 'hash' and kind ~= 'none' then return {'rejected', KEYS[i] .. ' is a ' .. kind} end
end
"""

# ARGV[3] has the values of all keys, one after the other: each its length in 4 bytes, then its bytes; None is FFFFFFFF. One
# argument, because clients take long over many. What there was is removed: a field that is None now must not be there any more.
_NEXT = """
local at = 1
local function following(put)
  for j = 4, #ARGV do
    local size
    size, at = struct.unpack('>I4', ARGV[3], at)
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
  redis.call('HSET', key, unpack(put))
end
"""

# KEYS: row, keys. ARGV: fence, epoch, values, names of the fields
KEYS = (
    _FENCE
    + _TYPES
    + _NEXT
    + """
local fence, epoch = tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 2, #KEYS do
  local put = following({'__fence', ARGV[1], '__epoch', ARGV[2]})
  local stored = redis.call('HMGET', KEYS[i], '__fence', '__epoch')
  local f, e = tonumber(stored[1] or '-1'), tonumber(stored[2] or '-1')
  if fence > f or (fence == f and epoch >= e) then replace(KEYS[i], put) end
end
return {'done', ''}
"""
)

# The same without a ledger: written at once.
AT_ONCE = (
    _TYPES
    + _NEXT
    + """
for i = 2, #KEYS do replace(KEYS[i], following({})) end
return {'done', ''}
"""
)
