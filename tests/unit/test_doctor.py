"""`reverie doctor`: what is wrong is named with what to do, nothing is changed, and one failed check stops no other."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memory.pipeline.faults import STALLED_SECONDS, STUCK_SECONDS, find_faults
from reverie import contract
from reverie.pipeline.status import (
    EmbedderStatus,
    Finding,
    HostStatus,
    InboxStatus,
    InboxUse,
    JobStatus,
    LagStatus,
    LanguageModelStatus,
    PipelineStatus,
    StageStatus,
    TaskDeath,
    TimeStatus,
    WorkerStatus,
)
from storage.stores import Stores
from support.command_line import CommandLine, Ended
from worker import doctor
from worker.conditions import find_conditions
from worker.doctor import run_check
from worker.settings import Settings, load_settings

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
NO_BROKER = "redis://127.0.0.1:1/0"


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Runs `reverie` on a data folder that does not exist yet, with an embedder that loads at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_EMBEDDING_PROVIDER", "hash")
    monkeypatch.setenv("REVERIE_PORT", "7439")
    return CommandLine(monkeypatch, capsys, "--data", str(tmp_path / "data"), "--broker", NO_BROKER)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data=tmp_path / "data")


def states(ended: Ended) -> dict[str, str]:
    """The worst state of each subject."""
    found: dict[str, str] = {}
    for finding in ended.json:
        if found.get(finding["subject"]) != "problem":
            found[finding["subject"]] = finding["state"]
    return found


def ended(**counts: Any) -> JobStatus:
    return JobStatus(started_at=NOW, finished_at=NOW, counts=counts, error=None)


def healthy(**changes: Any) -> PipelineStatus:
    worker = WorkerStatus(
        name="all@host", host="host", pid=1, queues=list(contract.QUEUES), started_at=NOW, seen_at=NOW,
        progress_at=NOW, tasks_done=1, embedder="hash-64",
    )  # fmt: skip
    beat = msgspec.structs.replace(worker, name="beat@host", queues=[], embedder="")
    run = JobStatus(started_at=NOW, finished_at=NOW, counts={}, error=None)
    status = PipelineStatus(
        at=NOW, broker="up", broker_error="", queues={}, inboxes=[], workers=[worker, beat], lag=LagStatus(), stages={},
        dead_letters=0, wal_bytes=0, workspaces=[], workspaces_total=0, workspaces_unread=0,
        jobs={contract.SWEEP_STAGES: run}, embedder=EmbedderStatus(state="up", model="hash-64"), errors={},
    )  # fmt: skip
    return msgspec.structs.replace(status, **changes)


def of_jobs(status: PipelineStatus, settings: Settings) -> list[Finding]:
    return [one for one in find_conditions(status, settings) if one.subject == "Jobs"]


def test_a_new_machine_is_told_what_to_do_and_nothing_is_created(reverie: CommandLine, tmp_path: Path) -> None:
    """Given no data folder and nothing that runs, then there are warnings and no problem, and no file is made."""
    ended = reverie("doctor")
    assert ended.code == 0
    assert "start it with `reverie up`" in ended.out
    assert "hash-64, 64 dimensions, float32 on cpu" in ended.out
    assert ended.out.endswith("0 problems, 2 warnings.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_is_unknown_is_a_problem(reverie: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVERIE_PROT", "1")
    ended = reverie("doctor", "--json")
    assert ended.code == 1
    assert ended.json[0]["subject"] == "Settings"
    assert "did you mean REVERIE_PORT?" in ended.json[0]["found"]


def test_a_port_of_another_program_is_a_problem(reverie: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("REVERIE_PORT", str(taken.getsockname()[1]))
        ended = reverie("doctor", "--json")
    assert (ended.code, states(ended)["Server"]) == (1, "problem")


def test_an_embedder_that_cannot_be_loaded_is_a_problem(reverie: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVERIE_EMBEDDING_PROVIDER", "openai")
    monkeypatch.setenv("REVERIE_EMBEDDING_MODEL", "some-model")
    monkeypatch.setenv("REVERIE_EMBEDDING_BASE_URL", "http://127.0.0.1:1/v1")
    ended = reverie("doctor", "--json")
    assert (ended.code, states(ended)["Embedder"]) == (1, "problem")


@pytest.mark.sqlite("damages a file")
def test_a_damaged_database_is_a_problem_and_the_other_checks_go_on(reverie: CommandLine, tmp_path: Path) -> None:
    stores = Stores(tmp_path / "data")
    stores.workspace("good")
    stores.workspace("bad")
    stores.close()
    stores.database_path("bad").write_bytes(b"no database" * 1_000)
    ended = reverie("doctor", "--json")
    found = states(ended)
    assert (ended.code, found["Databases"], found["Disk"], found["Embedder"]) == (1, "problem", "ok", "ok")
    (problem,) = [one for one in ended.json if one["state"] == "problem"]
    assert str(stores.database_path("bad")) in problem["found"]
    assert problem["runbook"] == "docs/operations.md#the-database-is-gone"
    assert problem["runbook"] in reverie("doctor").out


def test_a_folder_that_others_can_enter_is_named_with_the_command_that_mends_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (found,) = doctor.check_folder(tmp_path)
    assert (found.state, found.advice) == ("warning", f"chmod 700 {tmp_path}")
    tmp_path.chmod(0o700)
    (found,) = doctor.check_folder(tmp_path)
    assert found.state == "ok"


def test_a_network_file_system_and_a_full_disk_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_file_system", lambda _path: "nfs4")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _path: type("Usage", (), {"free": 1_000_000}))
    assert [found.state for found in doctor.check_disk(tmp_path)] == ["problem", "problem"]


def test_logs_that_cannot_be_written_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a log in whose place is a folder, and then a full disk, then each is named; without logs nothing is."""
    assert list(doctor.check_logs(tmp_path)) == []
    (tmp_path / "logs" / "server.log").mkdir(parents=True)
    (found,) = doctor.check_logs(tmp_path)
    assert (found.state, found.found) == ("problem", "logs/server.log cannot be written")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _path: type("Usage", (), {"free": 0}))
    assert [found.state for found in doctor.check_logs(tmp_path)] == ["problem", "problem"]


