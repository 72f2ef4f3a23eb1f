"""Jobs in real processes, killed at any moment or run twice at once: the end is that of one run that was left alone."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from reverie import contract
from support.busy_store import copied, differences, fill, picture
from support.job_processes import JOBS, JobProcess, run_whole

KILLS = 6
MOST_IN_A_ROW = 3
# After a second death the session in which the reader died is read last, and after a third one it is set aside. That is
# tested by itself; here the end is to be that of sessions read in their order.
MOST_IN_A_ROW_OF = {contract.EXTRACT_MEMORIES: 1}
SEED = 20_260_301


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no job has worked on yet."""
    data = tmp_path_factory.mktemp("busy") / "raw"
    fill(data)
    return data


@pytest.fixture(scope="module")
def extracted(raw: Path, valkey_url: str) -> Path:
    """A store whose conversations were read and summarised: retention has something to remove."""
    data = copied(raw, raw.with_name("extracted"))
    for job in (contract.EXTRACT_MEMORIES, contract.CONSOLIDATE_CONVERSATIONS):
        run_whole(data, job, valkey_url)
    return data


@pytest.fixture
def template(request: pytest.FixtureRequest, job: str) -> Path:
    """The store that a job finds."""
    waits_for_others = (contract.APPLY_RETENTION, contract.DREAM_SWEEP, contract.CONSOLIDATE_MEMORIES)
    found: Path = request.getfixturevalue("extracted" if job in waits_for_others else "raw")
    return found


@pytest.mark.parametrize("job", JOBS)
def test_killed_at_random_moments_and_run_again_the_end_is_the_same(
    job: str, template: Path, tmp_path: Path, valkey_url: str
) -> None:
    """Given a job killed several times over, when it runs again at the same moment, then it ends as if never killed."""
    counts, seconds = timed(template, tmp_path / "whole", job, valkey_url)
    expected = picture(tmp_path / "whole")
    assert differences(picture(template), expected), f"{job} has something to do: {counts}"

    wrong = kill_and_run_again(template, tmp_path, job, valkey_url, seconds=seconds, expected=expected)

    assert wrong == []


def timed(template: Path, folder: Path, job: str, broker: str) -> tuple[dict[str, Any], float]:
    """Run a job to its end on a copy; its counts and how long it took."""
    process = JobProcess(copied(template, folder), job, broker)
    started = time.monotonic()
    process.go()
    return process.counts(), time.monotonic() - started


def kill_and_run_again(
    template: Path, folder: Path, job: str, broker: str, *, seconds: float, expected: dict[str, Any],
    kills: int = KILLS, seed: int = SEED,
) -> list[dict[str, Any]]:  # fmt: skip
    """Kill a job so many times on one copy after another, each until it comes to its end; what differs there."""
    chance = random.Random(f"{seed} {job}")
    wrong: list[dict[str, Any]] = []
    killed = 0
    while killed < kills:
        data = copied(template, folder / f"killed-{killed}")
        killed_here = 0
        while killed_here < MOST_IN_A_ROW_OF.get(job, MOST_IN_A_ROW):
            process = JobProcess(data, job, broker)
            process.go()
            if not process.kill_after(chance.uniform(0, seconds)):
                seconds *= 0.8  # it was quicker than that: die sooner
                break
            killed_here += 1
        else:
            run_whole(data, job, broker)
        killed += killed_here
        found = differences(expected, picture(data))
        wrong += [found] if found else []
        shutil.rmtree(data)
    return wrong


@pytest.mark.parametrize("job", JOBS)
def test_two_copies_at_once_do_the_work_of_one(job: str, template: Path, tmp_path: Path, valkey_url: str) -> None:
    """Given two processes of a job on one store, when both begin at once, then the store is as after one of them."""
    whole, data = copied(template, tmp_path / "one"), copied(template, tmp_path / "two")
    run_whole(whole, job, valkey_url)
    both = [JobProcess(data, job, valkey_url) for _ in range(2)]
    for process in both:
        process.go()
    counts = [process.counts() for process in both]

    assert differences(picture(whole), picture(data)) == {}, counts
