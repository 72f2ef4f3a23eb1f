"""Erases the name of a user from tokens, and that of an agent from the record of rotated webhook secrets."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from adapters.kept_secrets import installation_key
from adapters.webhooks.agent_secrets import ROTATIONS_FILE, AgentSecrets
from memory.trust.erasure_rows import Scope
from storage.stores import Stores
from storage.trust.erasures import ErasureRecord

_SHOWN_HASH: Final = 16


def erased_name(target_hash: str) -> str:
    """Return what stands in the place of an erased user's name, from the hash in the receipt."""
    return f"erased-{target_hash[:_SHOWN_HASH]}"


def erase_names(
    stores: Stores, data: Path, erasure: ErasureRecord, scope: Scope, workspaces: Iterable[str], *, now: int
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
    renamed = forget_agent(data, scope.agent, workspaces)
    return {"webhook secrets": {"names": renamed}} if renamed else {}


def forget_agent(data: Path, agent: str, workspaces: Iterable[str]) -> int:
    """Take the name of an agent out of the records of webhook secrets in a data folder; return out of how many."""
    folders = [data / "workspaces" / name for name in workspaces]
    return sum(
        AgentSecrets(installation_key(data), folder).forget_name(agent)
        for folder in folders
        if (folder / ROTATIONS_FILE).exists()
    )


def forget_absent_agents(data: Path, workspace: str, present: Collection[str]) -> int:
    """Do the same for all agents of a workspace of whom nothing is stored."""
    folder = data / "workspaces" / workspace
    if not (folder / ROTATIONS_FILE).exists():
        return 0
    secrets = AgentSecrets(installation_key(data), folder)
    return sum(secrets.forget_name(agent) for agent in secrets.rotated() if agent not in present)