def test_a_backup_folder_without_a_recent_backup_is_named(settings: Settings, tmp_path: Path) -> None:
    (none,) = doctor.check_backups(settings, NOW)
    assert (none.state, none.found) == ("warning", "none are made")
    configured = settings.model_copy(update={"backup_folder": tmp_path})
    (empty,) = doctor.check_backups(configured, NOW)
    assert empty.found == f"none yet in {tmp_path}"
    (elsewhere,) = doctor.check_backups(settings.model_copy(update={"database": "postgresql://db/reverie"}), NOW)
    assert elsewhere.state == "ok"


def test_a_pipeline_that_is_well_has_no_finding_but_ok(settings: Settings) -> None:
    assert {finding.state for finding in find_conditions(healthy(), settings)} == {"ok"}


@pytest.mark.parametrize(
    ("changes", "subject", "state"),
    [
        ({"broker": "down", "broker_error": "refused"}, "Broker", "problem"),
        ({"broker_warnings": ["it evicts keys"]}, "Broker", "warning"),
        ({"faults": ["no worker takes tasks from embed: start `reverie up`"]}, "Faults", "problem"),
        ({"inboxes": [InboxStatus(workspace="w", size=3, oldest_age_seconds=1.0, full=0.9)]}, "Inbox", "problem"),
        ({"inbox": InboxUse(items=3, full=0.9)}, "Inbox", "problem"),
        ({"dead_letters": 2}, "Dead letters", "warning"),
        ({"errors": {"ws": "is damaged"}}, "Databases", "problem"),
        ({"time": TimeStatus(schedules_oldest_overdue_seconds=300.0)}, "Schedules", "problem"),
        ({"time": TimeStatus(runs_oldest_pending_seconds=300.0)}, "Schedules", "problem"),
        ({"hosts": [HostStatus(id="1", name="h", silent_seconds=1.0, erasures=1, error="full")]}, "Hosts", "problem"),
        ({"hosts": [HostStatus(id="1", name="h", silent_seconds=900.0, erasures=0)]}, "Hosts", "warning"),
        ({"jobs": {contract.CONTINUE_ERASURES: ended(late_erasures={"erasure e": "full"})}}, "Erasures", "problem"),
        ({"jobs": {contract.CONTINUE_ERASURES: ended(late_forgets={"forget 1": "full"})}}, "Erasures", "problem"),
        ({"jobs": {contract.VERIFY_STORE: ended(workspaces={"w": {"wrong": ["a", "b"]}})}}, "Databases", "problem"),
        ({"jobs": {contract.OPTIMIZE_STORE: ended(workspaces={"w": {"error": "damaged"}})}}, "Jobs", "warning"),
        ({"jobs": {contract.EXTRACT_MEMORIES: ended(stores={"w": {"error": "damaged"}})}}, "Jobs", "warning"),
        ({"jobs": {contract.RUN_DUE_SCHEDULES: ended(unreadable={"w": "damaged"})}}, "Jobs", "warning"),
        ({"embedder": EmbedderStatus(state="down", model="m", error="401"), "workers": []}, "Embedder", "problem"),
        ({"language_model": LanguageModelStatus(state="down", model="m", error="401")}, "Language model", "problem"),
    ],
)  # fmt: skip
def test_each_thing_that_is_wrong_is_found(
    settings: Settings, changes: dict[str, Any], subject: str, state: str
) -> None:
    """Given one thing that is wrong, then exactly this is found, with what to do or the reason."""
    wrong = [finding for finding in find_conditions(healthy(**changes), settings) if finding.state != "ok"]
    assert {(finding.subject, finding.state) for finding in wrong} >= {(subject, state)}
    assert all(finding.advice or finding.subject in ("Databases", "Faults") for finding in wrong)
    if subject == "Jobs":
        assert [one.state for one in find_conditions(healthy(**changes), settings) if one.subject == "Jobs"] == [state]


