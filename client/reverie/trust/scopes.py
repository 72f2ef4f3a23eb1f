"""The scopes of tokens: what a call needs, and what a token allows."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

# read: see what is stored. write: store and change. forget: delete what is stored. schedule: schedules and reminders.
# operate: workspaces, jobs, dead letters, tokens, the audit log, and what shows or changes the memories of all users:
# the curation log and undo, notebooks and their history, promotions, approvals.
Scope: TypeAlias = Literal["read", "write", "forget", "schedule", "operate"]
# How the text of a stored token begins.
TOKEN_PREFIX: Final = "rv_"  # noqa: S105 - no secret
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
