"""What is wrong is said: the right status, type and field, never a traceback; what is right beside it is kept."""

# ruff: noqa: E501 - a table of requests is read line by line

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from reverie.client import Reverie
from reverie.errors import Rejected
from support.http import running_server
from support.stages import drain, store_inbox
from worker.runtime import Runtime

GOOD = {"role": "user", "content": "good"}
AGENT = {"X-Reverie-Agent": "ana"}
DEEP = b"[" * 100_000 + b"]" * 100_000
MEGABYTE = 1024 * 1024


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


# One message at fault, and the field that is named.
BAD_MESSAGES: list[tuple[str, Any, str]] = [
    ("unknown role", {"role": "robot", "content": "x"}, "role"),
    ("no role", {"content": "x"}, "role"),
    ("no content", {"role": "user"}, "content"),
    ("empty content", {"role": "user", "content": ""}, "content"),
    ("content of another type", {"role": "user", "content": 7}, "content"),
    ("NUL in content", {"role": "user", "content": "a\x00b"}, "content"),
    ("lone surrogate in content", {"role": "user", "content": "a\ud800"}, "content"),
    ("lone surrogate in metadata", {**GOOD, "metadata": {"a": ["\udfff"]}}, "metadata"),
    ("lone surrogate in a key", {**GOOD, "metadata": {"\udfff": 1}}, "metadata"),
    ("content over 1 MiB", {"role": "user", "content": "x" * (MEGABYTE + 1)}, "content"),
    ("3 MB of content", {"role": "user", "content": "x" * 3 * MEGABYTE}, "content"),
    ("metadata over 64 KiB", {**GOOD, "metadata": {"a": "x" * 65_536}}, "metadata"),
    ("metadata nested too deep", {**GOOD, "metadata": nested(33)}, "metadata"),
    ("metadata that is no object", {**GOOD, "metadata": [1]}, "metadata"),
    ("tool calls nested too deep", {**GOOD, "tool_calls": [nested(40)]}, "tool_calls"),
    ("tool calls over 1 MiB", {**GOOD, "tool_calls": [{"a": "x" * MEGABYTE}]}, "tool_calls"),
    ("too many tags", {**GOOD, "tags": [str(n) for n in range(17)]}, "tags"),
    ("a tag too long", {**GOOD, "tags": ["x" * 65]}, "tags"),
    ("a tag with NUL", {**GOOD, "tags": ["a\x00"]}, "tags"),
    ("a tag that is no text", {**GOOD, "tags": [7]}, "tags[0]"),
    ("id too long", {**GOOD, "id": "x" * 257}, "id"),
    ("blank id", {**GOOD, "id": " "}, "id"),
    ("id with the separator", {**GOOD, "id": "a\x1fb"}, "id"),
    ("name with a line break", {**GOOD, "name": "a\nb"}, "name"),
    ("importance out of range", {**GOOD, "importance": 1.5}, "importance"),
    ("negative token count", {**GOOD, "token_count": -1}, "token_count"),
    ("huge token count", {**GOOD, "token_count": 2**70}, "token_count"),
    ("sequence 0", {**GOOD, "sequence": 0}, "sequence"),
    ("huge sequence", {**GOOD, "sequence": 2**63}, "sequence"),
    ("time without a zone", {**GOOD, "created_at": "2026-05-01T09:30:00"}, "created_at"),
    ("time that is none", {**GOOD, "created_at": "tomorrow"}, "created_at"),
    ("unknown field", {**GOOD, "contents": "x"}, "contents"),
    ("no object", "hello", "message"),
    ("null", None, "message"),
]


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    with running_server(runtime) as address:
        yield address


