"""Jobs in real processes, killed at any moment or run twice at once: the end is that of one run that was left alone."""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reverie import contract
from support.busy_store import copied, differences, fill, picture
from support.job_processes import JOBS, JobProcess, run_whole

KILLS = 4
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


@dataclass(frozen=True)
class Whole:
    """What a job leaves that ran to its end, its counts, and how long it took."""

    picture: dict[str, Any]
    counts: dict[str, Any]
    seconds: float


@pytest.fixture(scope="module")
def wholes() -> dict[str, Whole]:
    """The ends of the jobs that have been run for a test of this file."""
    return {}


@pytest.fixture
def whole(wholes: dict[str, Whole], job: str, template: Path, tmp_path: Path, valkey_url: str) -> Whole:
    """The end of a job that was left alone."""
    if job not in wholes:
        process = JobProcess(copied(template, tmp_path / "whole"), job, valkey_url)
        started = time.monotonic()
        process.go()
        counts, seconds = process.counts(), time.monotonic() - started
        wholes[job] = Whole(picture(tmp_path / "whole"), counts, seconds)
    return wholes[job]


@pytest.mark.parametrize("job", JOBS)
def test_killed_at_random_moments_and_run_again_the_end_is_the_same(
    job: str, template: Path, whole: Whole, tmp_path: Path, valkey_url: str
) -> None:
    """Given a job killed several times over, when it runs again at the same moment, then it ends as if never killed."""
    assert differences(picture(template), whole.picture), f"{job} has something to do: {whole.counts}"

    wrong = kill_and_run_again(template, tmp_path, job, valkey_url, whole)

    assert wrong == []


def kill_and_run_again(template: Path, folder: Path, job: str, broker: str, whole: Whole) -> list[dict[str, Any]]:
    """Kill a job some times on one copy after another, each until it comes to its end; what differs there."""
    chance = random.Random(f"{SEED} {job}")
    wrong: list[dict[str, Any]] = []
    killed, seconds = 0, whole.seconds
    while killed < KILLS:
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
        found = differences(whole.picture, picture(data))
        wrong += [found] if found else []
        shutil.rmtree(data)
    return wrong


@pytest.mark.parametrize("job", JOBS)
def test_two_copies_at_once_do_the_work_of_one(
    job: str, template: Path, whole: Whole, tmp_path: Path, valkey_url: str
) -> None:
    """Given two processes of a job on one store, when both begin at once, then the store is as after one of them."""
    data = copied(template, tmp_path / "two")
    both = [JobProcess(data, job, valkey_url) for _ in range(2)]
    for process in both:
        process.go()
    counts = [process.counts() for process in both]

    assert differences(whole.picture, picture(data)) == {}, counts
