"""Rules of the code that no linter of ours can hold: imports, the environment, how long a module is."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from beat_schedule import PERIODIC_JOBS
from cli.stack import _workers
from reverie import contract
from worker.app import app
from worker.job_runs import registered_jobs
from worker.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
SERVER_SIDE = ("tasks", "cli", "worker", "memory", "retrieval", "storage", "adapters", "server", "beat_schedule")
PRODUCT = [*(ROOT / name for name in SERVER_SIDE[:-1]), ROOT / "client" / "reverie"]
LONGEST_MODULE_LINES = 700


def modules(*folders: Path) -> list[Path]:
    """Every module below these folders."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def imports_of(path: Path) -> Iterator[str]:
    """What a module imports, wherever in it: `import a.b` and `from a import b` both give `a.b`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def environment_reads_of(path: Path) -> list[int]:
    """The lines of a module that reach for the environment."""
    code = path.read_text(encoding="utf-8")
    if "env" not in code:
        return []
    return [
        node.lineno
        for node in ast.walk(ast.parse(code))
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"))
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {"environ", "getenv"} & {n.name for n in node.names}
        )
    ]


def test_the_beat_table_knows_names_and_intervals_only() -> None:
    """Given `beat_schedule`, then of ours it imports the contract and the settings: it says when, not what."""
    ours = ("reverie", *SERVER_SIDE)
    found = {name for name in imports_of(ROOT / "beat_schedule.py") if name.partition(".")[0] in ours}
    foreign = {
        name
        for name in imports_of(ROOT / "beat_schedule.py")
        if name.partition(".")[0] not in sys.stdlib_module_names and name not in found
    }

    assert found == {"reverie.contract", "worker.settings.Settings"}
    assert foreign == set()


def test_every_periodic_job_is_a_task_of_the_contract_once() -> None:
    """Given the table, then each row names a task that has a queue, and no task stands in it twice."""
    tasks = [job.task for job in PERIODIC_JOBS]

    assert set(tasks) <= contract.TASK_QUEUES.keys()
    assert len(tasks) == len(set(tasks))


def test_every_row_of_the_table_has_a_function_and_every_function_a_row() -> None:
    """Given the table and the modules of tasks, then beat sends what somebody works on, and nothing lies unused."""
    app.loader.import_default_modules()

    assert {job.task for job in PERIODIC_JOBS} == registered_jobs.keys()


def test_the_client_imports_nothing_of_the_server_side() -> None:
    """Given the modules of the client, then they import none of the packages that exist only where workers run."""
    paths = modules(ROOT / "client" / "reverie")
    assert len(paths) > 50
    assert [
        f"{path}: {name}" for path in paths for name in imports_of(path) if name.partition(".")[0] in SERVER_SIDE
    ] == []


MODULES = [*modules(*PRODUCT), ROOT / "beat_schedule.py"]


def test_a_module_has_one_job() -> None:
    """Given any module, then it has at most 700 lines: a longer one has two jobs."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert len(lines) > 400
    assert {path: number for path, number in lines.items() if number > LONGEST_MODULE_LINES} == {}


MAY_READ = [ROOT / "cli", ROOT / "worker", ROOT / "server", ROOT / "client" / "reverie" / "config.py"]
MAY_NOT = [path for path in MODULES if not any(path.is_relative_to(place) for place in MAY_READ)]


def test_the_environment_is_read_at_the_edge_only() -> None:
    """Given modules that are no composition roots, then they take values as arguments and not from the environment."""
    assert len(MAY_NOT) > 300
    assert [f"{path}:{line}" for path in MAY_NOT for line in environment_reads_of(path)] == []


def test_what_somebody_waits_for_shares_no_worker_with_jobs_that_take_minutes() -> None:
    """Given the queues of `reverie up`, then an erasure, recall events and extraction wait for no other periodic job
    but those that end within seconds or have threads, nor for each other."""
    short = {contract.RECOVER_INBOX, contract.SWEEP_STAGES, contract.RUN_DUE_SCHEDULES, contract.DELIVER_REMINDERS}
    waited_for = {contract.RECORD_RECALLS, contract.EXTRACT_MEMORIES, contract.CONTINUE_ERASURES}
    long = {job.task for job in PERIODIC_JOBS} - short - waited_for

    served_by = {queue: name for name, queues, _ in _workers(load_settings()) for queue in queues}

    assert served_by.keys() == set(contract.QUEUES)
    workers = [served_by[contract.TASK_QUEUES[task]] for task in sorted(waited_for)]
    assert len(set(workers)) == len(waited_for)
    assert not {served_by[contract.TASK_QUEUES[task]] for task in long} & set(workers)
