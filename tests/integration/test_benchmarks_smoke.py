"""Each benchmark runs with tiny inputs on the real stack and writes its figures; how good they are is not judged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.result import Goal, Result
from benchmarks.harness.texts import load_texts
from benchmarks.report import BEGIN, END, placed, render
from support.stacks import start_benchmark

ROOT = Path(__file__).resolve().parents[2]
# It makes network namespaces, and sets clocks wrong.
CAN_MAKE_HOSTS = os.geteuid() == 0 and all(map(shutil.which, ("ip", "cc")))
NAMES = (
    *(("hosts",) if CAN_MAKE_HOSTS else ()),
    "chaos",
    "accept",
    "ingest",
    "lag",
    "workspaces",
)
# Those that look into their stores only by the stack's own means can be told of another database.
ON_POSTGRES = ("chaos",)
FIGURES: dict[str, dict[str, int | None]] = {
    "hosts": {"acknowledged": 300, "lost": 0, "doubled": 0, "schedules": 10, "schedules_without_success": 0},
    "chaos": {"acknowledged": 300, "lost": 0, "doubled": 0, "kills": 3},
    "accept": {"queued_single": None, "queued_batch": None, "stored_batch": None},
    "ingest": {"reverie": None, "bare": None, "share_of_bare": None},
    "lag": {"lag_p50": None, "lag_p99": None, "full_rate": None},
    "workspaces": {"idle_day": None, "workspaces_written": 0, "recall_in_turn": None},
}
Runs = dict[str, "Future[tuple[int, str, dict[str, Any]]]"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Runs]:
    """All benchmarks, two at a time: together they take as long as the longest two rows of them."""
    folder = tmp_path_factory.mktemp("results")
    with ThreadPoolExecutor(max_workers=2) as pool:
        names = ON_POSTGRES if pytestconfig.getoption("postgres") else NAMES
        yield {name: pool.submit(run_benchmark, name, folder) for name in names}


def run_benchmark(name: str, folder: Path) -> tuple[int, str, dict[str, Any]]:
    """Run one with the hash embedder and made-up texts; returns its exit code, output and result."""
    output = folder / f"{name}.json"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("REVERIE_")}
    path = os.pathsep.join([str(ROOT / "client"), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"REVERIE_EMBEDDING_PROVIDER": "hash", "REVERIE_SWEEP_INTERVAL_SECONDS": "2", "PYTHONPATH": path}
    options = ["--quick", "--data", str(folder / "absent.json"), "--output", str(output)]
    environment = {**kept, **settings}
    program = start_benchmark(name, *options, environment=environment, output=folder / f"{name}-output", folder=ROOT)
    written = program.communicate(480)
    result = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    return program.wait(), "".join(written), result


@pytest.mark.parametrize(
    "name",
    [
        name if name in ON_POSTGRES else pytest.param(name, marks=pytest.mark.sqlite("measures its files"))
        for name in NAMES
    ],
)
def test_a_benchmark_writes_its_figures(name: str, runs: Runs) -> None:
    """Given tiny inputs, when a benchmark runs, then it ends well and its result says what, where and with what."""
    code, output, result = runs[name].result()

    assert code == 0, output
    assert result["benchmark"] == name
    assert result["quick"] is True
    assert result["versions"]["sqlite"]
    assert result["versions"]["valkey"] not in ("", "unknown")
    assert result["machine"]["cores"] >= 1
    assert result["goals"]
    for figure, expected in FIGURES[name].items():
        found = result["figures"][figure]
        assert found is not None
        assert expected is None or found == expected


def test_absent_data_is_told_and_made_up_the_same_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Given no file, when texts are loaded twice with one seed, then they are the same and it is said where from."""
    first = load_texts(tmp_path / "absent.json", 50, seed=1)
    again = load_texts(tmp_path / "absent.json", 50, seed=1)

    assert first.turns == again.turns
    assert "made up" in first.source
    assert "made-up turns" in capsys.readouterr().out


@pytest.mark.parametrize(("quick", "unit", "code"), [(True, "s", 0), (True, "", 1), (False, "s", 1)])
def test_only_times_of_a_quick_run_decide_nothing(quick: bool, unit: str, code: int) -> None:
    """Given a goal that was missed, then the benchmark fails, unless it is a time of a quick run."""
    missed = Goal(what="something", relation="<=", goal=1, figure=2, unit=unit)
    result = Result(benchmark="any", seed=1, quick=quick, settings={}, goals=[missed])
    assert result.exit_code() == code


def test_the_report_names_what_was_missed_and_what_was_not_measured() -> None:
    """Given a result with a goal of each kind, when it is rendered, then the page says so between its markers."""
    goals = [
        Goal(what="one", relation=">=", goal=1, figure=2),
        Goal(what="two", relation="<=", goal=1, figure=2),
        Goal(what="three", relation="<=", goal=1, figure=None, note="it was not there"),
    ]
    about = {"cpu": "a processor", "cores": 2, "bf16": False, "memory_gib": 4}
    result = Result(benchmark="b", seed=1, quick=False, settings={}, goals=goals, machine=about, date="2026-01-01")

    page = placed(f"# Page\n{BEGIN}\nold\n{END}\nend\n", "\n".join(render([result])))

    assert "| one | at least 1 | 2 |" in page
    assert "| two | at most 1 | 2, **missed** |" in page
    assert "it was not there, not measured |" in page
    assert "old" not in page
    assert page.endswith(f"{END}\nend\n")
