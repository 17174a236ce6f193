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

_REPLACE = """
  local count = tonumber(ARGV[at])
  if %s then
    redis.call('DEL', KEYS[i])
    redis.call('HSET', KEYS[i], unpack(ARGV, at + 1, at + count))
  end
  at = at + 1 + count
"""

# KEYS: row, keys. ARGV: fence, epoch; per key: how many fields and values, and these, with __fence and __epoch among them
KEYS = (
    _FENCE
    + _TYPES
    + """
local fence, epoch, at = tonumber(ARGV[1]), tonumber(ARGV[2]), 3
for i = 2, #KEYS do
  local stored = redis.call('HMGET', KEYS[i], '__fence', '__epoch')
  local f, e = tonumber(stored[1] or '-1'), tonumber(stored[2] or '-1')
"""
    + _REPLACE % "fence > f or (fence == f and epoch >= e)"
    + """
end
return {'done', ''}
"""
)

# The same without a ledger: written at once. ARGV: two that are not looked at, then as above
AT_ONCE = (
    _TYPES
    + """
local at = 3
for i = 2, #KEYS do
"""
    + _REPLACE % "true"
    + """
end
return {'done', ''}
"""
)
