"""Calls about tokens, quotas, erasures, exports and imports."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from memory.conversion import convert
from memory.lifecycle import erasures
from memory.lifecycle.erasure_rows import Scope
from memory.lifecycle.exporting import ExportScope, first_page, next_page
from memory.lifecycle.importing import ImportRules, import_records, place_in_tenants
from memory.pipeline.chunking import chunk_messages
from memory.tombstones import hash_key, target_hash
from memory.trust.audited import audited_name, audited_names
from memory.trust.quotas import quota_uses, uses_of
from memory.trust.tokens import NewToken, TokenRequest, create_token, list_tokens, revoke_token, rotate_token
from reverie import __version__
from reverie.clock import to_micros
from reverie.contract import ACCOUNT_STORE, CONTINUE_ERASURES, DEFAULT_AGENT, DEFAULT_WORKSPACE
from reverie.errors import Conflict, Forbidden, NotFound, Rejected, Unavailable
from reverie.trust import calls, exports
from reverie.trust.exports import ExportedRecallEvent, ExportPage, ImportReport, Selection
from server.authorisation import admitted_records, require_creator, require_reach, require_scope
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from storage.lifecycle.erasures import message_name
from storage.trust.audit import AuditFilter
from storage.trust.tokens import TokenRecord

endpoints = Endpoints("trust")


@endpoints.serves(calls.CreateToken, subject="server", limits_itself=True)
def _create_token(services: Services, caller: Caller, call: calls.CreateToken) -> calls.CreatedToken:
    bound = caller.principal
    request = TokenRequest(
        workspace=call.workspace or bound.workspace,
        agents=tuple(call.agents or bound.agents or ()),
        user=call.user or bound.user,
        scopes=call.scopes,  # type: ignore[arg-type]  # checked by the call
        name=call.name,
        lifetime_seconds=call.expires_seconds,
        tenant=call.tenant,
    )
    runtime = services.runtime
    return _created(services, create_token(runtime.stores, request, by=bound, now=runtime.now()))


@endpoints.serves(calls.ListTokens, subject="server", limits_itself=True)
def _list_tokens(services: Services, caller: Caller, call: calls.ListTokens) -> calls.TokenList:
    found = list_tokens(
        services.runtime.stores,
        by=caller.principal,
        everything=call.everything,
        now=services.runtime.now(),
        limit=call.limit,
        offset=call.offset,
    )
    return calls.TokenList(tokens=[_info(services, token) for token in found])


@endpoints.serves(calls.RotateToken, subject="server", limits_itself=True)
def _rotate_token(services: Services, caller: Caller, call: calls.RotateToken) -> calls.CreatedToken:
    runtime, grace_seconds = services.runtime, call.grace_seconds
    made = rotate_token(runtime.stores, call.token, grace_seconds=grace_seconds, by=caller.principal, now=runtime.now())
    return _created(services, made)


@endpoints.serves(calls.RevokeToken, subject="server", limits_itself=True)
def _revoke_token(services: Services, caller: Caller, call: calls.RevokeToken) -> calls.TokenList:
    runtime = services.runtime
    revoked = revoke_token(runtime.stores, call.token, by=caller.principal, now=runtime.now())
    services.token_checker.forget()
    return calls.TokenList(tokens=[_info(services, token) for token in revoked])


@endpoints.serves(calls.ListAudit, subject="server", limits_itself=True)
def _list_audit(services: Services, caller: Caller, call: calls.ListAudit) -> calls.AuditList:
    # Entries have no user, and a token that is bound to agents must not read those of other agents.
    require_reach(caller.principal, "workspace")
    data = services.runtime.settings.data
    wanted = AuditFilter(
        since=None if call.since is None else to_micros(call.since),
        actors=None if call.actor is None else audited_names(data, call.actor),
        action=call.action,
        workspace=caller.principal.workspace,
        targets=None if call.target is None else audited_names(data, call.target),
    )
    return calls.AuditList(
        entries=services.runtime.stores.audit().entries(wanted, limit=call.limit, offset=call.offset)
    )


def _created(services: Services, made: NewToken) -> calls.CreatedToken:
    services.token_checker.forget()
    return calls.CreatedToken(token=made.text, info=_info(services, made.record))


def _info(services: Services, token: TokenRecord) -> calls.TokenInfo:
    tenant = "" if token.workspace is None else services.runtime.stores.tenants().of(token.workspace)
    return convert(token, calls.TokenInfo, tenant=tenant, agents=list(token.agents or ()))


@endpoints.serves(calls.ListQuotas, subject="server", limits_itself=True)
def _list_quotas(services: Services, caller: Caller, call: calls.ListQuotas) -> calls.QuotaList:
    require_reach(caller.principal, "workspace")
    bound = caller.principal.workspace
    if bound is not None and call.workspace not in (None, bound):
        return calls.QuotaList(quotas=[])
    only = bound or call.workspace
    uses = quota_uses(services.runtime.stores, services.quotas, only=only, limit=call.limit, offset=call.offset)
    return calls.QuotaList(quotas=uses)


@endpoints.serves(calls.SetQuotas, subject="server")
def _set_quotas(services: Services, _: Caller, call: calls.SetQuotas) -> calls.QuotaList:
    stores = services.runtime.stores
    stores.quotas().set(call.holder, call.name, call.given())
    services.tell_producers()
    return calls.QuotaList(quotas=uses_of(stores, services.quotas, call.holder, call.name))


@endpoints.serves(calls.Erase, tag="erasures")
def _erase(services: Services, caller: Caller, call: calls.Erase) -> calls.Erasure:
    runtime, scope = services.runtime, _scope(services, caller, call)
    actor, now = caller.principal.name, runtime.now()
    if call.about is not None:
        found = erasures.find_to_erase(
            runtime.stores,
            call.about,
            workspace=scope.workspace or caller.workspace,
            agent=scope.agent or caller.agent,
            user=call.user,
            session=call.session,
        )
        found.items = [one for one in found.items if one[0].id not in call.keep]
        scope = replace(scope, target=erasures.selection_of(found))
        if call.dry_run:
            return erasures.with_items(erasures.plan_erasure(runtime.stores, scope, requested_by=actor, now=now), found)
        if found.people:
            raise Conflict(f"{call.about!r} may be {' or '.join(found.people)}: say which", field="about")
        if not found.items:
            raise NotFound(f"nothing is about {call.about!r}: name it as the conversations do", field="about")
    if call.dry_run:
        return erasures.plan_erasure(runtime.stores, scope, requested_by=actor, now=now)
    with contextlib.suppress(Unavailable):  # what was recalled is in the broker before it is searched there
        runtime.recall_buffer.flush()
    erasure = erasures.request_erasure(runtime.stores, runtime.settings.data, scope, requested_by=actor, now=now)
    # The worker of periodic jobs begins at once; if the task is lost, beat has the job continued within seconds.
    with contextlib.suppress(Unavailable):
        runtime.task_sender.send(CONTINUE_ERASURES, manual=True)
    return erasure


@endpoints.serves(calls.GetErasure, tag="erasures")
def _get_erasure(services: Services, caller: Caller, call: calls.GetErasure) -> calls.Erasure:
    erasure = erasures.read_erasure(services.runtime.stores, call.id)
    if not _may_see(services, caller, erasure):
        raise NotFound(f"there is no erasure {erasure.id!r}", field="id")
    return erasure


@endpoints.serves(calls.ListErasures, tag="erasures")
def _list_erasures(services: Services, caller: Caller, call: calls.ListErasures) -> calls.ErasureList:
    found = erasures.list_erasures(services.runtime.stores, limit=call.limit, offset=call.offset)
    return calls.ErasureList(erasures=[one for one in found if _may_see(services, caller, one)])


def _scope(services: Services, caller: Caller, call: calls.Erase) -> Scope:
    """Return the scope of an erasure, limited to the caller's reach. Raises `Rejected`."""
    kind, target = _selected(call.checked())  # again: a token for one user has set the user
    agent, workspace = call.agent, call.workspace
    if kind in ("session", "message", "memory", "selection"):
        agent, workspace = agent or caller.agent, workspace or caller.workspace
    if kind == "message":
        target = message_name(call.session or _session_of(services, workspace, agent, target), target)
    principal = caller.principal
    if principal.workspace is not None:
        workspace = workspace or principal.workspace
        if not principal.reaches_workspace(workspace):
            raise Forbidden("the token is for another workspace", field="workspace")
    if principal.agents is not None:
        agent = agent or caller.agent
        if not principal.reaches_agent(agent):
            raise Forbidden("the token is for other agents", field="agent")
    own = (call.user if kind == "selection" else target) == principal.user and kind in ("user", "selection")
    if principal.user is not None and not own:
        raise Forbidden("the token is for one user: erase that user, or texts about something", field="user")
    return Scope(kind, target, agent, workspace)


