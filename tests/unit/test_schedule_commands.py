"""`reverie schedules`: without a server, on the files of the data folder, for people and for programs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli import scheduling
from cli.options import seconds_of, span
from memory.scheduling.executing import AttemptLimits, ExecutionSettings, execute_run
from memory.scheduling.rules import RunResult, ScheduleRules
from reverie.clock import now_micros
from reverie.errors import Rejected
from reverie.scheduling.types import ScheduleRun
from storage.scheduling.records import ScheduleFilter
from storage.stores import Stores
from support.command_line import CommandLine, Ended

pytestmark = pytest.mark.slow

NO_MODEL = "no language model is configured"
HOOK = ("--webhook", "https://example.org/hook")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An empty data folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def reverie(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Runs the command line as ana, without a broker or a server."""
    monkeypatch.chdir(data.parent)
    return CommandLine(monkeypatch, capsys, "--data", str(data), "--workspace", "w", "--agent", "ana")


def add(reverie: CommandLine, *arguments: str) -> Any:
    """Add a schedule; returns it."""
    ended = reverie("schedules", "add", *arguments, "--json")
    assert ended.code == 0, ended.err
    return ended.json


def done(ended: Ended) -> Any:
    """What a command that succeeded printed as JSON."""
    assert ended.code == 0, ended.err
    return ended.json


def execute(data: Path, run_id: str, result: RunResult) -> None:
    """Do what a worker does for a run."""
    stores = Stores(data)
    execute_run(
        stores.workspace("w"),
        run_id,
        lambda _: result,
        ExecutionSettings(limits=AttemptLimits(), rules=ScheduleRules(), now=now_micros, clock=now_micros),
    )
    stores.close()


