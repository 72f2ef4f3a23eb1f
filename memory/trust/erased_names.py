"""Erases the name of a user from tokens, and that of an agent from the record of rotated webhook secrets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from memory.trust.erasure_rows import Scope
from memory.trust.webhook_secrets import forget_agent
from storage.stores import Stores
from storage.trust.erasures import ErasureRecord

_SHOWN_HASH: Final = 16


def erased_name(target_hash: str) -> str:
    """Return what stands in the place of an erased user's name, from the hash in the receipt."""
    return f"erased-{target_hash[:_SHOWN_HASH]}"


def erase_names(
    stores: Stores, erasure: ErasureRecord, scope: Scope, workspaces: Iterable[str], *, now: int
) -> dict[str, dict[str, int]]:
    """Remove the names that an erasure is about from tokens and webhook secrets; return the numbers by place.

    A token that was bound to an erased user is revoked, and names the user by the hash in the receipt. The one that
    asked for the erasure reads for an hour, as nobody, so that the receipt reaches whoever asked. Safe to repeat.
    """
    if scope.kind == "user":
        revoked = stores.tokens().forget_user(
            scope.target,
            erased_name(erasure.target_hash),
            workspace=scope.workspace,
            agent=scope.agent,
            now=now,
            spared=erasure.requested_by,
        )
        if erasure.requested_by in revoked:
            stores.erasures().rename_requester(erasure.requested_by, erased_name(erasure.target_hash))
        return {"tokens": {"revoked": len(revoked)}} if revoked else {}
    if scope.kind != "agent" or scope.agent is None:
        return {}
    renamed = forget_agent(stores, scope.agent, workspaces)
    return {"webhook secrets": {"names": renamed}} if renamed else {}