def _session_of(services: Services, workspace: str | None, agent: str | None, message: str) -> str:
    """Return the only session that has a message with this id. Raises `Conflict`."""
    store = services.existing_store(workspace or DEFAULT_WORKSPACE)
    found: list[str] = []
    if store is not None:
        with store.reading() as tx:
            found = [one.session for one in tx.for_agent(agent or DEFAULT_AGENT).messages.with_id(message)]
    if len(found) == 1:
        return found[0]
    how_many = f"{len(found)} sessions have" if found else "no session has"
    raise Conflict(f"{how_many} a message {message!r}: name its session, too", field="session")


def _selected(call: calls.Erase) -> tuple[calls.ErasureKind, str]:
    if call.about is not None:
        return "selection", ""
    kinds: tuple[calls.ErasureKind, ...] = ("user", "message", "session", "memory")
    for kind in kinds:
        target = getattr(call, kind)
        if target is not None:
            return kind, target
    if call.agent is None and call.workspace is None:
        raise Rejected(
            "name what to erase: a user, session, message, memory, agent or workspace, or what it is about",
            field="user",
        )
    return ("agent", "") if call.agent is not None else ("workspace", "")


def _may_see(services: Services, caller: Caller, erasure: calls.Erasure) -> bool:
    principal = caller.principal
    if erasure.requested_by == principal.name:
        return True  # also after the names of its workspace and agent were removed
    if principal.user is not None:
        # An erasure keeps a hash of the user's name, not the name.
        key = hash_key(services.runtime.settings.data)
        hashed = target_hash(key, "user", workspace=erasure.workspace, agent=erasure.agent, target=principal.user)
        return erasure.target_hash == hashed
    return (principal.workspace is None or principal.workspace == erasure.workspace) and (
        principal.agents is None or erasure.agent in principal.agents
    )


