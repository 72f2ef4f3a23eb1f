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
    inbox:W:waiting  hash   field -> "<reply list> <state>;" for each producer that waits
    inboxes          set    workspaces whose inbox is not empty, for the recovery sweep
    inboxes:state    hash   "number", the last one given; "items" and "bytes" in all inboxes, "bytes:W" in one;
                              "accepted", how many items ever
    inboxes:limits   hash   how much may wait, by the names of `InboxLimits`; workers write it
    wake:TASK:W      string notification flag: set while a task of this name is on its way

A field is the agent and the item id, joined by U+001F. Each step is one Lua script, so it happens whole or not at
all; times are the broker's own, the same for all hosts. A number is the time of acceptance in microseconds, except that
it never goes back: see `inbox_scripts`. An item leaves the inbox only after the database has committed
it, so whichever process is killed, the item is either still in the inbox or already in the database.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec
import redis

from reverie.contract import INGEST_MESSAGES, TASK_QUEUES, Outcome, Payload, WaitFor
from reverie.pipeline.broker import call_broker
from reverie.pipeline.inbox_limits import InboxLimits
from reverie.pipeline.inbox_scripts import ACCEPT, CLOCK, RAISE_FLAG
from reverie.pipeline.payload_signing import sign_payload
from reverie.problems import QUOTA_RETRY_SECONDS, InboxFull, QuotaExceeded

# While this flag lives, no second notification is sent; it expires by itself in case the task was lost.
NOTIFICATION_SECONDS: Final = 10
# Until the sender has confirmed that the task is on its way, for a sender that was killed or got no answer.
NOTIFYING_SECONDS: Final = 2
# A task takes some 600 bytes in the broker.
_MAX_QUEUED_TASKS: Final = 10_000
# A waiting producer gives up long before; the broker then expires its reply list and the note that it waits.
REPLY_SECONDS: Final = 900
# Wait in turns: redis-py drops a connection that is silent for its socket timeout of 5 s.
_REPLY_TURN_SECONDS: Final = 2.0

_SEPARATOR: Final = "\x1f"

_LIMITS: Final = ("workspace_items", "workspace_bytes", "items", "bytes")
_WHOSE: Final = ("workspace {workspace}", "workspace {workspace}", "all workspaces", "all workspaces")
_UNITS: Final = ("items", "bytes", "items", "bytes")


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

        `reply_to` names the list that outcomes are sent to, from the state `wait` on. `accepted_at` is the number of
        items that were accepted before: a session that was forgotten since then stays forgotten, and neither a quota
        nor a limit refuses them.

        Return how many were new, and whether the caller must send the ingest task, and then confirm it. Raises
        `QuotaExceeded`, and `InboxFull`; then none of them was accepted.
        """
        reply = f"{self._reply_key(reply_to)} {wait}" if reply_to else ""
        arguments: list[Any] = [workspace, NOTIFYING_SECONDS * 1_000, reply, REPLY_SECONDS, accepted_at]
        arguments += (_MAX_QUEUED_TASKS, *msgspec.structs.astuple(InboxLimits()))
        arguments += (self._limits_key, self._prefix + TASK_QUEUES[INGEST_MESSAGES])
        for payload in payloads:
            field, value = inbox_field(payload.agent, payload.id), msgspec.json.encode(payload)
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

    def confirm_notification(self, task: str, workspace: str) -> None:
        """Have the flag live until the task can be expected to have been lost: it was sent."""
        key = self._notification_key(task, workspace)
        call_broker(lambda: self._broker.pexpire(key, NOTIFICATION_SECONDS * 1_000))

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
        field = inbox_field(payload.agent, payload.id)
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
    try:
        return msgspec.json.decode(raw, type=list[Outcome])
    except (ValueError, RecursionError):  # not from a worker: the producer asks again
        return []


def _full(workspace: str, *, which: int, used: int, limit: int) -> InboxFull:
    whose, unit = _WHOSE[which].format(workspace=workspace), _UNITS[which]
    return InboxFull(
        f"the inbox of {whose} is full, nothing of this call was accepted: {used:,} of at most {limit:,} {unit} wait to"
        " be stored. What waits is kept. Are the workers running, and can they write? See `reverie status`; then send"
        f" again. The limit is the setting inbox_{_LIMITS[which].replace('bytes', 'mb')}"
    )
