"""Fixtures for all tests.

They import what they need when they are used: the process that distributes the tests reads this file, too, and would
take two seconds longer to begin.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

import support.environment  # noqa: F401 - first, because it sets what libraries read when they are imported
from reverie.clock import now_micros

if TYPE_CHECKING:
    from reverie import Reverie
    from worker.runtime import Runtime

# What is imported and collected stays. Garbage collections that look through it take half of the time of collecting.
gc.disable()

# The folders of tests that wait for other processes more than they compute.
_WAITING = frozenset({"acceptance", "integration"})
# Seconds that the longest of their files take on two busy cores; the others take 10 on average, and 30 at most.
_LONG = {
    "test_worker_life": 160,
    "test_benchmarks_smoke": 110,
    "test_postgres_plans": 100,
    "test_broker_outages": 90,
    "test_agent_story": 80,
    "test_recall_benchmarks_smoke": 80,
    "test_erased_without_a_trace": 60,
    "test_forgotten_endpoints": 60,
    "test_page_sections": 60,
    "test_supervisor": 60,
    "test_compose_commands": 50,
    "test_compressed_days": 50,
    "test_demo": 50,
    "test_jobs_killed": 50,
    "test_reembed_process": 50,
    "test_upgrade": 50,
    "test_wheel": 50,
    "test_agent_worker": 40,
    "test_backup_command": 40,
    "test_coding_agent_hooks": 40,
    "test_db_copy": 40,
    "test_page_memory": 40,
    "test_postgres_hosts": 40,
    "test_schedule_stack": 40,
    "test_slow_connections": 40,
    "test_postgres_failures": 30,
}
_OTHERS_SECONDS = 15
# Files of which each would import the same for seconds: one process has them all.
_TOGETHER = dict.fromkeys(
    (
        "test_consolidation_real_model",
        "test_languages",
        "test_onnx_embedder",
        "test_relevance_real_model",
        "test_sentence_transformers_embedder",
    ),
    "torch",
)

# By default a test fails when an example takes 200 ms, or making examples a second: that depends on the machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# A shell starts what it runs in the background with Ctrl-C ignored, and the processes of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this suite."""
    parser.addoption("--postgres", action="store_true", help="keep the stores of tests in PostgreSQL, not in files")


def pytest_configure(config: pytest.Config) -> None:
    """Load what the options ask for."""
    if config.getoption("postgres"):
        from support import on_postgres

        config.pluginmanager.register(on_postgres)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin each process's share with tests that wait for other processes, and end it with those that compute.

    In the order of their names, nearly all tests that wait would be in the share of one process, and the longest of
    them near its end: the last minutes of a run would be waits. Here the files that wait are distributed by their
    length, longest first. What processes take over from each other comes from the ends of shares, and is short.
    """
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    if processes == 1:
        return
    waiting: dict[str, list[pytest.Item]] = {}
    computing: list[pytest.Item] = []
    for item in items:
        waits, name = item.path.parent.name in _WAITING, item.path.stem
        (waiting.setdefault(_TOGETHER.get(name, name), []) if waits else computing).append(item)
    seconds = {
        name: sum(_LONG.get(file, _OTHERS_SECONDS) for file in {item.path.stem for item in some})
        for name, some in waiting.items()
    }
    shares: list[list[pytest.Item]] = [[] for _ in range(processes)]
    taken = [0] * processes
    for name in sorted(waiting, key=lambda name: -seconds[name]):
        shortest = taken.index(min(taken))
        shares[shortest].extend(waiting[name])
        taken[shortest] += seconds[name]
    short = iter(computing)
    items[:] = [
        item
        for number, share in enumerate(shares)
        # The sizes of shares are those of `--dist worksteal`.
        for item in (*share, *islice(short, max(0, (len(items) + number) // processes - len(share))))
    ]
    items.extend(short)


def pytest_collection_finish() -> None:
    """Keep what was collected out of garbage collections, each of which took a second to look at 12,000 tests."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What happens to be set or stored where the tests run must not change what they prove."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / f"share-{uuid4().hex}"))
    for variable in list(os.environ):
        if variable.startswith("REVERIE_"):
            monkeypatch.delenv(variable)


@pytest.fixture(autouse=True, scope="session")
def _no_stack_from_outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Reverie that runs on this machine must not be found by what is tested, nor one of these tests by its user."""
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    yield
    patch.undo()


@pytest.fixture(autouse=True, scope="session")
def _shared_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Name a folder that all processes of this run share."""
    own = tmp_path_factory.getbasetemp()
    os.environ["TESTS_SHARED_FOLDER"] = str(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


@pytest.fixture(autouse=True, scope="session")
def _databases() -> Iterator[None]:
    """End the broker that tests have started by asking for a database."""
    yield
    from support.broker import DATABASES

    DATABASES.close()


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """One real broker for all tests; each keeps to itself by a prefix of its own."""
    from support.broker import running_valkey

    with running_valkey() as url:
        yield url


@pytest.fixture
def broker_prefix() -> str:
    """A prefix that no other test has."""
    return f"t{uuid4().hex[:12]}:"


@pytest.fixture
def make_runtime(valkey_url: str, broker_prefix: str, tmp_path: Path) -> Iterator[Callable[..., Runtime]]:
    """Makes runtimes on one broker and one data folder, with the deterministic embedder unless told otherwise."""
    from worker.runtime import Runtime
    from worker.settings import Settings

    made: list[Runtime] = []

    def make(*, clock: Callable[[], int] = now_micros, **settings: Any) -> Runtime:
        defaults = {
            "data": tmp_path / "data",
            "broker": valkey_url,
            "broker_prefix": broker_prefix,
            "embedding_provider": "hash",
        }
        made.append(Runtime(Settings(**{**defaults, **settings}), clock=clock))
        return made[-1]

    yield make
    for runtime in made:
        runtime.close()


@pytest.fixture
def fires_every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules may fire every second."""
    from memory.scheduling.rules import ScheduleRules
    from worker.settings import Settings

    rules = property(lambda settings: ScheduleRules(1, max_per_user=settings.schedules_per_user))
    monkeypatch.setattr(Settings, "schedule_rules", rules)


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """A runtime on a real broker and an empty data folder."""
    return make_runtime()


@pytest.fixture
def ana(runtime: Runtime) -> Iterator[Reverie]:
    """A client of the agent ana, and a server over the runtime."""
    from reverie import Reverie
    from support.http import running_server

    with running_server(runtime) as url, Reverie("ana", url=url) as client:
        yield client