@endpoints.serves(exports.ReadExport, tag="exports", subject="server", limits_itself=True)
def _export_records(services: Services, caller: Caller, call: exports.ReadExport) -> ExportPage:
    runtime, scope = services.runtime, _exported_scope(services, caller, call)
    if call.cursor is not None:
        return next_page(runtime.stores, scope, cursor=call.cursor)
    page = first_page(runtime.stores, scope, version=__version__, now=runtime.now(), count_only=call.dry_run)
    if not call.dry_run:
        of = replace(caller, workspace=scope.selection.workspace or "", agent=scope.selection.agent or "")
        services.audit(of, "export", _target(services, scope.selection))
    return page


@endpoints.serves(exports.ImportRecords, tag="exports", subject="server", limits_itself=True)
def _import_records(services: Services, caller: Caller, call: exports.ImportRecords) -> ImportReport:
    runtime, operator = services.runtime, caller.principal.allows("operate") and caller.principal.user is None
    _check_reach(services, caller, call)
    if operator and not caller.principal.is_bound:
        place_in_tenants(runtime.stores, call.tenants, dry_run=call.dry_run)
    rules = ImportRules(
        now=runtime.now(),
        operator=operator,
        user=caller.user or call.user,
        trusted=call.trusted and operator,
        dry_run=call.dry_run,
        lenient=call.lenient,
        exported_at=None if call.exported_at is None else to_micros(call.exported_at),
    )
    if not call.dry_run:
        _chunk_what_was_found(services, call)
    with admitted_records(services, () if call.dry_run else call.records):
        done = import_records(runtime.stores, call.records, rules)
    if call.first and not call.dry_run:
        workspaces = {record.workspace for record in call.records}
        into = replace(caller, workspace=workspaces.pop() if len(workspaces) == 1 else "")
        services.audit(into, "import", _audited_user(services, call.user))
    for name in sorted(done.stores):
        runtime.notify_stage("chunk", name)
    for name, sessions in done.sessions.items():
        with contextlib.suppress(Unavailable):  # without a broker, no message of theirs is in it
            runtime.working_memory.drop(name, sorted(sessions))
    return done.report()


