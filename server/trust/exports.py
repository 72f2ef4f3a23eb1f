"""/v1/export/records and /v1/import/records: everything about a user, an agent or a workspace, out and in."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Final

from memory.pipeline.chunking import chunk_messages
from memory.trust.exporting import ExportScope, first_page, next_page
from memory.trust.importing import ImportRules, import_records, place_in_tenants
from memory.trust.tombstones import hash_key, target_hash
from reverie import __version__
from reverie.clock import to_micros
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, Rejected, Unavailable
from reverie.problems import Forbidden
from reverie.trust import export_calls as calls
from reverie.trust.export_types import ExportedRecallEvent, ExportPage, ImportReport, Selection
from server.admission import admitted_records
from server.authorisation import require_creator, require_scope
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("exports")

# Characters of the keyed hash by which the audit log names a user: enough to recognise one, and no name.
_SHOWN_HASH: Final = 16


@endpoints.serves(calls.ReadExport, subject="server", limits_itself=True)
def _export_records(services: Services, caller: Caller, call: calls.ReadExport) -> ExportPage:
    runtime, scope = services.runtime, _scope(services, caller, call)
    if call.cursor is not None:
        return next_page(runtime.stores, scope, cursor=call.cursor)
    page = first_page(runtime.stores, scope, version=__version__, now=runtime.now(), count_only=call.dry_run)
    if not call.dry_run:
        of = replace(caller, workspace=scope.selection.workspace or "", agent=scope.selection.agent or "")
        services.audit(of, "export", _target(services, scope.selection))
    return page


@endpoints.serves(calls.ImportRecords, subject="server", limits_itself=True)
def _import_records(services: Services, caller: Caller, call: calls.ImportRecords) -> ImportReport:
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
        services.audit(into, "import", _given_to(services, call.user))
    for name in sorted(done.stores):
        runtime.notify_stage("chunk", name)
    for name, sessions in done.sessions.items():
        with contextlib.suppress(Unavailable):  # without a broker, no message of theirs is in it
            runtime.working_memory.drop(name, sorted(sessions))
    return done.report()


def _check_reach(services: Services, caller: Caller, call: calls.ImportRecords) -> None:
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


def _chunk_what_was_found(services: Services, call: calls.ImportRecords) -> None:
    """Chunk what recall events have found, where the workers have not done it yet, or do not run."""
    events = [record for record in call.records if isinstance(record, ExportedRecallEvent)]
    for name in sorted({ACCOUNT_STORE if event.in_account else event.workspace for event in events}):
        with contextlib.suppress(NotFound):
            store = services.runtime.stores.workspace(name, create=False)
            chunk_messages(store, now=services.runtime.now, on_batch=lambda _: None)


def _scope(services: Services, caller: Caller, call: calls.ReadExport) -> ExportScope:
    """Return what to export, within what the caller may reach. Raises `Forbidden` and `NotFound`."""
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
    """Return what the audit log says of an export: its kind, with a hash where the name could be a person's."""
    if selection.user is not None:
        return _given_to(services, selection.user)
    named = {"session": selection.session, "agent": selection.agent, "workspace": selection.workspace}
    return next((f"{kind} {name}" for kind, name in named.items() if name is not None), "everything")


def _given_to(services: Services, user: str | None) -> str:
    """Return what the audit log says of a user: a hash, by which the receipt of an erasure names the same one."""
    if user is None:
        return ""
    key = hash_key(services.runtime.settings.data)
    hashed = target_hash(key, "user", workspace=None, agent=None, target=user)
    return f"user {hashed[:_SHOWN_HASH]}"