@pytest.mark.parametrize("way", ["raw", "http", "broker"])
def test_one_bad_message_is_named_and_the_good_ones_are_stored(url: str, runtime: Runtime, way: str) -> None:
    """Given a bad message between two good ones, then its place and field are told, and two are stored."""
    where = {"broker": runtime.settings.broker, "prefix": runtime.settings.broker_prefix} if way == "broker" else {}
    with Reverie("ana", url=url, **where) as memory:
        for name, bad, field in BAD_MESSAGES:
            messages = [GOOD, bad, GOOD]
            if way == "raw":
                body = json.dumps({"session": name, "messages": messages}).encode()
                answered = httpx2.post(f"{url}/v1/messages", content=body, headers=AGENT, timeout=60)
                assert answered.status_code == 202, (name, answered.text)
                rejected = [(item["index"], item["field"]) for item in answered.json()["rejected"]]
            else:
                rejected = [(item.index, item.field) for item in memory.ingest(name, messages).rejected]
                with pytest.raises(Rejected) as caught:
                    memory.ingest(name, [bad, bad])
                assert caught.value.field == field, name
                assert len(caught.value.items) == 2, name
                assert "all 2 messages" in str(caught.value), name
            assert rejected == [(1, field)], name
            assert store_inbox(runtime) == 2, name


def test_when_every_message_is_at_fault_the_call_is(url: str) -> None:
    """Given only bad messages, then the answer is a problem that names the first and lists all."""
    body = {"session": "s", "messages": [{"role": "robot", "content": "x"}, {"role": "user", "content": ""}]}
    answered = httpx2.post(f"{url}/v1/messages", json=body, headers=AGENT)
    problem = answered.json()
    assert (answered.status_code, problem["field"]) == (422, "role")
    assert answered.headers["content-type"] == "application/problem+json"
    assert [(item["index"], item["field"]) for item in problem["rejected"]] == [(0, "role"), (1, "content")]
    assert problem["trace"] == answered.headers["X-Reverie-Trace"]


