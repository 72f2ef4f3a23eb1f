"""The Lua scripts by which workers take items from an inbox, settle them, give them back, and tell who waits.

Invariant: each item in the hash of an inbox is in exactly one of its two sorted sets, even if a script is refused.
The broker refuses a script for want of memory only before its first write. So scripts that must succeed begin with a
write that needs no memory (`PERSIST`, `ZREM`, `HDEL`).
"""

from __future__ import annotations

from typing import Final

from reverie.pipeline.inbox import ADD, CLOCK, RAISE_FLAG

# Microseconds need no more digits before the year 5138; a longer number would not fit the columns for times.
STAMP_DIGITS: Final = 17

# Lua: the number of an item, 0 when its value has another format; `parse_taken` reads it in the same way.
_ACCEPTED: Final = f"""
local function accepted(value)
  local stamp = string.match(value, '^(%d+) ')
  return stamp and #stamp <= {STAMP_DIGITS} and stamp or 0
end
"""

# Lua: subtracts removed items from the counts of an inbox. An older producer did not count: so counts are set to 0 when
# the inbox, or all inboxes, are empty.
_SUBTRACT: Final = (
    ADD
    + """
local function subtract(state, inbox, inboxes, workspace, items, bytes)
  add(state, 'items', -items)
  add(state, 'bytes', -bytes)
  local left = add(state, 'bytes:' .. workspace, -bytes)
  if redis.call('HLEN', inbox) == 0 then
    redis.call('SREM', inboxes, workspace)
    add(state, 'bytes', -left)
    redis.call('HDEL', state, 'bytes:' .. workspace)
    if redis.call('SCARD', inboxes) == 0 then redis.call('HDEL', state, 'items', 'bytes') end
  end
end
"""
)

# Lua: replies go to producers that wait for this state or an earlier one; every state but 'stored' ends the wait. All
# outcomes for one producer make one element of its list: it fetches them in one round trip.
_TELL: Final = """
local replies = {}
local notified = {}
local function tell(waiting, field, state, outcome)
  local remaining = ''
  local noted = redis.call('HGET', waiting, field) or ''
  local from = 1
  local stop = string.find(noted, ';', from, true)
  -- One by one: a pattern over the whole would take the square of its length if another program has put it there.
  while stop do
    local reply, wanted = string.match(string.sub(noted, from, stop - 1), '^(%S+) (.+)$')
    if reply and (wanted == state or state ~= 'stored') then
      if not replies[reply] then replies[reply] = {} end
      table.insert(replies[reply], outcome)
      notified[#notified + 1] = field
      notified[#notified + 1] = reply
    elseif reply then
      remaining = remaining .. reply .. ' ' .. wanted .. ';'
    end
    from = stop + 1
    stop = string.find(noted, ';', from, true)
  end
  if remaining == '' then redis.call('HDEL', waiting, field) else redis.call('HSET', waiting, field, remaining) end
  return remaining ~= ''
end
local function send_replies(seconds)
  for reply, outcomes in pairs(replies) do
    -- What another program has put there must not keep the items in the inbox.
    redis.pcall('RPUSH', reply, '[' .. table.concat(outcomes, ',') .. ']')
    redis.pcall('EXPIRE', reply, seconds)
  end
end
"""

# Only one worker at a time takes from a workspace, oldest first: so sequences follow the order of acceptance, and a
# caller who requires strict order is not refused because two workers raced. Writes to one database are serial anyway.
# A lease that ends later than a new one would was given before the clock was set back.
# The id of the broker's content comes first: it tells by which content the items were numbered.
# KEYS: inbox, due, taken, tries, pause, holder, state. ARGV: items, lease, bytes, token, id for content without.
TAKE: Final = (
    CLOCK
    + _ACCEPTED
    + """
local now = wall()
local paused = tonumber(redis.call('GET', KEYS[5]) or '')
if paused and paused <= now then return {} end
local latest = string.format('%.0f', now + ARGV[2])
for _, range in ipairs({{'-inf', string.format('%.0f', now)}, {'(' .. latest, '+inf'}}) do
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], range[1], range[2])) do
    local value = redis.call('HGET', KEYS[1], field)
    redis.call('ZREM', KEYS[3], field)
    if value then redis.call('ZADD', KEYS[2], accepted(value), field) end
  end
end
if redis.call('ZCARD', KEYS[3]) > 0 then return {} end
local fields = redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1)
local result = {}
local size = 0
for _, field in ipairs(fields) do
  local value = redis.call('HGET', KEYS[1], field)
  redis.call('ZREM', KEYS[2], field)
  if value then
    redis.call('ZADD', KEYS[3], latest, field)
    result[#result + 1] = field
    result[#result + 1] = value
    result[#result + 1] = (tonumber(redis.call('HGET', KEYS[4], field) or '0') or 0) + 1
    size = size + #value
    if size > tonumber(ARGV[3]) then break end
  end
end
if #result > 0 then
  redis.call('SET', KEYS[6], ARGV[4])
  redis.call('HSETNX', KEYS[7], 'id', ARGV[5])
  table.insert(result, 1, redis.call('HGET', KEYS[7], 'id'))
end
return result
"""
)