def _check_reach(services: Services, caller: Caller, call: exports.ImportRecords) -> None:
    """Raise `Forbidden` for records of workspaces or agents that the caller does not reach, or may not create."""
    principal = caller.principal
    for workspace in sorted({record.workspace for record in call.records}):
        if not principal.reaches_workspace(workspace):
            raise Forbidden(f"the token is not for workspace {workspace}", field="workspace")
        if not services.has_workspace(workspace):
            require_creator(principal)
    for agent in sorted({record.agent for record in call.records}):
        if not principal.reaches_agent(agent):
            raise Forbidden(f"the token is not for agent {agent}", field="agent")


def _chunk_what_was_found(services: Services, call: exports.ImportRecords) -> None:
    """Chunk the texts that recall events refer to, unless the workers have done it: they may not run."""
    events = [record for record in call.records if isinstance(record, ExportedRecallEvent)]
    for name in sorted({ACCOUNT_STORE if event.in_account else event.workspace for event in events}):
        with contextlib.suppress(NotFound):
            store = services.runtime.stores.workspace(name, create=False)
            chunk_messages(store, now=services.runtime.now, on_batch=lambda _: None)


def _exported_scope(services: Services, caller: Caller, call: exports.ReadExport) -> ExportScope:
    """Return the scope of an export, limited to the caller's reach. Raises `Forbidden` and `NotFound`."""
    principal = caller.principal
    if call.session is not None and (call.agent is None or call.workspace is None):
        raise Rejected("name the agent and the workspace of the session", field="session")
    if principal.user is None or call.user != principal.user:
        require_scope(principal, "operate")
    if call.workspace is not None and not principal.reaches_workspace(call.workspace):
        raise Forbidden("the token is for another workspace", field="workspace")
    if call.agent is not None and not principal.reaches_agent(call.agent):
        raise Forbidden("the token is for other agents", field="agent")
    names = services.runtime.stores.names()
    workspace = call.workspace or principal.workspace
    if workspace is not None:
        if call.workspace is not None and workspace not in names:
            raise NotFound(f"there is no workspace {workspace!r}", field="workspace")
        names = [name for name in names if name == workspace]
    selection = Selection(user=call.user, agent=call.agent, workspace=workspace, session=call.session)
    return ExportScope(selection, tuple(names), principal.agents)


def _target(services: Services, selection: Selection) -> str:
    """Return the audit log's name for an export's target, with a hash in place of a name that may be a person's."""
    if selection.user is not None:
        return _audited_user(services, selection.user)
    if selection.session is not None:
        return audited_name(services.runtime.settings.data, "session", selection.session)
    named = {"agent": selection.agent, "workspace": selection.workspace}
    return next((f"{kind} {name}" for kind, name in named.items() if name is not None), "everything")


def _audited_user(services: Services, user: str | None) -> str:
    """Return the audit log's name of a user: the same hash that receipts of erasures have."""
    return audited_name(services.runtime.settings.data, "user", user or "")
