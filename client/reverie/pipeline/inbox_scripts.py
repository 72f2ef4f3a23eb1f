"""The Lua script by which producers put items into an inbox, and what the workers' scripts share with it.

Two kinds of time are kept apart. `TIME` is the broker's clock, which may be set back. An item's number only ever grows:
it is the clock, or one more than the last number where the clock is behind. Order and forgetting go by numbers.
"""

from __future__ import annotations

from typing import Final

# Lua: `wall()`, and `next_number(state, wall)`, which does not save what it returns: call `save_number`. A number that
# another program has put there, and that is none or lies after the year 5138, counts as none.
CLOCK: Final = """
local function wall()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
local function next_number(state, now)
  local last = tonumber(redis.call('HGET', state, 'number') or '0')
  if last and now <= last and last < 1e17 then return last + 1 end
  return now
end
local function save_number(state, number)
  redis.call('HSET', state, 'number', string.format('%.0f', number))
end
"""

# Lua: sets a flag with a lifetime, and says whether it was not set. One from the future was set before the clock was
# set back, and would not expire for as long as that.
RAISE_FLAG: Final = """
local function raise_flag(flag, now, milliseconds)
  local since = tonumber(redis.call('GET', flag) or '')
  if since and since <= now then return false end
  redis.call('SET', flag, string.format('%.0f', now), 'PX', milliseconds)
  return true
end
"""

# Lua: adds to a count, which begins anew if another program has put something else there.
ADD: Final = """
local function add(key, name, amount)
  local sum = redis.pcall('HINCRBY', key, name, amount)
  if type(sum) == 'number' then return sum end
  redis.call('HSET', key, name, string.format('%.0f', amount))
  return amount
end
"""

# KEYS: inbox, due, inboxes, flag, waiting, full, state.
# ARGV: workspace, lifetime of the flag, reply list and state, its lifetime, number or 0, longest queue, the four
# limits if none are set, keys of the limits and of the task's queue, then fields and values. The two keys are only
# read: as KEYS, they would need the right to be written.
ACCEPT: Final = (
    CLOCK
    + RAISE_FLAG
    + ADD
    + """
local FIRST = 13
local now = wall()
local fresh = ARGV[5] == '0'
if fresh then
  local full = redis.call('GET', KEYS[6])
  if full then return {-1, full} end
  local items, bytes = 0, 0
  for i = FIRST, #ARGV, 2 do
    if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0 then
      items = items + 1
      bytes = bytes + #ARGV[i] + #ARGV[i + 1]
    end
  end
  if items > 0 then
    local limits = redis.call('HMGET', ARGV[11], 'workspace_items', 'workspace_bytes', 'items', 'bytes')
    local all = redis.call('HMGET', KEYS[7], 'bytes:' .. ARGV[1], 'items', 'bytes')
    local used = {redis.call('HLEN', KEYS[1]), all[1], all[2], all[3]}
    local more = {items, bytes, items, bytes}
    for n = 1, 4 do
      local limit = tonumber(limits[n] or '')
      if not (limit and limit >= 1) then limit = tonumber(ARGV[6 + n]) end
      local held = tonumber(used[n] or '0')
      if not (held and held < 1e15) then held = 0 end
      if held + more[n] > limit then
        return {-2, n, string.format('%.0f', held), string.format('%.0f', limit)}
      end
    end
  end
end
local number = fresh and next_number(KEYS[7], now) or tonumber(ARGV[5])
-- The time is kept beside a number that has run ahead of it: it says how long the item has waited.
local mark = fresh and number - now > 1000000 and string.format('@%.0f ', now) or ''
local added, size = 0, 0
for i = FIRST, #ARGV, 2 do
  local value = string.format('%.0f ', number + added) .. mark .. ARGV[i + 1]
  if redis.call('HSETNX', KEYS[1], ARGV[i], value) == 1 then
    redis.call('ZADD', KEYS[2], number + added, ARGV[i])
    added = added + 1
    size = size + #ARGV[i] + #value
  end
  if ARGV[3] ~= '' then
    redis.call('HSET', KEYS[5], ARGV[i], (redis.call('HGET', KEYS[5], ARGV[i]) or '') .. ARGV[3] .. ';')
  end
end
if ARGV[3] ~= '' then redis.call('EXPIRE', KEYS[5], ARGV[4]) end
if added > 0 then
  if fresh then
    save_number(KEYS[7], number + added - 1)
    add(KEYS[7], 'accepted', added)
  end
  add(KEYS[7], 'items', added)
  add(KEYS[7], 'bytes', size)
  add(KEYS[7], 'bytes:' .. ARGV[1], size)
end
redis.call('SADD', KEYS[3], ARGV[1])
-- Without workers nobody takes tasks from the queue. The sweep finds what waits.
local notify = redis.call('LLEN', ARGV[12]) < tonumber(ARGV[6]) and raise_flag(KEYS[4], now, ARGV[2])
return {added, notify and 1 or 0}
"""
)