LONG = "x" * 257
# Method, path, body, headers on top of the agent's; then the status, the kind of problem and the field.
BAD_REQUESTS: list[tuple[str, str, str, Any, dict[str, str], int, str, str]] = [
    ("broken JSON", "POST", "/v1/messages", b'{"messages": [', {}, 400, "rejected", ""),
    ("a key twice", "POST", "/v1/messages", b'{"session": "a", "messages": [], "session": "b"}', {}, 422, "rejected", "session"),
    ("a key twice, once escaped", "POST", "/v1/recall", rb'{"query": "a\"b\\", "\u0071uery": "b"}', {}, 422, "rejected", "query"),
    ("a key twice inside", "POST", "/v1/messages", b'{"session": "s", "messages": [{"role": "user", "content": "x", "metadata": {"a": {"b": 1, "b": 2}}}]}', {}, 422, "rejected", "b"),
    ("a key twice beside a surrogate", "POST", "/v1/recall", rb'{"query": "\ud800", "query": "b"}', {}, 422, "rejected", "query"),
    ("a key twice in a path's call", "PATCH", "/v1/memories/m", b'{"content": "a", "content": "b"}', {}, 422, "rejected", "content"),
    ("a key twice in a tool's call", "POST", "/mcp", b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "method": "tools/call"}', {}, 422, "rejected", "method"),
    ("no body", "POST", "/v1/messages", b"", {}, 422, "rejected", "messages"),
    ("NaN", "POST", "/v1/recall", b'{"query": NaN}', {}, 400, "rejected", ""),
    ("invalid UTF-8", "POST", "/v1/messages", b'{"session": "\xff", "messages": []}', {}, 400, "rejected", ""),
    ("100,000 deep", "POST", "/v1/messages", b'{"messages": [' + DEEP + b"]}", {}, 400, "rejected", ""),
    ("100,000 deep recall", "POST", "/v1/recall", b'{"query": "x", "query_embedding": ' + DEEP + b"}", {}, 422, "rejected", "query_embedding[0]"),
    ("no object", "POST", "/v1/messages", b"[]", {}, 422, "rejected", ""),
    ("messages are no list", "POST", "/v1/messages", {"session": "s", "messages": "x"}, {}, 422, "rejected", "messages"),
    ("no messages", "POST", "/v1/messages", {"session": "s"}, {}, 422, "rejected", "messages"),
    ("too many messages", "POST", "/v1/messages", {"session": "s", "messages": [GOOD] * 1001}, {}, 422, "rejected", "messages"),
    ("no session", "POST", "/v1/messages", {"messages": [GOOD]}, {}, 422, "rejected", "session"),
    ("session too long", "POST", "/v1/messages", {"session": LONG, "messages": [GOOD]}, {}, 422, "rejected", "session"),
    ("session with NUL", "POST", "/v1/messages", {"session": "a\x00", "messages": [GOOD]}, {}, 422, "rejected", "session"),
    ("session of surrogates", "POST", "/v1/messages", {"session": "\ud800", "messages": [GOOD]}, {}, 422, "rejected", "session"),
    ("half a chat", "POST", "/v1/messages", {"session": "s", "provider": "x", "messages": [GOOD]}, {}, 422, "rejected", "provider"),
    ("unknown field", "POST", "/v1/messages", {"session": "s", "messages": [], "sesion": 1}, {}, 422, "rejected", "sesion"),
    ("unknown wait", "POST", "/v1/messages", {"session": "s", "messages": [], "wait": "done"}, {}, 422, "rejected", "wait"),
    ("timeout 0", "POST", "/v1/messages", {"session": "s", "messages": [], "timeout_seconds": 0}, {}, 422, "rejected", "timeout_seconds"),
    ("timeout too long", "POST", "/v1/messages", {"session": "s", "messages": [], "timeout_seconds": 1e9}, {}, 422, "rejected", "timeout_seconds"),
    ("file without content", "POST", "/v1/files", {"source_uri": "x"}, {}, 422, "rejected", "content"),
    ("file too large", "POST", "/v1/files", {"source_uri": "x", "content": "x" * (8 * MEGABYTE + 1)}, {}, 422, "rejected", "content"),
    ("file of surrogates", "POST", "/v1/files", {"source_uri": "x", "content": "\ud800"}, {}, 422, "rejected", "content"),
    ("file id too long", "POST", "/v1/files", {"source_uri": "x", "content": "x", "id": LONG}, {}, 422, "rejected", "id"),
    ("no query", "POST", "/v1/recall", {}, {}, 422, "rejected", "query"),
    ("query of surrogates", "POST", "/v1/recall", {"query": "\ud800"}, {}, 422, "rejected", "query"),
    ("query with NUL", "POST", "/v1/recall", {"query": "a\x00"}, {}, 422, "rejected", "query"),
    ("query too long", "POST", "/v1/recall", {"query": "x" * 100_001}, {}, 422, "rejected", "query"),
    ("limit 0", "POST", "/v1/recall", {"query": "x", "limit": 0}, {}, 422, "rejected", "limit"),
    ("limit 101", "POST", "/v1/recall", {"query": "x", "limit": 101}, {}, 422, "rejected", "limit"),
    ("unknown mode", "POST", "/v1/recall", {"query": "x", "mode": "psychic"}, {}, 422, "rejected", "mode"),
    ("weights 0", "POST", "/v1/recall", {"query": "x", "vector_weight": 0, "fts_weight": 0}, {}, 422, "rejected", "vector_weight"),
    ("vector of another length", "POST", "/v1/recall", {"query": "x", "query_embedding": [1.0]}, {}, 422, "rejected", "query_embedding"),
    ("vector too large", "POST", "/v1/recall", {"query": "x", "query_embedding": [1e300] * 384}, {}, 422, "rejected", "query_embedding"),
    ("recall in no session", "POST", "/v1/recall", {"query": "x", "session": "none"}, {}, 404, "not-found", "session"),
    ("recall with unknown field", "POST", "/v1/recall", {"query": "x", "k": 3}, {}, 422, "rejected", "k"),
    ("no session of that id", "GET", "/v1/sessions/none", None, {}, 404, "not-found", "session"),
    ("session path not UTF-8", "GET", "/v1/sessions/%FF", None, {}, 422, "rejected", "session"),
    ("session path with NUL", "GET", "/v1/sessions/a%00", None, {}, 422, "rejected", "session"),
    ("list limit", "GET", "/v1/sessions?limit=1001", None, {}, 422, "rejected", "limit"),
    ("list limit not a number", "GET", "/v1/sessions?limit=%D9%A3", None, {}, 422, "rejected", "limit"),
    ("list offset", "GET", "/v1/sessions?offset=-1", None, {}, 422, "rejected", "offset"),
    ("huge offset", "GET", "/v1/sessions?offset=99999999999999999999", None, {}, 422, "rejected", "offset"),
    ("endless offset", "GET", "/v1/sessions?offset=" + "9" * 5000, None, {}, 422, "rejected", "offset"),
    ("unknown status", "GET", "/v1/sessions?status=lost", None, {}, 422, "rejected", "status"),
    ("unknown parameter", "GET", "/v1/sessions?limt=3", None, {}, 422, "rejected", "limt"),
    ("dead letter that is no number", "GET", "/v1/dead-letters/x", None, {}, 422, "rejected", "id"),
    ("no such dead letter", "POST", "/v1/dead-letters/9007199254740992/replay", None, {}, 404, "not-found", "id"),
    ("dead letter out of range", "DELETE", "/v1/dead-letters/99999999999999999999", None, {}, 422, "rejected", "id"),
    ("workspace that is not named", "DELETE", "/v1/workspace", None, {}, 422, "rejected", "workspace"),
    ("workspace that leaves", "POST", "/v1/recall", {"query": "x"}, {"X-Reverie-Workspace": "../etc"}, 422, "rejected", "workspace"),
    ("workspace that leaves, encoded", "GET", "/v1/sessions", None, {"X-Reverie-Workspace": "..%2Fetc"}, 422, "rejected", "workspace"),
    ("workspace in capitals", "GET", "/v1/sessions", None, {"X-Reverie-Workspace": "Default"}, 422, "rejected", "workspace"),
    ("empty workspace", "GET", "/v1/sessions", None, {"X-Reverie-Workspace": ""}, 422, "rejected", "workspace"),
    ("workspace too long", "GET", "/v1/sessions", None, {"X-Reverie-Workspace": "x" * 64}, 422, "rejected", "workspace"),
    ("blank agent", "GET", "/v1/sessions", None, {"X-Reverie-Agent": "%20"}, 422, "rejected", "agent"),
    ("agent with a separator", "GET", "/v1/sessions", None, {"X-Reverie-Agent": "a%1Fb"}, 422, "rejected", "agent"),
    ("agent not UTF-8", "GET", "/v1/sessions", None, {"X-Reverie-Agent": "%FF"}, 422, "rejected", "agent"),
    ("agent too long", "GET", "/v1/sessions", None, {"X-Reverie-Agent": LONG}, 422, "rejected", "agent"),
    ("trace too long", "GET", "/v1/sessions", None, {"X-Reverie-Trace": LONG}, 422, "rejected", "trace"),
    ("trace with a line break", "GET", "/v1/sessions", None, {"X-Reverie-Trace": "a%0Ab"}, 422, "rejected", "trace"),
    ("no such path", "GET", "/v1/nothing", None, {}, 404, "not-found", ""),
    ("no such path at all", "GET", "/../../etc/passwd", None, {}, 404, "not-found", ""),
    ("no such method", "PUT", "/v1/messages", None, {}, 405, "rejected", ""),
]  # fmt: skip


