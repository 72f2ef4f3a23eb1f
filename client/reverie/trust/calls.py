"""The types and calls of tokens, the audit log, quotas and erasures; most need the scope operate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from reverie.calls import Call, OfUser, Paged
from reverie.checks import check_agent, check_label, check_workspace
from reverie.contract import SCOPES, Scope
from reverie.errors import Rejected
from reverie.fields import MAX_COUNT, UserId, checked, label
from reverie.types import ListResult


class TokenInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token without its text. Without `workspace`, `user` or `agents` it is valid for all of them.

    `tenant` is that of the workspace. `replaces` is the id of the token that this one replaced.
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

    `actor` is the name of the token, or `operator`, `local` or `anyone`, or a hash for a token of one user; `token` is
    the id of the token. `target` and `trace` are hashes where a caller chose them. `count` says how many equal refusals
    the entry stands for.
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


# The resources that quotas limit in a workspace; the last one is limited for a tenant.
Quota: TypeAlias = Literal["messages", "bytes", "memories", "schedules", "workspaces"]
Holder: TypeAlias = Literal["workspace", "tenant"]


class QuotaUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of a resource a workspace holds, or a tenant: its number of workspaces, or its rows of the account tier.

    `limit` None is no limit. `set_for` says whose quota the limit is; empty for the settings.
    """

    holder: Holder
    name: str
    tenant: str
    resource: Quota
    used: int
    limit: int | None = None
    set_for: Literal["", "workspace", "tenant"] = ""

    @property
    def is_full(self) -> bool:
        """Whether nothing more is accepted."""
        return self.limit is not None and self.used >= self.limit


class QuotaList(ListResult[QuotaUse], frozen=True, kw_only=True):
    """Use and limits, by workspace and tenant."""

    quotas: list[QuotaUse]


ErasureKind = Literal["message", "memory", "selection", "session", "user", "agent", "workspace"]
# The version of the receipt's format.
RECEIPT_VERSION = 1


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """The search that followed a removal.

    `parts` is the number of parts of removed texts that were looked for in each of the `forms`; `explained` of them
    were found in content of others, so they are no leftovers; `too_short` texts had too few characters, or no letter,
    and were not looked for.
    """

    files: int
    bytes: int
    forms: list[str]
    parts: int
    explained: int = 0
    too_short: int = 0


class Remaining(msgspec.Struct, frozen=True, kw_only=True):
    """What an erasure cannot reach, and who is responsible for it."""

    what: str
    responsible: str


class ErasureReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The receipt of an erasure, without content: numbers of removed rows by place, results of the search, and
    leftovers.

    `target_hash` is the keyed hash of what was erased. `leftovers` is empty unless parts of removed texts were found in
    files afterwards: the number of parts by file. `hosts` are the other hosts that have removed the content from their
    files. `searched` counts these files, too; in `leftovers`, the host's name precedes its files.
    """

    version: int = RECEIPT_VERSION
    erasure: str
    kind: ErasureKind
    target_hash: str
    requested_by: str
    requested_at: datetime
    finished_at: datetime
    removed: dict[str, dict[str, int]]
    searched: Searched
    leftovers: dict[str, int]
    remains: list[Remaining]
    hosts: list[str] = []


class ErasedItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message or memory to be erased, because it is about the subject of the erasure, and the `reason`.

    The text names the subject ("named"), or by an "alias" ("Ana" for "my sister Ana"); it continues the "same
    conversation" about the subject; or the memory is "derived" from a message that is erased.
    """

    kind: Literal["message", "memory"]
    id: str
    session: str = ""
    at: datetime
    reason: Literal["named", "alias", "same conversation", "derived"]
    text: str


