"""Hand over messages and files through a client's connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reverie.checks import check_trace, check_wait
from reverie.connection import Connection
from reverie.contract import WaitFor
from reverie.pipeline.items import build_file, build_session
from reverie.pipeline.submission import prepare_messages, single
from reverie.pipeline.types import Receipt


def ingest(
    connection: Connection,
    session: str | None = None,
    messages: Iterable[Mapping[str, Any]] | Mapping[str, Any] = (),
    *,
    user: str | None = None,
    provider: str | None = None,
    chat_id: str | None = None,
    channel: str | None = None,
    strict: bool = False,
    wait: WaitFor = "queued",
    timeout_seconds: float = 30.0,
    trace: str | None = None,
) -> Receipt:
    """Hand over messages of a session, named by its id or by provider and chat id; a single message may be given.

    Returns once they are in the inbox, or with `wait` once they are stored or searchable. Messages at fault are
    in `receipt.rejected`, the others are accepted; sending the same ids again changes nothing. `strict` refuses
    messages that are out of sequence. Raises `Rejected` when all are at fault, `Unavailable` (with the ids whose
    acceptance is not known) and `WaitTimeout`.
    """
    where = build_session(
        {
            "session": session,
            "user": user,
            "provider": provider,
            "chat_id": chat_id,
            "channel": channel,
            "strict": strict,
        }
    )
    check_wait(wait, timeout_seconds)
    submission = prepare_messages(messages, agent=connection.config.agent, where=where, trace=check_trace(trace))
    return connection.deliver(submission, wait=wait, timeout_seconds=timeout_seconds)


def ingest_file(
    connection: Connection,
    source_uri: str,
    content: str,
    *,
    session: str | None = None,
    tags: Iterable[str] = (),
    metadata: Mapping[str, Any] | None = None,
    wait: WaitFor = "queued",
    timeout_seconds: float = 30.0,
    trace: str | None = None,
) -> Receipt:
    """Hand over the text of a document; an unchanged document is not indexed again. Raises as `ingest`."""
    check_wait(wait, timeout_seconds)
    payload = build_file(
        agent=connection.config.agent,
        source_uri=source_uri,
        content=content,
        trace=check_trace(trace),
        session=session,
        metadata=metadata,
        tags=tags,
    )
    return connection.deliver(single(payload), wait=wait, timeout_seconds=timeout_seconds)
