"""Whose schedules and reminders are: what a viewer may change of what it sees, and which sessions it may name."""

from __future__ import annotations

from reverie.errors import NotFound, Rejected
from storage.scheduling.records import ReminderRecord, ScheduleRecord
from storage.transaction import AgentRepositories


def own_schedule(rows: AgentRepositories, schedule_id: str) -> ScheduleRecord:
    """Return a schedule that the viewer may change. Raises `NotFound`, and `Rejected` for one of nobody."""
    stored = rows.schedules.get(schedule_id)
    if not rows.schedules.is_own(schedule_id):
        raise _not_own("schedule", schedule_id, rows)
    return stored


def own_reminder(rows: AgentRepositories, reminder_id: str) -> ReminderRecord:
    """Return a reminder that the viewer may change. Raises `NotFound`, and `Rejected` for one of nobody."""
    stored = rows.reminders.get(reminder_id)
    if not rows.reminders.is_own(reminder_id):
        raise _not_own("reminder", reminder_id, rows)
    return stored


def _not_own(kind: str, row_id: str, rows: AgentRepositories) -> Rejected:
    """Return the error for a row that a viewer sees but may not change."""
    user = rows.viewer.user if rows.viewer is not None else None
    return Rejected(f"{kind} {row_id} is not one of user {user!r}: only calls for no user change it", field="user")


def check_session(rows: AgentRepositories, session: str | None) -> None:
    """Raise `NotFound` for a session that exists and that the viewer may not see."""
    if session is not None and rows.sessions.is_hidden(session):
        raise NotFound(f"agent {rows.agent} has no session {session!r} of this user", field="session")


def new_owner(rows: AgentRepositories, stored: ScheduleRecord, session: str | None) -> str | None:
    """Return the user of a schedule without a user that gets another session. None for that of a group or of nobody.

    Raises `Rejected` for the schedule of a group: what it has recalled would become that of others.
    """
    if stored.session not in (None, session) and rows.sessions.has_users(stored.session):
        raise Rejected(
            f"schedule {stored.id} belongs to the users of session {stored.session!r}: add another for other users",
            field="session",
        )
    return None if session is None else rows.sessions.owner(session)
