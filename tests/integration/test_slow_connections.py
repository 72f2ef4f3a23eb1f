"""A real server process under clients that send slowly, too much, or nothing: others are answered meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest

from reverie.errors import Problem, Unavailable, error_of
from support.forks import Program
from support.ports import free_port

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-the-operator-that-is-long-enough-0123456789"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "X-Reverie-Agent": "ana"}
HEAD = (
    f"POST /v1/recall HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nX-Reverie-Agent: ana\r\n"
    "Content-Type: application/json\r\n"
)

# `python -m server` with other values of constants, which it imports from these modules.
SERVE = """
import json, sys
from server import bodies, connections
for name, value in json.loads(sys.argv[1]).items():
    module = bodies if hasattr(bodies, name) else connections
    setattr(module, name, value)
from server.__main__ import main
raise SystemExit(main())
"""

# Beyond this something hangs, however busy the machine is.
HANGING_SECONDS = 240

Serve = Callable[..., int]


@pytest.fixture
def serve(tmp_path: Path, valkey_url: str) -> Iterator[Serve]:
    """Starts a server with other values of constants, if any are given, and returns its port."""
    with contextlib.ExitStack() as running:
        yield lambda **constants: running.enter_context(server_process(tmp_path, valkey_url, constants))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, valkey_url: str) -> Iterator[int]:
    """The port of a server that the tests of bad input share."""
    with server_process(tmp_path_factory.mktemp("edges"), valkey_url, {}) as port:
        yield port


@contextlib.contextmanager
def server_process(folder: Path, valkey_url: str, constants: dict[str, float]) -> Iterator[int]:
    """Run a server while the block runs, with constants that have other values."""
    port = free_port()
    variables = {
        "REVERIE_DATA": str(folder / "data"),
        "REVERIE_BROKER": valkey_url,
        "REVERIE_BROKER_PREFIX": f"edges-{port}",
        "REVERIE_EMBEDDING_PROVIDER": "hash",
        "REVERIE_TOKEN": TOKEN,
        "REVERIE_PORT": str(port),
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",
    }
    environment = {**os.environ, **variables}
    process = Program(SERVE, [json.dumps(constants)], environment, folder / "log", folder=ROOT)
    try:
        deadline = time.monotonic() + HANGING_SECONDS
        while not answers(port):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)  # it needs the processor to start
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=HANGING_SECONDS)


def answers(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/healthz", timeout=30).status_code == 200
    except httpx2.TransportError:
        return False


_OPENED: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _all_closed() -> Iterator[None]:
    """Closes the connections of a test at its end."""
    yield
    while _OPENED:
        _OPENED.pop().close()


def connect(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port))
    made.settimeout(HANGING_SECONDS)
    _OPENED.append(made)
    return made


def everything(connection: socket.socket) -> bytes:
    """Return all that the server sends until it closes the connection; a reset ends it, too."""
    received = b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionResetError:
        pass
    return received


def recall(http: httpx2.Client) -> int:
    return http.post("/v1/recall", json={"query": "where does she live?"}).status_code


def test_five_hundred_slow_connections_keep_nobody_waiting(serve: Serve) -> None:
    """Given 500 clients that never finish their headers, then recalls on new connections are answered meanwhile."""
    port = serve(HEADER_SECONDS=5)
    slow, watched = slow_ones(port), selectors.DefaultSelector()
    for one in slow:
        watched.register(one, selectors.EVENT_READ)
    dropped: set[socket.socket] = set()
    answered, deadline = 0, time.monotonic() + HANGING_SECONDS
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=HEADERS, timeout=HANGING_SECONDS) as http:
        while len(dropped) < len(slow) or answered < 5:
            assert time.monotonic() < deadline, f"{len(dropped)} dropped, {answered} answered"
            if len(dropped) == len(slow):  # on a busy machine, before five were answered: the next five hundred come
                slow += (more := slow_ones(port))
                for one in more:
                    watched.register(one, selectors.EVENT_READ)
            # A connection of its own for each, as if from new clients. Only within the first second, in which all slow
            # ones are new, too, one may be refused.
            answered += is_answered(port)
            assert answered == 0 or recall(http) == 200
            for key, _ in watched.select(0):
                one = key.fileobj
                assert isinstance(one, socket.socket)
                everything(one)
                watched.unregister(one)
                dropped.add(one)
            for one in slow:
                if one not in dropped:
                    with contextlib.suppress(OSError):
                        one.sendall(b"x")
    watched.close()


def slow_ones(port: int) -> list[socket.socket]:
    """Return 500 connections on which a part of the headers was sent."""
    made = [connect(port) for _ in range(500)]
    for one in made:
        with contextlib.suppress(OSError):  # let go already, in favour of later ones
            one.sendall(HEAD.encode()[:20])
    return made


def is_answered(port: int) -> bool:
    """Return whether a recall of a new client is answered; otherwise it was told to try again, or not let in."""
    try:
        url = f"http://127.0.0.1:{port}/v1/recall"
        answer = httpx2.post(url, json={"query": "x"}, headers=HEADERS, timeout=HANGING_SECONDS)
    except httpx2.TransportError:
        return False
    assert answer.status_code == 200 or answer.headers["Retry-After"] == "1"
    return answer.status_code == 200


def test_headers_that_do_not_arrive_are_answered_503(serve: Serve) -> None:
    """Given half a request, or the next one on the same connection, then it is given up with a problem."""
    port = serve(HEADER_SECONDS=0.5)
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for before, unfinished in ((b"", HEAD.encode()), (whole, b"GET /heal")):
        head, _, body = answer_to_half(port, before, unfinished).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert json.loads(body)["type"] == "urn:reverie:problem:too-slow"
    assert everything(connect(port)) == b""


def answer_to_half(port: int, before: bytes, unfinished: bytes) -> bytes:
    """Return the answer to a request that is never finished, after another on the same connection if `before` is one.

    On a busy machine the half second may be over before anything was sent, and the connection ends without an answer:
    then it is tried again.
    """
    deadline = time.monotonic() + HANGING_SECONDS
    while time.monotonic() < deadline:
        connection = connect(port)
        with contextlib.suppress(ConnectionError):
            if before:
                connection.sendall(before)
                received = b""
                while not received.endswith(b"ok\n") and (part := connection.recv(65_536)):
                    received += part
                if not received.endswith(b"ok\n"):
                    continue
            connection.sendall(unfinished)
            if answer := everything(connection):
                return answer
    raise AssertionError("no unfinished request was answered")


def test_a_body_that_does_not_arrive_is_answered_503(serve: Serve) -> None:
    """Given a body of which a byte comes now and then, then it is given up after the seconds for it."""
    port = serve(BODY_SECONDS=1)
    slow = connect(port)
    slow.sendall(f"{HEAD}Content-Length: 1000\r\n\r\n".encode() + b'{"query": ')
    head, _, body = everything(slow).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    problem = msgspec.json.decode(body, type=Problem)
    assert problem.type == "urn:reverie:problem:too-slow"
    assert isinstance(error_of(problem), Unavailable), "the caller may not be to blame: it is worth trying again"


def test_the_rest_of_a_body_that_nobody_reads_is_not_waited_for(serve: Serve) -> None:
    """Given a body without a token, of which nothing comes, then the answer is 401 and the connection ends."""
    port = serve()
    stranger = connect(port)
    stranger.sendall(b"POST /v1/recall HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
    assert everything(stranger).startswith(b"HTTP/1.1 401 ")


def test_connections_that_are_in_use_are_not_closed_for_new_ones(serve: Serve) -> None:
    """Given as many requests as there may be connections, then one more is refused with a time to try again."""
    port = serve(MAX_CONNECTIONS=8)
    busy = [connect(port) for _ in range(8)]
    for one in busy:
        one.sendall(f"{HEAD}Content-Length: 13\r\nExpect: 100-continue\r\n\r\n".encode())
    for one in busy:  # by this the server says that it has taken the request up, and waits for the body
        assert received_until(one, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        one.sendall(b'{"query"')
    head, _, body = everything(connect(port)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in head
    assert json.loads(body)["type"] == "urn:reverie:problem:unavailable"
    for one in busy:
        one.sendall(b': "x"}'[:5])
    answers = [one.recv(65_536) for one in busy]
    assert all(answer.startswith(b"HTTP/1.1 ") for answer in answers)


def received_until(connection: socket.socket, end: bytes) -> bytes:
    """Return what the server sends, up to these bytes."""
    received = b""
    while not received.endswith(end):
        part = connection.recv(1)
        assert part, f"the connection has ended after {received!r}"
        received += part
    return received


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 1_000_000, 400),
        (b'{"query": ' + b"[" * 500_000 + b"]" * 500_000 + b"}", 400),
        (b'{"query": "x", "limit": ' + b"9" * 3_000_000 + b"}", 400),
        (b'{"query": "x", "limit": 1e999999}', 400),
        (b'{"query": "x", "tags": [' + b"[]," * 1_300_000 + b"[]]}", 422),
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, 400),
        (b'{"query": "\xff\xfe"}', 400),
        (b"\x1f\x8b\x08\x00" + b"\x00" * 100, 400),
    ],
    ids=["open", "deep", "digits", "exponent", "many", "objects", "bytes", "compressed"],
)
def test_bodies_that_are_made_to_harm_are_refused(port: int, body: bytes, status: int) -> None:
    """Given a body of deep nesting, of huge numbers or of a million values, then it is refused and the server lives."""
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=HEADERS, timeout=60) as http:
        answered = http.post("/v1/recall", content=body, headers={"Content-Type": "application/json"})
        assert answered.status_code in (status, 422)
        assert answered.json()["type"] == "urn:reverie:problem:rejected"
        assert recall(http) == 200


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/recall HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/recall HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/recall HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /v1/recall HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 2_000_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["zeros", "version", "negative", "both", "twice", "chunk", "header", "path", "http2"],
)
def test_requests_that_are_none_end_their_own_connection_alone(port: int, request_bytes: bytes) -> None:
    """Given bytes that are no request, then that connection ends and the server answers others."""
    broken = connect(port)
    with contextlib.suppress(ConnectionError):  # closed while it was being sent
        broken.sendall(request_bytes)
    answer = everything(broken)
    assert not answer.startswith(b"HTTP/1.1 2")
    assert httpx2.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