@pytest.mark.parametrize("with_a_vector", [False, True])
def test_a_bad_request_is_a_problem_that_names_the_field(url: str, runtime: Runtime, with_a_vector: bool) -> None:
    """Given a request at fault, then status, type and field say how; nothing is stored, no workspace is made."""
    if with_a_vector:
        with Reverie("ana", broker=runtime.settings.broker, prefix=runtime.settings.broker_prefix) as memory:
            memory.ingest("s", GOOD)
        drain(runtime)
    for name, method, path, body, headers, status, kind, field in BAD_REQUESTS:
        if (isinstance(body, dict) and "query_embedding" in body) != with_a_vector:
            continue
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        answered = httpx2.request(method, url + path, content=content, headers={**AGENT, **headers}, timeout=60)
        problem = answered.json()
        assert (answered.status_code, problem["type"]) == (status, f"urn:reverie:problem:{kind}"), (name, problem)
        assert problem.get("field", "") == field, (name, problem)
        assert problem["status"] == status, name
        assert problem["detail"], name
        assert "Traceback" not in answered.text, name
        assert answered.headers["content-type"] == "application/problem+json", name
        assert store_inbox(runtime) == 0, name


def test_the_agent_must_be_named(url: str) -> None:
    """Given no agent, then the error names the header."""
    answered = httpx2.get(f"{url}/v1/sessions")
    assert (answered.status_code, answered.json()["field"]) == (422, "agent")
    assert "X-Reverie-Agent" in answered.json()["detail"]


