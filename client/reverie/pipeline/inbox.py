"""The inbox: what was accepted and is not yet committed, kept in the broker until the database has it.

Layout, per workspace `W` (every key begins with the configured prefix):

    inbox:W          hash   field -> "<accepted_at µs> <payload JSON>"     the payloads themselves
    inbox:W:due      zset   field by the time at which it was accepted
    inbox:W:taken    zset   field by the time at which its lease ends
    inbox:W:tries    hash   field -> how often a worker took it without an ending
    inbox:W:pause    string set while the store of W cannot be written: nothing is taken
    inbox:W:waiting  hash   field -> "<reply list> <state>;" for each producer that waits
    inboxes          set    workspaces whose inbox is not empty: a sweep looks at no other
    wake:TASK:W      string set while a wake-up by that task is on its way

A field is the agent and the id of the item, joined by U+001F. Each step is one Lua script, so it happens whole or
not at all; the time is the broker's own, the same for all hosts. An item leaves only by `settle`, called after
the database has committed it: whatever is killed, it is either still here or already there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

import msgspec
import redis

from reverie.contract import INGEST_MESSAGES, Outcome, Payload, WaitFor
from reverie.errors import Unavailable

# An item that no worker took within this time is taken up by the recovery sweep.
GRACE_SECONDS: Final = 20
# A worker that took items and did not settle them within this time has lost them to the next one.
LEASE_SECONDS: Final = 10
# While this flag lives, no second wake-up is sent; it ends by itself in case the wake-up was lost.
WAKE_SECONDS: Final = 10
# A producer that waits gives up long before; its reply list, and the note that it waits, are swept away by the broker.
REPLY_SECONDS: Final = 900
# A wait is asked for in turns: redis-py gives a connection up that is silent for its socket timeout of 5 s.
_REPLY_TURN_SECONDS: Final = 2.0

# Microseconds need no more before the year 5138; a longer number would not fit where times are kept.
_STAMP_DIGITS: Final = 17

_SEPARATOR: Final = "\x1f"

_ACCEPT = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if ARGV[5] ~= '0' then now = tonumber(ARGV[5]) end
local added = 0
for i = 6, #ARGV, 2 do
  local at = now + added
  if redis.call('HSETNX', KEYS[1], ARGV[i], string.format('%.0f ', at) .. ARGV[i + 1]) == 1 then
    redis.call('ZADD', KEYS[2], at, ARGV[i])
    added = added + 1
  end
  if ARGV[3] ~= '' then
    redis.call('HSET', KEYS[5], ARGV[i], (redis.call('HGET', KEYS[5], ARGV[i]) or '') .. ARGV[3] .. ';')
  end
end
if ARGV[3] ~= '' then redis.call('EXPIRE', KEYS[5], ARGV[4]) end
redis.call('SADD', KEYS[3], ARGV[1])
local woke = redis.call('SET', KEYS[4], '1', 'NX', 'PX', ARGV[2])
return {added, woke and 1 or 0}
"""

# When an item was accepted; 0 where its value is not of our form, as `_taken` reads it too.
_ACCEPTED: Final = f"""
local function accepted(value)
  local stamp = string.match(value, '^(%d+) ')
  return stamp and #stamp <= {_STAMP_DIGITS} and stamp or 0
end
"""

# One worker at a time takes from a workspace, oldest first: so sequences follow the order of acceptance, and a caller
# who asked for strict order is not refused because two workers raced. Writers to one database take turns anyway.
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

# Replies go to those that wait for this state or a later one; the last state, 'dead' and 'forgotten' end the wait.
# All outcomes for one producer make one element of its list: it fetches them in one round trip.
_REPLY = """
local told = 0
local replies = {}
for i = 3, #ARGV, 2 do
  local still = ''
  for reply, wanted in string.gmatch(redis.call('HGET', KEYS[1], ARGV[i]) or '', '(%S+) ([^;]+);') do
    if wanted == ARGV[1] or ARGV[1] ~= 'stored' then
      if not replies[reply] then replies[reply] = {} end
      table.insert(replies[reply], ARGV[i + 1])
      told = told + 1
    else
      still = still .. reply .. ' ' .. wanted .. ';'
    end
  end
  if still == '' then redis.call('HDEL', KEYS[1], ARGV[i]) else redis.call('HSET', KEYS[1], ARGV[i], still) end
end
for reply, outcomes in pairs(replies) do
  redis.call('RPUSH', reply, '[' .. table.concat(outcomes, ',') .. ']')
  redis.call('EXPIRE', reply, ARGV[2])
end
return told
"""


