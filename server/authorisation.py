"""What a caller may do: the scope and the reach that a call needs, the room in quotas, and what the audit log says."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import Request

from memory.trust.audited import audited_name, audited_trace
from memory.trust.tokens import Principal
from reverie.calls import Call, OfOneOrAll, OfUser, Resource, route_of, scope_of
from reverie.contract import ACCOUNT_STORE, Payload, Scope
from reverie.errors import Forbidden, NotFound, Rejected, ReverieError
from reverie.trust.exports import AnyRecord, amounts_of_records
from reverie.types import Deleted
from server.caller import Caller, Subject, lacking, principal_of, trace_of
from server.services import Services
from storage.stores import Store
from storage.trust.audit import AuditEntry
from storage.trust.quotas import COUNTED_TABLES, stored_ids

_C = TypeVar("_C", bound=Call[Any])

# A call that needs one of these scopes may create its workspace.
CREATING: Final[tuple[Scope, ...]] = ("write", "schedule")


@contextmanager
def admitted(services: Services, call: Call[Any], workspace: str, *, creates: bool) -> Iterator[None]:
    """Reserve room in the quotas for what a call stores in a workspace, while the call is handled.

    `workspace` is empty for a call about no workspace, and `creates` says that the call creates it. Room for messages
    and files is reserved where they are put into the inbox. Raises `QuotaExceeded`.
    """
    with services.creating(workspace, creates=creates):
        amounts = dict(call.amounts())
        if not amounts or call.changes_stored or "messages" in amounts or not services.quotas.any_set:
            yield
            return
        amounts["bytes"] = len(msgspec.json.encode(call))
        in_account = getattr(call, "tier", None) == "account"
        with services.quotas.admitted(workspace, amounts, in_account=in_account):
            yield


@contextmanager
def admitted_records(services: Services, records: Sequence[AnyRecord]) -> Iterator[None]:
    """Reserve room in the quotas of each workspace for those records of an export that are not stored yet.

    Raises `QuotaExceeded`.
    """
    with ExitStack() as held:
        for workspace in sorted({record.workspace for record in records}):
            held.enter_context(services.creating(workspace, creates=True))
            if not services.quotas.any_set:
                continue
            for in_account in (False, True):
                mine = [one for one in records if one.workspace == workspace]
                mine = [one for one in mine if (getattr(one, "tier", None) == "account") == in_account]
                mine = _missing(services, workspace if not in_account else ACCOUNT_STORE, mine)
                amounts = {**amounts_of_records(mine), "bytes": sum(len(msgspec.json.encode(one)) for one in mine)}
                held.enter_context(services.quotas.admitted(workspace, amounts, in_account=in_account))
        yield


def _missing(services: Services, name: str, records: Sequence[AnyRecord]) -> list[AnyRecord]:
    """Return the records that a store does not have yet: the others need no room."""
    if not records:
        return []
    try:
        with services.runtime.stores.workspace(name, create=False).reading() as tx:
            present = {
                (table, agent): stored_ids(tx.connection, table, agent, {str(one.id) for one in mine})
                for (table, agent), mine in _by_table(records).items()
            }
    except NotFound:
        return list(records)
    return [one for one in records if getattr(one, "id", "") not in present.get((_table_of(one), one.agent), ())]


def _by_table(records: Sequence[AnyRecord]) -> dict[tuple[str, str], list[Any]]:
    found: dict[tuple[str, str], list[Any]] = {}
    for one in records:
        if _table_of(one) in COUNTED_TABLES:
            found.setdefault((_table_of(one), one.agent), []).append(one)
    return found


def _table_of(record: AnyRecord) -> str:
    return str(record.__struct_config__.tag)


def amounts_of(payloads: Sequence[Payload]) -> dict[Resource, int]:
    """Return what payloads add to a workspace: their number, and the bytes of their texts as they are counted."""
    return {"messages": len(payloads), "bytes": sum(_bytes_of(payload) for payload in payloads)}


def _bytes_of(payload: Payload) -> int:
    tool_calls = getattr(payload, "tool_calls", None)
    encoded = len(msgspec.json.encode(payload.metadata)) + (len(msgspec.json.encode(tool_calls)) if tool_calls else 0)
    original = getattr(payload, "original", None) or ""
    return len(payload.content.encode()) + len(original.encode()) + encoded


_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


def require_scope(principal: Principal, scope: Scope) -> None:
    """Raise `Forbidden`, naming the scope, if a principal does not have it."""
    if not principal.allows(scope):
        raise Forbidden(f"the token lacks the scope {scope}", field="scope")


def require_reach(principal: Principal, subject: Subject) -> None:
    """Raise `Forbidden` if a call is about more than the workspace or the agents that a principal is bound to."""
    if subject == "server" and principal.workspace is not None:
        raise Forbidden("the token is for one workspace, and this call is not", field="workspace")
    if subject != "agent" and principal.agents is not None:
        raise Forbidden("the token is for some agents, and this call is for all", field="agent")


def creates_workspace(services: Services, workspace: str, scope: Scope) -> bool:
    """Return whether a call that needs a scope would create a workspace."""
    return scope in CREATING and not services.has_workspace(workspace)


def require_creator(principal: Principal) -> None:
    """Raise `Forbidden` for a principal that may reach a workspace, but may not create it.

    Operators may create workspaces, and a token that is bound to a workspace may create that one.
    """
    if principal.workspace is None:
        require_scope(principal, "operate")


def for_user(call: _C, caller: Caller) -> _C:
    """Return a call limited to the caller's user. Raises `Forbidden` if it names another, or cannot be limited."""
    user = caller.user
    if user is None:
        return call
    if "user" not in call.__struct_fields__:
        if caller.principal.user is None:
            raise Rejected("this call cannot be limited to a user: leave out the header X-Reverie-User", field="user")
        raise Forbidden("the token is for one user, and this call is not", field="user")
    named = getattr(call, "user", None)
    if named is None or named is UNSET:
        return replace(call, user=user)
    if named != user:
        raise lacking("user")
    return call


