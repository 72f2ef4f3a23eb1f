"""The client of one agent: hands over what was said, and asks for it again.

`ingest` goes straight to the broker where one is known, else over HTTP; both keep one contract. Celery, redis and
httpx2 are imported when they are first needed. One client may be shared by threads and used after a fork.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from reverie.checks import check_label, check_query, check_session, check_trace, check_wait, normalise_tags
from reverie.config import resolve_config, without_password
from reverie.contract import WaitFor
from reverie.errors import Unavailable
from reverie.http import HttpTransport, post_submission, session_path
from reverie.memories.memories import MemoryCalls
from reverie.pipeline.items import build_file, build_session
from reverie.pipeline.status import PipelineStatus
from reverie.pipeline.submission import Submission, enqueue, prepare_messages, single
from reverie.recall.contexts import ContextCalls
from reverie.scheduling.notifications import NotificationCalls
from reverie.scheduling.reminders import ReminderCalls
from reverie.scheduling.schedules import ScheduleCalls
from reverie.sessions.channels import ChannelCalls
from reverie.sessions.lifecycle import SessionLifeCalls
from reverie.sessions.scratchpads import ScratchpadCalls
from reverie.sessions.summaries import SummaryCalls
from reverie.types import (
    DeadLetter,
    DeadLetterList,
    Deleted,
    FoundSessions,
    Message,
    MessageList,
    RecallEvent,
    RecallEventList,
    RecallResponse,
    Receipt,
    Session,
    SessionExport,
    SessionList,
)
from reverie.upkeep.curation import CurationCalls
from reverie.upkeep.notebooks import NotebookCalls

if TYPE_CHECKING:
    import redis

    from reverie.pipeline.producer import Producer

Mode = Literal["keyword", "vector", "hybrid"]
Fusion = Literal["contextual", "weighted", "rrf"]
Scope = Literal["conversation", "channel", "workspace", "account"]
Kind = Literal["message", "file", "memory"]
Status = Literal["active", "idle", "archived"]


class Reverie(
    ContextCalls,
    MemoryCalls,
    NotebookCalls,
    SummaryCalls,
    SessionLifeCalls,
    ScratchpadCalls,
    ChannelCalls,
    CurationCalls,
    ScheduleCalls,
    ReminderCalls,
    NotificationCalls,
):
    """One agent's memory in one workspace.

    What is not given is read once from REVERIE_AGENT, REVERIE_URL, REVERIE_BROKER, REVERIE_TOKEN,
    REVERIE_WORKSPACE and REVERIE_BROKER_PREFIX. Nothing is connected before the first call.
    """

    def __init__(
        self,
        agent: str | None = None,
        *,
        url: str | None = None,
        broker: str | None = None,
        token: str | None = None,
        workspace: str | None = None,
        prefix: str | None = None,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._config = resolve_config(
            agent=agent,
            url=url,
            broker=broker,
            token=token,
            workspace=workspace,
            prefix=prefix,
            timeout_seconds=timeout_seconds,
        )
        self.agent = self._config.agent
        self.workspace = self._config.workspace
        self._http = HttpTransport(self._config)
        self._broker: redis.Redis | None = None
        self._producer: Producer | None = None
        if self._config.broker is not None:
            from reverie.pipeline.broker import connect
            from reverie.pipeline.producer import Producer

            self._broker = connect(self._config.broker)
            self._producer = Producer(
                self._config.broker, workspace=self.workspace, prefix=self._config.prefix, broker=self._broker
            )

    def __enter__(self) -> Self:
        """Use the client as a context manager; it is closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close all connections. The next call would open them again."""
        self._http.close()
        if self._broker is not None:
            self._broker.close()

    def ingest(
        self,
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
        """Hand over messages of a session, named by its id or by provider and chat id; a single one may stand alone.

        Returns once they are in the inbox, or with `wait` once they are stored or searchable. Messages at fault are
        in `receipt.rejected`, the others are accepted; sending the same ids again changes nothing. Raises `Rejected`
        when all are at fault, `Unavailable` (with the ids whose acceptance is not known) and `WaitTimeout`.
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
        wait = check_wait(wait, timeout_seconds)
        prepared = prepare_messages(messages, agent=self.agent, where=where, trace=check_trace(trace))
        return self._deliver(prepared, wait, timeout_seconds)

    def ingest_file(
        self,
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
        """Hand over the text of a document; one that has not changed is not indexed again. Raises as `ingest`."""
        wait = check_wait(wait, timeout_seconds)
        payload = build_file(
            agent=self.agent,
            source_uri=source_uri,
            content=content,
            trace=check_trace(trace),
            session=session,
            metadata=metadata,
            tags=tags,
        )
        return self._deliver(single(payload), wait, timeout_seconds)

    def recall(
        self,
        query: str,
        *,
        session: str | None = None,
        channel: str | None = None,
        scope: Scope | None = None,
        tags: Iterable[str] = (),
        kinds: Iterable[Kind] = (),
        mode: Mode = "hybrid",
        limit: int = 5,
        query_embedding: Sequence[float] | None = None,
        fusion: Fusion = "contextual",
        vector_weight: float | None = None,
        fts_weight: float | None = None,
        neighbours: int = 0,
        explain: bool = False,
    ) -> RecallResponse:
        """What this agent was told and remembers that fits the query, best first.

        `tags` confine it to what carries all of them, `kinds` to some of "message", "file" and "memory". `session` and
        `channel` confine it; `scope` says how far to look from a session: "channel" to its channel, "workspace" to
        everything in it, "account" to what holds across workspaces too, as without any of these. `fusion` "contextual"
        also weighs what was said around a turn; "weighted" and "rrf" fuse plain BM25 and cosine. The two weights sum to
        1; one of them is enough. `neighbours` asks for so many messages before and after each result.

        Raises `Rejected`, `NotFound` for an unknown session, and `Unavailable`.
        """
        body = {
            "query": check_query(query),
            "session": None if session is None else check_session(session),
            "channel": None if channel is None else check_label("channel", channel, required=True),
            "scope": scope,
            "tags": normalise_tags(tags),
            "kinds": list(kinds),
            "mode": mode,
            "limit": limit,
            "query_embedding": None if query_embedding is None else [float(number) for number in query_embedding],
            "fusion": fusion,
            "vector_weight": vector_weight,
            "fts_weight": fts_weight,
            "neighbours": neighbours,
            "explain": explain,
        }
        return self._http.call("POST", "/v1/recall", RecallResponse, body=body)

    def search_sessions(
        self, query: str, *, tags: Iterable[str] = (), mode: Mode = "hybrid", limit: int = 5
    ) -> FoundSessions:
        """Which conversation was that? Sessions that fit the query, best first. Raises `Rejected`, `Unavailable`."""
        body = {"query": check_query(query), "tags": normalise_tags(tags), "mode": mode, "limit": limit}
        return self._http.call("POST", "/v1/sessions/search", FoundSessions, body=body)

    def recall_events(self, limit: int = 50, offset: int = 0, *, explain: bool = False) -> list[RecallEvent]:
        """What this agent's recalls found, the newest first; recorded soon after each. Scores only with `explain`."""
        query = {"limit": limit, "offset": offset, "explain": "true" if explain else None}
        return self._http.call("GET", "/v1/recall-events", RecallEventList, query=query).recall_events

    def working(self, session: str) -> list[Message]:
        """The last 50 messages of a session, oldest first; from the broker where it has them. Raises `NotFound`."""
        path = session_path(check_session(session), "/working")
        return self._working_in_broker(session) or self._http.call("GET", path, MessageList).messages

    def sessions(self, limit: int = 50, offset: int = 0, status: Status | None = None) -> list[Session]:
        """Sessions, the most recently active first; archived ones only when asked for."""
        query = {"limit": limit, "offset": offset, "status": status}
        return self._http.call("GET", "/v1/sessions", SessionList, query=query).sessions

    def session(self, session: str) -> Session:
        """One session. Raises `NotFound`."""
        return self._http.call("GET", session_path(check_session(session)), Session)

    def messages(self, session: str, limit: int = 100, offset: int = 0) -> list[Message]:
        """Messages of a session in the order in which they were said. Raises `NotFound`."""
        path = session_path(check_session(session), "/messages")
        return self._http.call("GET", path, MessageList, query={"limit": limit, "offset": offset}).messages

    def export_session(self, session: str) -> SessionExport:
        """A session with all its messages. Raises `NotFound`."""
        return self._http.call("GET", session_path(check_session(session), "/export"), SessionExport)

    def forget_session(self, session: str) -> bool:
        """Delete a session with all that came from it, also what is still on its way; False when there was none."""
        return self._http.call("DELETE", session_path(check_session(session)), Deleted).deleted

    def delete_workspace(self) -> bool:
        """Delete this client's whole workspace, of all agents, for good; False when there was none."""
        return self._http.call("DELETE", "/v1/workspace", Deleted).deleted

    def status(self) -> PipelineStatus:
        """The state of the pipeline."""
        return self._http.call("GET", "/v1/status", PipelineStatus)

    def dead_letters(self, limit: int = 50, offset: int = 0) -> list[DeadLetter]:
        """This agent's work that cannot succeed by itself, the newest first, without its payload."""
        query = {"limit": limit, "offset": offset}
        return self._http.call("GET", "/v1/dead-letters", DeadLetterList, query=query).dead_letters

    def dead_letter(self, letter_id: int) -> DeadLetter:
        """One dead letter with its payload. Raises `NotFound`."""
        return self._http.call("GET", f"/v1/dead-letters/{int(letter_id)}", DeadLetter)

    def replay(self, letter_id: int) -> DeadLetter:
        """Give a dead letter a fresh start; if it fails again it comes back with its new error. Raises `NotFound`."""
        return self._http.call("POST", f"/v1/dead-letters/{int(letter_id)}/replay", DeadLetter)

    def drop(self, letter_id: int) -> bool:
        """Remove a dead letter for good; False when there was none."""
        return self._http.call("DELETE", f"/v1/dead-letters/{int(letter_id)}", Deleted).deleted

    def _deliver(self, submission: Submission, wait: WaitFor, timeout_seconds: float) -> Receipt:
        if not submission.payloads:
            return submission.receipt(wait)
        deadline = time.monotonic() + timeout_seconds
        tried = ""
        if self._producer is not None:
            try:
                return enqueue(self._producer, submission, wait=wait, timeout_seconds=timeout_seconds)
            except Unavailable as error:
                if not self._config.url_given:
                    raise
                tried = f"tried the broker at {without_password(self._config.broker or '')}: {error}; then "
        try:
            # The same ids: what the broker did take is not stored twice.
            left = max(0.1, round(deadline - time.monotonic(), 3))
            return post_submission(self._http, submission, wait=wait, timeout_seconds=left)
        except Unavailable as error:
            hint = "" if self._producer else "; set REVERIE_URL, or REVERIE_BROKER to enqueue without a server"
            raise Unavailable(f"{tried}{error}{hint}", unconfirmed=error.unconfirmed) from error

    def _working_in_broker(self, session: str) -> list[Message] | None:
        if self._broker is None:
            return None
        from reverie.sessions.working import read_working

        try:
            return read_working(
                self._broker,
                prefix=self._config.prefix,
                workspace=self.workspace,
                agent=self.agent,
                session=session,
            )
        except Unavailable:
            return None  # the server reads it from the store
