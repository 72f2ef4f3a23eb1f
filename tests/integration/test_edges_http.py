"""What web pages of other sites can make a browser send, and what strangers may read: the edges of the HTTP server."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from memory.trust.tokens import OPERATOR, TokenRequest, create_token
from reverie import Reverie
from reverie.contract import SCOPES
from server.authentication import Access
from support.http import running_server
from worker.runtime import Runtime

AGENT = {"X-Reverie-Agent": "ana"}
TOKEN = "a-token-of-the-operator-that-is-long-enough-0123456789"


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """The URL of a server that is open to this machine."""
    with running_server(runtime) as url:
        yield url


QUERY = {"query": "where does she live?"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "made-up"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/recall"), ("POST", "/v1/messages"), ("GET", "/v1/status"), ("DELETE", "/v1/sessions/s")],
)
def test_a_page_of_another_site_is_refused(url: str, headers: dict[str, str], method: str, path: str) -> None:
    """Given what a browser adds to a request of another site, then it is refused before anything is read."""
    answered = httpx2.request(
        method, f"{url}{path}", headers={**AGENT, **headers}, json=QUERY if method == "POST" else None
    )
    assert (answered.status_code, answered.json()["type"]) == (403, "urn:reverie:problem:cross-site")
    assert "Access-Control-Allow-Origin" not in answered.headers


@pytest.mark.parametrize(
    "headers", [{}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": "{own}"}]
)
def test_programs_and_the_servers_own_pages_are_served(url: str, headers: dict[str, str]) -> None:
    """Given a program, or the page /docs, then its request is answered."""
    sent = {name: value.replace("{own}", url) for name, value in headers.items()}
    assert httpx2.post(f"{url}/v1/recall", json=QUERY, headers={**AGENT, **sent}).status_code == 200


def test_an_origin_that_the_operator_allows_is_served(make_runtime: Any) -> None:
    """Given an allowed origin, then its pages may ask first, send a token, and read the answer; others may not."""
    allowed = "https://app.example.com"
    runtime = make_runtime(allowed_origins=f"{allowed}/, https://other.example")
    with running_server(runtime, access=Access(tokens={"operator": TOKEN})) as url:
        ask = {
            "Origin": allowed,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        answered = httpx2.options(f"{url}/v1/recall", headers=ask)
        assert (answered.status_code, answered.headers["Access-Control-Allow-Origin"]) == (200, allowed)
        assert "authorization" in answered.headers["Access-Control-Allow-Headers"].lower()
        call = {**AGENT, "Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "cross-site"}
        answered = httpx2.post(f"{url}/v1/recall", json=QUERY, headers={**call, "Origin": allowed})
        assert (answered.status_code, answered.headers["Access-Control-Allow-Origin"]) == (200, allowed)
        evil = {**ask, "Origin": "https://evil.example"}
        assert httpx2.options(f"{url}/v1/recall", headers=evil).status_code == 403
        assert (
            httpx2.post(f"{url}/v1/recall", json=QUERY, headers={**call, "Origin": "https://evil.example"}).status_code
            == 403
        )


def test_a_websocket_is_refused(url: str) -> None:
    """Given an upgrade to a websocket, then it is refused with a problem."""
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "eA==",
        "Sec-WebSocket-Version": "13",
    }
    for path in ("/v1/recall", "/docs", "/"):
        assert httpx2.get(f"{url}{path}", headers=upgrade).status_code == 403


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/vnd.agent+json", 200),
        (None, 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/jsonp", 415),
        ("text/plain; application/json", 415),
        ("", 415),
    ],
)
def test_a_body_is_json_or_refused(url: str, content_type: str | None, status: int) -> None:
    """Given a body of the type that a form can send, then no handler sees it."""
    headers = AGENT if content_type is None else {**AGENT, "Content-Type": content_type}
    answered = httpx2.post(f"{url}/v1/recall", content=b'{"query": "x"}', headers=headers)
    assert answered.status_code == status
    if status == 415:
        assert answered.json()["type"] == "urn:reverie:problem:unsupported-type"


@pytest.mark.parametrize(
    "path", ["/docs", "/healthz", "/openapi.json", "/v1/status", "/nowhere", "/docs/assets/swagger-ui.css"]
)
def test_browsers_are_told_to_keep_every_response_to_this_server(url: str, path: str) -> None:
    """Given any response, then it may not be framed, guessed at, or kept."""
    headers = httpx2.get(f"{url}{path}", headers=AGENT).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_the_page_of_the_api_loads_nothing_from_other_hosts(url: str) -> None:
    """Given the page /docs, then all that it loads is on this server, and its policy allows its own script alone."""
    answered = httpx2.get(f"{url}/docs")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', answered.text)
    assert loaded
    assert all(address.startswith("/docs/assets/") for address in loaded)
    assert all(httpx2.get(f"{url}{address}").status_code == 200 for address in loaded)
    assert not re.search(r"https?://", answered.text)
    (script,) = re.findall(r"<script>(.*?)</script>", answered.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = answered.headers["Content-Security-Policy"]
    assert f"script-src 'self' 'sha256-{digest}';" in policy
    assert "connect-src 'self'" in policy


def test_the_metrics_need_a_token_on_this_machine_too(runtime: Runtime) -> None:
    """Given a server with a token, then the metrics need it, as other users of the machine could read them otherwise;
    probes need none and tell nothing else."""
    with running_server(runtime, access=Access(tokens={"operator": TOKEN})) as url:
        assert httpx2.get(f"{url}/metrics").status_code == 401
        token = {"Authorization": f"Bearer {TOKEN}"}
        assert "reverie_broker_up" in httpx2.get(f"{url}/metrics", headers=token).text
        assert httpx2.get(f"{url}/v1/status").status_code == 401
        probe = httpx2.get(f"{url}/healthz")
        assert (probe.status_code, probe.text) == (200, "ok\n")


def test_a_file_of_8_mib_is_taken_and_other_bodies_are_not(url: str) -> None:
    """Given the defaults, then a file of the largest size is accepted, escapes and all; other calls have 4 MiB."""
    content = 'line "quoted"\n' * (8 * 1024 * 1024 // 14)
    taken = httpx2.post(
        f"{url}/v1/files", json={"source_uri": "file:///a", "content": content}, headers=AGENT, timeout=60
    )
    assert taken.status_code == 202
    refused = httpx2.post(f"{url}/v1/recall", json={"query": content}, headers=AGENT, timeout=60)
    assert (refused.status_code, refused.json()["type"]) == (413, "urn:reverie:problem:too-large")


def test_a_token_that_has_used_up_its_rate_is_told_when_to_try_again(make_runtime: Any) -> None:
    """Given a rate of 600 messages a minute, then one more waits; the client does, the operator need not."""
    runtime = make_runtime(rate_messages=600)
    request = TokenRequest("w", ("ana",), None, SCOPES, name="anas")
    token = create_token(runtime.stores, request, by=OPERATOR, now=runtime.now()).text
    messages = [{"role": "user", "content": f"number {number}"} for number in range(600)]
    with running_server(runtime, access=Access(tokens={"operator": TOKEN})) as url:
        named = {**AGENT, "X-Reverie-Workspace": "w"}
        body = {"session": "s", "messages": messages}

        def send(token: str) -> httpx2.Response:
            return httpx2.post(f"{url}/v1/messages", json=body, headers={**named, "Authorization": f"Bearer {token}"})

        began = time.monotonic()
        assert send(token).status_code == 202
        refused = send(token)
        passed = time.monotonic() - began
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:reverie:problem:limited")
        assert refused.json()["field"] == "messages"
        assert 60 - passed <= int(refused.headers["Retry-After"]) <= 60
        with Reverie("ana", workspace="w", url=url, token=token) as memory:
            assert len(memory.ingest("s", messages[:5]).accepted) == 5
        assert [send(TOKEN).status_code for _ in range(3)] == [202, 202, 202]
