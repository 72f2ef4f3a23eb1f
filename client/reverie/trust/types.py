"""The tokens and the entries of the audit log that calls return."""

from __future__ import annotations

from datetime import datetime

import msgspec

from reverie.trust.scopes import Scope
from reverie.types import ListResult


class TokenInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token without its text. No `workspace` and `user`, and an empty list of `agents`, mean any.

    `tenant` is that of the workspace. A token that took the place of another has its id in `replaces`.
    """

    id: str
    name: str
    workspace: str | None = None
    tenant: str = ""
    agents: list[str] = []
    user: str | None = None
    scopes: list[Scope]
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    replaces: str | None = None


class CreatedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A new token. Its text is shown this once: only a hash of it is stored."""

    token: str
    info: TokenInfo

    @property
    def id(self) -> str:
        """The id of the token."""
        return self.info.id

    def __repr__(self) -> str:
        """Return the token without its text, which must not end up in a log."""
        return f"CreatedToken(info={self.info!r})"


class TokenList(ListResult[TokenInfo], frozen=True, kw_only=True):
    """A page of tokens, newest first."""

    tokens: list[TokenInfo]


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of the audit log: who did what to which id, from where, with which outcome. It has no content.

    `actor` is the name of the token, or `operator`, `local` or `anyone`; `token` the id of the token. `count` says how
    many equal refusals the entry stands for.
    """

    id: int
    at: datetime
    actor: str
    action: str
    target: str = ""
    outcome: str
    workspace: str = ""
    agent: str = ""
    origin: str = ""
    trace: str = ""
    token: str = ""
    count: int = 1


class AuditList(ListResult[AuditRecord], frozen=True, kw_only=True):
    """A page of the audit log, newest first."""

    entries: list[AuditRecord]
