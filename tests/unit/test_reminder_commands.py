"""`reverie reminders` and `reverie notifications`: without a server, on the files of the data folder."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from storage.stores import Store, Stores
from support.command_line import CommandLine
from support.telling import add_notification, add_run, was_told


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Runs the command line as ana on an empty data folder, without a broker or a server."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    first = ("--data", str(tmp_path / "data"), "--workspace", "ws", "--agent", "ana")
    return CommandLine(monkeypatch, capsys, *first, "--broker", "redis://127.0.0.1:1/0")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    stores = Stores(tmp_path / "data")
    yield stores.workspace("ws")
    stores.close()


def test_a_reminder_from_adding_to_delivering(reverie: CommandLine) -> None:
    """Given a data folder, when a reminder is added, listed, claimed and delivered, then each command says so."""
    assert "is due" in reverie("reminders", "add", "s", "kate", "water the plants", "--in", "0s", "--id", "r").out
    later = reverie("reminders", "add", "s", "bob", "feed the cat", "--in", "20m", "--json").json
    made, due = (datetime.fromisoformat(later[name]) for name in ("created_at", "due_at"))
    assert due - made == timedelta(minutes=20)
    listed = reverie("reminders", "list", "--json").json
    assert ([one["id"] for one in listed["reminders"]], listed["total"]) == (["r", later["id"]], 2)
    shown = reverie("reminders", "list", "--status", "due", "--recipient", "kate", "--session", "s").out
    assert "water the plants" in shown
    assert "feed the cat" not in shown
    assert "1 of 2 reminders" in reverie("reminders", "list", "--limit", "1").out
    (claimed,) = reverie("reminders", "claim", "--lease", "2m", "--json").json
    assert claimed["reminder"]["id"] == "r"
    assert "No reminder is due." in reverie("reminders", "claim").out
    assert "claimed" in reverie("reminders", "show", "r").out
    assert reverie("reminders", "delivered", "r", claimed["token"]).out == "Confirmed.\n"
    assert reverie("reminders", "delivered", "r", claimed["token"], "--json").json["status"] == "delivered"
    assert reverie("reminders", "cancel", "r", "--json").json == {"deleted": True}
    assert reverie("reminders", "cancel", later["id"]).out == "Cancelled.\n"
    assert "has no reminders" in reverie("reminders", "list").out


def test_a_reminder_at_a_time_keeps_everything(reverie: CommandLine) -> None:
    """Given --at and the other options, then the reminder is read as it was written, whatever zone was given."""
    given = ("--at", "2027-05-01T09:30:00+02:00", "--channel", "garden", "--delivery", "pull", "--id", "r")
    reverie("reminders", "add", "s", "kate", "water the plants", *given)
    shown = reverie("reminders", "show", "r", "--json").json
    assert datetime.fromisoformat(shown["due_at"]) == datetime(2027, 5, 1, 7, 30, tzinfo=UTC)
    assert (shown["channel"], shown["delivery"], shown["status"]) == ("garden", "pull", "waiting")


def test_a_claim_is_shown_with_its_token(reverie: CommandLine) -> None:
    """Given people who deliver by hand, then the table has what `delivered` asks for."""
    reverie("reminders", "add", "s", "kate", "water the plants", "--in", "0s", "--id", "r")
    row = reverie("reminders", "claim").out.splitlines()[1].split()
    assert (row[0], row[1].isdigit()) == ("r", True)
    assert reverie("reminders", "delivered", "r", row[1]).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "expected_error"),
    [
        (("add", "s", "kate", "m"), 2, "give either --at or --in"),
        (("add", "s", "kate", "m", "--in", "1m", "--at", "2027-05-01T09:30:00Z"), 2, "either --at or --in"),
        (("add", "s", "kate", "m", "--in", "soon"), 2, "--in 'soon'"),
        (("add", "s", "kate", "m", "--in", "-5s"), 2, "must be a number that is not negative"),
        (("add", "s", "kate", "m", "--at", "tomorrow"), 2, "as in 2027-05-01T09:30:00Z"),
        (("add", "s", "kate", "m", "--at", "2027-05-01T09:30:00"), 2, "--at needs a time zone"),
        (("add", "s", "kate", " ", "--in", "1m"), 2, "message is blank"),
        (("add", "s", "kate", "m", "--in", "1m", "--delivery", "pigeon"), 2, "auto, pull, push"),
        (("add", "s", "kate", "m", "--in", "1m", "--delivery", "push"), 2, "set notifier_webhook_url"),
        (("list", "--status", "lost"), 2, "waiting, due, claimed, delivered"),
        (("show", "none"), 1, "agent ana has no reminder 'none'"),
        (("claim", "--limit", "0"), 2, "limit is 0"),
        (("claim", "--lease", "2h"), 2, "--lease is 7200"),
        (("delivered", "none", "1"), 1, "agent ana has no reminder 'none'"),
        (("cancel", "none"), 1, "agent ana has no reminder 'none'"),
    ],
)
def test_what_is_wrong_is_one_line(
    reverie: CommandLine, arguments: tuple[str, ...], code: int, expected_error: str
) -> None:
    """Given a command at fault, then one line on standard error says what to do, and the exit code whose fault."""
    ended = reverie("reminders", *arguments)
    assert (ended.code, ended.out, ended.err_without_note.count("\n")) == (code, "", 1)
    assert expected_error in ended.err


def test_looking_makes_no_workspace(reverie: CommandLine, tmp_path: Path) -> None:
    """Given an empty data folder, when it is looked for reminders and notifications, then there are none."""
    assert reverie("reminders", "list", "--json").json == {"reminders": [], "total": 0}
    assert reverie("reminders", "claim", "--json").json == []
    assert reverie("notifications", "list", "--json").json == {"notifications": [], "total": 0}
    assert reverie("notifications", "acknowledge", "--all", "--json").json == {"acknowledged": 0}
    assert not (tmp_path / "data" / "workspaces" / "ws").exists()


def test_notifications_are_listed_and_acknowledged(reverie: CommandLine, store: Store) -> None:
    """Given notifications, when one and then all are acknowledged, then the list gets shorter."""
    add_run(store, "run")
    notification_id = add_notification(store, "run")
    for _ in range(2):
        add_notification(store)
    add_notification(store, agent="bob")
    listed = reverie("notifications", "list").out
    assert "It is done" in listed
    assert notification_id in listed
    assert reverie("notifications", "list", "--json").json["notifications"][0]["schedule_id"] in listed
    assert "1 of 3 notifications" in reverie("notifications", "list", "--limit", "1").out
    assert reverie("notifications", "list", "--user", "kate", "--json").json["total"] == 3
    assert reverie("notifications", "acknowledge", "--all", "--user", "kate", "--json").json == {"acknowledged": 0}
    acknowledged = reverie("notifications", "acknowledge", notification_id, "none")
    assert acknowledged.out == "1 notification acknowledged.\n"
    assert "or agent ana has none with such an id" in acknowledged.err
    assert was_told(store, "run")
    assert reverie("notifications", "acknowledge", "--all", "--json").json == {"acknowledged": 2}
    assert reverie("notifications", "list").out == "Agent ana has no unacknowledged notifications in workspace ws.\n"
    assert reverie("notifications", "list", "--all", "--json").json["total"] == 3
    for wrong in ((), (notification_id, "--all")):
        ended = reverie("notifications", "acknowledge", *wrong)
        assert (ended.code, ended.err) == (2, "reverie: name notifications, or --all\n")


def test_the_job_runs_by_hand(
    reverie: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given no notifier, when the job is run by hand, then there is nothing to do, and no dry run of it.

    Limited to an agent it is refused, since it would deliver those of all.
    """
    reverie("reminders", "add", "s", "kate", "m", "--in", "0s")
    of_all = CommandLine(monkeypatch, capsys, "--data", str(tmp_path / "data"), "--broker", "redis://127.0.0.1:1/0")
    assert of_all("run", "deliver-reminders").code == 0
    assert "has no dry run" in of_all("run", "deliver-reminders", "--dry-run").err
    limited = reverie("run", "deliver-reminders")
    assert (limited.code, "cannot be limited to an agent" in limited.err) == (2, True)
