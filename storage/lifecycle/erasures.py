"""Erasures and forgets in the account's database: what to remove, how far a removal has come, and receipts.

A forget removes a session or a workspace from several places; a sweep finishes one that was interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reverie.clock import CLOCK_TOLERANCE_MICROS
from reverie.trust.calls import ErasureKind
from storage.catalogue import SubjectKind
from storage.repository import AccountRepository
from storage.rows import execute, insert_sql, select_list, to_parameters

# A `before` that is later than all times: every row is erased.
ALL_TIMES: Final = 2**62


@dataclass(frozen=True, slots=True)
class Subject:
    """What is erased in one store: something of a kind with an id, or everything of the agent without one.

    A message has a `session`, too: its id is unique within it.
    `origin` is the workspace that rows of the account must come from, None in a workspace's own store and for all.
    Rows stored after `before` (microseconds) stay.
    """

    kind: SubjectKind
    id: str = ""
    origin: str | None = None
    before: int = ALL_TIMES
    session: str = ""

    @classmethod
    def named(cls, kind: ErasureKind, target: str, origin: str | None, before: int) -> Subject:
        """Return the subject of an erasure. A message's `target` is its name; a workspace means all of its agents."""
        session, name = named_message(target) if kind == "message" else ("", target)
        return cls("agent" if kind == "workspace" else kind, name, origin, before, session)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the conditions on its rows."""
        return {"id": self.id, "session": self.session, "before": self.before, "origin": self.origin}


def message_name(session: str, message_id: str) -> str:
    """Return the name of one message of an agent as a single text, which includes the session."""
    return f"{session}\x1f{message_id}"


def named_message(name: str) -> tuple[str, str]:
    """Return the session and the id of the message with this name."""
    session, _, message_id = name.rpartition("\x1f")
    return session, message_id


def parts_of(kind: ErasureKind, target: str) -> list[tuple[ErasureKind, str]]:
    """Return the kind and target of each part of an erasure: several for a selection, else one."""
    return [(part[0], part[1]) for part in json.loads(target)] if kind == "selection" and target else [(kind, target)]


@dataclass(frozen=True, slots=True)
class ErasureRecord:
    """One erasure. `target` is the id of what is erased, None at the end and for whole agents and workspaces.

    `agent` and `workspace` limit it, None is all. When an agent or workspace was erased, a hash replaces its name. Rows
    stored after `cutoff` stay. `attempts` is how often it has failed since its last step, last with `error`. An erasure
    that is finished without a receipt has failed for good. Times are microseconds.
    """

    id: str
    kind: ErasureKind
    target: str | None
    target_hash: str
    agent: str | None
    workspace: str | None
    requested_by: str
    requested_at: int
    step: str
    cutoff: int | None = None
    rounds: int = 0
    counts: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    receipt: dict[str, Any] | None = None
    finished_at: int | None = None
    attempts: int = 0
    next_try_at: int | None = None


# Under this name, `counts` has how many memories stay in the account, until the receipt lists them.
KEPT_IN_ACCOUNT: Final = "kept in @account"
_SELECT: Final = f"SELECT {select_list(ErasureRecord)} FROM erasures"
_INSERT: Final = insert_sql("erasures", ErasureRecord)


class Erasures(AccountRepository):
    """The erasures of a data folder. Each method is a transaction of its own."""

    def add(self, erasure: ErasureRecord) -> None:
        """Store a new erasure."""
        self._execute(_INSERT, **to_parameters(erasure))

    def find(self, erasure_id: str) -> ErasureRecord | None:
        """Return an erasure, or None."""
        return self._record(ErasureRecord, f"{_SELECT} WHERE id = :id", id=erasure_id)

    def page(self, *, limit: int, offset: int = 0) -> list[ErasureRecord]:
        """Return erasures, the newest first."""
        sql = f"{_SELECT} ORDER BY requested_at DESC, id DESC LIMIT :limit OFFSET :offset"
        return self._records(ErasureRecord, sql, limit=limit, offset=offset)

    def hashes_since(self, at: int) -> dict[str, int]:
        """Return by hash of the target up to when each erasure reaches that covers a time (microseconds).

        Finished ones are included: what a server or a worker still has in hand must not be stored after them.
        """
        with self._account.reading() as connection:
            sql = "SELECT target_hash, coalesce(cutoff, :all) FROM erasures WHERE coalesce(cutoff, :all) >= :at"
            return {str(row[0]): int(row[1]) for row in execute(connection, sql, at=at, all=ALL_TIMES)}

    def unfinished(self) -> list[ErasureRecord]:
        """Return the erasures that have not finished, the oldest first."""
        sql = f"{_SELECT} WHERE finished_at IS NULL ORDER BY requested_at, id"
        return self._records(ErasureRecord, sql)

    def advance(self, erasure_id: str, *, step: str, rounds: int | None = None) -> None:
        """Note the step in which an erasure is."""
        self._execute(
            "UPDATE erasures SET step = :step, rounds = coalesce(:rounds, rounds),"
            " error = '', attempts = 0, next_try_at = NULL WHERE id = :id",
            id=erasure_id,
            step=step,
            rounds=rounds,
        )

    def set_cutoff(self, erasure_id: str, cutoff: int) -> None:
        """Set the time up to which rows are erased, once: an erasure that continues keeps it."""
        sql = "UPDATE erasures SET cutoff = coalesce(cutoff, :cutoff) WHERE id = :id"
        self._execute(sql, id=erasure_id, cutoff=cutoff)

    def forget_target(self, erasure_id: str) -> None:
        """Delete the id of the target: from now on only its keyed hash is known."""
        self._execute("UPDATE erasures SET target = NULL WHERE id = :id", id=erasure_id)

    def rename_requester(self, name: str, to: str) -> None:
        """Change the name of the token in the erasures that it asked for."""
        sql = "UPDATE erasures SET requested_by = :to WHERE requested_by = :name"
        self._execute(sql, name=name, to=to)

    def fail(self, erasure_id: str, error: str, *, next_try_at: int | None) -> None:
        """Note why the step could not be completed, and when it is tried again: None for the next run of the job."""
        sql = "UPDATE erasures SET error = :error, attempts = attempts + 1, next_try_at = :at WHERE id = :id"
        self._execute(sql, id=erasure_id, error=error, at=next_try_at)

    def give_up(self, erasure_id: str, error: str, *, now: int) -> None:
        """End an erasure that cannot be carried out as it was asked for, without a receipt."""
        with self._account.atomic() as connection:
            execute(connection, "DELETE FROM erasure_fragments WHERE erasure_id = :id", id=erasure_id)
            execute(
                connection,
                "UPDATE erasures SET error = :error, attempts = attempts + 1, next_try_at = NULL, finished_at = :now,"
                " target = NULL WHERE id = :id",
                id=erasure_id,
                error=error,
                now=now,
            )

    def count(self, erasure_id: str, place: str, counts: Mapping[str, int], *, anew: bool = False) -> None:
        """Add to the numbers of rows removed from a place, or replace them if `anew`."""
        added = {name: number for name, number in counts.items() if number}
        if not added:
            return
        with self._account.atomic() as connection:
            found = execute(connection, "SELECT counts FROM erasures WHERE id = :id", id=erasure_id).scalar()
            total = json.loads(found or "{}")
            of_place = total[place] = {} if anew else total.get(place, {})
            for name, number in added.items():
                of_place[name] = of_place.get(name, 0) + number
            execute(connection, "UPDATE erasures SET counts = :counts WHERE id = :id", id=erasure_id, counts=total)

    def finish(self, erasure_id: str, *, receipt: Mapping[str, Any], name: str, now: int) -> None:
        """Store the receipt, and delete what named or described the content: its id and the fragments.

        `name` takes the place of the name of a whole agent or workspace.
        """
        with self._account.atomic() as connection:
            execute(connection, "DELETE FROM erasure_fragments WHERE erasure_id = :id", id=erasure_id)
            execute(
                connection,
                "UPDATE erasures SET receipt = :receipt, finished_at = :now, target = NULL, step = 'done',"
                " error = '', counts = :counts, agent_id = iif(kind = 'agent', :name, agent_id),"
                " workspace = iif(kind = 'workspace', :name, workspace) WHERE id = :id",
                id=erasure_id,
                receipt=receipt,
                counts=receipt.get("removed", {}),
                name=name,
                now=now,
            )

    def remove_before(self, before: int) -> int:
        """Delete the receipts of erasures that were finished before a time (microseconds); returns how many."""
        return self._execute("DELETE FROM erasures WHERE finished_at < :before", before=before)

    def add_fragments(self, erasure_id: str, fragments: Mapping[str, bytes]) -> None:
        """Keep hashes, by kind, of fragments of the rows that are about to be removed."""
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
        """Return the stored hashes in batches, each with its kind."""
        sql = "SELECT kind, hashes FROM erasure_fragments WHERE erasure_id = :id ORDER BY seq"
        with self._account.reading() as connection:
            rows = execute(connection, sql, id=erasure_id).all()
        return ((str(row[0]), bytes(row[1])) for row in rows)


@dataclass(frozen=True, slots=True)
class ForgetRecord:
    """A session, or with an empty `agent` and `session` a workspace, that is being forgotten.

    `incarnation` distinguishes it from a later one of the same name, which stays: the file of a workspace, the ref code
    of a session, empty if there was none. `forgotten_at` is the mark up to which items are kept out; `requested_at` is
    in microseconds.
    """

    id: int
    workspace: str
    agent: str
    session: str
    incarnation: str
    forgotten_at: int
    requested_at: int


_SELECT_FORGETS: Final = f"SELECT {select_list(ForgetRecord, incarnation='file')} FROM forgets"


class Forgets(AccountRepository):
    """The forgets in progress. Each method is a transaction of its own."""

    def begin(
        self,
        *,
        workspace: str,
        agent: str = "",
        session: str = "",
        incarnation: str = "",
        forgotten_at: int = 0,
        now: int,
    ) -> ForgetRecord:
        """Note that something is about to be forgotten; return the note. `now` is in microseconds."""
        with self._account.atomic() as connection:
            added = execute(
                connection,
                "INSERT INTO forgets (workspace, agent_id, session_id, file, forgotten_at, requested_at)"
                " VALUES (:workspace, :agent, :session, :incarnation, :forgotten_at, :now) RETURNING id",
                workspace=workspace,
                agent=agent,
                session=session,
                incarnation=incarnation,
                forgotten_at=forgotten_at,
                now=now,
            )
            noted = int(added.scalar_one())
        return ForgetRecord(noted, workspace, agent, session, incarnation, forgotten_at, now)

    def end(self, forget_id: int) -> None:
        """Note that everything is forgotten; twice is fine."""
        self._execute("DELETE FROM forgets WHERE id = :id", id=forget_id)

    def open(self, *, before: int, now: int) -> list[ForgetRecord]:
        """Return the forgets that began before a time (microseconds) and have not ended, the oldest first.

        A beginning in the future dates from before the clock was set back, and counts.
        """
        sql = f"{_SELECT_FORGETS} WHERE requested_at < :before OR requested_at > :future ORDER BY id"
        return self._records(ForgetRecord, sql, before=before, future=now + CLOCK_TOLERANCE_MICROS)