@contextmanager
def noting_refusals(services: Services, request: Request, kind: type[Call[Any]]) -> Iterator[None]:
    """Note calls that are refused for a lack of rights in the audit log."""
    try:
        yield
    except Forbidden as error:
        principal = principal_of(request)
        services.ledger.refused(
            AuditEntry(
                at=services.runtime.now(),
                actor=services.audited_actor(principal),
                token=principal.token,
                action=action_of(kind),
                outcome=f"refused: {error.field}",
                origin=str(request.scope.get("reverie.origin", "")),
                trace=audited_trace(services.runtime.settings.data, trace_of(request)),
            )
        )
        raise


@contextmanager
def audited(
    services: Services, caller: Caller, call: Call[Any], subject: Subject, *, creates: bool
) -> Iterator[list[Any]]:
    """Record in the audit log how a call ended, if it deletes, exports or operates, or `creates` its workspace.

    For a call about the server, this function finds out whether the call creates the workspace that it names, or that
    its token is for. The caller appends the response to the list that is yielded. Raises `StoreUnavailable` if the
    log cannot be written: the call can be repeated.
    """
    kind, response = type(call), list[Any]()
    if subject == "server":  # such a call does not use the workspace of its headers
        named = getattr(call, "workspace", None) or caller.principal.workspace
        caller = dataclasses.replace(caller, workspace=named or "")
        creates = bool(named) and creates_workspace(services, caller.workspace, scope_of(kind))
    try:
        yield response
    except ReverieError:
        if is_audited(kind):
            services.audit(caller, action_of(kind), _audited_target(services, call, subject), outcome="failed")
        raise
    if is_audited(kind):
        nothing = isinstance(response[0], Deleted) and not response[0].deleted
        target = _audited_target(services, call, subject) or str(getattr(response[0], "id", ""))
        services.audit(caller, action_of(kind), target, outcome="nothing" if nothing else "done")
    if creates and services.has_workspace(caller.workspace):  # the dry run of an import creates none
        services.audit(caller, "create-workspace", caller.workspace)


@cache
def is_audited(kind: type[Call[Any]]) -> bool:
    """Return whether the audit log has the calls of a kind: deletions, exports, and what changes the installation."""
    scope = scope_of(kind)
    operates = scope == "operate" and route_of(kind).method != "GET"
    return scope == "forget" or operates or kind.__name__.startswith("Export")


@cache
def action_of(kind: type[Call[Any]]) -> str:
    """Return the name of a call in the audit log: `forget-session` for `ForgetSession`."""
    return _WORD.sub("-", kind.__name__).lower()


def _audited_target(services: Services, call: Call[Any], subject: Subject) -> str:
    """Return how the audit log names the id that a call is about: by a hash, except for tokens, jobs and quotas."""
    target = target_of(call)
    return target if subject == "server" else audited_name(services.runtime.settings.data, "id", target)


def target_of(call: Call[Any]) -> str:
    """Return the id of the object that a call is about, from the fields in its path."""
    names = dict(zip(call.__struct_encode_fields__, call.__struct_fields__, strict=True))
    return "/".join(str(getattr(call, names[name])) for name in route_of(type(call)).path_fields)


def seen_store(services: Services, caller: Caller, call: OfUser[Any]) -> Store | None:
    """Return the caller's store as the call sees it; None if nothing has been stored in it.

    Raises `Forbidden` for a call for all users without the right to it, and `Rejected` for one that names a user.
    """
    if not isinstance(call, OfOneOrAll) or not call.all_users:
        return services.seen_store(caller, call)
    if caller.user is not None:
        raise lacking("user")
    if call.user is not None:
        raise Rejected("give user or all_users, not both", field="all_users")
    require_scope(caller.principal, call.all_users_scope)
    return services.existing_store(caller.workspace)


def existing_store(services: Services, caller: Caller, _: Call[Any]) -> Store | None:
    """Return the caller's store as it is, for calls about what belongs to no user; None if nothing has been stored."""
    return services.existing_store(caller.workspace)
