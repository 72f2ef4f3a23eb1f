"""Create, rotate, revoke and list tokens. Nobody can make a token that allows more than their own."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from memory.conversion import convert
from memory.tombstones import note_forgotten
from memory.trust.token_texts import hash_of, new_token
from reverie.clock import SECOND_MICROS, new_id
from reverie.contract import ACCOUNT_STORE, SCOPES, Scope
from reverie.errors import Conflict, Forbidden, NotFound, Rejected
from storage.stores import FileStamp, Stores
from storage.trust.tokens import TokenRecord

# The kind of the tombstones of tokens that were revoked: a restored backup does not make them valid again.
REVOKED: Final = "token"


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """The rights of a new token. None, and no agents, mean any; `lifetime_seconds` None means for ever."""

    workspace: str | None
    agents: tuple[str, ...]
    user: str | None
    scopes: tuple[Scope, ...]
    name: str | None = None
    lifetime_seconds: float | None = None
    tenant: str | None = None


class NewToken(NamedTuple):
    """A token that was just made, with its text, which is stored nowhere."""

    record: TokenRecord
    text: str


def create_token(stores: Stores, request: TokenRequest, *, by: Principal, now: int) -> NewToken:
    """Store a new token and return it; `now` is in microseconds.

    Raises `Forbidden` if it would allow more than `by` may do, `Conflict` if its name or the tenant is taken, and
    `Rejected` if it names agents, a user or a tenant without a workspace.
    """
    if request.workspace is None and (request.agents or request.user or request.tenant):
        field = "agents" if request.agents else "user" if request.user else "tenant"
        raise Rejected(f"{field} needs a workspace: name it, too", field="workspace")
    _require_no_more(request, by)
    name = request.name or _default_name(request)
    if any(token.is_valid(now) for token in stores.tokens().named(name)):
        raise Conflict(f"a token has the name {name!r} already: choose another name, or rotate that one", field="name")
    _set_tenant(stores, request, by)
    text = new_token()
    lifetime = request.lifetime_seconds
    record = TokenRecord(
        id=new_id(),
        name=name,
        hash=hash_of(text),
        workspace=request.workspace,
        agents=request.agents or None,
        user=request.user,
        scopes=request.scopes,
        created_at=now,
        created_by=by.name,
        expires_at=None if lifetime is None else now + int(lifetime * SECOND_MICROS),
    )
    stores.tokens().add(record)
    return NewToken(record, text)


def rotate_token(stores: Stores, name: str, *, grace_seconds: float, by: Principal, now: int) -> NewToken:
    """Store a new token in the place of another, named by its id or name, with the same rights and lifetime.

    The old one stays valid for `grace_seconds`. Raises `NotFound`, and `Forbidden` if it allows more than `by` may do.
    """
    found = [token for token in _visible(stores.tokens().named(name), by) if token.is_valid(now)]
    if not found:
        raise _no_token(name)
    old = found[0]
    _require_no_more(TokenRequest(old.workspace, old.agents or (), old.user, old.scopes), by)
    text = new_token()
    lifetime = None if old.expires_at is None else old.expires_at - old.created_at
    record = replace(
        old,
        id=new_id(),
        hash=hash_of(text),
        created_at=now,
        created_by=by.name,
        expires_at=None if lifetime is None else now + lifetime,
        last_used_at=None,
        revoked_at=None,
        replaces=old.id,
    )
    ends_at = now + int(grace_seconds * SECOND_MICROS) if grace_seconds else None
    note_forgotten(stores.data_dir, REVOKED, [old.id], workspace=None, agent=None)
    if not stores.tokens().replace(old.id, record, ends_at=ends_at):
        raise _no_token(name)
    return NewToken(record, text)


def revoke_token(stores: Stores, name: str, *, by: Principal, now: int) -> list[TokenRecord]:
    """Revoke a token by its id, or all valid ones of a name, and return them. Raises `NotFound` if there is none."""
    found = [token for token in _visible(stores.tokens().named(name), by) if token.is_valid(now)]
    note_forgotten(stores.data_dir, REVOKED, [token.id for token in found], workspace=None, agent=None)
    revoked = [token for token in found if stores.tokens().revoke(token.id, now=now)]
    if not revoked:
        raise _no_token(name)
    return revoked


def list_tokens(
    stores: Stores, *, by: Principal, everything: bool, now: int, limit: int, offset: int
) -> list[TokenRecord]:
    """Return a page of the tokens that `by` may see, newest first: the valid ones, or also those that have ended."""
    valid_at = None if everything else now
    found = stores.tokens().list(workspace=by.workspace, valid_at=valid_at, limit=limit, offset=offset)
    return _visible(found, by)


def principal_of(token: TokenRecord) -> Principal:
    """Return who holds a token."""
    agents = frozenset(token.agents) if token.agents else None
    return convert(token, Principal, agents=agents, scopes=frozenset(token.scopes), token=token.id)


def _visible(tokens: Sequence[TokenRecord], by: Principal) -> list[TokenRecord]:
    """Return the tokens that allow no more than `by` may do: a principal must not see tokens with more rights."""
    return [
        token for token in tokens if not _excess(TokenRequest(token.workspace, token.agents or (), token.user, ()), by)
    ]


def _no_token(name: str) -> NotFound:
    return NotFound(f"there is no valid token {name[:80]!r}: `reverie tokens list` shows all", field="token")


def _require_no_more(request: TokenRequest, by: Principal) -> None:
    """Raise `Forbidden` if a token would allow more than its maker may do."""
    excess = _excess(request, by)
    if excess:
        raise Forbidden(f"a token cannot make one that allows more than itself: {excess}", field=excess)


def _excess(request: TokenRequest, by: Principal) -> str:
    """Return the field in which a token would go beyond its maker, or an empty text."""
    if by.workspace is not None and request.workspace != by.workspace:
        return "workspace"
    if by.agents is not None and not (request.agents and by.agents.issuperset(request.agents)):
        return "agents"
    if by.user is not None and request.user != by.user:
        return "user"
    if not by.scopes.issuperset(request.scopes):
        return "scopes"
    # A bound principal may not choose a tenant, which is above workspaces.
    return "tenant" if request.tenant and by.is_bound else ""


def _set_tenant(stores: Stores, request: TokenRequest, by: Principal) -> None:
    """Give the workspace of a new token its tenant: the requested one, or one of its own if it has none yet.

    Raises `Conflict` if it belongs to another tenant: its memories in the account tier would stay with the old tenant.
    """
    if request.workspace is None or by.is_bound:
        return
    known = stores.tenants().set_for(request.workspace)
    if known is None:
        stores.tenants().set(request.workspace, request.tenant or request.workspace)
    elif request.tenant not in (None, known):
        raise Conflict(f"workspace {request.workspace} belongs to tenant {known!r}", field="tenant")


def _default_name(request: TokenRequest) -> str:
    """Return the default name of a token, made of the names it is bound to, as in `w/ana/kate`."""
    if request.workspace is None:
        return "operator" if "operate" in request.scopes else "all"
    return "/".join(filter(None, (request.workspace, "+".join(request.agents), request.user)))


# A revoked token is refused within a second. Within this time a token is checked without touching a file.
FRESH_SECONDS: Final = 0.5
# Tokens that are kept in memory, about 1 KB each.
_KEPT: Final = 4_096


@dataclass(slots=True)
class _Checked:
    """A token that was looked up, and the state of the account's file before the look-up."""

    record: TokenRecord
    principal: Principal
    stamp: FileStamp | None
    checked_at: float