# KEYS: taken, tries, holder. ARGV: token, lease, fields.
BEGIN: Final = (
    CLOCK
    + ADD
    + """
if redis.call('GET', KEYS[3]) ~= ARGV[1] then return 0 end
redis.call('PERSIST', KEYS[3])
local now = wall()
for i = 3, #ARGV do add(KEYS[2], ARGV[i], 1) end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local left = first[2] and tonumber(first[2]) - now
if left and (left < ARGV[2] / 2 or left > tonumber(ARGV[2])) then
  for _, field in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), field)
  end
end
return 1
"""
)

# KEYS: inbox, due, taken, tries, inboxes, waiting, holder, state.
# ARGV: workspace, token, lifetime of replies, then field, state and outcome of each; without a state nobody is told.
# Returns the fields that producers still wait for, and fields with the reply lists that were told; and nothing if
# another worker holds them by now.
SETTLE: Final = (
    _SUBTRACT
    + _TELL
    + """
if redis.call('GET', KEYS[7]) ~= ARGV[2] then return false end
local items, bytes = 0, 0
local awaited = {}
for i = 4, #ARGV, 3 do
  local field = ARGV[i]
  if redis.call('ZREM', KEYS[3], field) == 1 then
    items = items + 1
    bytes = bytes + redis.call('HSTRLEN', KEYS[1], field) + #field
    redis.call('HDEL', KEYS[1], field)
    redis.call('HDEL', KEYS[4], field)
    if ARGV[i + 1] ~= '' and tell(KEYS[6], field, ARGV[i + 1], ARGV[i + 2]) then awaited[#awaited + 1] = field end
  end
end
if items > 0 then subtract(KEYS[8], KEYS[1], KEYS[5], ARGV[1], items, bytes) end
if redis.call('ZCARD', KEYS[3]) == 0 then redis.call('DEL', KEYS[7]) end
send_replies(ARGV[3])
return {awaited, notified}
"""
)

# KEYS: inbox, due, taken, tries, pause, holder. ARGV: token, pause in ms, number of fields to give back or -1 for all
# that the token holds, these fields, then the fields that were begun with.
RELEASE: Final = (
    CLOCK
    + _ACCEPTED
    + """
local held = redis.call('GET', KEYS[6]) == ARGV[1]
local given = {}
local first_begun = 4
if tonumber(ARGV[3]) < 0 then
  given = redis.call('ZRANGE', KEYS[3], 0, -1)
else
  for i = 4, 3 + ARGV[3] do given[#given + 1] = ARGV[i] end
  first_begun = 4 + ARGV[3]
end
local back = 0
if held then
  for _, field in ipairs(given) do
    if redis.call('ZREM', KEYS[3], field) == 1 then
      redis.call('ZADD', KEYS[2], accepted(redis.call('HGET', KEYS[1], field) or ''), field)
      back = back + 1
    end
  end
  if redis.call('ZCARD', KEYS[3]) == 0 then redis.call('DEL', KEYS[6]) end
end
for i = first_begun, #ARGV do
  local tries = tonumber(redis.call('HGET', KEYS[4], ARGV[i]) or '0') or 0
  if tries == 1 then redis.call('HDEL', KEYS[4], ARGV[i]) end
  if tries > 1 then redis.pcall('HINCRBY', KEYS[4], ARGV[i], -1) end
end
if held and tonumber(ARGV[2]) > 0 then
  redis.call('SET', KEYS[5], string.format('%.0f', wall()), 'PX', ARGV[2])
end
return back
"""
)

