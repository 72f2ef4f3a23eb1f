"""Erasures in the account's database: what is to be erased, how far the job has come, and its receipt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from storage.engines import StoreDatabase
from storage.rows import execute, read_row, read_rows, select_list

ErasureKind = Literal["message", "memory", "session", "user", "agent", "workspace"]
# What a tombstone may name: a file is no erasure of its own, but may have been deleted.
SubjectKind = ErasureKind | Literal["file"]


@dataclass(frozen=True, slots=True)
class ErasureRecord:
    """One erasure. `target` is the id of what is erased, None at the end and for whole agents and workspaces.

    `agent` and `workspace` limit it, None is all. Rows stored after `cutoff` stay. Times are microseconds.
    """

    id: str
    kind: ErasureKind
    target: str | None
    target_hash: str
    agent: str | None
    workspace: str | None
    requested_by: str
    requested_at: int
    cutoff: int | None
    step: str
    position: str
    rounds: int
    counts: dict[str, Any]
    error: str
    receipt: dict[str, Any] | None
    finished_at: int | None


_SELECT: Final = f"SELECT {select_list(ErasureRecord)} FROM erasures"


class Erasures:
    """The erasures of a data folder. Each method is a transaction of its own."""

    def __init__(self, account: StoreDatabase) -> None:
        self._account = account

    def add(self, erasure: ErasureRecord) -> None:
        """Store a new erasure."""
        with self._account.atomic() as connection:
            execute(
                connection,
                "INSERT INTO erasures (id, kind, target, target_hash, agent_id, workspace, requested_by, requested_at,"
                " step) VALUES (:id, :kind, :target, :hash, :agent, :workspace, :by, :at, :step)",
                id=erasure.id,
                kind=erasure.kind,
                target=erasure.target,
                hash=erasure.target_hash,
                agent=erasure.agent,
                workspace=erasure.workspace,
                by=erasure.requested_by,
                at=erasure.requested_at,
                step=erasure.step,
            )

    def find(self, erasure_id: str) -> ErasureRecord | None:
        """Return an erasure, or None."""
        with self._account.reading() as connection:
            return read_row(execute(connection, f"{_SELECT} WHERE id = :id", id=erasure_id), ErasureRecord)

    def page(self, *, limit: int, offset: int = 0) -> list[ErasureRecord]:
        """Return erasures, the newest first."""
        sql = f"{_SELECT} ORDER BY requested_at DESC, id DESC LIMIT :limit OFFSET :offset"
        with self._account.reading() as connection:
            return read_rows(execute(connection, sql, limit=limit, offset=offset), ErasureRecord)

    def unfinished(self) -> list[ErasureRecord]:
        """Return the erasures that have not finished, the oldest first."""
        sql = f"{_SELECT} WHERE finished_at IS NULL ORDER BY requested_at, id"
        with self._account.reading() as connection:
            return read_rows(execute(connection, sql), ErasureRecord)

    def advance(self, erasure_id: str, *, step: str, position: str = "", rounds: int | None = None) -> None:
        """Note the step in which an erasure is, and its position in it."""
        with self._account.atomic() as connection:
            execute(
                connection,
                "UPDATE erasures SET step = :step, position = :position, rounds = coalesce(:rounds, rounds),"
                " error = '' WHERE id = :id",
                id=erasure_id,
                step=step,
                position=position,
                rounds=rounds,
            )

    def set_cutoff(self, erasure_id: str, cutoff: int) -> None:
        """Set the time up to which rows are erased, once: an erasure that continues keeps it."""
        with self._account.atomic() as connection:
            sql = "UPDATE erasures SET cutoff = coalesce(cutoff, :cutoff) WHERE id = :id"
            execute(connection, sql, id=erasure_id, cutoff=cutoff)

    def forget_target(self, erasure_id: str) -> None:
        """Delete the id of what is erased: from now on only its keyed hash is known."""
        with self._account.atomic() as connection:
            execute(connection, "UPDATE erasures SET target = NULL WHERE id = :id", id=erasure_id)

    def rename_requester(self, name: str, to: str) -> None:
        """Have erasures that a token asked for name it otherwise."""
        with self._account.atomic() as connection:
            sql = "UPDATE erasures SET requested_by = :to WHERE requested_by = :name"
            execute(connection, sql, name=name, to=to)

    def set_error(self, erasure_id: str, error: str) -> None:
        """Note why the step could not be completed; it is tried again."""
        with self._account.atomic() as connection:
            execute(connection, "UPDATE erasures SET error = :error WHERE id = :id", id=erasure_id, error=error)

    def count(self, erasure_id: str, place: str, counts: Mapping[str, int]) -> None:
        """Add to the numbers of what was removed from a place."""
        added = {name: number for name, number in counts.items() if number}
        if not added:
            return
        with self._account.atomic() as connection:
            found = execute(connection, "SELECT counts FROM erasures WHERE id = :id", id=erasure_id).scalar()
            total = json.loads(found or "{}")
            of_place = total.setdefault(place, {})
            for name, number in added.items():
                of_place[name] = of_place.get(name, 0) + number
            execute(connection, "UPDATE erasures SET counts = :counts WHERE id = :id", id=erasure_id, counts=total)

    def finish(self, erasure_id: str, *, receipt: Mapping[str, Any], now: int) -> None:
        """Store the receipt, and delete what named or described the content: its id and the fragments."""
        with self._account.atomic() as connection:
            execute(connection, "DELETE FROM erasure_fragments WHERE erasure_id = :id", id=erasure_id)
            execute(
                connection,
                "UPDATE erasures SET receipt = :receipt, finished_at = :now, target = NULL, step = 'done',"
                " position = '', error = '' WHERE id = :id",
                id=erasure_id,
                receipt=receipt,
                now=now,
            )

    def remove_before(self, before: int) -> int:
        """Delete the receipts of erasures that were finished before a time (microseconds); returns how many."""
        with self._account.atomic() as connection:
            return execute(connection, "DELETE FROM erasures WHERE finished_at < :before", before=before).rowcount

    def add_fragments(self, erasure_id: str, fragments: Mapping[str, bytes]) -> None:
        """Keep hashes of parts of what is about to be removed, by kind."""
        with self._account.atomic() as connection:
            for kind, hashes in fragments.items():
                if hashes:
                    execute(
                        connection,
                        "INSERT INTO erasure_fragments (erasure_id, kind, hashes) VALUES (:id, :kind, :hashes)",
                        id=erasure_id,
                        kind=kind,
                        hashes=hashes,
                    )

    def fragments(self, erasure_id: str) -> Iterator[tuple[str, bytes]]:
        """Return the hashes that were kept, each batch with its kind."""
        sql = "SELECT kind, hashes FROM erasure_fragments WHERE erasure_id = :id ORDER BY seq"
        with self._account.reading() as connection:
            rows = execute(connection, sql, id=erasure_id).all()
        return ((str(row[0]), bytes(row[1])) for row in rows)