class Erasure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An erasure: a job that removes all of something and proves it with a receipt.

    A dry run of what is `about` something lists its `items`, or the `people` who may be meant.

    `counts` are the numbers of removed rows and items by place: a workspace, `@account`, or the name of a step; of a
    dry run, those that would be removed. `step` of `steps` is in progress. An erasure that is `waiting` has failed
    `attempts` times since its last step, for the reason in `error`, and is tried again at `next_try_at`, or within
    seconds without it; it does not delay other erasures. An erasure that has `failed` cannot be carried out as
    requested, and has no receipt. `target`, the id of what is erased, is kept until the erasure has ended; then only
    its keyed hash is left.
    """

    id: str
    kind: ErasureKind
    state: Literal["planned", "running", "waiting", "failed", "done"]
    step: str
    steps: list[str]
    target: str | None = None
    target_hash: str = ""
    agent: str | None = None
    workspace: str | None = None
    requested_by: str = ""
    requested_at: datetime
    finished_at: datetime | None = None
    counts: dict[str, dict[str, int]] = {}
    error: str = ""
    attempts: int = 0
    next_try_at: datetime | None = None
    receipt: ErasureReceipt | None = None
    items: list[ErasedItem] = []
    people: list[str] = []


class ErasureList(ListResult[Erasure], frozen=True, kw_only=True):
    """A page of erasures, the newest first."""

    erasures: list[Erasure]


# After so long, nobody would remember to rotate the token. For longer, create it without an expiry.
_MAX_SECONDS: Final = 10 * 365 * 86_400
_MAX_GRACE_SECONDS: Final = 90 * 86_400
_MAX_AGENTS: Final = 64


def _check_workspace(_: str, name: str) -> str:
    return check_workspace(name)


def _check_agents(field: str, names: Sequence[str]) -> list[str]:
    if len(names) > _MAX_AGENTS:
        raise Rejected(f"{field} has {len(names)} names; at most {_MAX_AGENTS} fit in a token", field=field)
    return sorted({check_agent(name) for name in names})


def _split(texts: Sequence[Any]) -> list[str]:
    return [part.strip() for text in texts for part in str(text).split(",") if part.strip()]


def _check_scopes(field: str, scopes: Sequence[Any]) -> list[Scope]:
    """Return scopes in their order. Each text may name several, separated by commas."""
    named = _split(scopes)
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
    name: Annotated[str | None, label("Its name in lists and in the audit log. Default: as in acme/ana/kate.")] = None
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
    """List the audit log, newest first: token changes, deletions, exports, refusals. It has no content.

    Names and ids that callers chose are in it as keyed hashes: `actor` and `target` find the entries of a name that is
    known.
    """

    route: ClassVar = "GET /v1/audit"
    required_scope: ClassVar = "operate"
    since: Annotated[datetime | None, Meta(description="Only entries since this time, with a time zone.")] = None
    actor: Annotated[str | None, label("Only of this actor: the name of a token, or a user.")] = None
    action: Annotated[str | None, label("Only of this action, such as forget-session.")] = None
    target: Annotated[
        str | None, label("Only about this: the id of a session, memory or file, a user, or CATEGORY/KEY of a fact.")
    ] = None


QUOTAS: Final[tuple[Quota, ...]] = get_args(Quota)


def _check_quotas(field: str, names: Sequence[Any]) -> list[Quota]:
    """Return names of quotas in their order. Each text may name several, separated by commas."""
    named = _split(names)
    unknown = sorted(set(named) - set(QUOTAS))
    if unknown:
        raise Rejected(f"{field}: {', '.join(unknown)} is not a quota; use {', '.join(QUOTAS)}", field=field)
    return [name for name in QUOTAS if name in named]


def _amount(what: str) -> Meta:
    return Meta(ge=0, le=MAX_COUNT, description=f"{what}; 0 is no limit.")


class ListQuotas(Paged[QuotaList], kw_only=True, frozen=True):
    """List how much each workspace and tenant holds, and its limits. Pages count workspaces and tenants."""

    route: ClassVar = "GET /v1/quotas"
    required_scope: ClassVar = "operate"
    workspace: Annotated[str | None, checked(_check_workspace, "Only of this workspace.")] = None


class SetQuotas(Call[QuotaList], frozen=True):
    """Set the quotas of a workspace or of a tenant. Each workspace of a tenant has its quotas, unless it has its own.

    Quotas left out stay unchanged. Returns the use and the limits. Raises `Rejected` for the quota `workspaces` of a
    workspace.
    """

    route: ClassVar = "PUT /v1/quotas/{holder}/{name}"
    required_scope: ClassVar = "operate"
    holder: Annotated[Holder, Meta(description="The kind of holder of these quotas.")]
    name: Annotated[str, label("The name of the workspace or the tenant.")]
    messages: Annotated[int, _amount("Messages and files")] | None = None
    bytes: Annotated[int, _amount("Bytes of stored texts")] | None = None
    memories: Annotated[int, _amount("Memories, facts and notes")] | None = None
    schedules: Annotated[int, _amount("Schedules, and reminders to deliver")] | None = None
    workspaces: Annotated[int, _amount("Workspaces of the tenant")] | None = None
    inherit: Annotated[
        Sequence[str], checked(_check_quotas, "Remove these quotas, so that the wider one holds: tenant, settings.")
    ] = ()

    def checked(self) -> SetQuotas:
        """Raise `Rejected` for an invalid name of a workspace, and for quotas that contradict each other."""
        if self.holder == "workspace":
            check_workspace(self.name)
            if self.workspaces is not None or "workspaces" in self.inherit:
                raise Rejected("workspaces is a quota of tenants: name the tenant", field="workspaces")
        twice = sorted(set(self.inherit) & {name for name, amount in self.given().items() if amount is not None})
        if twice:
            raise Rejected(f"{twice[0]} has an amount and is to be inherited: give one of the two", field="inherit")
        if not self.given():
            raise Rejected(f"name a quota: {', '.join(QUOTAS)}", field="messages")
        return self

    def given(self) -> Mapping[Quota, int | None]:
        """Return the amounts that are given, and None for the quotas to remove."""
        amounts: dict[Quota, int | None] = {name: getattr(self, name) for name in QUOTAS}
        given = {name: amount for name, amount in amounts.items() if amount is not None}
        removed: dict[Quota, int | None] = {name: None for name in QUOTAS if name in self.inherit}
        return {**removed, **given}


# At most one of these selects what is erased; without any, it is a whole agent or workspace.
_SELECTORS: Final = ("user", "session", "message", "memory", "about")

ErasureId = Annotated[str, label("The id of an erasure.")]


class Erase(Call[Erasure], kw_only=True, frozen=True):
    """Start an erasure: remove a user, session, message, memory, agent or workspace with every trace, and prove it.

    Name one of `user`, `session`, `message` and `memory`, or only `agent` or `workspace` for all of them; a `message`
    with its `session`, unless no other session has a message with its id. A user or an agent is erased everywhere
    unless `agent` and `workspace` limit it; the others are looked for in the `agent` and `workspace` given, by default
    those of the client. `about` finds the messages and memories about a person or a thing: by name, by what they are
    to the user ("my sister", and whatever conversations call her), and by the messages that go on about them; look at
    the `items` of a dry run first. What was accepted before does not reappear; what is stored later is kept. The job
    goes on in the background and survives crashes; `admin.erasures.get` returns its progress and its receipt. There is
    no undo. With `dry_run` only the numbers are returned. Raises `Rejected`, `Unavailable`, `NotFound` if nothing is
    about it, and `Conflict` if several people may be meant.
    """

    route: ClassVar = "POST /v1/erasures"
    required_scope: ClassVar = "forget"
    user: Annotated[str | None, label("Everything of this end user, or with `about` only texts about it.")] = None
    session: Annotated[str | None, label("This session and what came from it, or the session of `message`.")] = None
    message: Annotated[str | None, label("This message and what came from it.")] = None
    memory: Annotated[str | None, label("This memory, fact or note, with its history.")] = None
    about: Annotated[
        str | None, label('Messages and memories about this, such as "my sister"; several names as "Ana / my sister".')
    ] = None
    keep: Annotated[Sequence[str], Meta(description="Ids of messages and memories about it that stay.")] = ()
    agent: Annotated[str | None, label("Only of this agent, or alone: everything of this agent.")] = None
    workspace: Annotated[str | None, label("Only in this workspace, or alone: the whole workspace.")] = None
    dry_run: Annotated[bool, Meta(description="Only count what would be removed.")] = False

    def checked(self) -> Erase:
        """Raise `Rejected` for an invalid name, or if several things are named."""
        for name in (*_SELECTORS, "agent"):
            check_label(name, getattr(self, name))
        if self.workspace is not None:
            check_workspace(self.workspace)
        named = [name for name in _SELECTORS if getattr(self, name) is not None]
        if self.message is not None and self.session is not None:
            named.remove("session")
        elif self.about is not None:  # limited to the user and the session
            named = [name for name in named if name not in ("user", "session")]
        if len(named) > 1:
            raise Rejected(f"{' and '.join(named)} exclude each other: erase one after the other", field=named[1])
        return self


class GetErasure(OfUser[Erasure], frozen=True):
    """Return an erasure with its progress, and with its receipt when it is done. Raises `NotFound`.

    A token for one user sees the erasures that it has asked for.
    """

    route: ClassVar = "GET /v1/erasures/{id}"
    id: ErasureId


class ListErasures(Paged[ErasureList], kw_only=True, frozen=True):
    """List the erasures, the newest first. A token for one user sees those that it has asked for."""

    route: ClassVar = "GET /v1/erasures"
    user: UserId | None = None
