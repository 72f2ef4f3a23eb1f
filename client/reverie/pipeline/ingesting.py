"""The `ingest` and `ingest_file` methods of the clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reverie.checks import check_trace, check_wait
from reverie.connection import Connection
from reverie.contract import Visibility, WaitFor
from reverie.pipeline.items import build_file, build_session
from reverie.pipeline.submission import prepare_messages, single
from reverie.pipeline.types import Receipt


def ingest(
    connection: Connection,
    session: str | None = None,
    messages: Iterable[Mapping[str, Any]] | Mapping[str, Any] | None = None,
    *,
    user: str | None = None,
    provider: str | None = None,
    chat_id: str | None = None,
    channel: str | None = None,
    visibility: Visibility | None = None,
    strict: bool = False,
    wait: WaitFor = "queued",
    timeout_seconds: float = 30.0,
    trace: str | None = None,
) -> Receipt:
    """Ingest messages, or a single one, into a session, which is named by its id or by `provider` and `chat_id`.

    Return once they are in the inbox, or with `wait` once they are stored or searchable. Invalid messages are listed
    in `receipt.rejected`, the others are accepted; sending the same ids again changes nothing. The session belongs to
    the first `user` that is named, and is a group of all that are; with `visibility="shared"` all users of the agent
    see these messages. With `strict`, messages out of sequence are refused. Raises `Rejected` if all messages are
    invalid, `Unavailable` (with the ids whose acceptance is unknown) and `WaitTimeout`.
    """
    session_input = build_session(
        {
            "session": session,
            "user": user,
            "provider": provider,
            "chat_id": chat_id,
            "channel": channel,
            "visibility": visibility,
            "strict": strict,
        }
    )
    check_wait(wait, timeout_seconds)
    submission = prepare_messages(
        messages, agent=connection.config.agent, session_input=session_input, trace=check_trace(trace)
    )
    return connection.deliver(submission, wait=wait, timeout_seconds=timeout_seconds)


def ingest_file(
    connection: Connection,
    source_uri: str,
    content: str,
    *,
    session: str | None = None,
    user: str | None = None,
    visibility: Visibility | None = None,
    tags: Iterable[str] = (),
    metadata: Mapping[str, Any] | None = None,
    wait: WaitFor = "queued",
    timeout_seconds: float = 30.0,
    trace: str | None = None,
) -> Receipt:
    """Ingest the text of a document; an unchanged document is not indexed again. Raises the errors of `ingest`."""
    check_wait(wait, timeout_seconds)
    payload = build_file(
        agent=connection.config.agent,
        source_uri=source_uri,
        content=content,
        trace=check_trace(trace),
        session=session,
        metadata=metadata,
        tags=tags,
        user=user,
        visibility=visibility,
    )
    return connection.deliver(single(payload), wait=wait, timeout_seconds=timeout_seconds)
