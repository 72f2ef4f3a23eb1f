"""/v1/erasures: start erasures, and follow them to their receipts."""

from __future__ import annotations

import contextlib

from memory.trust.erasure_rows import Scope
from memory.trust.erasures import list_erasures, plan_erasure, read_erasure, request_erasure
from memory.trust.tombstones import hash_key, target_hash
from reverie.contract import CONTINUE_ERASURES
from reverie.errors import NotFound, Rejected, Unavailable
from reverie.problems import Forbidden
from reverie.trust import erasure_calls as calls
from reverie.trust.erasure_types import Erasure, ErasureKind, ErasureList
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("erasures")


@endpoints.serves(calls.Erase)
def _erase(services: Services, caller: Caller, call: calls.Erase) -> Erasure:
    runtime, scope = services.runtime, _scope(caller, call)
    actor, now = caller.principal.name, runtime.now()
    if call.dry_run:
        return plan_erasure(runtime.stores, scope, requested_by=actor, now=now)
    erasure = request_erasure(runtime.stores, runtime.settings.data, scope, requested_by=actor, now=now)
    # The worker of periodic jobs begins at once; if the task is lost, beat has the job continued within seconds.
    with contextlib.suppress(Unavailable):
        runtime.task_sender.send(CONTINUE_ERASURES, manual=True)
    return erasure


@endpoints.serves(calls.GetErasure)
def _get_erasure(services: Services, caller: Caller, call: calls.GetErasure) -> Erasure:
    return _reached(services, caller, read_erasure(services.runtime.stores, call.id))


@endpoints.serves(calls.ListErasures)
def _list_erasures(services: Services, caller: Caller, call: calls.ListErasures) -> ErasureList:
    found = list_erasures(services.runtime.stores, limit=call.limit, offset=call.offset)
    return ErasureList(erasures=[one for one in found if _reaches(services, caller, one)])


def _scope(caller: Caller, call: calls.Erase) -> Scope:
    """Return what to erase, within what the caller may reach. Raises `Rejected`."""
    kind, target = _selected(call.checked())  # again: a token for one user has set the user
    agent, workspace = call.agent, call.workspace
    if kind in ("session", "message", "memory"):
        agent, workspace = agent or caller.agent, workspace or caller.workspace
    principal = caller.principal
    if principal.workspace is not None:
        workspace = workspace or principal.workspace
        if not principal.reaches_workspace(workspace):
            raise Forbidden("the token is for another workspace", field="workspace")
    if principal.agents is not None:
        agent = agent or caller.agent
        if not principal.reaches_agent(agent):
            raise Forbidden("the token is for other agents", field="agent")
    if principal.user is not None and (kind, target) != ("user", principal.user):
        raise Forbidden("the token is for one user, who can only be erased as a whole", field="user")
    return Scope(kind, target, agent, workspace)


def _selected(call: calls.Erase) -> tuple[ErasureKind, str]:
    kinds: tuple[ErasureKind, ...] = ("user", "session", "message", "memory")
    for kind in kinds:
        target = getattr(call, kind)
        if target is not None:
            return kind, target
    if call.agent is None and call.workspace is None:
        raise Rejected("name what to erase: a user, session, message, memory, agent or workspace", field="user")
    return ("agent", "") if call.agent is not None else ("workspace", "")


def _reaches(services: Services, caller: Caller, erasure: Erasure) -> bool:
    principal = caller.principal
    if principal.user is not None:
        return erasure.requested_by == principal.name or _is_of(services, erasure, principal.user)
    return (principal.workspace is None or principal.workspace == erasure.workspace) and (
        principal.agents is None or erasure.agent in principal.agents
    )


def _is_of(services: Services, erasure: Erasure, user: str) -> bool:
    """Return whether an erasure is that of a user, whose name it does not hold any more."""
    key = hash_key(services.runtime.settings.data)
    hashed = target_hash(key, "user", workspace=erasure.workspace, agent=erasure.agent, target=user)
    return erasure.target_hash == hashed


def _reached(services: Services, caller: Caller, erasure: Erasure) -> Erasure:
    if not _reaches(services, caller, erasure):
        raise NotFound(f"there is no erasure {erasure.id!r}", field="id")
    return erasure
