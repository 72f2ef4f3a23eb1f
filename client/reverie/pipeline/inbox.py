"""The inbox in the broker: items that were accepted and are not yet committed to the database. The producers' half.

Layout, per workspace `W` (every key begins with the configured prefix):

    inbox:W          hash   field -> "<accepted_at µs> <payload JSON>"     the payloads themselves; signed
                            ones have "#1 <signature> " before the JSON
    inbox:W:due      zset   field by acceptance time
    inbox:W:taken    zset   field by the end of its lease
    inbox:W:tries    hash   field -> number of times a worker took it without finishing
    inbox:W:pause    string set while the store of W cannot be written: nothing is taken
    inbox:W:full     string set while a quota of W is used up, "<quota> <reason>": nothing is accepted
    inbox:W:waiting  hash   field -> "<reply list> <state>;" for each producer that waits
    inboxes          set    workspaces whose inbox is not empty, for the recovery sweep
    wake:TASK:W      string notification flag: set while a task of this name is on its way

A field is the agent and the item id, joined by U+001F. Each step is one Lua script, so it happens whole or not at
all; times are the broker's own, the same for all hosts. An item leaves the inbox only after the database has committed
it, so whichever process is killed, the item is either still in the inbox or already in the database.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec
import redis

from reverie.contract import INGEST_MESSAGES, Outcome, Payload, WaitFor
from reverie.pipeline.broker import call_broker
from reverie.pipeline.payload_signing import sign_payload
from reverie.problems import QUOTA_RETRY_SECONDS, QuotaExceeded

# While this flag lives, no second notification is sent; it expires by itself in case the task was lost.
NOTIFICATION_SECONDS: Final = 10
# A waiting producer gives up long before; the broker then expires its reply list and the note that it waits.
REPLY_SECONDS: Final = 900
# Wait in turns: redis-py drops a connection that is silent for its socket timeout of 5 s.
_REPLY_TURN_SECONDS: Final = 2.0

_SEPARATOR: Final = "\x1f"

_ACCEPT = """
if ARGV[5] == '0' then
  local full = redis.call('GET', KEYS[6])
  if full then return {-1, full} end
end
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
local notify = redis.call('SET', KEYS[4], '1', 'NX', 'PX', ARGV[2])
return {added, notify and 1 or 0}
"""


def inbox_field(agent: str, item_id: str) -> str:
    """Return the name of an item in the inbox, unique per agent."""
    return f"{agent}{_SEPARATOR}{item_id}"


def parse_inbox_field(field: bytes) -> tuple[str, str]:
    """Return the agent and the item id of a field; the agent is empty when the field has another format."""
    agent, _, item_id = field.decode("utf-8", "replace").rpartition(_SEPARATOR)
    return agent, item_id


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

        `reply_to` names the list that outcomes are sent to, from the state `wait` on. `accepted_at` (microseconds) is
        given for items that were accepted before: a session that was forgotten since then stays forgotten, and no quota
        refuses them.

        Return how many were new, and whether the caller must send the ingest task. Raises `QuotaExceeded`.
        """
        arguments: list[Any] = [workspace, NOTIFICATION_SECONDS * 1_000]
        arguments += (f"{self._reply_key(reply_to)} {wait}" if reply_to else "", REPLY_SECONDS, accepted_at)
        for payload in payloads:
            field, value = inbox_field(payload.agent, payload.id), msgspec.json.encode(payload)
            if self._sign_keys:
                value = sign_payload(self._sign_keys[0], workspace, field, value)
            arguments += (field, value)
        keys = [*self._keys(workspace, "", ":due"), self._workspaces_key]
        keys += [self._notification_key(INGEST_MESSAGES, workspace), *self._keys(workspace, ":waiting", ":full")]
        added, more = cast("list[Any]", self._run(_ACCEPT, keys, arguments))
        if added < 0:
            quota, _, reason = more.decode().partition(" ")
            raise QuotaExceeded(reason, field=quota, retry_after_seconds=QUOTA_RETRY_SECONDS)
        return added, bool(more)

    def wait_reply(self, reply_to: str, timeout_seconds: float) -> list[Outcome]:
        """Wait for the next outcomes on a reply list; return none after the timeout."""
        key = self._reply_key(reply_to)
        deadline = time.monotonic() + timeout_seconds
        while (left := deadline - time.monotonic()) > 0:
            turn = max(0.01, min(left, _REPLY_TURN_SECONDS))
            found = call_broker(partial(self._broker.blpop, [key], timeout=turn))
            if found:
                return msgspec.json.decode(found[1], type=list[Outcome])
        return []

    def now_micros(self) -> int:
        """Return the broker's own time, which is the acceptance time of items."""
        seconds, micros = call_broker(self._broker.time)
        return int(seconds) * 1_000_000 + int(micros)

    def _keys(self, workspace: str, *suffixes: str) -> list[str]:
        return [f"{self._prefix}inbox:{workspace}{suffix}" for suffix in suffixes]

    @property
    def _workspaces_key(self) -> str:
        return self._prefix + "inboxes"

    def _reply_key(self, reply_to: str) -> str:
        return f"{self._prefix}reply:{reply_to}"

    def _notification_key(self, task: str, workspace: str) -> str:
        return f"{self._prefix}wake:{task}:{workspace}"

    def _run(self, source: str, keys: list[str], arguments: list[Any]) -> object:
        script = self._scripts.get(source)
        if script is None:
            script = self._scripts.setdefault(source, self._broker.register_script(source))
        return call_broker(lambda: script(keys=keys, args=arguments))