def test_the_command_of_the_docs_works_on_an_empty_folder(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given an empty data folder, when a schedule is added as the docs show it, then it says when it fires in Lisbon,
    and in one line what comes of it without a language model."""
    monkeypatch.chdir(data.parent)
    monkeypatch.setenv("REVERIE_DATA", str(data))
    plain = CommandLine(monkeypatch, capsys)
    ended = plain("schedules", "add", "--cron", "0 9 * * 1-5", "--tz", "Europe/Lisbon", "summarise what is open")
    assert ended.code == 0, ended.err
    assert "09:00 WE" in ended.out
    assert ended.out.endswith("(Europe/Lisbon).\n")
    assert (NO_MODEL in ended.err, ended.err_without_note.count("\n")) == (True, 1)
    (listed,) = done(plain("schedules", "list", "--json"))["schedules"]
    assert listed["id"] in ended.out
    assert (listed["goal"], listed["agent"]) == ("summarise what is open", "default")


def test_with_a_model_or_a_webhook_nothing_is_warned_of(reverie: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an executor that can answer, then standard error has no warning."""
    assert reverie("schedules", "add", "x", "--every", "1h", *HOOK).err_without_note == ""
    monkeypatch.setenv("REVERIE_LANGUAGE_MODEL_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("REVERIE_LANGUAGE_MODEL", "small")
    assert reverie("schedules", "add", "x", "--every", "1h").err_without_note == ""


KATE = ("--user", "kate")


def test_a_schedule_from_adding_to_deleting(reverie: CommandLine) -> None:
    """Given a data folder, when a schedule is added, listed, shown, changed, paused, resumed and deleted, then each
    command says so."""
    notified = ("--notify", "on_failure", "--channel", "kitchen", "--session", "s")
    more = ("--name", "plants", "--user", "kate", "--timeout", "60", "--recall-limit", "0")
    made = add(reverie, "water the plants", "--every", "90m", *HOOK, *notified, *more)
    schedule_id = made["id"]
    assert (made["cadence"]["seconds"], made["executor"]) == (5_400, {"type": "webhook", "url": HOOK[1]})
    assert (made["user"], made["notification_policy"], made["timeout_seconds"]) == ("kate", "on_failure", 60)
    listed = reverie("schedules", "list", *KATE).out
    assert "every 90m" in listed
    assert "plants: water the plants" in listed
    assert "has no schedules" in reverie("schedules", "list").out
    assert "water the plants" in reverie("schedules", "list", "--all-users").out
    shown = reverie("schedules", "show", schedule_id, *KATE)
    assert "next_run_at: " in shown.out
    assert done(reverie("schedules", "show", schedule_id, *KATE, "--json")) == made
    changed = done(reverie("schedules", "update", schedule_id, *KATE, "--goal", "feed the cat", "--name", "", "--json"))
    assert (changed["goal"], changed.get("name"), changed["channel"]) == ("feed the cat", None, "kitchen")
    assert "is active and fires next" in reverie("schedules", "update", schedule_id, *KATE, "--cron", "@daily").out
    assert reverie("schedules", "pause", schedule_id, *KATE).out == f"Schedule {schedule_id} is paused.\n"
    assert done(reverie("schedules", "list", *KATE, "--status", "active", "--json"))["total"] == 0
    assert reverie("schedules", "next", schedule_id, *KATE).out == f"Schedule {schedule_id} does not fire.\n"
    assert done(reverie("schedules", "resume", schedule_id, *KATE, "--json"))["status"] == "active"
    assert NO_MODEL in reverie("schedules", "update", schedule_id, *KATE, "--llm").err
    assert reverie("schedules", "delete", schedule_id, *KATE).code == 1  # nobody says yes
    assert done(reverie("schedules", "delete", schedule_id, *KATE, "--yes", "--json")) == {"deleted": True}
    assert "has no schedules" in reverie("schedules", "list", "--all-users").out


def test_the_list_is_filtered_and_says_that_there_are_more(reverie: CommandLine) -> None:
    """Given three schedules, then filters leave some, and a short page says how many there are."""
    for goal in ("one", "two", "three"):
        add(reverie, goal, "--cron", "0 9 * * *", *HOOK)
    assert "1 of 3 schedules" in reverie("schedules", "list", "--limit", "1").out
    page = done(reverie("schedules", "list", "--text", "TW", "--cadence", "cron", "--executor", "webhook", "--json"))
    assert [schedule["goal"] for schedule in page["schedules"]] == ["two"]
    assert done(reverie("schedules", "list", "--due-before", "2026-01-01T00:00:00Z", "--json"))["schedules"] == []


def test_times_are_shown_without_storing_anything(reverie: CommandLine, data: Path) -> None:
    """Given a cadence, then its next times are told in its zone, and no workspace is made."""
    upcoming = done(
        reverie("schedules", "next", "--cron", "0 9 29 2 *", "--tz", "Europe/Lisbon", "--count", "2", "--json")
    )
    assert [at[4:] for at in upcoming["at"]] == ["-02-29T09:00:00Z"] * 2
    assert all(local.endswith("09:00 WET (Europe/Lisbon)") for local in upcoming["local"])
    assert reverie("schedules", "next", "--every", "1d", "--count", "3").out.count("UTC\n") == 3
    at = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    assert done(reverie("schedules", "next", "--at", at.isoformat(), "--json"))["at"] == [f"{at:%Y-%m-%dT%H:%M:%SZ}"]
    assert not (data / "workspaces").exists()


def test_a_run_by_hand_is_listed_shown_and_cancelled(reverie: CommandLine, data: Path) -> None:
    """Given no workers, when a schedule is run by hand, then its run waits, can be cancelled, and all is told."""
    schedule_id = add(reverie, "x", "--every", "1h", *HOOK)["id"]
    assert reverie("schedules", "runs", schedule_id).out == f"Schedule {schedule_id} has not run yet.\n"
    started = reverie("schedules", "run-now", schedule_id)
    assert "waits for the workers" in started.out
    (run,) = done(reverie("schedules", "runs", schedule_id, "--json"))
    assert (run["status"], run["trigger"]) == ("pending", "manual")
    assert f"run {run['id']} of schedule {schedule_id} is pending" in reverie("schedules", "run-now", schedule_id).err
    assert reverie("schedules", "cancel", run["id"]).out == f"Run {run['id']} is cancelled.\n"
    assert done(reverie("schedules", "cancel", run["id"], "--json"))["status"] == "cancelled"
    second = done(reverie("schedules", "run-now", schedule_id, "--json"))
    execute(data, second["id"], RunResult("success", output="all of it\n" + "x" * 600))
    listed = reverie("schedules", "runs", schedule_id).out
    assert "cancelled" in listed
    assert "all of it" in listed
    shown = reverie("schedules", "run", second["id"]).out
    assert shown.endswith("all of it\n" + "x" * 600 + "\n")
    assert done(reverie("schedules", "run", second["id"], "--json"))["output"].endswith("x" * 600)
    assert "has ended: success" in reverie("schedules", "cancel", second["id"]).err


@pytest.mark.parametrize(
    ("result", "code"), [(RunResult("success", output="watered"), 0), (RunResult("failed", error="no water"), 1)]
)
def test_a_run_that_is_waited_for_is_shown_and_decides_the_exit_code(
    reverie: CommandLine, data: Path, monkeypatch: pytest.MonkeyPatch, result: RunResult, code: int
) -> None:
    """Given --wait, when a worker has executed the run, then how it ended is printed, and a failure exits with 1."""
    schedule_id = add(reverie, "x", "--every", "1h", *HOOK)["id"]
    wait = scheduling.wait_until_ended

    def meanwhile(read: Callable[[], ScheduleRun], **keywords: Any) -> ScheduleRun:
        worker = threading.Thread(target=execute, args=(data, read().id, result))
        worker.start()
        try:
            return wait(read, **keywords)
        finally:
            worker.join()

    monkeypatch.setattr(scheduling, "wait_until_ended", meanwhile)
    ended = reverie("schedules", "run-now", schedule_id, "--wait", "--timeout", "30")
    assert ended.code == code
    assert ("watered" if code == 0 else "no water") in ended.out


def test_a_run_that_nobody_executes_is_waited_for_in_vain(reverie: CommandLine) -> None:
    """Given no workers and --wait, then one line says how the run stands; it is there all the same."""
    schedule_id = add(reverie, "x", "--every", "1h", *HOOK)["id"]
    ended = reverie("schedules", "run-now", schedule_id, "--wait", "--timeout", "0.1", "--json")
    assert (ended.code, ended.out, ended.err_without_note.count("\n")) == (1, "", 1)
    assert "is pending after 0.1 s" in ended.err
    assert done(reverie("schedules", "runs", schedule_id, "--json"))[0]["status"] == "pending"


def test_the_secret_is_printed_and_stays(reverie: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given no secret, then one is made and the same ever after, alone on standard output; a setting is another."""
    shown = reverie("schedules", "secret")
    assert shown.out.startswith("whsec_")
    assert shown.out.count("\n") == 1
    assert "webhook-signature" in shown.err
    assert done(reverie("schedules", "secret", "--json")) == {"secrets": [shown.out.strip()]}
    two = ["whsec_" + "A" * 43 + "=", "whsec_" + "B" * 42 + "A="]
    monkeypatch.setenv("REVERIE_WEBHOOK_SECRET", " ".join(two))
    assert reverie("schedules", "secret").out == shown.out
    assert reverie("schedules", "secret", "--notifier").out.split() == two


def test_the_secret_of_a_server_elsewhere_is_not_that_of_the_folder_here(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given the address of another server, then no secret of the folder here is printed as if it were that server's."""
    monkeypatch.chdir(data.parent)
    monkeypatch.setenv("REVERIE_URL", "http://reverie.example:7437")
    ended = CommandLine(monkeypatch, capsys)("schedules", "secret", "--agent", "ana")
    assert (ended.code, ended.out, "where the server is" in ended.err) == (2, "", True)


def test_a_secret_is_rotated_for_one_agent(reverie: CommandLine) -> None:
    """Given a rotation, then the new secret is printed before the old one, and another agent's stays as it was."""
    add(reverie, "x", "--every", "1h", "--task", "work", "--queue", "q")
    (old,) = reverie("schedules", "secret").out.split()
    (bobs,) = reverie("--agent", "bob", "schedules", "secret").out.split()
    new, also = reverie("schedules", "secret", "--rotate").out.split()
    assert also == old
    assert reverie("schedules", "secret").out.split() == [new, old]
    assert reverie("--agent", "bob", "schedules", "secret").out.split() == [bobs]
    assert len({old, new, bobs}) == 3


def test_the_secret_of_the_notifier_is_one_of_its_own(reverie: CommandLine) -> None:
    """Given no setting, then the notifier's secret is none of an agent's, and rotating it says which setting to use."""
    shown = reverie("schedules", "secret", "--notifier")
    assert shown.out.startswith("whsec_")
    assert shown.out != reverie("schedules", "secret").out
    refused = reverie("schedules", "secret", "--notifier", "--rotate")
    assert refused.code == 2
    assert "webhook_secret" in refused.err


def test_the_secret_of_no_data_folder_is_not_invented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given an empty folder and no data folder named, then no secret is made that nothing signs with."""
    monkeypatch.chdir(tmp_path)
    ended = CommandLine(monkeypatch, capsys)("schedules", "secret")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "start Reverie with `reverie up`" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_the_users_own_workers_is_reported(reverie: CommandLine) -> None:
    """Given a run under an id of one's own, when its result is reported, then the run has ended with it."""
    schedule_id = add(reverie, "x", "--every", "1h", "--task", "work", "--queue", "q")["id"]
    started = done(reverie("schedules", "run-now", schedule_id, "--run-id", "run-1", "--json"))
    assert (started["id"], started["status"]) == ("run-1", "pending")
    reported = ("--output", "watered", "--turn-count", "2", "--cost", "0.5", "--no-notify")
    assert reverie("schedules", "complete", "run-1", *reported).out == "Run run-1 has ended: success.\n"
    ended = done(reverie("schedules", "run", "run-1", "--json"))
    assert (ended["status"], ended["output"], ended["turn_count"], ended["cost"]) == ("success", "watered", 2, 0.5)
    assert reverie("schedules", "run-now", schedule_id, "--run-id", "run-1").out == "Run run-1 is success.\n"
    again = reverie("schedules", "complete", "run-1", "--status", "failed")
    assert (again.code, "has ended: success" in again.err) == (1, True)


def test_the_commands_import_nothing_of_the_server_side() -> None:
    """Given a new process, when it imports these commands, then it loads only what sends calls and prints results."""
    script = """
import sys
from cli.commands import import_command
for name in ("schedules", "reminders", "notifications"):
    import_command(name)
parts = ("memory", "storage", "retrieval", "adapters", "server", "worker.settings", "worker.runtime", "httpx2")
print([name for name in sys.modules if name.startswith(parts)])
"""
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n"


def test_schedules_are_the_agents_and_the_workspaces_own(reverie: CommandLine, data: Path) -> None:
    """Given a schedule of ana's, then it lies in ana's workspace and is hers alone."""
    made = add(reverie, "x", "--every", "1h", *HOOK, "--id", "mine")
    assert done(reverie("schedules", "add", "x", "--every", "1h", *HOOK, "--id", "mine", "--json")) == made
    stores = Stores(data)
    with stores.workspace("w").reading() as tx:
        assert [one.id for one in tx.for_agent("ana").schedules.search(ScheduleFilter(), limit=9, offset=0)] == ["mine"]
        assert tx.for_agent("kate").schedules.count(ScheduleFilter()) == 0
    stores.close()


# Commands at fault, with their exit codes and what is said of them.
WRONG: list[tuple[tuple[str, ...], int, str]] = [
    (("add", "x"), 2, "give exactly one of --cron, --at and --every, not none of them"),
    (("add", "x", "--cron", "@daily", "--every", "1h"), 2, "not --cron and --every"),
    (("add", " ", "--every", "1h"), 2, "goal is blank"),
    (("add", "x", "--cron", "0 0 30 2 *"), 2, "never fires"),
    (("add", "x", "--cron", "*/30 * * * * *"), 2, "seconds and years are not supported"),
    (("add", "x", "--cron", "@daily", "--tz", "Europe/Lissabon"), 2, "did you mean Europe/Lisbon?"),
    (("add", "x", "--at", "2020-01-01T00:00:00Z"), 2, "which is in the past"),
    (("add", "x", "--at", "2999-01-01T00:00:00"), 2, "needs a time zone"),
    (("add", "x", "--at", "tomorrow"), 2, "is not a valid time with its zone"),
    (("add", "x", "--every", "-5m"), 2, "more than 0"),
    (("add", "x", "--every", "1.5h"), 2, "every '1.5h' is not a duration"),
    (("add", "x", "--every", "30s"), 2, "at least 60"),
    (("add", "x", "--every", "1h", "--webhook", "http://127.0.0.1/"), 2, "not a public address"),
    (("add", "x", "--every", "1h", "--webhook", "https://x.org", "--task", "a"), 2, "not both"),
    (("add", "x", "--every", "1h", "--task", "work"), 2, "needs the queue"),
    (("add", "x", "--every", "1h", "--queue", "q"), 2, "needs the task"),
    (("add", "x", "--every", "1h", "--task", "reverie.ingest", "--queue", "q"), 2, "not your workers' own"),
    (("add", "x", "--every", "1h", "--task", "a", "--queue", "ingest"), 2, "queue 'ingest' is reserved"),
    (("add", "x", "--every", "1h", "--notify", "often"), 2, "always, on_failure, conditional, never"),
    (("add", "x", "--every", "1h", "--timeout", "0"), 2, "--timeout is 0"),
    (("add", "x", "--every", "1h", "--id", "count"), 2, "choose another"),
    (("list", "--status", "gone"), 2, "'gone'; it must be one of"),
    (("next",), 2, "give either the id of a schedule, or exactly one of --cron"),
    (("next", "x", "--every", "1h"), 2, "give either the id of a schedule, or exactly one of --cron"),
    (("show", "nothing"), 1, "agent ana has no schedule 'nothing'"),
    (("next", "nothing"), 1, "agent ana has no schedule 'nothing'"),
    (("update", "nothing", "--goal", "x"), 1, "agent ana has no schedule 'nothing'"),
    (("pause", "nothing"), 1, "agent ana has no schedule 'nothing'"),
    (("resume", "nothing"), 1, "agent ana has no schedule 'nothing'"),
    (("delete", "nothing", "--yes"), 1, "agent ana has no schedule 'nothing'"),
    (("runs", "nothing"), 1, "agent ana has no schedule 'nothing'"),
    (("run-now", "nothing"), 1, "agent ana has no schedule 'nothing'"),
    (("run", "nothing"), 1, "agent ana has no run 'nothing'"),
    (("cancel", "nothing"), 1, "agent ana has no run 'nothing'"),
]


@pytest.mark.parametrize("there", [False, True], ids=["no workspace", "a workspace"])
def test_what_is_wrong_is_one_line(reverie: CommandLine, there: bool, data: Path) -> None:
    """Given a command at fault, then one line on standard error says what to do, and the exit code whose fault; no
    workspace is made by it."""
    if there:
        stores = Stores(data)
        stores.workspace("w")
        stores.close()
    for arguments, code, expected_error in WRONG:
        ended = reverie("schedules", *arguments)
        assert (ended.code, ended.out, ended.err_without_note.count("\n")) == (code, "", 1), arguments
        assert expected_error in ended.err, arguments
        assert (data / "workspaces" / "w").exists() == there, arguments


def test_a_change_of_nothing_and_of_a_zone_alone_are_refused(reverie: CommandLine) -> None:
    """Given a schedule, then an update without anything, or with nothing but a zone, says what to give."""
    schedule_id = add(reverie, "x", "--every", "1h", *HOOK)["id"]
    nothing = reverie("schedules", "update", schedule_id).err
    assert "nothing to change" in nothing
    for option in ("--goal", "--cron, --at, --every", "--webhook, --task, --llm", "--notify", "--recall-limit"):
        assert option in nothing
    assert "policy" not in nothing
    assert "give --cron, --at or --every with it" in reverie("schedules", "update", schedule_id, "--tz", "UTC").err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), (" 15M", 900), ("2h", 7_200), ("1 d", 86_400), ("-5m", -300)]
)
def test_spans_are_read(text: str, seconds: int) -> None:
    """Given a number with a unit, or alone, then it is so many seconds."""
    assert seconds_of(text, "every") == seconds


@pytest.mark.parametrize("text", ["", "m", "1w", "1.5h", "1h30m", "٣s", "9" * 13, "1e3"])
def test_what_is_no_span_is_refused(text: str) -> None:
    """Given anything else, then the option is named."""
    with pytest.raises(Rejected, match="is not a duration") as caught:
        seconds_of(text, "every")
    assert caught.value.field == "every"


@pytest.mark.parametrize(
    ("seconds", "text"), [(60, "1m"), (90, "90s"), (3_600, "1h"), (5_400, "90m"), (172_800, "2d"), (1, "1s")]
)
def test_spans_are_written_in_their_largest_whole_unit(seconds: int, text: str) -> None:
    """Given seconds, then they are read back as they were written."""
    assert span(seconds) == text
    assert seconds_of(text, "every") == seconds
