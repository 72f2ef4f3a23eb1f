"""The inbox in the broker: items that were accepted and are not yet committed to the database. The producers' half.

Layout, per workspace `W` (every key begins with the configured prefix):

    inbox:W          hash   field -> "<number> <payload JSON>"   the payloads themselves; signed ones have
                            "#1 <signature> " before the JSON, and "@<µs> " comes first if the number is not the time
    inbox:W:due      zset   field by number
    inbox:W:taken    zset   field by the end of its lease
    inbox:W:holder   string token of the worker that has taken them
    inbox:W:tries    hash   field -> number of times a worker began with it and did not finish
    inbox:W:pause    string set while the store of W cannot be written: nothing is taken
    inbox:W:full     string set while a quota of W is used up, "<quota> <reason>": nothing is accepted
    inbox:W:waiting  hash   field -> "<reply list> <state>;" for each producer that waits, and for a stored row that
                            is not searchable yet "row <kind> <row>" -> the fields by which producers wait for it
    inboxes          set    workspaces whose inbox is not empty, for the recovery sweep
    inboxes:state    hash   "number", the last one given; "items" and "bytes" in all inboxes, "bytes:W" in one;
                              "accepted", how many items ever
    inboxes:limits   hash   how much may wait, by the names of `InboxLimits`; workers write it
    wake:TASK:W      string time at which a task of this name was sent, until it begins: no second one is sent meanwhile

A field names one delivery: the agent, the session (empty for a file), the item's id and, for a message, a hash of what
it says, joined by U+001F. So two sessions may use one id, and a message that is sent again with another content waits
beside the first one instead of being taken for it. Each step is one Lua script, so it happens whole or not at
all; times are the broker's own, the same for all hosts. A number is the time of acceptance in microseconds, except that
it never goes back: it is one more than the last number where the broker's clock is behind. Order and forgetting go by
numbers. An item leaves the inbox only after the database has committed it, so whichever process is killed, the item is
either still in the inbox or already in the database.

With a broker key, payloads are signed. Whoever reaches the broker can put payloads into an inbox, so producers write
`#1 <HMAC-SHA-256> ` before the JSON of a payload, and workers refuse what has no signature of one of their keys. It
covers the workspace, the agent and the id as well, so a payload cannot be moved to another's inbox. Celery's own
signatures (its serializer `auth`) are not used. They need a private key and certificates on each host, cover the body
of a task but not its name, and tasks are not what matters: they carry the name of a workspace, and a forged one only
makes a worker look for work. Payloads, which Celery never sees, are what becomes a memory.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

import msgspec
import redis

from reverie.config import BROKER_KEY
from reverie.contract import INGEST_MESSAGES, TASK_QUEUES, FilePayload, Outcome, Payload, WaitFor, content_hash
from reverie.decoding import describe
from reverie.errors import QUOTA_RETRY_SECONDS, InboxFull, QuotaExceeded
from reverie.pipeline.broker import call_broker
from reverie.pipeline.calls import InboxLimits

# No JSON begins with it. The 1 is the version of this format.
_MARK: Final = b"#1 "
_DIGITS: Final = 64
_PURPOSE: Final = b"reverie.payload.v1"


def sign_payload(key: bytes, workspace: str, field: str, payload: bytes) -> bytes:
    """Return a payload with its signature before it."""
    return _MARK + _mac(key, workspace, field.encode(), payload) + b" " + payload


def split_payload(value: bytes) -> tuple[bytes, bytes]:
    """Return the signature and the payload in a value of the inbox. A missing signature is returned as empty."""
    end = len(_MARK) + _DIGITS
    if value.startswith(_MARK) and value[end : end + 1] == b" ":
        return value[len(_MARK) : end], value[end + 1 :]
    return b"", value


def refusal(keys: Sequence[bytes], workspace: str, field: bytes, signature: bytes, payload: bytes) -> str:
    """Return why a payload is not accepted, an empty text if it is. Without keys every payload is accepted."""
    if not keys:
        return ""
    if not signature:
        return f"it is not signed: give its producer a key of {BROKER_KEY} (REVERIE_BROKER_KEY)"
    if not any(hmac.compare_digest(signature, _mac(key, workspace, field, payload)) for key in keys):
        return f"its signature is wrong: its producer has another {BROKER_KEY}, or it was changed in the broker"
    return ""


def _mac(key: bytes, workspace: str, field: bytes, payload: bytes) -> bytes:
    # Neither a workspace nor a field contains a NUL.
    message = b"\0".join((_PURPOSE, workspace.encode(), field, payload))
    return hmac.new(key, message, hashlib.sha256).hexdigest().encode("ascii")


# Lua: `wall()`, and `next_number(state, wall)`, which does not save the number that it returns: call `save_number`.
# If another program has stored something else there, or a time after the year 5138, it is ignored.
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

# Lua: sets a flag with a lifetime; returns whether it was not set before. A flag with a time in the future was set
# before the clock was set back, and would live too long: it counts as not set.
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


# The lifetime of the flag of a task that was sent. The task removes the flag when it begins, however long its queue
# is. If a task has a flag but is in no queue, a sweep sends it again.
NOTIFICATION_SECONDS: Final = 24 * 3_600
# The flag's lifetime until the sender confirms that it has sent the task: it may have been killed before.
NOTIFYING_SECONDS: Final = 2
# A task takes some 600 bytes in the broker.
_MAX_QUEUED_TASKS: Final = 10_000
# A waiting producer gives up long before this; then the broker expires its reply list and its entry in `waiting`.
REPLY_SECONDS: Final = 900
# Wait for a reply in several calls: redis-py drops a connection that is silent for its socket timeout of 5 s.
_REPLY_TURN_SECONDS: Final = 2.0

_SEPARATOR: Final = "\x1f"

_LIMITED_SCOPES: Final = ("workspace {workspace}", "workspace {workspace}", "all workspaces", "all workspaces")
_UNITS: Final = ("items", "bytes", "items", "bytes")


class InboxField(NamedTuple):
    """The parts of a field: see above. All but `id` are empty when another program has put the field there."""

    agent: str
    session: str
    id: str
    content: str


def inbox_field(payload: Payload) -> str:
    """Return the name of a payload in the inbox: each version of a file has its own, by the time of its delivery."""
    if isinstance(payload, FilePayload):
        session, content = "", str(payload.created_at)
    else:
        session, content = payload.session, content_hash(payload)
    return _SEPARATOR.join((payload.agent, session, payload.id, content))


def parse_inbox_field(field: bytes) -> InboxField:
    """Return the parts of a field."""
    text = field.decode("utf-8", "replace")
    parts = text.split(_SEPARATOR)
    return InboxField(*parts) if len(parts) == len(InboxField._fields) else InboxField("", "", text, "")


class Inbox:
    """The inboxes of one broker, as producers use them. Every method raises `Unavailable` without a broker."""

    def __init__(self, broker: redis.Redis, *, prefix: str, keys: Sequence[bytes] = ()) -> None:
        """`keys` sign payloads (the first) and verify them (all); without any, payloads are not signed."""
        self._broker = broker
        self._prefix = prefix
        self._sign_keys = tuple(keys)
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
        """Put payloads into the inbox in their order; an item with an id that is already there stays unchanged.

        `reply_to` names the list to which outcomes are sent once an item has the state `wait`. `accepted_at` is given
        for items that were accepted before: it is their number. So a session that was forgotten since stays forgotten,
        and neither a quota nor a limit refuses them.

        Return how many were new, and whether the caller must send the ingest task, and then confirm it. Raises
        `QuotaExceeded`, and `InboxFull`; then none of them was accepted.
        """
        reply = f"{self._reply_key(reply_to)} {wait}" if reply_to else ""
        arguments: list[Any] = [workspace, NOTIFYING_SECONDS * 1_000, reply, REPLY_SECONDS, accepted_at]
        arguments += (_MAX_QUEUED_TASKS, *msgspec.structs.astuple(InboxLimits()))
        arguments += (self._limits_key, self._prefix + TASK_QUEUES[INGEST_MESSAGES])
        for payload in payloads:
            field, value = inbox_field(payload), msgspec.json.encode(payload)
            if self._sign_keys:
                value = sign_payload(self._sign_keys[0], workspace, field, value)
            arguments += (field, value)
        keys = [*self._keys(workspace, "", ":due"), self._workspaces_key]
        keys += [self._notification_key(INGEST_MESSAGES, workspace), *self._keys(workspace, ":waiting", ":full")]
        keys.append(self._state_key)
        added, *more = cast("list[Any]", self._run(ACCEPT, keys, arguments))
        if added == -1:
            quota, _, reason = more[0].decode("utf-8", "replace").partition(" ")
            raise QuotaExceeded(reason, field=quota, retry_after_seconds=QUOTA_RETRY_SECONDS)
        if added < 0:
            raise _full(workspace, which=more[0] - 1, used=int(more[1]), limit=int(more[2]))
        return added, bool(more[0])

    def claim_notification(self, task: str, workspace: str) -> bool:
        """Set the notification flag; return whether the caller must send the task, and then confirm it.

        False while one is on its way.
        """
        script = CLOCK + RAISE_FLAG + "return raise_flag(KEYS[1], wall(), ARGV[1]) and 1 or 0"
        return bool(self._run(script, [self._notification_key(task, workspace)], [NOTIFYING_SECONDS * 1_000]))

    def confirm_notification(self, task: str, workspace: str, *, seconds: float = NOTIFICATION_SECONDS) -> None:
        """Keep the notification flag until the task begins, because it was sent; after `seconds` the flag expires."""
        key = self._notification_key(task, workspace)
        call_broker(lambda: self._broker.pexpire(key, int(seconds * 1_000)))

    def wait_reply(self, reply_to: str, timeout_seconds: float) -> list[Outcome]:
        """Wait for the next outcomes on a reply list; return none after the timeout."""
        key = self._reply_key(reply_to)
        deadline = time.monotonic() + timeout_seconds
        while (left := deadline - time.monotonic()) > 0:
            turn = max(0.01, min(left, _REPLY_TURN_SECONDS))
            found = call_broker(partial(self._broker.blpop, [key], timeout=turn))
            if found:
                return _outcomes(found[1])
        return []

    def is_awaited(self, workspace: str, payload: Payload, reply_to: str) -> bool:
        """Return whether the broker knows that somebody waits on this reply list for the outcome of a payload."""
        (key,) = self._keys(workspace, ":waiting")
        field = inbox_field(payload)
        noted = call_broker(lambda: cast("bytes | None", self._broker.hget(key, field)))
        return noted is not None and self._reply_key(reply_to).encode() in noted

    def now_micros(self) -> int:
        """Return the broker's own time, which may be set back."""
        seconds, micros = call_broker(self._broker.time)
        return int(seconds) * 1_000_000 + int(micros)

    def _keys(self, workspace: str, *suffixes: str) -> list[str]:
        return [f"{self._prefix}inbox:{workspace}{suffix}" for suffix in suffixes]

    @property
    def _workspaces_key(self) -> str:
        return self._prefix + "inboxes"

    @property
    def _state_key(self) -> str:
        return self._prefix + "inboxes:state"

    @property
    def _limits_key(self) -> str:
        return self._prefix + "inboxes:limits"

    def _reply_key(self, reply_to: str) -> str:
        return f"{self._prefix}reply:{reply_to}"

    def _notification_key(self, task: str, workspace: str) -> str:
        return f"{self._prefix}wake:{task}:{workspace}"

    def _run(self, source: str, keys: list[str], arguments: list[Any]) -> object:
        script = self._scripts.get(source)
        if script is None:
            script = self._scripts.setdefault(source, self._broker.register_script(source))
        return call_broker(lambda: script(keys=keys, args=arguments))


def _outcomes(raw: bytes | str) -> list[Outcome]:
    describe(list[Outcome])
    try:
        return msgspec.json.decode(raw, type=list[Outcome])
    except (ValueError, RecursionError):  # not from a worker: the producer asks again
        return []


def _full(workspace: str, *, which: int, used: int, limit: int) -> InboxFull:
    whose, unit = _LIMITED_SCOPES[which].format(workspace=workspace), _UNITS[which]
    return InboxFull(
        f"the inbox of {whose} is full, nothing of this call was accepted: {used:,} of at most {limit:,} {unit} wait to"
        " be stored. These are kept. Are the workers running, and can they write? See `reverie status`; then send"
        " again. The limit is the setting inbox_mb"
    )
