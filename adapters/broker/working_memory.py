"""Working memory: the newest messages of a session, cached in the broker and read without using the database.

It is only a cache of the store. A list exists only while it is known to be complete; in case of doubt it is dropped,
and the next reader fills it from the store. An epoch, the time when the list was last dropped, keeps slow readers and
writers from restoring forgotten messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec
import redis

from reverie.pipeline.broker import call_broker
from reverie.sessions.types import Message
from reverie.sessions.working import read_working, working_epoch_key, working_key, working_patterns

# A session without new messages for an hour is read from the store again.
KEEP_SECONDS: Final = 3_600
_EPOCH_SECONDS: Final = 2 * KEEP_SECONDS

_APPEND = """
local function sort_key(message)
  local decoded = cjson.decode(message)
  local at = string.gsub(decoded.created_at, 'Z$', '')
  if not string.find(at, '.', 1, true) then at = at .. '.000000' end
  return at .. ' ' .. decoded.id
end
local appended = 0
for i = 1, #KEYS, 2 do
  local list, argument = KEYS[i], i + 2
  local newest = redis.call('LINDEX', list, -1)
  if newest then
    local last = sort_key(newest)
    local certain = tonumber(redis.call('GET', KEYS[i + 1]) or '0') < tonumber(ARGV[argument])
    for _, message in ipairs(cjson.decode(ARGV[argument + 1])) do
      local key = sort_key(message)
      if key <= last then certain = false end
      last = key
      redis.call('RPUSH', list, message)
    end
    if certain then
      redis.call('LTRIM', list, -tonumber(ARGV[1]), -1)
      redis.call('EXPIRE', list, ARGV[2])
      appended = appended + 1
    else
      redis.call('DEL', list)
    end
  end
end
return appended
"""
_FILL = """
if (redis.call('GET', KEYS[2]) or '0') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
for i = 3, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
"""
_DROP = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for i = 1, #KEYS, 2 do
  redis.call('DEL', KEYS[i])
  local before = tonumber(redis.call('GET', KEYS[i + 1]) or '0')
  redis.call('SET', KEYS[i + 1], string.format('%.0f', math.max(now, before + 1)), 'EX', ARGV[1])
end
return #KEYS / 2
"""


class WorkingMemory:
    """The newest messages of each session of one broker. Every method raises `Unavailable` without a broker."""

    def __init__(self, broker: redis.Redis, *, prefix: str, capacity: int = 50) -> None:
        self._broker = broker
        self._prefix = prefix
        self.capacity = capacity

    def read(self, workspace: str, agent: str, session: str) -> list[Message] | None:
        """Return the messages, oldest first, or None if they must be read from the store."""
        return read_working(self._broker, prefix=self._prefix, workspace=workspace, agent=agent, session=session)

    def epoch(self, workspace: str, agent: str, session: str) -> str:
        """Return the epoch of a session: read it before the store, and pass it to `fill`."""
        found = call_broker(lambda: cast("bytes | None", self._broker.get(self._epoch_key(workspace, agent, session))))
        return found.decode() if found else "0"

    def fill(self, workspace: str, agent: str, session: str, messages: Sequence[Message], *, epoch: str) -> None:
        """Cache messages read from the store, unless the session has changed since `epoch` was read."""
        if messages:
            keys = [self._key(workspace, agent, session), self._epoch_key(workspace, agent, session)]
            newest = [msgspec.json.encode(message) for message in messages[-self.capacity :]]
            call_broker(lambda: self._broker.eval(_FILL, len(keys), *keys, epoch, str(KEEP_SECONDS), *newest))

    def append(
        self,
        workspace: str,
        messages_by_session: Mapping[tuple[str, str], Sequence[Message]],
        *,
        accepted_at: Mapping[tuple[str, str], int],
    ) -> None:
        """Append newly stored messages, by (agent, session), to the existing lists.

        A list is dropped instead if it would differ from the store: a message is late or repeated, or was accepted
        (`accepted_at`, of the oldest message of each session) before the list was last dropped.
        """
        if messages_by_session:
            keys = self._both_keys(workspace, list(messages_by_session))
            arguments: list[Any] = [str(self.capacity), str(KEEP_SECONDS)]
            for session, messages in messages_by_session.items():
                arguments += (str(accepted_at[session]), _texts(messages[-self.capacity :]))
            call_broker(lambda: self._broker.eval(_APPEND, len(keys), *keys, *arguments))

    def drop(self, workspace: str, sessions: Sequence[tuple[str, str]]) -> None:
        """Drop the lists of these sessions, and invalidate pending fills."""
        if sessions:
            keys = self._both_keys(workspace, sessions)
            call_broker(lambda: self._broker.eval(_DROP, len(keys), *keys, str(_EPOCH_SECONDS)))

    def drop_workspace(self, workspace: str) -> None:
        """Drop all lists of a workspace."""
        for pattern in working_patterns(self._prefix, workspace):
            keys = call_broker(lambda: list(self._broker.scan_iter(match=pattern, count=500)))  # noqa: B023 - called immediately
            for start in range(0, len(keys), 500):
                call_broker(partial(self._broker.delete, *keys[start : start + 500]))

    def _both_keys(self, workspace: str, sessions: Sequence[tuple[str, str]]) -> list[str]:
        return [
            key
            for agent, session in sessions
            for key in (self._key(workspace, agent, session), self._epoch_key(workspace, agent, session))
        ]

    def _key(self, workspace: str, agent: str, session: str) -> str:
        return working_key(self._prefix, workspace, agent, session)

    def _epoch_key(self, workspace: str, agent: str, session: str) -> str:
        return working_epoch_key(self._prefix, workspace, agent, session)


def _texts(messages: Sequence[Message]) -> bytes:
    return msgspec.json.encode([msgspec.json.encode(message).decode() for message in messages])