@pytest.mark.parametrize(("fallback", "state"), [(True, "warning"), (False, "problem")])
@pytest.mark.parametrize(
    "told", ["m: down (no answer; is it slow?)", "m: up; n: up (n did not answer with an Extraction)"]
)
def test_a_language_model_that_fails_in_a_worker_is_found(
    tmp_path: Path, told: str, fallback: bool, state: str
) -> None:
    """Given a worker whose model is down or answers nonsense, then it is a problem if its work has to wait."""
    settings = load_settings(data=tmp_path, deterministic_fallback=fallback)
    worker = msgspec.structs.replace(healthy().workers[0], language_model=told)
    found = [one for one in find_conditions(healthy(workers=[worker]), settings) if one.subject == "Language model"]
    assert [(one.state, one.found) for one in found] == [(state, told)]


def test_a_job_that_failed_and_one_that_is_not_run_any_more_are_found(settings: Settings) -> None:
    long_ago = NOW - timedelta(days=30)
    jobs = {
        contract.PRUNE_DECAYED: JobStatus(started_at=NOW, finished_at=NOW, counts={}, error="the disk is full"),
        contract.DREAM_SWEEP: JobStatus(started_at=long_ago, finished_at=long_ago, counts={}, error=None),
    }
    found = of_jobs(healthy(jobs=jobs), settings)
    assert [one.state for one in found] == ["problem", "warning"]
    assert found[0].advice == "`reverie run prune-decayed` tries again"
    assert "dream-sweep" in found[1].found


@pytest.mark.parametrize(("hours", "state"), [(1.5, "ok"), (3.5, "warning")])
def test_a_job_that_also_runs_at_each_start_is_expected_at_its_own_interval(
    settings: Settings, hours: float, state: str
) -> None:
    """Given an hourly job that runs at each start too, then it is missed after three hours and not after minutes."""
    at = NOW - timedelta(hours=hours)
    jobs = {contract.PRUNE_DECAYED: JobStatus(started_at=at, finished_at=at, counts={}, error=None)}
    assert [one.state for one in of_jobs(healthy(jobs=jobs), settings)] == [state]


