"""`python -m server` as a process: how it starts, how it refuses, how it ends."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from reverie import Reverie
from server import __main__ as server_process
from server.__main__ import _listen, _serve
from server.authentication import Access
from support.endpoint import chat_endpoint, send
from support.forks import Program, start_module
from support.pipeline import WORKSPACE, Pipeline
from support.ports import free_port
from support.reranking import score_by
from worker.runtime import Runtime
from worker.settings import Settings

OPERATORS = "0123456789abcdef" * 2
ROOT = Path(__file__).parents[2]
# Beyond this it hangs, however busy the machine is.
END_SECONDS = 60

Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path, valkey_url: str, broker_prefix: str) -> Iterator[Start]:
    """Starts servers with settings from the environment; what still runs at the end is killed."""
    started: list[Program] = []

    def run(**settings: str) -> Program:
        variables = {
            "REVERIE_DATA": str(tmp_path / "data"),
            "REVERIE_BROKER": valkey_url,
            "REVERIE_BROKER_PREFIX": broker_prefix,
            "REVERIE_EMBEDDING_PROVIDER": "hash",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",
            **settings,
        }
        environment = {**os.environ, **variables}
        started.append(start_module("server", environment=environment, output=tmp_path / "output", folder=ROOT))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def wait_for_health(port: int, process: Program) -> httpx2.Response:
    deadline = time.monotonic() + 60
    while True:
        try:
            return httpx2.get(f"http://127.0.0.1:{port}/healthz")
        except httpx2.TransportError:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_it_serves_and_ends_with_zero_on_sigterm(start: Start, tmp_path: Path) -> None:
    """Given a running server with a call that waits, when SIGTERM comes, then it exits 0 within its grace."""
    port = free_port()
    process = start(REVERIE_PORT=str(port))
    assert wait_for_health(port, process).status_code == 200
    with socket.create_connection(("127.0.0.1", port)) as waiting:
        body = b'{"session": "s", "wait": "stored", "messages": [{"role": "user", "content": "x"}]}'
        token = (tmp_path / "data" / "local-token").read_text().strip()
        head = (
            f"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Reverie-Agent: a\r\nAuthorization: Bearer {token}\r\n"
        )
        waiting.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        # Answered after the call before it has begun to wait, on the same event loop.
        httpx2.get(f"http://127.0.0.1:{port}/healthz")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=END_SECONDS)
        waiting.settimeout(END_SECONDS)
        answer = b"".join(iter(lambda: waiting.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 503"), answer
    assert b"the server is stopping" in answer
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def test_a_port_in_use_is_one_line(start: Start) -> None:
    """Given a port that is taken, then the server says so in one line and exits 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken_port = taken.getsockname()[1]
        process = start(REVERIE_PORT=str(taken_port))
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{taken_port} (Address already in use): is another Reverie running?" in errors


@pytest.mark.parametrize(("host", "refused"), [("0.0.0.0", True), ("::", True), ("127.0.0.1", False)])
def test_other_addresses_need_a_token(start: Start, host: str, refused: bool) -> None:
    """Given an address that others reach and no token, then the server refuses in one line that says what to do."""
    if not refused:
        port = free_port()
        assert wait_for_health(port, start(REVERIE_PORT=str(port), REVERIE_HOST=host)).status_code == 200
        return
    process = start(REVERIE_HOST=host)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.count("\n") == 1
    assert "REVERIE_TOKEN" in errors


