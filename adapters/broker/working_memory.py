"""Working memory: the newest messages of a session, cached in the broker and read without using the database.

It is only a cache of the store. A list exists only while it is known to be complete; in case of doubt it is dropped,
and the next reader fills it from the store. An epoch, which changes whenever the list is dropped and whenever messages
are stored for which there is no list, keeps slow readers and writers from restoring forgotten messages, and from
leaving out new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

import msgspec
import redis

from reverie.clock import new_id
from reverie.pipeline.broker import call_broker
from reverie.pipeline.inbox import CLOCK
from reverie.sessions.types import Message
from reverie.sessions.working import read_working, working_epoch_key, working_key, working_patterns

# A session without new messages for an hour is read from the store again.
KEEP_SECONDS: Final = 3_600
_EPOCH_SECONDS: Final = 2 * KEEP_SECONDS
# Reading the store takes milliseconds. A reader that takes longer, because its process was stopped, does not fill the
# list.
_FILL_SECONDS: Final = 60
# How long a change is remembered if there is no list: until every reader that may fill in an older state has given up.
_CHANGE_SECONDS: Final = 2 * _FILL_SECONDS

# An epoch is "<number> <token>": the number that the broker would have given to an item when the list was last dropped,
# and a token that changes with the list's content in the store. Messages accepted before the number are not appended;
# messages read from the store before the token changed are not filled in. Lua: `since` is the number in an epoch,
# `renewed` the epoch with another token.
_EPOCH: Final = """
local function since(epoch)
  return tonumber(string.match(epoch or '', '^(%d+)') or '0')
end
local function renewed(epoch, token)
  return (string.match(epoch or '', '^(%d+)') or '0') .. ' ' .. token
end
"""

_APPEND: Final = (
    _EPOCH
    + """
local function sort_key(message)
  local decoded = cjson.decode(message)
  local at = string.gsub(decoded.created_at, 'Z$', '')
  if not string.find(at, '.', 1, true) then at = at .. '.000000' end
  return at .. ' ' .. decoded.id
end
local appended = 0
for i = 1, #KEYS, 2 do
  local list, argument = KEYS[i], i + 4
  local epoch = redis.call('GET', KEYS[i + 1])
  local newest = redis.call('LINDEX', list, -1)
  local certain = newest and since(epoch) < tonumber(ARGV[argument])
  if certain then
    local last = sort_key(newest)
    for _, message in ipairs(cjson.decode(ARGV[argument + 1])) do
      local key = sort_key(message)
      if key <= last then certain = false end
      last = key
      redis.call('RPUSH', list, message)
    end
  end
  if certain then
    redis.call('LTRIM', list, -tonumber(ARGV[1]), -1)
    redis.call('EXPIRE', list, ARGV[2])
    appended = appended + 1
  else
    -- Somebody may have read the store before these messages were in it, and be about to fill the list.
    redis.call('DEL', list)
    if epoch then
      redis.call('SET', KEYS[i + 1], renewed(epoch, ARGV[3]), 'KEEPTTL')
    else
      redis.call('SET', KEYS[i + 1], renewed(epoch, ARGV[3]), 'EX', ARGV[4])
    end
  end
end
return appended
"""
)
_CURRENT: Final = "local current = (redis.call('GET', KEYS[1]) or '0') .. '|' .. (redis.call('GET', KEYS[2]) or '')\n"
_READ_EPOCH: Final = _CURRENT + "return {current, redis.call('TIME')[1]}"
_FILL: Final = (
    _CURRENT
    + """
if current ~= ARGV[1] then return 0 end
local took = redis.call('TIME')[1] - ARGV[3]
if took < 0 or took > tonumber(ARGV[4]) then return 0 end
-- A list that is there is complete, and may have got messages since that the reader did not see.
if redis.call('EXISTS', KEYS[3]) == 1 then return 0 end
for i = 5, #ARGV do redis.call('RPUSH', KEYS[3], ARGV[i]) end
redis.call('EXPIRE', KEYS[3], ARGV[2])
return 1
"""
)
# Dropping frees memory: it begins with a write that needs none, after which nothing is refused for want of it.
_DROP: Final = (
    CLOCK
    + """
redis.call('PERSIST', KEYS[1])
local number = next_number(KEYS[1], wall())
save_number(KEYS[1], number)
for i = 2, #KEYS, 2 do
  redis.call('DEL', KEYS[i])
  redis.call('SET', KEYS[i + 1], string.format('%.0f ', number) .. ARGV[2], 'EX', ARGV[1])
