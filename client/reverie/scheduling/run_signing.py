"""Signatures of runs: an agent's worker executes only what Reverie sent for its agent, in its workspace, recently.

Anybody who reaches the broker can put a task into a queue. So Reverie signs each run with a key that only it and the
workers of that agent know, and a worker refuses a run that is not signed, is signed for another agent, or is too old. A
run that has ended is refused as well: the worker asks the server.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import msgspec

from reverie.errors import Rejected

KEY_PREFIX: Final = "rvwk_"
# Signed with every run, so that no signature of another kind of message, or of another format, can stand for it.
_PURPOSE: Final = "reverie.run.v1"
_SIGNATURE_PREFIX: Final = "v1="
# The clocks of Reverie's host and of the agent's may differ by this much.
CLOCK_TOLERANCE_SECONDS: Final = 300


class WorkerKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key with which the runs of an agent in a workspace are signed: `rvwk_...`. Keep it secret."""

    key: str

    def __repr__(self) -> str:
        return "WorkerKey(...)"


class SignedRun(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a signature covers. `signed_at` is in seconds since 1970, `timeout_seconds` the time of the whole run."""

    workspace: str
    agent: str
    task: str
    schedule_id: str
    run_id: str
    goal: str
    due_at: str
    timeout_seconds: int
    trace: str
    signed_at: int
    user: str | None = None
    session: str | None = None


def derive_worker_key(installation_key: bytes, workspace: str, agent: str) -> str:
    """Return the key of an agent in a workspace. Two agents never have the same one."""
    identity = msgspec.json.encode(["reverie.worker-key.v1", workspace, agent])
    return KEY_PREFIX + hmac.new(installation_key, identity, hashlib.sha256).hexdigest()


def check_worker_key(key: str) -> str:
    """Check the form of a worker's key, and return the key. Raises `Rejected`, without showing the key."""
    digits = key.removeprefix(KEY_PREFIX)
    if digits == key or len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
        raise Rejected(
            f"key is not the key of an agent's workers, {KEY_PREFIX} and 64 hexadecimal digits:"
            " `reverie schedules worker-key` prints it",
            field="key",
        )
    return key


def sign_run(key: str, run: SignedRun) -> str:
    """Return the signature of a run, `v1=` and 64 hexadecimal digits."""
    message = msgspec.json.encode([_PURPOSE, run])
    return _SIGNATURE_PREFIX + hmac.new(key.encode(), message, hashlib.sha256).hexdigest()


def check_run(key: str, run: SignedRun, signature: object, *, agent: str, workspace: str, now: float) -> None:
    """Raise `Rejected` with the reason unless Reverie signed the run for this agent and the run has time left.

    `now` is in seconds since 1970.
    """
    if (run.agent, run.workspace) != (agent, workspace):
        raise Rejected(
            f"it is for agent {run.agent!r:.80} of workspace {run.workspace!r:.80}, not for {agent!r} of {workspace!r}",
            field="agent",
        )
    if not isinstance(signature, str) or not signature:
        raise Rejected("it is not signed: upgrade Reverie, if it is older than this client", field="signature")
    # Bytes: compare_digest refuses texts that are not ASCII.
    if not hmac.compare_digest(signature.encode("utf-8", "replace"), sign_run(key, run).encode()):
        raise Rejected(
            "its signature is wrong: somebody else put it into the queue, or this worker has an old key",
            field="signature",
        )
    age = now - run.signed_at
    if age > run.timeout_seconds + CLOCK_TOLERANCE_SECONDS:
        raise Rejected(f"it was sent {age:.0f} s ago, and had {run.timeout_seconds} s to end", field="signed_at")
    if age < -CLOCK_TOLERANCE_SECONDS:
        raise Rejected(f"it was sent {-age:.0f} s from now: set the clocks of both hosts", field="signed_at")
