"""/v1/tokens and /v1/audit: create, list, rotate and revoke tokens, and read the audit log."""

from __future__ import annotations

from memory.trust.tokens import NewToken, TokenRequest, create_token, list_tokens, revoke_token, rotate_token
from reverie.clock import from_micros, to_micros
from reverie.trust import calls
from reverie.trust.types import AuditList, AuditRecord, CreatedToken, TokenInfo, TokenList
from server.authorisation import require_reach
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from storage.rows import field_names
from storage.trust.audit import AuditFilter, StoredEntry
from storage.trust.tokens import TokenRecord

endpoints = Endpoints("trust")


@endpoints.serves(calls.CreateToken, subject="server", limits_itself=True)
def _create_token(services: Services, caller: Caller, call: calls.CreateToken) -> CreatedToken:
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
def _list_tokens(services: Services, caller: Caller, call: calls.ListTokens) -> TokenList:
    found = list_tokens(
        services.runtime.stores,
        by=caller.principal,
        everything=call.everything,
        now=services.runtime.now(),
        limit=call.limit,
        offset=call.offset,
    )
    return TokenList(tokens=[_info(services, token) for token in found])


@endpoints.serves(calls.RotateToken, subject="server", limits_itself=True)
def _rotate_token(services: Services, caller: Caller, call: calls.RotateToken) -> CreatedToken:
    runtime, grace_seconds = services.runtime, call.grace_seconds
    made = rotate_token(runtime.stores, call.token, grace_seconds=grace_seconds, by=caller.principal, now=runtime.now())
    return _created(services, made)


@endpoints.serves(calls.RevokeToken, subject="server", limits_itself=True)
def _revoke_token(services: Services, caller: Caller, call: calls.RevokeToken) -> TokenList:
    runtime = services.runtime
    revoked = revoke_token(runtime.stores, call.token, by=caller.principal, now=runtime.now())
    services.token_checker.forget()
    return TokenList(tokens=[_info(services, token) for token in revoked])


@endpoints.serves(calls.ListAudit, subject="server", limits_itself=True)
def _list_audit(services: Services, caller: Caller, call: calls.ListAudit) -> AuditList:
    # Entries have no user, and those of other agents are none of a bound token's business.
    require_reach(caller.principal, "workspace")
    wanted = AuditFilter(
        since=None if call.since is None else to_micros(call.since),
        actor=call.actor,
        action=call.action,
        workspace=caller.principal.workspace,
    )
    entries = services.runtime.stores.audit().entries(wanted, limit=call.limit, offset=call.offset)
    return AuditList(entries=[_record(entry) for entry in entries])


def _created(services: Services, made: NewToken) -> CreatedToken:
    services.token_checker.forget()
    return CreatedToken(token=made.text, info=_info(services, made.record))


def _info(services: Services, token: TokenRecord) -> TokenInfo:
    moments = ("expires_at", "last_used_at", "revoked_at")
    ends = {name: None if (at := getattr(token, name)) is None else from_micros(at) for name in moments}
    return TokenInfo(
        id=token.id,
        name=token.name,
        workspace=token.workspace,
        tenant="" if token.workspace is None else services.runtime.stores.tenants().of(token.workspace),
        agents=list(token.agents or ()),
        user=token.user,
        scopes=list(token.scopes),
        created_at=from_micros(token.created_at),
        created_by=token.created_by,
        replaces=token.replaces,
        **ends,
    )


def _record(entry: StoredEntry) -> AuditRecord:
    fields = {name: getattr(entry, name) for name in field_names(StoredEntry)}
    return AuditRecord(**{**fields, "at": from_micros(entry.at)})
