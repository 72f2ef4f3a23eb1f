"""What is being forgotten in several places, in the account's database: a sweep finishes what was interrupted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage.clock_steps import CLOCK_TOLERANCE_MICROS
from storage.engines import StoreDatabase
from storage.rows import execute, read_rows, select_list


@dataclass(frozen=True, slots=True)
class ForgetRecord:
    """A session, or with an empty `agent` and `session` a workspace, that is being forgotten.

    `incarnation` tells it from a later one of its name, which is kept: the file of a workspace, the ref code of a
    session, empty if there was none. `forgotten_at` is the mark up to which items are kept out; `requested_at` is in
    microseconds.
    """

    id: int
    workspace: str
    agent: str
    session: str
    incarnation: str
    forgotten_at: int
    requested_at: int


_SELECT: Final = f"SELECT {select_list(ForgetRecord, incarnation='file')} FROM forgets"


class Forgets:
    """What is being forgotten. Each method is a transaction of its own."""

    def __init__(self, account: StoreDatabase) -> None:
        self._account = account

    def begin(
        self,
        *,
        workspace: str,
        agent: str = "",
        session: str = "",
        incarnation: str = "",
        forgotten_at: int = 0,
        now: int,
    ) -> int:
        """Note that something is about to be forgotten; return the id to end it by. `now` is in microseconds."""
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
            return int(added.scalar_one())

    def end(self, forget_id: int) -> None:
        """Note that everything is forgotten; twice is fine."""
        with self._account.atomic() as connection:
            execute(connection, "DELETE FROM forgets WHERE id = :id", id=forget_id)

    def open(self, *, before: int, now: int) -> list[ForgetRecord]:
        """Return what was begun before a time (microseconds) and has not ended, the oldest first.

        What was begun in the future was begun before the clock was set back.
        """
        sql = f"{_SELECT} WHERE requested_at < :before OR requested_at > :future ORDER BY id"
        with self._account.reading() as connection:
            return read_rows(execute(connection, sql, before=before, future=now + CLOCK_TOLERANCE_MICROS), ForgetRecord)