class Taken(NamedTuple):
    """One item that this worker holds a lease on. `accepted_at` is 0 where the value is not of our form."""

    field: bytes
    accepted_at: int
    payload: bytes
    tries: int


class InboxStats(NamedTuple):
    """How many items wait in an inbox and for how many seconds the oldest has."""

    size: int
    oldest_age_seconds: float


def field_of(agent: str, item_id: str) -> str:
    """The name of an item in the inbox: unique per agent."""
    return f"{agent}{_SEPARATOR}{item_id}"


def agent_and_id(field: bytes) -> tuple[str, str]:
    """The inverse of `field_of`; what is not of that form has an empty agent."""
    agent, _, item_id = field.decode("utf-8", "replace").rpartition(_SEPARATOR)
    return agent, item_id


class Inbox:
    """The inboxes of one broker. Every method raises `Unavailable` when the broker does not answer."""

    def __init__(self, broker: redis.Redis, *, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix
        self._scripts: dict[str, Any] = {}

    def accept(
        self,
        workspace: str,
        payloads: Sequence[Payload],
        *,
        reply_to: str = "",
        wait: WaitFor = "queued",
        accepted_at: int = 0,
    ) -> tuple[int, bool]:
        """Put payloads into the inbox in their order; an id that is there already stays as it was.

        Returns how many were new, and whether the caller has to send the wake-up. `accepted_at` in microseconds is
        for what was accepted before: a session that was forgotten since then stays forgotten.
        """
        arguments: list[Any] = [workspace, WAKE_SECONDS * 1_000]
        arguments += (f"{self._reply_key(reply_to)} {wait}" if reply_to else "", REPLY_SECONDS, accepted_at)
        for payload in payloads:
            arguments += (field_of(payload.agent, payload.id), msgspec.json.encode(payload))
        keys = [*self._keys(workspace, "", ":due"), self._prefix + "inboxes"]
        keys += [self.wake_key(INGEST_MESSAGES, workspace), *self._keys(workspace, ":waiting")]
        added, woke = cast("list[int]", self._run(_ACCEPT, keys, arguments))
        return added, bool(woke)

    def take(self, workspace: str, *, limit: int, max_bytes: int = 32 * 1024 * 1024) -> list[Taken]:
        """Take the oldest items under a lease; what another worker lost is due again.

        Empty when there is none, while another worker holds what it took, and during a pause.
        """
        keys = self._keys(workspace, "", ":due", ":taken", ":tries", ":pause")
        flat = cast("list[Any]", self._run(_TAKE, keys, [limit, LEASE_SECONDS * 1_000_000, max_bytes]))
        return [_taken(flat[i], flat[i + 1], int(flat[i + 2])) for i in range(0, len(flat), 3)]

    def settle(self, workspace: str, fields: Sequence[bytes]) -> None:
        """Remove items for good. Only call this once the database has committed them (or their dead letters)."""
        if fields:
            keys = [*self._keys(workspace, "", ":due", ":taken", ":tries"), self._prefix + "inboxes"]
            self._run(_SETTLE, keys, [workspace, *fields])

    def release(self, workspace: str, fields: Sequence[bytes], *, delay_seconds: float) -> None:
        """Give items back in their old order, this try uncounted, and take nothing until the delay is over."""
        keys = self._keys(workspace, "", ":due", ":taken", ":tries", ":pause")
        self._run(_RELEASE, keys, [int(delay_seconds * 1_000), *fields])

    def count_tries(self, workspace: str, fields: Sequence[bytes], by: int) -> None:
        """Correct how often items count as taken: one that only lay beside another was not tried.

        What is held by nobody any more is left alone: another worker has settled it, or given it back.
        """
        if fields:
            self._run(_COUNT, self._keys(workspace, ":taken", ":tries"), [by, *fields])

    def workspaces(self) -> list[str]:
        """The workspaces whose inbox is not empty."""
        members = guarded(lambda: cast("set[bytes]", self._broker.smembers(self._prefix + "inboxes")))
        return sorted(member.decode("utf-8", "replace") for member in members)

    def forget_workspace(self, workspace: str) -> None:
        """Drop everything that waits for a workspace: it has been deleted."""
        keys = self._keys(workspace, "", ":due", ":taken", ":tries", ":waiting", ":pause")
        # In one piece: an item accepted between the two would lie in an inbox that no sweep looks at.
        with self._broker.pipeline(transaction=True) as pipeline:
            pipeline.delete(*keys)
            pipeline.srem(self._prefix + "inboxes", workspace)
            guarded(pipeline.execute)

    def stats(self, workspace: str) -> InboxStats:
        """Size and age of a workspace's inbox."""
        size, age = cast("list[int]", self._run(_STATS, self._keys(workspace, "", ":due", ":taken"), []))
        return InboxStats(size, max(0.0, age / 1_000_000))

    def now_micros(self) -> int:
        """The broker's own time, by which items are stamped as accepted."""
        seconds, micros = guarded(self._broker.time)
        return int(seconds) * 1_000_000 + int(micros)

    def anyone_waiting(self, workspace: str) -> bool:
        """Whether any producer waits for an outcome: asked first, because mostly none does."""
        return bool(guarded(lambda: self._broker.exists(*self._keys(workspace, ":waiting"))))

    def reply(self, workspace: str, agent_outcomes: Sequence[tuple[str, Outcome]]) -> None:
        """Tell the producers that wait what became of their items; `stored` leaves those waiting who want more."""
        by_state: dict[str, list[tuple[str, Outcome]]] = {}
        for agent, outcome in agent_outcomes:
            by_state.setdefault(outcome.state, []).append((agent, outcome))
        for state, items in by_state.items():
            arguments: list[Any] = [state, REPLY_SECONDS]
            for agent, outcome in items:
                arguments += (field_of(agent, outcome.id), msgspec.json.encode(outcome))
            self._run(_REPLY, self._keys(workspace, ":waiting"), arguments)

    def wait_reply(self, reply_to: str, timeout_seconds: float) -> list[Outcome]:
        """The next outcomes on a reply list; none after the timeout."""
        key = self._reply_key(reply_to)
        deadline = time.monotonic() + timeout_seconds
        while (left := deadline - time.monotonic()) > 0:
            turn = max(0.01, min(left, _REPLY_TURN_SECONDS))
            found = guarded(partial(self._broker.blpop, [key], timeout=turn))
            if found:
                return msgspec.json.decode(found[1], type=list[Outcome])
        return []

    def wake_key(self, task: str, workspace: str) -> str:
        """The flag that says a wake-up by this task is on its way."""
        return f"{self._prefix}wake:{task}:{workspace}"

    def claim_wake(self, task: str, workspace: str) -> bool:
        """Whether the caller is the one to send a wake-up: false while one is on its way."""
        key = self.wake_key(task, workspace)
        return bool(guarded(lambda: self._broker.set(key, "1", nx=True, px=WAKE_SECONDS * 1_000)))

    def clear_wake(self, task: str, workspace: str) -> None:
        """Called by the woken task before it looks for work: what comes later needs a wake-up of its own."""
        guarded(lambda: self._broker.delete(self.wake_key(task, workspace)))

    def _keys(self, workspace: str, *suffixes: str) -> list[str]:
        return [f"{self._prefix}inbox:{workspace}{suffix}" for suffix in suffixes]

    def _reply_key(self, reply_to: str) -> str:
        return f"{self._prefix}reply:{reply_to}"

    def _run(self, source: str, keys: list[str], arguments: list[Any]) -> object:
        script = self._scripts.get(source)
        if script is None:
            script = self._scripts.setdefault(source, self._broker.register_script(source))
        return guarded(lambda: script(keys=keys, args=arguments))


def connect(url: str, *, timeout_seconds: float = 5.0) -> redis.Redis:
    """A connection pool to the broker; nothing is sent before the first call. Safe to use in forked children."""
    return redis.Redis.from_url(url, socket_connect_timeout=timeout_seconds, health_check_interval=30)


def _taken(field: bytes, value: bytes, tries: int) -> Taken:
    stamp, space, payload = value.partition(b" ")
    if not space or not stamp.isdigit() or len(stamp) > _STAMP_DIGITS:
        return Taken(field, 0, value, tries)
    return Taken(field, int(stamp), payload, tries)


def guarded(call: Callable[[], Any]) -> Any:
    """Ask the broker; what it or the network raises becomes `Unavailable`, saying what to do."""
    try:
        return call()
    except redis.ConnectionError as error:  # includes TimeoutError of the connection and BusyLoadingError
        raise Unavailable(f"the broker does not answer ({error}): is it running? Start it with `reverie up`") from error
    except redis.TimeoutError as error:
        raise Unavailable(f"the broker did not answer in time ({error})") from error
    except redis.ResponseError as error:
        raise Unavailable(f"the broker refused ({error}): check its memory limit and the space on its disk") from error
