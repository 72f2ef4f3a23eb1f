"""Another user of the machine gets nothing: over loopback, from the data folder, or through the broker's socket."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie import Reverie
from support.ports import free_port
from worker.supervision.broker_address import embedded_broker_url, embedded_socket_path
from worker.supervision.embedded_broker import broker_command, wait_until_ready

ROOT = Path(__file__).parents[2]
# What a stranger tries, without any module of ours: each try gives "refused", or what it got.
STRANGER = """
# What is imported later, others may not be able to read.
import encodings.idna, json, os, socket, sys, urllib.error, urllib.request
url, data, state, broker = sys.argv[1:]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
got = {}
def attempt(name, work):
    try:
        got[name] = repr(work())
    except (OSError, urllib.error.HTTPError) as error:
        got[name] = f"refused {getattr(error, 'code', '')}".strip()
def ask(path):
    request = urllib.request.Request(url + path, headers={"X-Reverie-Agent": "ana"})
    return urllib.request.urlopen(request, timeout=120).read()
def connect():
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(broker)
attempt("facts", lambda: ask("/v1/facts"))
attempt("status", lambda: ask("/v1/status"))
attempt("folder", lambda: os.listdir(data))
attempt("token", lambda: open(data + "/local-token").read())
attempt("database", lambda: open(data + "/account.db", "rb").read())
attempt("announcement", lambda: os.listdir(state))
attempt("broker", connect)
print(json.dumps(got))
"""


pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can act as another user"
)


@pytest.fixture
def data() -> Iterator[Path]:
    """A data folder in a folder that everyone may enter: only its own rights protect it."""
    folder = Path(tempfile.mkdtemp(prefix="rv-"))
    folder.chmod(0o755)
    yield folder / "data"
    shutil.rmtree(folder)


@pytest.fixture
def url(data: Path) -> Iterator[str]:
    """The URL of a real server with its embedded broker, as `reverie up` starts them."""
    port = free_port()
    variables = {"REVERIE_DATA": str(data), "REVERIE_PORT": str(port), "REVERIE_EMBEDDING_PROVIDER": "none"}
    environment = {**os.environ, **variables, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}
    environment.pop("REVERIE_BROKER", None)
    broker = subprocess.Popen(broker_command(data), stdout=subprocess.DEVNULL)
    server = None
    try:
        wait_until_ready(embedded_broker_url(data), 60)
        server = subprocess.Popen([sys.executable, "-m", "server"], env=environment, cwd=ROOT)
        _await_port(port, server)
        yield f"http://127.0.0.1:{port}"
    finally:
        for process in (server, broker):
            if process is not None:
                process.kill()
                process.wait()


def _await_port(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert server.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_another_user_of_the_machine_gets_nothing(url: str, data: Path) -> None:
    """Given a running server, when another user asks it, looks into its files and its broker, then all is refused."""
    with Reverie("ana", url=url) as memory:
        memory.facts.set("home", "city", "Lisbon")
    state = Path(os.environ["XDG_STATE_HOME"]) / "reverie" / "servers"
    tried = [url, str(data), str(state), str(embedded_socket_path(data))]
    ended = subprocess.run([sys.executable, "-I", "-c", STRANGER, *tried], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "facts": "refused 401",
        "status": "refused 401",
        "folder": "refused",
        "token": "refused",
        "database": "refused",
        "announcement": "refused",
        "broker": "refused",
    }
