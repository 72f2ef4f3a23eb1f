"""The recall log: the results of recalls, kept in the broker until they are in the database.

Layout, per workspace `W` (every key begins with the configured prefix):

    recalls:W   stream   one entry per recall, with the JSON of a `RecallNote` in its field `e`
    recalls     set      workspaces whose stream is not empty, for the sweep

It is a stream because its entries have ids: a worker removes entries by id, so it never removes one that it has not
written, even if a second worker or the length limit has removed others. An entry is removed only after the database has
committed it; a second delivery is recognised by the id of the recall.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple, cast

import msgspec
import redis

from adapters.broker.inbox import names_in
from reverie.pipeline.broker import call_broker

# A query may be as long as a message; its beginning is what matters.
QUERY_CHARACTERS: Final = 500
# Maximum number of recalls per workspace while no worker runs, about 20 MB with five results each.
KEEP_RECALLS: Final = 50_000
# Lifetime of an empty stream, which remembers its last id, so that no id is used twice.
_KEEP_EMPTY_SECONDS: Final = 3_600

_APPEND: Final = """
for i = 3, #ARGV do redis.call('XADD', KEYS[1], '*', 'e', ARGV[i]) end
local dropped = redis.call('XTRIM', KEYS[1], 'MAXLEN', ARGV[2])
redis.call('PERSIST', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
return dropped
"""
_REMOVE: Final = """
for i = 3, #ARGV do redis.call('XDEL', KEYS[1], ARGV[i]) end
local left = redis.call('XLEN', KEYS[1])
if left == 0 then
  redis.call('SREM', KEYS[2], ARGV[1])
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
return left
"""

_ChunkId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
# Up to the year 5138; more digits are not a time in microseconds.
_Micros = Annotated[int, msgspec.Meta(ge=0, lt=10**17)]


class RecallNote(msgspec.Struct, frozen=True, kw_only=True):
    """One recall of a user with results: `hits` are chunk ids and scores, best first; `at` is in microseconds."""

    agent: str
    recall: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    query: Annotated[str, msgspec.Meta(max_length=QUERY_CHARACTERS)]
    at: _Micros
    hits: list[tuple[_ChunkId, float]]
    user: str | None = None


class LogEntry(NamedTuple):
    """One entry of the log; `note` is None if it cannot be decoded."""

    id: bytes
    note: RecallNote | None


class RecallLog:
    """The recall logs of one broker. Every method raises `Unavailable` when the broker does not answer."""

    def __init__(self, broker: redis.Redis, *, prefix: str, keep_recalls: int = KEEP_RECALLS) -> None:
        self._broker = broker
        self._prefix = prefix
        self._keep_recalls = keep_recalls

    def append(self, workspace: str, notes: Sequence[bytes]) -> int:
        """Append encoded notes; return how many of the oldest were dropped by the length limit."""
        return int(self._run(_APPEND, workspace, self._keep_recalls, notes))

    def read(self, workspace: str, *, limit: int) -> list[LogEntry]:
        """Return the oldest entries without removing them: call `remove` after the database has committed them."""
        key = self._key(workspace)
        found = call_broker(lambda: cast("list[Any]", self._broker.xrange(key, count=limit)))
        return [LogEntry(entry_id, _note(fields.get(b"e", b""))) for entry_id, fields in found]

    def remove(self, workspace: str, entry_ids: Sequence[bytes]) -> int:
        """Remove entries for good; return how many remain."""
        return int(self._run(_REMOVE, workspace, _KEEP_EMPTY_SECONDS, entry_ids))

    def workspaces(self) -> list[str]:
        """Return the workspaces whose log is not empty."""
        return names_in(self._broker, self._prefix + "recalls")

    def forget_workspace(self, workspace: str) -> None:
        """Delete the log of a workspace that has been deleted."""
        with self._broker.pipeline(transaction=True) as pipeline:
            pipeline.delete(self._key(workspace))
            pipeline.srem(self._prefix + "recalls", workspace)
            call_broker(pipeline.execute)

    def _run(self, script: str, workspace: str, number: int, values: Sequence[bytes]) -> Any:
        keys = (self._key(workspace), self._prefix + "recalls")
        return call_broker(lambda: self._broker.eval(script, len(keys), *keys, workspace, str(number), *values))

    def _key(self, workspace: str) -> str:
        return f"{self._prefix}recalls:{workspace}"


def _note(raw: bytes) -> RecallNote | None:
    try:
        return msgspec.json.decode(raw, type=RecallNote)
    except (ValueError, RecursionError):  # also for valid JSON of another format
        return None