# Two lines of a header that decides who asks, in any case, with the same value too.
SENT_TWICE = [
    ("Authorization: Bearer a", "authorization: Bearer b"),
    ("Authorization: Bearer a", "AUTHORIZATION: Bearer a"),
    ("X-Reverie-User: ana", "x-reverie-user: ana"),
    ("X-Reverie-User: ana", "X-REVERIE-USER:"),
    ("X-Reverie-Agent: ana", "X-Reverie-Agent: rui"),
    ("X-Reverie-Workspace: a", "X-Reverie-Workspace: b"),
    ("Cookie: a=b", "Cookie: a=c"),
    ("Origin: http://a", "Origin: http://b"),
    ("Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site"),
    ("Idempotency-Key: a", "Idempotency-Key: b"),
    ("Mcp-Session-Id: a", "Mcp-Session-Id: b"),
]


@pytest.mark.parametrize("path", ["/v1/recall", "/mcp", "/", "/metrics"])
def test_a_header_that_decides_who_asks_is_sent_once(url: str, path: str) -> None:
    """Given such a header twice, then the request is refused and names it."""
    address = urlsplit(url)
    for first, second in SENT_TWICE:
        with socket.create_connection((address.hostname, address.port or 0), timeout=10) as connection:
            lines = [f"POST {path} HTTP/1.1", f"Host: {address.netloc}", "Content-Length: 2", "Connection: close"]
            headers = "\r\n".join([*lines, "Content-Type: application/json", first, second, "", "{}"])
            connection.sendall(headers.encode())
            answer = b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
        assert " 422 " in answer.splitlines()[0] or " 400 " in answer.splitlines()[0], second
        assert f"the header {first.partition(':')[0]} was sent more than once" in answer, second


@pytest.mark.parametrize("name", ["X-Reverie-User", "X-Reverie-Agent"])
def test_two_values_that_a_proxy_has_joined_are_refused(url: str, name: str) -> None:
    """Given a header with a comma, then it is refused; a name with a comma in it is sent as %2C."""
    for value, status in (("ana, rui", 422), ("ana%2C rui", 200)):
        answer = httpx2.get(f"{url}/v1/sessions", headers={**AGENT, name: value})
        assert answer.status_code == status, answer.text


def test_a_parameter_is_sent_once(url: str) -> None:
    """Given a user twice in the address, or another one than in the header, then the call is refused."""
    ask = partial(httpx2.get, headers={**AGENT, "X-Reverie-User": "ana"})
    assert ask(f"{url}/v1/sessions?user=ana").status_code == 200
    assert ask(f"{url}/v1/sessions?user=ana&user=rui").status_code == 422
    assert ask(f"{url}/v1/sessions?user=rui").status_code == 403