end
return #KEYS - 1
"""
)


class Epoch(NamedTuple):
    """The state of a list at a time of the broker, in seconds."""

    text: bytes
    read_at_seconds: int


class WorkingMemory:
    """The newest messages of each session of one broker. Every method raises `Unavailable` without a broker."""

    def __init__(self, broker: redis.Redis, *, prefix: str, capacity: int = 50) -> None:
        self._broker = broker
        self._prefix = prefix
        self.capacity = capacity

    def read(self, workspace: str, agent: str, session: str, *, user: str | None = None) -> list[Message] | None:
        """Return the messages, oldest first, or None if they, or whether `user` may see them, must be read from the
        store."""
        return read_working(
            self._broker, prefix=self._prefix, workspace=workspace, agent=agent, session=session, user=user
        )

    def epoch(self, workspace: str, agent: str, session: str) -> Epoch:
        """Return the epoch of a session: read it before the store, and pass it to `fill`."""
        keys = self._epoch_keys(workspace, agent, session)
        text, seconds = call_broker(lambda: cast("tuple[bytes, bytes]", self._broker.eval(_READ_EPOCH, 2, *keys)))
        return Epoch(text, int(seconds))

    def fill(self, workspace: str, agent: str, session: str, messages: Sequence[Message], *, epoch: Epoch) -> None:
        """Cache messages read from the store, unless the session has changed since `epoch` was read."""
        if messages:
            keys = [*self._epoch_keys(workspace, agent, session), self._key(workspace, agent, session)]
            newest = [msgspec.json.encode(message) for message in messages[-self.capacity :]]
            settings: list[Any] = [epoch.text, KEEP_SECONDS, epoch.read_at_seconds, _FILL_SECONDS]
            call_broker(lambda: self._broker.eval(_FILL, len(keys), *keys, *settings, *newest))

    def append(
        self,
        workspace: str,
        messages_by_session: Mapping[tuple[str, str], Sequence[Message]],
        *,
        accepted_at: Mapping[tuple[str, str], int],
    ) -> None:
        """Append newly stored messages, by (agent, session), to the existing lists.

        A list is dropped instead if it would differ from the store: a message is late or repeated, or was accepted
        (`accepted_at`, the number of the oldest message of each session) before the list was last dropped. Where there
        is none, a reader that read the store before this cannot fill it any more.
        """
        if messages_by_session:
            keys = self._both_keys(workspace, list(messages_by_session))
            arguments: list[Any] = [str(self.capacity), str(KEEP_SECONDS), new_id(), str(_CHANGE_SECONDS)]
            for session, messages in messages_by_session.items():
                arguments += (str(accepted_at[session]), _texts(messages[-self.capacity :]))
            call_broker(lambda: self._broker.eval(_APPEND, len(keys), *keys, *arguments))

    def drop(self, workspace: str, sessions: Sequence[tuple[str, str]]) -> None:
        """Drop the lists of these sessions, and invalidate pending fills."""
        if sessions:
            keys = [f"{self._prefix}inboxes:state", *self._both_keys(workspace, sessions)]
            call_broker(lambda: self._broker.eval(_DROP, len(keys), *keys, str(_EPOCH_SECONDS), new_id()))

    def drop_workspace(self, workspace: str) -> None:
        """Drop all lists of a workspace, and invalidate pending fills."""
        for pattern in working_patterns(self._prefix, workspace):
            keys = call_broker(lambda: list(self._broker.scan_iter(match=pattern, count=500)))  # noqa: B023 - called immediately
            for start in range(0, len(keys), 500):
                call_broker(partial(self._broker.delete, *keys[start : start + 500]))
        call_broker(lambda: self._broker.set(self._shared_epoch_key, new_id(), ex=_CHANGE_SECONDS))

    def _both_keys(self, workspace: str, sessions: Sequence[tuple[str, str]]) -> list[str]:
        return [
            key
            for agent, session in sessions
            for key in (self._key(workspace, agent, session), self._epoch_key(workspace, agent, session))
        ]

    def _epoch_keys(self, workspace: str, agent: str, session: str) -> list[str]:
        """Return the keys of a session's epoch, and of the one that changes with every workspace that is dropped."""
        return [self._epoch_key(workspace, agent, session), self._shared_epoch_key]

    @property
    def _shared_epoch_key(self) -> str:
        return self._prefix + "working-epoch"

    def _key(self, workspace: str, agent: str, session: str) -> str:
        return working_key(self._prefix, workspace, agent, session)

    def _epoch_key(self, workspace: str, agent: str, session: str) -> str:
        return working_epoch_key(self._prefix, workspace, agent, session)


def _texts(messages: Sequence[Message]) -> bytes:
    return msgspec.json.encode([msgspec.json.encode(message).decode() for message in messages])