# KEYS: inbox, due, taken, state. ARGV: workspace. Returns items, age, bytes, and whether the clock was set back.
STATS: Final = (
    CLOCK
    + """
local now = wall()
local oldest = now
local set_back = 0
for _, key in ipairs({KEYS[2], KEYS[3]}) do
  local first = redis.call('ZRANGE', key, 0, 0)[1]
  local value = first and redis.call('HGET', KEYS[1], first) or ''
  local stamp = string.match(value, '^%d+ @(%d+) ') or string.match(value, '^(%d+) ')
  local at = tonumber(stamp or '')
  -- Without a time another program has put it there, and nobody knows when.
  if first and (not at or at > now + 1000000) then set_back = 1 elseif at then oldest = math.min(oldest, at) end
end
local bytes = tonumber(redis.call('HGET', KEYS[4], 'bytes:' .. ARGV[1]) or '0') or 0
return {redis.call('HLEN', KEYS[1]), now - oldest, bytes, set_back}
"""
)

# Fields of producers that wait for one row; no field has this character.
_BETWEEN_FIELDS: Final = "\x1e"

# KEYS: waiting. ARGV: state, lifetime of replies, then fields or names of rows, and outcomes.
REPLY: Final = (
    _TELL
    + f"""
for i = 3, #ARGV, 2 do
  local fields = string.sub(ARGV[i], 1, 4) == 'row ' and (redis.call('HGET', KEYS[1], ARGV[i]) or '') or ARGV[i]
  for field in string.gmatch(fields, '[^{_BETWEEN_FIELDS}]+') do tell(KEYS[1], field, ARGV[1], ARGV[i + 1]) end
  if fields ~= ARGV[i] then redis.call('HDEL', KEYS[1], ARGV[i]) end
end
send_replies(ARGV[2])
return 1
"""
)

# KEYS: waiting. ARGV: fields and names of the rows that producers wait for by them.
WAIT_FOR_ROWS: Final = f"""
for i = 1, #ARGV, 2 do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then
    local fields = redis.call('HGET', KEYS[1], ARGV[i + 1])
    redis.call('HSET', KEYS[1], ARGV[i + 1], (fields and fields .. '{_BETWEEN_FIELDS}' or '') .. ARGV[i])
  end
end
return 1
"""

# An item that a worker holds stays: the worker finds its mark in the store, and settles it.
# KEYS: inbox, due, taken, tries, inboxes, state. ARGV: workspace, fields.
REMOVE_WAITING: Final = (
    _SUBTRACT
    + """
local removed, bytes = 0, 0
for i = 2, #ARGV do
  if not redis.call('ZSCORE', KEYS[3], ARGV[i]) then
    local size = redis.call('HSTRLEN', KEYS[1], ARGV[i])
    if redis.call('HDEL', KEYS[1], ARGV[i]) == 1 then
      redis.call('ZREM', KEYS[2], ARGV[i])
      redis.call('HDEL', KEYS[4], ARGV[i])
      removed = removed + 1
      bytes = bytes + size + #ARGV[i]
    end
  end
end
if removed > 0 then subtract(KEYS[6], KEYS[1], KEYS[5], ARGV[1], removed, bytes) end
return removed
"""
)

# KEYS: inbox, inboxes, state, then the other keys of the inbox. ARGV: workspace.
FORGET: Final = (
    _SUBTRACT
    + """
redis.call('SREM', KEYS[2], ARGV[1])
local items = redis.call('HLEN', KEYS[1])
local bytes = tonumber(redis.call('HGET', KEYS[3], 'bytes:' .. ARGV[1]) or '0') or 0
redis.call('DEL', KEYS[1])
for i = 4, #KEYS do redis.call('DEL', KEYS[i]) end
if items > 0 then subtract(KEYS[3], KEYS[1], KEYS[2], ARGV[1], items, bytes) end
return items
"""
)

# KEYS: state. ARGV: id for content without. A number later than those of all accepted items, and the id of the content
# that gave it. Forgetting frees memory: it must not be refused for want of it.
NUMBER: Final = (
    CLOCK
    + """
redis.call('PERSIST', KEYS[1])
local number = next_number(KEYS[1], wall())
save_number(KEYS[1], number)
redis.call('HSETNX', KEYS[1], 'id', ARGV[1])
return {string.format('%.0f', number), redis.call('HGET', KEYS[1], 'id')}
"""
)

# KEYS: flag. ARGV: its lifetime in ms, the time up to which a flag is replaced.
RECLAIM: Final = (
    CLOCK
    + RAISE_FLAG
    + """
local since = tonumber(redis.call('GET', KEYS[1]) or '')
if since and since <= tonumber(ARGV[2]) then redis.call('DEL', KEYS[1]) end
return raise_flag(KEYS[1], wall(), ARGV[1]) and 1 or 0
"""
)