def test_what_does_most_harm_comes_first(settings: Settings) -> None:
    """Given several things that are wrong, then problems come before warnings, and a lost database before a job."""
    failed = JobStatus(started_at=NOW, finished_at=NOW, counts={}, error="the disk is full")
    wrong = {"errors": {"ws": "is damaged"}, "dead_letters": 1, "jobs": {contract.PRUNE_DECAYED: failed}}
    found = find_conditions(healthy(faults=["a worker is deaf"], **wrong), settings)
    assert [one.subject for one in found if one.state != "ok"] == ["Databases", "Faults", "Jobs", "Dead letters"]
    assert found[0].runbook == "docs/operations.md#the-database-is-gone"


def test_without_the_broker_nothing_is_said_about_workers_and_inboxes(settings: Settings) -> None:
    """Given a broker that is away, then what only it knows is not called well."""
    found = find_conditions(healthy(broker="down", broker_error="refused", workers=[]), settings)
    assert {"Workers", "Inbox"}.isdisjoint(one.subject for one in found)


def test_nothing_in_the_inbox_has_no_age(settings: Settings) -> None:
    (inbox,) = (one for one in find_conditions(healthy(), settings) if one.subject == "Inbox")
    assert inbox.found == "0 items waiting"


def test_an_error_of_a_check_is_a_finding() -> None:
    def failing() -> Iterator[Finding]:
        yield Finding("Disk", "ok", "first")
        raise PermissionError(13, "Permission denied", "/data")

    found = [*run_check("Disk", failing)]
    assert [one.state for one in found] == ["ok", "problem"]
    assert found[1].found == "/data: Permission denied"


def faults(status: PipelineStatus, *, call_seconds: float = 20, starting: bool = False, **changes: Any) -> list[str]:
    return find_faults(msgspec.structs.replace(status, **changes), call_seconds=call_seconds, starting=starting)


def test_a_pipeline_at_work_has_no_fault() -> None:
    """Given tasks in queues, items in inboxes for less than a minute, and a long queue, then nothing is wrong."""
    inbox = InboxStatus(workspace="w", size=9, oldest_age_seconds=STUCK_SECONDS - 1)
    stages = {
        "embed": StageStatus(waiting=9_000, held=256, oldest_age_seconds=STUCK_SECONDS + 1),
        "index": StageStatus(waiting=9, retrying=9, oldest_age_seconds=STUCK_SECONDS - 1),
    }
    queues = dict.fromkeys(contract.QUEUES, 1_000)
    assert faults(healthy(), queues=queues, inboxes=[inbox], stages=stages) == []


def test_each_thing_that_stands_still_is_a_fault_of_its_own() -> None:
    """Given one thing that is wrong, then one text names it."""
    status = healthy()
    worker, beat = status.workers
    stalled = msgspec.structs.replace(worker, stalled_seconds=STALLED_SECONDS)
    no_embed = msgspec.structs.replace(worker, queues=["ingest"])
    inbox = InboxStatus(workspace="talks", size=9, oldest_age_seconds=STUCK_SECONDS + 1)
    stage = StageStatus(waiting=9, retrying=9, oldest_age_seconds=STUCK_SECONDS + 1)
    suspects = StageStatus(waiting=9, held=1, suspects=16, oldest_age_seconds=STUCK_SECONDS + 1)
    waits = StageStatus(waiting=9, held=1, oldest_age_seconds=STUCK_SECONDS + 1)
    minute_ago = NOW - timedelta(seconds=STUCK_SECONDS + 1)
    hung = msgspec.structs.replace(worker, started_at=minute_ago, progress_at=minute_ago)
    later, old_beat = NOW + timedelta(seconds=61), msgspec.structs.replace(beat, started_at=NOW - timedelta(hours=1))
    new_beat = msgspec.structs.replace(beat, started_at=later)
    found = {
        "all@host": faults(status, workers=[stalled, beat]),
        "from embed,index (1 task waiting)": faults(
            status, workers=[no_embed, beat], queues={"embed": 1, "ingest": 1, "index": 0}
        ),
        "from index (0 tasks waiting)": faults(
            status, workers=[msgspec.structs.replace(worker, queues=["embed", "ingest"]), beat], queues={"index": 0}
        ),
        "beat": faults(status, workers=[worker]),
        "talks": faults(status, inboxes=[inbox]),
        "stage embed": faults(status, stages={"embed": stage}),
        "16 rows of the stage embed were in hand": faults(status, stages={"embed": suspects}),
        "`embed` has got on": faults(status, workers=[hung, beat], stages={"embed": waits}),
        "`extraction` has got on": faults(status, workers=[hung, beat], stages={"extract": waits}),
        "m: down (away)": faults(
            status, workers=[msgspec.structs.replace(worker, embedder="m: down (away)"), beat], stages={"embed": waits}
        ),
    }
    assert [(len(texts), name in texts[0]) for name, texts in found.items()] == [(1, True)] * 10
    begins = msgspec.structs.replace(status, workers=[], queues={"index": 0})
    assert faults(begins, starting=True) == [], "they have not had the time to report yet"
    assert len(faults(begins, queues={"index": 1}, starting=True)) == 1
    assert len(faults(begins)) == 2
    late = faults(status, workers=[worker, old_beat], at=later)
    assert ["sweep-stages" in late[0], "recover-inbox" in late[1], len(late)] == [True, True, 2]
    assert faults(status, workers=[worker, new_beat], at=later) == [], "it has not had the time yet"