def test_with_a_token_another_address_is_served(start: Start) -> None:
    """Given a token, then any address is served, and the token is asked for."""
    port = free_port()
    process = start(REVERIE_PORT=str(port), REVERIE_HOST="0.0.0.0", REVERIE_TOKEN=OPERATORS)
    assert wait_for_health(port, process).status_code == 200
    assert httpx2.get(f"http://127.0.0.1:{port}/v1/status").status_code == 401
    headers = {"Authorization": f"Bearer {OPERATORS}"}
    assert httpx2.get(f"http://127.0.0.1:{port}/v1/status", headers=headers).status_code == 200


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Given the socket that is listened on, then Nagle's algorithm is off: with it each answer took 40 ms longer."""
    with _listen("127.0.0.1", free_port()) as listening:
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_signal_before_it_serves_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given SIGTERM in the moment between having started and serving, then it ends at once, not when it is killed."""
    settings = Settings(data=tmp_path, broker="redis://127.0.0.1:1/0", embedding_provider="none")
    runtime = Runtime(settings)

    class Log:
        def info(self, event: str, **_: object) -> None:
            if event == "serving":
                os.kill(os.getpid(), signal.SIGTERM)

        def warning(self, event: str, **_: object) -> None:
            assert event == "open_to_everyone"

    monkeypatch.setattr(server_process, "log", Log())
    former = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
    lost = threading.Event()

    def end_it() -> None:
        lost.set()
        os.kill(os.getpid(), signal.SIGTERM)

    rescue = threading.Timer(30, end_it)
    rescue.start()
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            _serve(settings, runtime, Access(), listening)
    finally:
        rescue.cancel()
        for number, handler in former:
            signal.signal(number, handler)
        runtime.close()
    assert not lost.is_set(), "it served on until it got a second signal"


def test_a_reranker_orders_a_recall_and_its_loss_does_not_stop_it(start: Start, tmp_path: Path) -> None:
    """Given a server with a rerank endpoint, then it orders recalls and contexts; once it fails, recalls keep their
    own order and say why, the status shows it, and neither a text nor the key gets into the log, status or answer."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("The old harbour has many grey ships.", "The harbour has ships.", session="other")
    pipe.say("Hello.", session="s")
    pipe.settle()
    pipe.close()
    with chat_endpoint(score_by(lambda _query, text: -float(len(text)))) as endpoint:
        port = free_port()
        process = start(
            REVERIE_PORT=str(port),
            REVERIE_LOG_LEVEL="debug",
            REVERIE_RERANKER_BASE_URL=endpoint.url,
            REVERIE_RERANKER_MODEL="m",
            REVERIE_RERANKER_API_KEY="sk-secret",
            REVERIE_RERANKER_TIMEOUT_SECONDS="20",
        )
        wait_for_health(port, process)
        memory = Reverie("ana", url=f"http://127.0.0.1:{port}", workspace=WORKSPACE)
        own = [result.text for result in memory.recall("old grey harbour ships", rerank=False)]
        found = memory.recall("old grey harbour ships", explain=True)
        assert [result.text for result in found] == sorted(own, key=len) != own
        assert found[0].explanation is not None
        assert found[0].explanation.reranker == -float(len(found[0].text))
        assert len(endpoint.requests) == 1
        assert memory.context("s", query="old grey harbour ships").degraded == ""
        assert len(endpoint.requests) == 2
        assert endpoint.keys == ["Bearer sk-secret"] * 2
        state = memory.status().reranker
        assert (state.state, state.model, state.error) == ("up", "m", "")

        endpoint.answer = send(b'{"input": "grey ships", "key": "sk-secret"}', 500)
        lost = memory.recall("old grey harbour ships")
        assert [result.text for result in lost] == own
        assert "not reranked" in lost.degraded
        # A server answers with the same status for a moment.
        deadline = time.monotonic() + 60
        while (state := memory.status().reranker).state != "down":
            assert time.monotonic() < deadline, state
            time.sleep(0.05)
        assert "500" in state.error
        memory.close()
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=END_SECONDS)
    for secret in ("sk-secret", "grey ships"):
        assert secret not in output + errors + lost.degraded + state.error


def test_the_client_of_the_same_user_finds_the_token_and_no_request_without_it_is_served(start: Start) -> None:
    """Given a server, then a client of its user needs no token, and whoever sends none gets nothing but a 401."""
    port = free_port()
    wait_for_health(port, start(REVERIE_PORT=str(port)))
    for host in ("127.0.0.1", "localhost"):
        with Reverie("ana", url=f"http://{host}:{port}") as memory:
            memory.facts.set("home", "city", "Lisbon")
            assert memory.admin.tokens.create(workspace="w", agents=["ana"], name=host).token.startswith("rv_")
    refused = httpx2.get(f"http://127.0.0.1:{port}/v1/facts", headers={"X-Reverie-Agent": "ana"})
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert "Lisbon" not in refused.text


def test_an_open_server_asks_for_nothing_and_says_so_loudly(start: Start) -> None:
    """Given --open, then requests without a token are served, under loopback names alone, and the log warns."""
    port = free_port()
    process = start(REVERIE_PORT=str(port), REVERIE_OPEN="true")
    wait_for_health(port, process)
    url = f"http://127.0.0.1:{port}/v1/status"
    assert httpx2.get(url).status_code == 200
    assert httpx2.get(url, headers={"Host": "evil.example"}).status_code == 422
    assert httpx2.get(url, headers={"Authorization": "Bearer wrong"}).status_code == 401
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=END_SECONDS)
    assert "open_to_everyone" in log


def test_no_token_is_ever_in_the_log(start: Start, tmp_path: Path) -> None:
    """Given tokens that are made, used, mistyped and put into paths, then none of them is in the log."""
    port = free_port()
    process = start(REVERIE_PORT=str(port), REVERIE_LOG_LEVEL="debug")
    wait_for_health(port, process)
    local = (tmp_path / "data" / "local-token").read_text().strip()
    with Reverie("ana", url=f"http://127.0.0.1:{port}") as memory:
        made = memory.admin.tokens.create(workspace="w", agents=["ana"]).token
        rotated = memory.admin.tokens.rotate("w/ana").token
    for token in (local, made, rotated):
        httpx2.get(f"http://127.0.0.1:{port}/v1/facts/{token}/{token}", headers={"Authorization": f"Bearer {token}"})
        httpx2.get(f"http://127.0.0.1:{port}/v1/{token}?token={token}", headers={"Authorization": f"Bearer {token}x"})
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=END_SECONDS)
    assert "serving" in log
    assert [token for token in (local, made, rotated) if token[:20] in log] == []
