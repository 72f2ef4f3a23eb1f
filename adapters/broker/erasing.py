"""Removes what was erased from the broker: from inboxes, the recall log, cached lists and queues, and from its file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, cast

import redis

from adapters.broker.inbox import Taken, WorkerInbox, parse_taken
from adapters.broker.inbox_scripts import REMOVE_WAITING
from reverie.errors import Unavailable
from reverie.pipeline.broker import call_broker

# Takes the place of an answer that is kept for repeated requests: they must not be carried out again.
FORGOTTEN_ANSWER: Final = b""

_PAGE: Final = 500
_REWRITE_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.05

_OLDEST: Final = """
local oldest = false
local function look(field)
  local value = redis.call('HGET', KEYS[1], field)
  local stamp = value and tonumber(string.match(value, '^(%d+) ') or '0')
  if stamp and (not oldest or stamp < oldest) then oldest = stamp end
end
for _, field in ipairs(redis.call('ZRANGE', KEYS[2], 0, 0)) do look(field) end
for _, field in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do look(field) end
return oldest and string.format('%.0f', oldest) or false
"""


class BrokerErasure:
    """Removes erased content from one broker. Every method raises `Unavailable` without a broker."""

    def __init__(self, broker: redis.Redis, inbox: WorkerInbox, *, prefix: str, embedded: bool) -> None:
        """Take `embedded` for the broker in the data folder, whose file is rewritten, too."""
        self._broker = broker
        self._inbox = inbox
        self._prefix = prefix
        self.embedded = embedded

    def purge_inbox(self, workspace: str, is_erased: Callable[[Taken], bool]) -> tuple[list[Taken], int]:
        """Remove items that wait in an inbox; return them, and how many such items workers hold at the moment."""
        keys = [f"{self._prefix}inbox:{workspace}{suffix}" for suffix in ("", ":due", ":taken", ":tries")]
        found = [
            taken for field, value in self._hash_items(keys[0]) if is_erased(taken := parse_taken(field, value, 0))
        ]
        removed = 0
        for first in range(0, len(found), _PAGE):
            fields = [taken.field for taken in found[first : first + _PAGE]]
            counts = (f"{self._prefix}inboxes", f"{self._prefix}inboxes:state")
            removed += int(self._run(REMOVE_WAITING, [*keys, *counts], [workspace, *fields]))
        return found, len(found) - removed

    def oldest_accepted(self, workspace: str) -> int | None:
        """Return when the oldest item in an inbox was accepted (microseconds), None for an empty inbox."""
        keys = [f"{self._prefix}inbox:{workspace}{suffix}" for suffix in ("", ":due", ":taken")]
        found = self._run(_OLDEST, keys, [])
        return int(found) if found is not None else None

    def values(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each key of Reverie once for each value under it, with the key, the field and the value joined."""
        for key in self._keys():
            for element, value in self._elements(key):
                yield key, b"\0".join((key, element, value))

    def remove(self, is_erased: Callable[[bytes], bool], *, quotes: Callable[[bytes], bool]) -> Counter[str]:
        """Remove every element of a list, hash, set or stream that holds erased content; return how many.

        Inboxes are left alone: their items were accepted from others, or later, and must not be lost because they have
        the same text. An answer kept for repeated requests is forgotten if `quotes` returns true for it: a repeated
        request is refused then.
        """
        counts: Counter[str] = Counter()
        inboxes, answers = f"{self._prefix}inbox".encode(), f"{self._prefix}answered:".encode()
        for key in self._keys():
            if key.startswith(inboxes):
                continue
            if is_erased(key):
                counts["keys"] += int(call_broker(partial(self._broker.delete, key)))
                continue
            is_answer = key.startswith(answers)
            is_in = quotes if is_answer else is_erased
            for element, value in list(self._elements(key)):
                if is_in(element + b"\0" + value):
                    counts[self._remove_element(key, element, value, is_answer=is_answer)] += 1
        return counts

    def clear_workspace(self, workspace: str) -> None:
        """Remove the answers of a workspace that was deleted, and rewrite the file.

        The workspace's other data in the broker was deleted with it, but stays in the file until it is rewritten.
        """
        self.remove_answers(workspace)
        self.rewrite_file()

    def remove_answers(self, workspace: str) -> None:
        """Remove all answers that are kept for repeated requests to a workspace."""
        pattern = f"{_escaped(f'{self._prefix}answered:{workspace}')}:*"
        for key in call_broker(lambda: list(self._broker.scan_iter(match=pattern, count=_PAGE))):
            call_broker(partial(self._broker.delete, key))

    def rewrite_file(self) -> None:
        """Have the embedded broker write its file anew, without what was deleted, and wait until it has."""
        if not self.embedded:
            return
        # Compressed values could not be searched.
        call_broker(lambda: self._broker.config_set("rdbcompression", "no"))
        deadline = time.monotonic() + _REWRITE_SECONDS
        # A rewrite that began before this call may still write keys that were deleted since.
        while not self._rewrite_begun():
            _pause_before(deadline)
        while self._info("aof_rewrite_in_progress") or self._info("aof_rewrite_scheduled"):
            _pause_before(deadline)
        if self._info("aof_last_bgrewrite_status") != "ok":
            raise Unavailable("the broker could not write its file anew: is its disk full? See logs/broker.log")

    def _rewrite_begun(self) -> bool:
        """Have the broker rewrite its file; return False if a rewrite is already in progress."""
        try:
            call_broker(self._broker.bgrewriteaof)
        except Unavailable as error:
            if "already in progress" not in str(error):
                raise
            return False
        return True

    def _info(self, name: str) -> object:
        info: dict[str, Any] = call_broker(lambda: self._broker.info("persistence"))
        return info.get(name)

    def _kind(self, key: bytes) -> str:
        kind = call_broker(lambda: cast("bytes", self._broker.type(key)))
        return kind.decode()

    def _keys(self) -> list[bytes]:
        pattern = _escaped(self._prefix) + "*"
        keys: list[bytes] = call_broker(lambda: list(self._broker.scan_iter(match=pattern, count=_PAGE)))
        return keys

    def _elements(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        kind = self._kind(key)
        readers: dict[str, Callable[[], Any]] = {
            "string": lambda: [value] if (value := self._broker.get(key)) else [],
            "list": lambda: self._broker.lrange(key, 0, -1),
            "set": lambda: self._broker.smembers(key),
            "zset": lambda: self._broker.zrange(key, 0, -1),
        }
        if kind in readers:
            yield from ((b"", item) for item in call_broker(readers[kind]))
        elif kind == "hash":
            yield from self._hash_items(key)
        elif kind == "stream":
            entries = call_broker(lambda: cast("list[Any]", self._broker.xrange(key)))
            yield from ((entry_id, b"\0".join(fields.values())) for entry_id, fields in entries)

    def _remove_element(self, key: bytes, element: bytes, value: bytes, *, is_answer: bool) -> str:
        kind = self._kind(key)
        removal: Callable[[], Any]
        if is_answer:
            removal = partial(self._broker.set, key, FORGOTTEN_ANSWER, xx=True, keepttl=True)
        elif kind == "stream":
            removal = partial(self._broker.xdel, key, element)
        elif kind == "hash":
            removal = partial(self._broker.hdel, key, element)
        elif kind == "set":
            removal = partial(self._broker.srem, key, value)
        elif kind == "zset":
            removal = partial(self._broker.zrem, key, value)
        elif kind == "list" and b"working:" not in key:
            removal = partial(self._broker.execute_command, "LREM", key, 0, value)
        else:  # a list of a session's messages is complete or not there
            removal = partial(self._broker.delete, key)
        call_broker(removal)
        return kind

    def _hash_items(self, key: bytes | str) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = call_broker(lambda: list(self._broker.hscan_iter(key, count=_PAGE)))
        return found

    def _run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        return call_broker(lambda: self._broker.eval(script, len(keys), *keys, *arguments))


def _pause_before(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise Unavailable("the broker has not written its file anew in time: see logs/broker.log")
    time.sleep(_POLL_SECONDS)


def _escaped(prefix: str) -> str:
    return "".join(f"\\{character}" if character in "*?[]\\" else character for character in prefix)