class TokenChecker:
    """The tokens that a process has checked. Safe to use from several threads."""

    def __init__(
        self, stores: Stores, *, now: Callable[[], int], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._stores = stores
        self._now = now
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._checked: OrderedDict[bytes, _Checked] = OrderedDict()
        self._used_at: dict[str, int] = {}
        # How often this process has changed tokens: a token that was read before a change is not kept.
        self._changes = 0

    def known(self, token: str) -> Principal | None:
        """Return the holder of a token that was checked a moment ago, without touching a file; else None."""
        found = self._checked.get(hash_of(token))
        if found is None or self._monotonic() - found.checked_at > FRESH_SECONDS:
            return None
        return self._holder(found)

    def check(self, token: str) -> Principal | None:
        """Return the holder of a valid token, else None. The token must be well-formed. Raises `StoreUnavailable`."""
        key, stamp = hash_of(token), self._stores.stamp(ACCOUNT_STORE)
        with self._lock:
            found = self._checked.get(key)
            if found is not None and stamp is not None and stamp == found.stamp and stamp.is_settled(self._now()):
                found.checked_at = self._monotonic()
                return self._holder(found)
            changes = self._changes
        record = self._stores.tokens().by_hash(key)
        with self._lock:
            self._checked.pop(key, None)
            if record is None:
                return None
            found = _Checked(record, principal_of(record), stamp, self._monotonic())
            if changes == self._changes:
                self._checked[key] = found
            while len(self._checked) > _KEPT:
                self._checked.popitem(last=False)
        return self._holder(found)

    def forget(self) -> None:
        """Forget the checked tokens, because this process has changed some."""
        with self._lock:
            self._changes += 1
            self._checked.clear()

    def take_uses(self) -> dict[str, int]:
        """Return the last use of each token, by its id, since the last call of this method."""
        # Another thread may add a use at any moment: each is popped by itself, so that none gets lost.
        return {id: self._used_at.pop(id) for id in list(self._used_at)}

    def _holder(self, found: _Checked) -> Principal | None:
        now = self._now()
        if not found.record.is_valid(now):
            return None
        self._used_at[found.record.id] = now
        return found.principal


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a call: the holder of a token, or the operator. A field that is None means no limit.

    `name` is the name in the audit log, and `token` the id of the token, empty for the operator.
    """

    name: str
    workspace: str | None = None
    agents: frozenset[str] | None = None
    user: str | None = None
    scopes: frozenset[Scope] = frozenset(SCOPES)
    token: str = ""

    def allows(self, scope: Scope) -> bool:
        """Return whether the principal has a scope."""
        return scope in self.scopes

    def reaches_workspace(self, workspace: str) -> bool:
        """Return whether the principal may work in a workspace."""
        return self.workspace is None or self.workspace == workspace

    def reaches_agent(self, agent: str) -> bool:
        """Return whether the principal may work on the memory of an agent, in a workspace that it reaches."""
        return self.agents is None or agent in self.agents

    @property
    def is_bound(self) -> bool:
        """Whether the principal is limited to a workspace, to agents, or to a user."""
        return self.workspace is not None or self.agents is not None or self.user is not None


# The principal of code that works on the data folder itself (jobs, commands without a server): it may do everything.
OPERATOR: Final = Principal("operator")
