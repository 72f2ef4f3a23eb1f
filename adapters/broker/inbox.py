"""The workers' half of the inbox: take items under a lease, settle or release them, and answer waiting producers.

The layout of the keys is described in `reverie.pipeline.inbox`. Items are removed only by `settle`, which is called
after the database has committed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec

from reverie.contract import Outcome
from reverie.pipeline.broker import call_broker
from reverie.pipeline.inbox import NOTIFICATION_SECONDS, REPLY_SECONDS, Inbox, inbox_field
from reverie.pipeline.payload_signing import refusal, split_payload

# The recovery sweep takes items that no worker took within this time.
GRACE_SECONDS: Final = 20
# A worker that does not settle its items within this time loses them to the next one.
LEASE_SECONDS: Final = 10

# The sweep says every few seconds again that a workspace is full. If it does not run, producers stay refused this long.
FULL_SECONDS: Final = 600

# Microseconds need no more digits before the year 5138; a longer number would not fit the columns for times.
_STAMP_DIGITS: Final = 17

# Lua: the acceptance time of an item, 0 when its value has another format; `parse_taken` reads it in the same way.
_ACCEPTED: Final = f"""
local function accepted(value)
  local stamp = string.match(value, '^(%d+) ')
  return stamp and #stamp <= {_STAMP_DIGITS} and stamp or 0
end
"""

# Only one worker at a time takes from a workspace, oldest first: so sequences follow the order of acceptance, and a
# caller who requires strict order is not refused because two workers raced. Writes to one database are serial anyway.
_TAKE = (
    _ACCEPTED
    + """
if redis.call('EXISTS', KEYS[5]) == 1 then return {} end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ended = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now)
for _, field in ipairs(ended) do
  local value = redis.call('HGET', KEYS[1], field)
  redis.call('ZREM', KEYS[3], field)
  if value then redis.call('ZADD', KEYS[2], accepted(value), field) end
