"""/v1/quotas: what workspaces and tenants hold, and their limits."""

from __future__ import annotations

from memory.trust.quota_list import quota_uses, uses_of
from reverie.trust import quota_calls as calls
from reverie.trust.quota_types import QuotaList
from server.authorisation import require_reach
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("trust")


@endpoints.serves(calls.ListQuotas, subject="server", limits_itself=True)
def _list_quotas(services: Services, caller: Caller, call: calls.ListQuotas) -> QuotaList:
    require_reach(caller.principal, "workspace")
    bound = caller.principal.workspace
    if bound is not None and call.workspace not in (None, bound):
        return QuotaList(quotas=[])
    only = bound or call.workspace
    uses = quota_uses(services.runtime.stores, services.quotas, only=only, limit=call.limit, offset=call.offset)
    return QuotaList(quotas=uses)


@endpoints.serves(calls.SetQuotas, subject="server")
def _set_quotas(services: Services, _: Caller, call: calls.SetQuotas) -> QuotaList:
    stores = services.runtime.stores
    stores.quotas().set(call.holder, call.name, call.given())
    services.tell_producers()
    return QuotaList(quotas=uses_of(stores, services.quotas, call.holder, call.name))
