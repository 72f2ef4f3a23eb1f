"""The calls about tokens and the audit log; they need the scope operate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from reverie.calls import Call, Paged
from reverie.checks import check_agent, check_workspace
from reverie.errors import Rejected
from reverie.fields import checked, label
from reverie.trust.scopes import SCOPES, Scope
from reverie.trust.types import AuditList, CreatedToken, TokenList

# A token that nobody rotates for so long is forgotten; longer ones have no expiry.
_MAX_SECONDS: Final = 10 * 365 * 86_400
_MAX_GRACE_SECONDS: Final = 90 * 86_400
_MAX_AGENTS: Final = 64


def _check_workspace(_: str, name: str) -> str:
    return check_workspace(name)


def _check_agents(field: str, names: Sequence[str]) -> list[str]:
    if len(names) > _MAX_AGENTS:
        raise Rejected(f"{field} has {len(names)} names; at most {_MAX_AGENTS} fit in a token", field=field)
    return sorted({check_agent(name) for name in names})


def _check_scopes(field: str, scopes: Sequence[Any]) -> list[Scope]:
    """Return scopes in their order. Each text may name several, separated by commas."""
    named = [part.strip() for text in scopes for part in str(text).split(",") if part.strip()]
    unknown = sorted(set(named) - set(SCOPES))
    if unknown or not named:
        raise Rejected(f"{field}: {', '.join(unknown) or 'none'} is not a scope; use {', '.join(SCOPES)}", field=field)
    return [scope for scope in SCOPES if scope in named]


TokenName = Annotated[str, label("The name or the id of a token.")]
Scopes = Annotated[
    Sequence[str],
    checked(_check_scopes, f"What it allows: {', '.join(SCOPES)}; several are separated by commas."),
]


class CreateToken(Call[CreatedToken], kw_only=True, frozen=True):
    """Create a token and return its text, which is shown this once. It cannot allow more than the caller may do.

    Raises `Conflict` if a valid token has the name, or the workspace belongs to another tenant.
    """

    route: ClassVar = "POST /v1/tokens"
    response_is_secret: ClassVar = True
    required_scope: ClassVar = "operate"
    workspace: Annotated[str | None, checked(_check_workspace, "Only for this workspace; by default for all.")] = None
    agents: Annotated[Sequence[str], checked(_check_agents, "Only for these agents; by default for all.")] = ()
    user: Annotated[str | None, label("Only for this end user; by default for all.")] = None
    scopes: Scopes = ("read", "write")
    name: Annotated[str | None, label("Its name in lists and in the audit log. Default: what it is for.")] = None
    expires_seconds: Annotated[
        Annotated[float, Meta(gt=0, le=_MAX_SECONDS)] | None,
        Meta(description="For how many seconds it is valid; by default for ever."),
    ] = None
    tenant: Annotated[
        str | None,
        label("The tenant of the workspace, which shares one account tier. Default: the workspace is its own tenant."),
    ] = None


class ListTokens(Paged[TokenList], kw_only=True, frozen=True):
    """List the tokens, newest first, without their texts."""

    route: ClassVar = "GET /v1/tokens"
    required_scope: ClassVar = "operate"
    everything: Annotated[bool, Meta(description="Also list those that are revoked or have expired.")] = False


class RotateToken(Call[CreatedToken], frozen=True):
    """Replace a token by a new one with the same rights and return its text, which is shown this once.

    The old one ends at once, or after `grace_seconds`. Raises `NotFound` if it is not valid any more.
    """

    route: ClassVar = "POST /v1/tokens/{token}/rotate"
    response_is_secret: ClassVar = True
    required_scope: ClassVar = "operate"
    token: TokenName
    grace_seconds: Annotated[
        float, Meta(ge=0, le=_MAX_GRACE_SECONDS, description="For how many seconds the old one stays valid.")
    ] = 0.0


class RevokeToken(Call[TokenList], frozen=True):
    """Revoke a token by its id, or all valid ones of a name, and return them. Raises `NotFound` if there is none."""

    route: ClassVar = "POST /v1/tokens/{token}/revoke"
    required_scope: ClassVar = "operate"
    token: TokenName


class ListAudit(Paged[AuditList], kw_only=True, frozen=True):
    """List the audit log, newest first: token changes, deletions, exports, refusals. It has no content."""

    route: ClassVar = "GET /v1/audit"
    required_scope: ClassVar = "operate"
    since: Annotated[datetime | None, Meta(description="Only entries since this time, with a time zone.")] = None
    actor: Annotated[str | None, label("Only of this actor, which is the name of a token.")] = None
    action: Annotated[str | None, label("Only of this action, such as forget-session.")] = None

    def checked(self) -> ListAudit:
        """Raise `Rejected` if the time has no time zone."""
        if self.since is not None and self.since.tzinfo is None:
            raise Rejected("since needs a time zone, as in 2026-05-01T12:00:00Z", field="since")
        return self
