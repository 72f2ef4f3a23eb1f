"""The connections of a client: HTTP to the server for all calls, and the broker, if one is configured, for ingest.

The methods `ingest` and `files.add`, which may take either way, are functions of a connection.

httpx2 is imported with the first call; every failure becomes one of our errors,
which quotes its cause instead of chaining it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from reverie.calls import Call, is_repeatable, response_type, route_of
from reverie.checks import check_trace, check_wait
from reverie.clock import in_seconds, new_id, rfc3339
from reverie.config import LOCAL_HOSTS, ClientConfig, local_server, parse_keys, without_password
from reverie.contract import TOKEN_PREFIX, FilePayload, MessagePayload, Payload, Visibility, WaitFor
from reverie.decoding import describe
from reverie.errors import (
    CONTENT_TYPE,
    InboxFull,
    Permanent,
    Problem,
    QuotaExceeded,
    Rejected,
    Rejection,
    ReverieError,
    Unavailable,
    WaitTimeout,
    error_of,
)
from reverie.pipeline.calls import IngestFile, IngestMessages, Receipt
from reverie.pipeline.submission import (
    MessageDict,
    Submission,
    build_file,
    build_session,
    checked_receipt,
    enqueue,
    prepare_messages,
    single,
    split_submission,
)
from reverie.sessions.types import Message
from reverie.tracing import current_traceparent

if TYPE_CHECKING:
    import redis

    from reverie.pipeline.producer import Producer

# Half of the server's default limit: a single message, with its tool calls and metadata, may be larger than this.
_PART_BYTES: Final = 2 * 1024 * 1024
_PART_ITEMS: Final = 1_000
_MAX_WAIT_DIGITS: Final = 4
# The client waits this much longer than the server for the response to a call that waits for workers.
_MARGIN_SECONDS: Final = 5.0
_UNAUTHORISED: Final = 401

_T = TypeVar("_T")


class HttpTransport:
    """Sends the calls of one agent to one server. Safe to share between threads and to use after a fork."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._client: Any = None
        self._pid = 0

    def send(self, call: Call[_T], *, trace: str = "", timeout_seconds: float | None = None) -> _T:
        """Send a call and return its response. Raises what the server raised, or `Unavailable`."""
        route = route_of(type(call))
        arguments = msgspec.to_builtins(call)
        path = route.path.format_map({name: path_segment(str(arguments.pop(name))) for name in route.path_fields})
        request: dict[str, Any] = {"headers": {"X-Reverie-Trace": quote(trace, safe="")} if trace else {}}
        if parent := current_traceparent():
            request["headers"]["traceparent"] = parent
        if is_repeatable(type(call)):
            # The key is the same in each repetition of this request, so the server carries it out once.
            request["headers"]["Idempotency-Key"] = new_id()
        if route.has_body:
            request["headers"]["Content-Type"] = "application/json"
            request["content"] = msgspec.json.encode(arguments)
        else:
            request["params"] = {name: value for name, value in arguments.items() if value is not None}
        timeout = timeout_seconds or call.http_timeout_seconds() or self._config.timeout_seconds
        response = self._send_patiently(route.method, path, timeout=timeout, **request)
        if response.is_success:
            kind = response_type(type(call))
            describe(kind)
            try:
                return msgspec.json.decode(response.content, type=kind)
            except (ValueError, RecursionError) as error:
                raise Permanent(f"this client cannot decode the response of {self._config.url} to {path}") from error
        raise self._error(response)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._client is not None and self._pid == os.getpid():
                self._client.close()
            self._client = None

    def _authorised(self, method: str, path: str, *, headers: dict[str, str], **request: Any) -> Any:
        """Send a request with a token, if one is known.

        A server listens a moment before it announces itself, and may have been started anew with another token: a
        request that it refuses for lack of a token is sent again with the token that it has announced since.
        """
        url, token = self._server()
        response = self._send(method, url + path, headers=_with_token(headers, token), **request)
        if response.status_code == _UNAUTHORISED and self._config.token is None:
            url, announced = self._server()
            if announced not in (None, token):
                response = self._send(method, url + path, headers=_with_token(headers, announced), **request)
        return response

    def _server(self) -> tuple[str, str | None]:
        """Return the URL of the server and the token to send: the configured one, else that of this user's own server.

        The latter is looked up for each call, which takes 30 microseconds: a server that has ended may have left its
        port to a program of another user.
        """
        if self._config.token is not None:
            return self._config.url, self._config.token
        found = local_server(self._config.url)
        return (self._config.url, None) if found is None else (found.url, found.token)

    def _send_patiently(self, method: str, path: str, *, timeout: float, **request: Any) -> Any:
        """Send a request. If the server says when to try again, repeat it then, as long as `timeout` allows it."""
        deadline = time.monotonic() + timeout
        while True:
            response = self._authorised(method, path, timeout=timeout, **request)
            seconds = _seconds_to_wait(response)
            if seconds is not None and isinstance(self._error(response), QuotaExceeded | InboxFull):
                return response  # space is not freed within the time of a call
            if seconds is None or time.monotonic() + seconds > deadline:
                return response
            time.sleep(seconds)

    def _send(self, method: str, url: str, **request: Any) -> Any:
        import httpx2

        client = self._connected()
        for attempt in (1, 2):
            try:
                return client.request(method, url, **request)
            except httpx2.ConnectError as error:
                raise Unavailable(
                    f"the server at {self._config.url} does not answer ({error}): is it running? Start it with"
                    " `reverie up`, or set REVERIE_URL to another"
                ) from None
            except httpx2.TimeoutException:
                raise Unavailable(
                    f"the server at {self._config.url} did not answer within {request['timeout']:.0f} s: is it"
                    " stopped, or its machine busy? See its log"
                ) from None
            except (httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
                # Usually a pooled connection from before a restart of the server. The server may have carried the
                # request out, but does not do so twice: it recognises the request by its key or its ids.
                if attempt == 2:
                    raise Unavailable(f"the server at {self._config.url} closed the connection ({error})") from None
            except httpx2.HTTPError as error:
                raise Unavailable(f"the request to {self._config.url} failed ({error})") from None
        raise AssertionError("unreachable")

    def _connected(self) -> Any:
        import httpx2

        with self._lock:
            if self._client is None or self._pid != os.getpid():
                headers = {}
                if self._config.agent_named or not self._may_be_bound:
                    headers["X-Reverie-Agent"] = quote(self._config.agent, safe="")
                if self._config.workspace_named or not self._may_be_bound:
                    headers["X-Reverie-Workspace"] = self._config.workspace
                if self._config.user is not None:
                    headers["X-Reverie-User"] = quote(self._config.user, safe="")
                server = urlsplit(self._config.url)
                # A proxy set in the environment cannot reach this machine's loopback addresses.
                proxies = server.hostname not in LOCAL_HOSTS
                # Without TLS nothing is verified, and reading the certificates would take 25 ms.
                tls = proxies or server.scheme == "https"
                self._client = httpx2.Client(headers=headers, trust_env=proxies, verify=tls)
                self._pid = os.getpid()
            return self._client

    @property
    def _may_be_bound(self) -> bool:
        """Whether the token may be limited to an agent and a workspace: then no default names another one."""
        return (self._config.token or "").startswith(TOKEN_PREFIX)

    def _error(self, response: Any) -> ReverieError:
        if response.headers.get("content-type", "").startswith(CONTENT_TYPE):
            describe(Problem)
            try:
                return error_of(msgspec.json.decode(response.content, type=Problem))
            except (ValueError, RecursionError):
                pass
        error_text = f"{self._config.url} answered {response.status_code}"
        if response.status_code in (429, 502, 503, 504):
            return Unavailable(error_text)
        return Permanent(f"{error_text} and is not a Reverie server: check the URL")


def _with_token(headers: dict[str, str], token: str | None) -> dict[str, str]:
    return headers if token is None else {**headers, "Authorization": f"Bearer {token}"}


def post_submission(
    transport: HttpTransport, submission: Submission, *, wait: WaitFor, timeout_seconds: float
) -> Receipt:
    """Send a submission in requests of bounded size. It is safe to send it again: the ids stay the same.

    Raises `Unavailable` with the ids whose acceptance is unknown, `WaitTimeout`, and `Rejected` if all were rejected.
    """
    accepted: list[str] = []
    rejected: list[Rejection] = list(submission.rejected)
    degraded = ""
    late: WaitTimeout | None = None
    deadline = time.monotonic() + timeout_seconds
    for part in split_submission(submission, max_items=_PART_ITEMS, max_bytes=_PART_BYTES):
        try:
            # After the deadline the remaining parts are still sent, without waiting.
            remaining = max(0.1, round(deadline - time.monotonic(), 3))
            receipt = _post(transport, part, "queued" if late else wait, remaining)
        except WaitTimeout as error:
            late = error
            continue
        except Unavailable as error:
            done = len(accepted) if not late else 0
            raise type(error)(str(error), unconfirmed=submission.ids[done:]) from None
        accepted += receipt.accepted
        rejected += (_in_call(part, rejection) for rejection in receipt.rejected)
        degraded = degraded or receipt.degraded
    if late is not None:
        raise WaitTimeout(str(late), accepted=submission.ids) from None
    return checked_receipt(wait, accepted, rejected, trace=submission.trace, degraded=degraded)


def _seconds_to_wait(response: Any) -> float | None:
    """Return the seconds after which the server asks for the request again; None if it does not."""
    header = response.headers.get("retry-after", "")
    if response.status_code not in (429, 503) or not header.isdecimal() or len(header) > _MAX_WAIT_DIGITS:
        return None
    if b"urn:reverie:problem:too-many-failures" in response.content:  # a wrong token stays wrong
        return None
    return max(0.1, float(header))


def path_segment(text: str) -> str:
    """Encode a text as one segment of a path: slashes are escaped, and dots in segments of dots only."""
    encoded = quote(text, safe="")
    return encoded if encoded.strip(".") else encoded.replace(".", "%2E")


def _post(transport: HttpTransport, part: Submission, wait: WaitFor, timeout_seconds: float) -> Receipt:
    call = _ingest_call(part, wait, timeout_seconds)
    limit = None if wait == "queued" else timeout_seconds + _MARGIN_SECONDS
    try:
        return transport.send(call, trace=part.trace, timeout_seconds=limit)
    except Rejected as error:
        if not error.items:
            raise
        return Receipt(state=wait, accepted=[], rejected=list(error.items), trace=part.trace)


def _ingest_call(part: Submission, wait: WaitFor, timeout_seconds: float) -> IngestFile | IngestMessages:
    first = part.payloads[0]
    if isinstance(first, FilePayload):
        fields = ("id", "source_uri", "content", "session", "user", "visibility", "tags", "metadata")
        return IngestFile(**_present(first, fields), wait=wait, timeout_seconds=timeout_seconds)
    return IngestMessages(
        **_present(first, ("session", "provider", "chat_id", "channel", "strict", *_shared(part))),
        messages=[_message_body(payload, _shared(part)) for payload in part.payloads],
        wait=wait,
        timeout_seconds=timeout_seconds,
    )


def _shared(part: Submission) -> set[str]:
    """Return the names of those fields that all messages have in common, and that the call can have instead."""
    return {name for name in ("user", "visibility") if len({getattr(one, name) for one in part.payloads}) == 1}


def _message_body(payload: Payload, of_call: set[str]) -> dict[str, Any]:
    fields = ("id", "role", "content", "name", "tool_call_id", "tool_name", "tool_calls", "token_count", "importance",
              "metadata", "tags", "sequence", "original", *({"user", "visibility"} - of_call))  # fmt: skip
    return {**_present(payload, fields), "created_at": rfc3339(payload.created_at)}


def _present(payload: FilePayload | MessagePayload, fields: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a payload that are not empty."""
    return {name: value for name in fields if (value := getattr(payload, name)) not in (None, [], {})}


def _in_call(part: Submission, rejection: Rejection) -> Rejection:
    """Return a rejection with its index in the whole call instead of the part."""
    return msgspec.structs.replace(rejection, index=part.indexes[rejection.index])


class Connection:
    """The connections of one client, which the first call opens."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._http = HttpTransport(config)
        self.broker: redis.Redis | None = None
        self._producer: Producer | None = None
        if config.broker is not None:
            from reverie.pipeline.broker import connect
            from reverie.pipeline.producer import Producer

            self.broker = connect(config.broker, timeout_seconds=config.timeout_seconds)
            self._producer = Producer(
                config.broker,
                workspace=config.workspace,
                prefix=config.prefix,
                broker=self.broker,
                keys=parse_keys(config.broker_key),
            )

    def send(self, call: Call[_T]) -> _T:
        """Send a call to the server and return its response. Raises what the server raised, or `Unavailable`."""
        return self._http.send(call)

    def deliver(self, submission: Submission, *, wait: WaitFor, timeout_seconds: float) -> Receipt:
        """Put messages or a file into the inbox, through the broker if one is configured, else through the server.

        Raises `Rejected`, `WaitTimeout`, and `Unavailable` with the ids whose acceptance is not known.
        """
        if not submission.payloads:
            return submission.receipt(wait)
        deadline = time.monotonic() + timeout_seconds
        broker_failure = ""
        if self._producer is not None:
            try:
                return enqueue(self._producer, submission, wait=wait, timeout_seconds=timeout_seconds)
            except InboxFull:
                raise  # the server puts messages into the same inbox
            except Unavailable as error:
                if not self.config.url_given:
                    raise error from None
                broker_failure = f"tried the broker at {without_password(self.config.broker or '')}: {error}; then "
        try:
            # With the same ids, so that items that the broker has accepted are not stored twice.
            remaining = max(0.1, round(deadline - time.monotonic(), 3))
            return post_submission(self._http, submission, wait=wait, timeout_seconds=remaining)
        except InboxFull:
            raise
        except Unavailable as error:
            hint = "" if self._producer else "; messages can be enqueued without a server, with REVERIE_BROKER set"
            raise Unavailable(f"{broker_failure}{error}{hint}", unconfirmed=error.unconfirmed) from None

    def close(self) -> None:
        """Close all connections. The next call opens them again."""
        self._http.close()
        if self.broker is not None:
            self.broker.close()


def ingest(
    connection: Connection,
    session: str | None = None,
    messages: Iterable[MessageDict | Message] | MessageDict | None = None,
    *,
    user: str | None = None,
    provider: str | None = None,
    chat_id: str | None = None,
    channel: str | None = None,
    visibility: Visibility | None = None,
    strict: bool = False,
    wait: WaitFor = "queued",
    timeout_seconds: float | timedelta = 30.0,
    trace: str | None = None,
) -> Receipt:
    """Ingest messages, or a single one, into a session, which is named by its id or by `provider` and `chat_id`.

    Return once they are in the inbox, or with `wait` once they are stored or searchable. Invalid messages are listed
    in `receipt.rejected`, the others are accepted; sending the same ids again changes nothing. The session belongs to
    the first `user` named; when others are named, it becomes a group of them all. With `visibility="shared"` all users
    of the agent see these messages. With `strict`, messages out of sequence are refused. Raises `Rejected` if all
    messages are invalid, `Unavailable` (with the ids whose acceptance is unknown) and `WaitTimeout`.
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
    timeout_seconds = in_seconds(timeout_seconds)
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
    timeout_seconds: float | timedelta = 30.0,
    trace: str | None = None,
) -> Receipt:
    """Ingest the text of a document; unchanged parts are not indexed again. Raises the errors of `ingest`.

    The receipt has the document's id, which is the same for each version of it.
    """
    timeout_seconds = in_seconds(timeout_seconds)
    check_wait(wait, timeout_seconds)
    given = IngestFile(
        source_uri=source_uri,
        content=content,
        session=session,
        user=user,
        visibility=visibility,
        tags=tags,  # type: ignore[arg-type]  # what a caller passes may be read once
        metadata=metadata,  # type: ignore[arg-type]
    )
    payload = build_file(given, agent=connection.config.agent, trace=check_trace(trace))
    return connection.deliver(single(payload), wait=wait, timeout_seconds=timeout_seconds)
