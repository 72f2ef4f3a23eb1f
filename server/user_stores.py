"""The store as a call sees it that is for a user, for nobody, or for all users."""

from __future__ import annotations

from typing import Any

from reverie.calls import OfOneOrAll, OfUser
from reverie.errors import Rejected
from server.authorisation import require_scope
from server.caller import Caller, lacking
from server.services import Services
from storage.stores import Store


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