def test_the_agent_may_be_sent_as_plain_utf8(url: str, runtime: Runtime) -> None:
    """Given a client that does not percent-encode, then its agent is the same one."""
    headers = {"X-Reverie-Agent": "josé".encode()}
    httpx2.post(f"{url}/v1/messages", json={"session": "s", "messages": [GOOD]}, headers=headers)
    store_inbox(runtime)
    with Reverie("josé", url=url) as memory:
        assert len(memory.sessions.list()) == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused_while_it_is_read(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, chunked: bool
) -> None:
    """Given a body over the limit, announced or not, then the answer is 413 and names the limit."""
    monkeypatch.setattr("server.endpoints.MAX_BODY_BYTES", 100_000)
    body = json.dumps({"session": "s", "messages": [{"role": "user", "content": "x" * 100_000}]}).encode()

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(body), 10_000):
            yield body[start : start + 10_000]

    with running_server(runtime) as url:
        content = pieces() if chunked else body
        answered = httpx2.post(f"{url}/v1/messages", content=content, headers=AGENT)
        assert answered.status_code == 413
        assert answered.json()["type"] == "urn:reverie:problem:too-large"
        assert "100,000" in answered.json()["detail"]
        with Reverie("ana", url=url) as memory, pytest.raises(Rejected, match="the limit of a request"):
            memory.ingest("s", {"role": "user", "content": "x" * 100_000})
    assert store_inbox(runtime) == 0


def test_a_client_that_sends_its_whole_body_first_is_told_that_it_is_too_large(runtime: Runtime) -> None:
    """Given a client that reads no response before it has sent 50 MB, then it gets the 413, and can go on."""
    with (
        running_server(runtime) as url,
        closing(HTTPConnection(urlsplit(url).netloc)) as connection,
    ):
        connection.request("POST", "/v1/messages", body=bytes(50_000_000), headers=AGENT)
        answered = connection.getresponse()
        assert (answered.status, json.load(answered)["type"]) == (413, "urn:reverie:problem:too-large")
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200


def test_a_failure_that_nobody_foresaw_shows_nothing_and_is_logged_once(
    url: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a bug, then the caller gets a problem with a trace id, and the log has it once under that id."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret of the inside")

    monkeypatch.setattr(runtime.stores, "workspace", broken)
    with capture_logs(processors=[merge_contextvars]) as logged:
        answered = httpx2.get(f"{url}/v1/sessions", headers={**AGENT, "X-Reverie-Trace": "find-me"})
    assert (answered.status_code, answered.json()["type"]) == (500, "urn:reverie:problem:internal")
    assert "secret" not in answered.text
    assert answered.json()["trace"] == "find-me"
    assert [(line["event"], line["trace_id"]) for line in logged] == [("request_crashed", "find-me")]


@pytest.mark.sqlite("damages a file")
def test_a_damaged_workspace_is_an_error_of_that_workspace_alone(url: str, runtime: Runtime) -> None:
    """Given a damaged file, then reading it is a permanent problem, others are read, and the status lists it."""
    with Reverie("ana", url=url) as memory:
        memory.ingest("s", GOOD)
        store_inbox(runtime)
        path = runtime.stores.database_path("damaged")
        path.parent.mkdir(parents=True)
        path.write_bytes(b"not a database, not at all" * 100)
        answered = httpx2.get(f"{url}/v1/sessions", headers={**AGENT, "X-Reverie-Workspace": "damaged"})
        assert (answered.status_code, answered.json()["type"]) == (500, "urn:reverie:problem:permanent")
        assert len(memory.sessions.list()) == 1
        status = memory.status()
    assert "damaged" in status.errors["damaged"]
    assert status.workspaces[0].name == "damaged"
    assert status.stages["chunk"].waiting == 1


@pytest.mark.parametrize("query", ["text=caf%E9", "text=%ED%A0%80", "user=%ff", "tag=a&tag=%c3"])
def test_a_query_string_that_is_not_utf_8_is_refused(url: str, query: str) -> None:
    """Given bytes that are no UTF-8 in a query string, then it is not carried out with others in their place."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port or 0), timeout=10) as connection:
        lines = [f"GET /v1/memories?{query} HTTP/1.1", f"Host: {address.netloc}", "X-Reverie-Agent: ana"]
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        answer = b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
    assert " 422 " in answer.splitlines()[0]
    assert "the query string is not UTF-8" in answer