def test_a_process_that_died_at_work_is_told_and_is_a_fault_if_something_waits_or_another_died(
    settings: Settings,
) -> None:
    """Given a death in the pool of a worker, then it is a warning for two minutes; a fault while rows of its queue wait
    for over a minute, or for a minute after a second death."""
    status = healthy()
    worker, beat = status.workers
    one, before = (TaskDeath(task=contract.EMBED_CHUNKS, at=NOW - timedelta(seconds=ago)) for ago in (50, 90))
    late = {"embed": StageStatus(waiting=1, held=1, oldest_age_seconds=STUCK_SECONDS + 1)}

    def found(deaths: list[TaskDeath], at: datetime = NOW, **changes: Any) -> list[tuple[str, str]]:
        workers = [msgspec.structs.replace(worker, deaths=deaths, progress_at=at, seen_at=at), beat]
        changed = msgspec.structs.replace(status, workers=workers, at=at, **changes)
        changed = msgspec.structs.replace(changed, faults=[one for one in faults(changed) if "beat" not in one])
        texts = [one for one in find_conditions(changed, settings) if "died" in one.found]
        assert all("all@host died" in text.found and "in embed-chunks" in text.found for text in texts)
        return [(text.subject, text.state) for text in texts]

    assert found([]) == found([], stages=late) == []
    assert found([one]) == [("Workers", "warning")]
    assert found([one], stages=late) == found([before, one]) == [("Faults", "problem")]
    assert found([one], stages={"extract": late["embed"]}) == [("Faults", "problem")], "it serves this queue as well"
    assert found([before, one], NOW + timedelta(seconds=20)) == [("Workers", "warning")], "it has been tried again"
    assert found([before, one], NOW + timedelta(seconds=80)) == []


def test_extraction_that_gets_on_within_a_long_task_or_waits_for_a_slow_model_is_no_fault() -> None:
    """Given a task of minutes, then it is a fault once no session has been read for a minute; with a model whose calls
    may last for 90 s, after two of them."""
    status = healthy()
    worker, beat = status.workers
    began = NOW - timedelta(minutes=4)
    workers = [msgspec.structs.replace(worker, started_at=began, progress_at=began), beat]

    def found(moved_seconds: float, call_seconds: float) -> int:
        moved = NOW - timedelta(seconds=moved_seconds)
        stages = {"extract": StageStatus(waiting=9, held=1, oldest_age_seconds=200, moved_at=moved)}
        return len(faults(status, workers=workers, stages=stages, call_seconds=call_seconds))

    assert [found(59, 0), found(59, 20), found(61, 90), found(179, 90)] == [0, 0, 0, 0]
    assert [found(61, 0), found(61, 20), found(181, 90)] == [1, 1, 1]
