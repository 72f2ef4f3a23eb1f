"""What a caller may do: the scope that a call needs, whose data it is about, and what the audit log says of it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeVar

from fastapi import Request
from msgspec import UNSET
from msgspec.structs import replace

from memory.trust.principals import Principal
from reverie.calls import Call, route_of, scope_of
from reverie.errors import Rejected, ReverieError
from reverie.problems import Forbidden
from reverie.trust.scopes import Scope
from reverie.types import Deleted
from server.admission import CREATING
from server.caller import Caller, Subject, lacking, principal_of, trace_of
from server.services import Services
from storage.trust.audit import AuditEntry

_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")
_C = TypeVar("_C", bound=Call[Any])


def require_scope(principal: Principal, scope: Scope) -> None:
    """Raise `Forbidden`, naming the scope, if a principal does not have it."""
    if not principal.allows(scope):
        raise Forbidden(f"the token lacks the scope {scope}", field="scope")


def require_reach(principal: Principal, subject: Subject) -> None:
    """Raise `Forbidden` if a call is about more than what a principal is bound to."""
    if subject == "server" and principal.workspace is not None:
        raise Forbidden("the token is for one workspace, and this call is not", field="workspace")
    if subject != "agent" and principal.agents is not None:
        raise Forbidden("the token is for some agents, and this call is for all", field="agent")


def creates_workspace(services: Services, workspace: str, scope: Scope) -> bool:
    """Return whether a call that needs a scope would create a workspace."""
    return scope in CREATING and not services.has_workspace(workspace)


def require_creator(principal: Principal) -> None:
    """Raise `Forbidden` for who may not create a workspace that can be reached.

    An operator may, and so may a token that is bound to that workspace.
    """
    if principal.workspace is None:
        require_scope(principal, "operate")


def for_user(call: _C, caller: Caller) -> _C:
    """Return a call limited to the user of the caller. Raises `Forbidden` for another user, and for other calls."""
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
    """Note in the audit log what is refused for a lack of rights."""
    try:
        yield
    except Forbidden as error:
        principal = principal_of(request)
        services.ledger.refused(
            AuditEntry(
                at=services.runtime.now(),
                actor=principal.name,
                token=principal.token,
                action=action_of(kind),
                outcome=f"refused: {error.field}",
                origin=str(request.scope.get("reverie.origin", "")),
                trace=trace_of(request),
            )
        )
        raise


@contextmanager
def audited(
    services: Services, caller: Caller, call: Call[Any], subject: Subject, *, creates: bool
) -> Iterator[list[Any]]:
    """Record in the audit log how a call ended, if it deletes, exports or operates, or `creates` its workspace.

    A call about the server is about the workspace that it names or its token is for, if any: whether it creates that
    one is found out here. The caller appends the response to the list that is yielded. Raises `StoreUnavailable` if the
    log cannot be written: the call can be repeated.
    """
    kind, response = type(call), list[Any]()
    if subject == "server":  # the workspace of its headers plays no part in it
        named = getattr(call, "workspace", None) or caller.principal.workspace
        caller = dataclasses.replace(caller, workspace=named or "")
        creates = bool(named) and creates_workspace(services, caller.workspace, scope_of(kind))
    try:
        yield response
    except ReverieError:
        if is_audited(kind):
            services.audit(caller, action_of(kind), target_of(call), outcome="failed")
        raise
    if is_audited(kind):
        nothing = isinstance(response[0], Deleted) and not response[0].deleted
        target = target_of(call) or str(getattr(response[0], "id", ""))
        services.audit(caller, action_of(kind), target, outcome="nothing" if nothing else "done")
    if creates and services.has_workspace(caller.workspace):  # an import that was only tried out has created none
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


def target_of(call: Call[Any]) -> str:
    """Return the id of what a call is about: the fields in its path."""
    names = dict(zip(call.__struct_encode_fields__, call.__struct_fields__, strict=True))
    return "/".join(str(getattr(call, names[name])) for name in route_of(type(call)).path_fields)