end
if redis.call('ZCARD', KEYS[3]) > 0 then return {} end
local fields = redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1)
local result = {}
local size = 0
for _, field in ipairs(fields) do
  local value = redis.call('HGET', KEYS[1], field)
  redis.call('ZREM', KEYS[2], field)
  if value then
    local tries = redis.call('HINCRBY', KEYS[4], field, 1)
    redis.call('ZADD', KEYS[3], now + ARGV[2], field)
    result[#result + 1] = field
    result[#result + 1] = value
    result[#result + 1] = tries
    size = size + #value
    if size > tonumber(ARGV[3]) then break end
  end
end
return result
"""
)

_SETTLE = """
for i = 2, #ARGV do
  redis.call('HDEL', KEYS[1], ARGV[i])
  redis.call('ZREM', KEYS[2], ARGV[i])
  redis.call('ZREM', KEYS[3], ARGV[i])
  redis.call('HDEL', KEYS[4], ARGV[i])
end
if redis.call('HLEN', KEYS[1]) == 0 then redis.call('SREM', KEYS[5], ARGV[1]) end
return #ARGV - 1
"""

_RELEASE = (
    _ACCEPTED
    + """
for i = 2, #ARGV do
  if redis.call('ZREM', KEYS[3], ARGV[i]) == 1 then
    local value = redis.call('HGET', KEYS[1], ARGV[i]) or ''
    redis.call('ZADD', KEYS[2], accepted(value), ARGV[i])
    redis.call('HINCRBY', KEYS[4], ARGV[i], -1)
  end
end
redis.call('SET', KEYS[5], '1', 'PX', ARGV[1])
return #ARGV - 1
"""
)

_COUNT = """
for i = 2, #ARGV do
  if redis.call('ZSCORE', KEYS[1], ARGV[i]) then redis.call('HINCRBY', KEYS[2], ARGV[i], ARGV[1]) end
end
return #ARGV - 1
"""

_STATS = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local oldest = now
for _, key in ipairs({KEYS[2], KEYS[3]}) do
  local first = redis.call('ZRANGE', key, 0, 0)[1]
  local value = first and redis.call('HGET', KEYS[1], first)
  if value then oldest = math.min(oldest, tonumber(string.match(value, '^(%d+) ')) or now) end
end
return {redis.call('HLEN', KEYS[1]), now - oldest}
"""

# A reply goes to producers that wait for this state or an earlier one; every state but 'stored' ends the wait.
# All outcomes for one producer make one element of its list: it fetches them in one round trip.
_REPLY = """
local sent = 0
local replies = {}
for i = 3, #ARGV, 2 do
  local remaining = ''
  for reply, state in string.gmatch(redis.call('HGET', KEYS[1], ARGV[i]) or '', '(%S+) ([^;]+);') do
    if state == ARGV[1] or ARGV[1] ~= 'stored' then
      if not replies[reply] then replies[reply] = {} end
      table.insert(replies[reply], ARGV[i + 1])
      sent = sent + 1
    else
      remaining = remaining .. reply .. ' ' .. state .. ';'
    end
  end
  if remaining == '' then redis.call('HDEL', KEYS[1], ARGV[i]) else redis.call('HSET', KEYS[1], ARGV[i], remaining) end
end
for reply, outcomes in pairs(replies) do
  redis.call('RPUSH', reply, '[' .. table.concat(outcomes, ',') .. ']')
  redis.call('EXPIRE', reply, ARGV[2])
end
return sent
"""


class Taken(NamedTuple):
    """One item leased to this worker. `accepted_at` is in microseconds, 0 when the value has another format.

    `payload` is without its `signature`. `refusal` says why it must not be stored: none of the keys has signed it.
    """

    field: bytes
    accepted_at: int
    payload: bytes
    tries: int
    signature: bytes = b""
    refusal: str = ""


class InboxStats(NamedTuple):
    """The number of items in an inbox and the age of the oldest one."""

    size: int
    oldest_age_seconds: float


class WorkerInbox(Inbox):
    """The inboxes of one broker, as workers use them. Every method raises `Unavailable` without a broker."""

    def take(self, workspace: str, *, limit: int, max_bytes: int = 32 * 1024 * 1024) -> list[Taken]:
        """Take at most `limit` of the oldest items under a lease of 10 s, items with an expired lease included.

        Return an empty list when there are none, while another worker holds items, and during a pause. No further item
        is taken once the values exceed `max_bytes`.
        """
        keys = self._keys(workspace, "", ":due", ":taken", ":tries", ":pause")
        flat = cast("list[Any]", self._run(_TAKE, keys, [limit, LEASE_SECONDS * 1_000_000, max_bytes]))
        items = [parse_taken(flat[i], flat[i + 1], int(flat[i + 2])) for i in range(0, len(flat), 3)]
        return [self._verified(workspace, item) for item in items]

    def _verified(self, workspace: str, item: Taken) -> Taken:
        """Return an item with the reason why it must not be stored, if there is one."""
        why = refusal(self._sign_keys, workspace, item.field, item.signature, item.payload)
        return item._replace(refusal=why) if why else item

    def settle(self, workspace: str, fields: Sequence[bytes]) -> None:
        """Remove items for good. Call this only after the database has committed them (or their dead letters)."""
        if fields:
            keys = [*self._keys(workspace, "", ":due", ":taken", ":tries"), self._workspaces_key]
            self._run(_SETTLE, keys, [workspace, *fields])

    def release(self, workspace: str, fields: Sequence[bytes], *, delay_seconds: float) -> None:
        """Put items back in their old order without counting this try; nothing is taken until the delay is over."""
        keys = self._keys(workspace, "", ":due", ":taken", ":tries", ":pause")
        self._run(_RELEASE, keys, [int(delay_seconds * 1_000), *fields])

    def count_tries(self, workspace: str, fields: Sequence[bytes], by: int) -> None:
        """Add `by` to the tries of items: an item that was taken in a batch but not yet processed was not tried.

        Items whose lease has ended are left unchanged: another worker has settled or released them.
        """
        if fields:
            self._run(_COUNT, self._keys(workspace, ":taken", ":tries"), [by, *fields])

    def peek(self, workspace: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield each item's field and value without taking it: every item that is there from start to end, and perhaps
        some that come or go meanwhile, or one twice. Items that must not be stored, by their signature, are left out.
        """
        items = self._broker.hscan_iter(self._keys(workspace, "")[0], count=100)
        while (item := call_broker(lambda: next(items, None))) is not None:
            field, value = item
            if not self._verified(workspace, parse_taken(field, value, 0)).refusal:
                yield field, value

    def set_full(self, workspace: str, quota: str, reason: str) -> None:
        """Have producers refuse further messages, for ten minutes unless it is set again."""
        (key,) = self._keys(workspace, ":full")
        call_broker(lambda: self._broker.set(key, f"{quota} {reason}", ex=FULL_SECONDS))

    def clear_full(self, workspace: str) -> None:
        """Have producers accept messages again."""
        (key,) = self._keys(workspace, ":full")
        call_broker(lambda: self._broker.delete(key))

    def workspaces(self) -> list[str]:
        """Return the workspaces whose inbox is not empty."""
        members = call_broker(lambda: cast("set[bytes]", self._broker.smembers(self._workspaces_key)))
        return sorted(member.decode("utf-8", "replace") for member in members)

    def forget_workspace(self, workspace: str) -> None:
        """Delete the inbox of a workspace that has been deleted."""
        keys = self._keys(workspace, "", ":due", ":taken", ":tries", ":waiting", ":pause", ":full")
        # In one transaction: an item accepted between the two would be in an inbox that no sweep looks at.
        with self._broker.pipeline(transaction=True) as pipeline:
            pipeline.delete(*keys)
            pipeline.srem(self._workspaces_key, workspace)
            call_broker(pipeline.execute)

    def stats(self, workspace: str) -> InboxStats:
        """Return the size and age of a workspace's inbox."""
        size, age = cast("list[int]", self._run(_STATS, self._keys(workspace, "", ":due", ":taken"), []))
        return InboxStats(size, max(0.0, age / 1_000_000))

    def anyone_waiting(self, workspace: str) -> bool:
        """Return whether any producer waits for an outcome. Check this before `reply`: usually none does."""
        return bool(call_broker(lambda: self._broker.exists(*self._keys(workspace, ":waiting"))))

    def reply(self, workspace: str, agent_outcomes: Sequence[tuple[str, Outcome]]) -> None:
        """Send outcomes to waiting producers; `stored` does not end the wait of those that wait for `searchable`."""
        by_state: dict[str, list[tuple[str, Outcome]]] = {}
        for agent, outcome in agent_outcomes:
            by_state.setdefault(outcome.state, []).append((agent, outcome))
        for state, items in by_state.items():
            arguments: list[Any] = [state, REPLY_SECONDS]
            for agent, outcome in items:
                arguments += (inbox_field(agent, outcome.id), msgspec.json.encode(outcome))
            self._run(_REPLY, self._keys(workspace, ":waiting"), arguments)

    def claim_notification(self, task: str, workspace: str) -> bool:
        """Set the notification flag; return whether the caller must send the task, False while one is on its way."""
        key = self._notification_key(task, workspace)
        return bool(call_broker(lambda: self._broker.set(key, "1", nx=True, px=NOTIFICATION_SECONDS * 1_000)))

    def clear_notification(self, task: str, workspace: str) -> None:
        """Clear the notification flag. A task does so before it looks for work: later work needs a task of its own."""
        call_broker(lambda: self._broker.delete(self._notification_key(task, workspace)))


def parse_taken(field: bytes, value: bytes, tries: int) -> Taken:
    """Return the item of a field and value of an inbox."""
    stamp, space, payload = value.partition(b" ")
    if not space or not stamp.isdigit() or len(stamp) > _STAMP_DIGITS:
        return Taken(field, 0, value, tries)
    signature, payload = split_payload(payload)
    return Taken(field, int(stamp), payload, tries, signature)
