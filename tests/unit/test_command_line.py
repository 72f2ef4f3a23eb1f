"""What a person sees of the command line when something is wrong: one line, an exit code, never a traceback."""

from __future__ import annotations

import contextlib
import io
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import typer
import typer.main

import cli
from cli.application import application
from cli.commands import COMMANDS, PANELS, import_command
from cli.output import confirm
from cli.pipeline import _read
from cli.recall import _explained
from reverie.contract import MAX_FILE_BYTES
from reverie.errors import Unavailable
from reverie.pipeline.calls import Receipt
from reverie.recall.types import Explanation, RetrieverScore
from support.command_line import without_note
from support.pipeline import Pipeline
from support.ports import free_port
from worker.supervision.run_file import hold_data_dir
from worker.supervision.server_file import ServerFile

pytestmark = pytest.mark.usefixtures("_elsewhere")


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Reverie = Callable[..., Ended]


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, where no settings file lies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))


@pytest.fixture
def reverie(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reverie:
    """Runs the command line with arguments."""

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["reverie", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return run


def test_ctrl_c_within_a_command_is_one_line(reverie: Reverie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given Ctrl-C while a command waits for its input, then it ends with the same line and code as before it began."""

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=SimpleNamespace(read=interrupted, readline=interrupted)))
    assert reverie("memory", "import", "-") == Ended(130, "", "reverie: interrupted\n")


def test_ctrl_c_at_a_question_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given Ctrl-C or the end of the input instead of an answer, then only the first counts as an interrupt."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(typer.Abort):
        confirm("Delete it?", yes=False)

    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    typing = io.StringIO()
    monkeypatch.setattr(typing, "readline", interrupted)
    monkeypatch.setattr("sys.stdin", typing)
    with pytest.raises(KeyboardInterrupt):
        confirm("Delete it?", yes=False)


def test_ctrl_c_while_it_still_loads_is_one_line(reverie: Reverie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given Ctrl-C in the half second of importing, then there is no traceback."""
    monkeypatch.delitem(sys.modules, "cli.application")
    monkeypatch.delattr(cli, "application")

    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "cli.application":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert reverie("status") == Ended(130, "", "reverie: interrupted\n")


def test_a_file_that_fails_unforeseen_is_named_in_one_line(reverie: Reverie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an operating system that refuses, then its words and the path are the one line."""

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied", "/a/file")

    Path(".reverie").mkdir()
    monkeypatch.setattr("worker.settings.load_settings", refuse)
    assert reverie("status") == Ended(1, "", "reverie: /a/file: Permission denied\n")


def test_a_data_folder_that_cannot_be_written_is_refused_before_anything_starts(
    reverie: Reverie, tmp_path: Path
) -> None:
    """Given a file in the place of the data folder, then `up` says what to do."""
    (tmp_path / "file").touch()
    ended = reverie("--data", str(tmp_path / "file"), "up", "--port", str(free_port()))
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert "cannot be written" in ended.err
    assert "choose another with --data" in ended.err


def test_a_broker_that_is_not_there_is_told_at_once(reverie: Reverie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an external broker that is down, then `up` says so and starts nothing."""
    monkeypatch.setattr("cli.stack._BROKER_PATIENCE_SECONDS", 0.1)
    ended = reverie("--broker", "redis://me:secret@127.0.0.1:1/0", "up", "--port", str(free_port()))
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "the broker at redis://127.0.0.1:1/0 did not answer" in ended.err


def test_a_second_up_hears_of_the_first_and_not_of_its_port(reverie: Reverie, tmp_path: Path) -> None:
    """Given a Reverie on this folder and on the default port, then the pid is named and no other port advised."""
    with hold_data_dir(tmp_path / "d"), socket.create_server(("127.0.0.1", 0)) as taken:
        ended = reverie("--data", str(tmp_path / "d"), "up", "--port", str(taken.getsockname()[1]))
    assert ended.code == 1
    assert "already running" in ended.err


def test_an_export_that_cannot_be_written_is_one_line(reverie: Reverie, tmp_path: Path) -> None:
    """Given a folder in the place of the file, then the command says so with exit code 1."""
    pipe = Pipeline(tmp_path / "d")
    pipe.say("something")
    pipe.ingest()
    pipe.close()
    ended = reverie(
        "--data",
        str(tmp_path / "d"),
        "--workspace",
        pipe.store.name,
        "--agent",
        "ana",
        "sessions",
        "export",
        "s",
        "-o",
        ".",
    )
    assert ended.code == 1
    assert without_note(ended.err) == "reverie: . cannot be written: Is a directory\n"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b'{"role": "user"}\n\n\n{bad\n', "line 4: "),
        (b"{bad", "is neither JSON nor JSONL"),
    ],
)
def test_a_file_that_is_no_list_of_messages_is_named_with_its_line(
    reverie: Reverie, tmp_path: Path, content: bytes, error: str
) -> None:
    """Given a file with a mistake, then the line is the one an editor shows, and nothing is handed over."""
    (tmp_path / "in").write_bytes(content)
    ended = reverie("ingest", "in", "--session", "s")
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert error in ended.err


def test_standard_input_is_named_as_that(reverie: Reverie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given text through a pipe that is no JSON, then the error speaks of standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello")))
    ended = reverie("ingest", "-", "--session", "s")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("reverie: standard input is neither JSON nor JSONL")


def test_a_file_that_cannot_be_read_is_named_once(reverie: Reverie) -> None:
    """Given files that are not there or no text, then each has one line with its name once."""
    Path("binary").write_bytes(b"\xff")
    Path("long").write_bytes(b"a" * (MAX_FILE_BYTES + 1))
    ended = reverie("files", "add", "nowhere.md", "binary", "long", "/dev/zero")
    assert ended.code == 1
    assert "  long: is longer than 8 MiB\n  /dev/zero: is longer than 8 MiB\n" in ended.out
    assert "  nowhere.md: cannot be read: No such file or directory\n" in ended.out
    assert "  binary: is not UTF-8 text: byte 0 is invalid\n" in ended.out


def test_a_byte_order_mark_is_no_part_of_the_messages(tmp_path: Path) -> None:
    """Given a file as Windows' editors write it, then it is read."""
    (tmp_path / "in").write_bytes(b'\xef\xbb\xbf[{"role": "user"}]')
    assert _read("in") == [{"role": "user"}]


@pytest.mark.parametrize("command", [("ingest", "nowhere.json"), ("files", "add", "nowhere.md")])
def test_an_unknown_wait_is_the_fault_of_the_command_and_not_of_a_file(
    reverie: Reverie, command: tuple[str, ...]
) -> None:
    """Given a wait that does not exist, then the command names those that do, and does not look at any file."""
    ended = reverie(*command, "--wait", "tomorrow")
    assert (ended.code, ended.out) == (2, "")
    assert "--wait is 'tomorrow'; it must be one of queued, stored, searchable" in ended.err


def test_a_wait_that_is_too_long_is_the_fault_of_the_command_and_not_of_each_message(
    reverie: Reverie, tmp_path: Path
) -> None:
    """Given --timeout over the limit, then it is refused before a message is read."""
    (tmp_path / "in").write_bytes(b'[{"role": "user", "content": "x"}]')
    ended = reverie("ingest", "in", "--session", "s", "--timeout", "1000")
    assert (ended.code, ended.out) == (2, "")
    assert "--timeout" in ended.err


def test_an_interrupted_ingest_says_how_far_it_came(
    reverie: Reverie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given Ctrl-C in the second batch, then the first is counted and the exit code is a shell's for it."""

    class Memory(contextlib.nullcontext[None]):
        batches = 0

        def __enter__(self) -> Any:
            return self

        def ingest(self, _session: str, messages: list[Any], **_: object) -> Receipt:
            self.batches += 1
            if self.batches == 2:
                raise KeyboardInterrupt
            return Receipt(state="queued", accepted=["id"] * len(messages), rejected=[], trace="t")

    monkeypatch.setattr("cli.pipeline.client", lambda _: Memory())
    (tmp_path / "in").write_text('{"role": "user", "content": "x"}\n' * 600)
    ended = reverie("ingest", "in", "--session", "s")
    assert ended == Ended(130, "", "reverie: interrupted: 500 of 600 messages had been handed over\n")


def test_ingest_hands_over_what_a_conversation_names(
    reverie: Reverie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a user, a chat and an option for the channel, then the messages are handed over with all of them."""
    given: list[dict[str, object]] = []

    class Memory(contextlib.nullcontext[None]):
        def __enter__(self) -> Any:
            return self

        def ingest(self, session: str, messages: list[Any], **fields: object) -> Receipt:
            given.append({"session": session, **fields})
            return Receipt(state="queued", accepted=["id"] * len(messages), rejected=[], trace="t")

    monkeypatch.setattr("cli.pipeline.client", lambda _: Memory())
    message = '{"role": "user", "content": "x"}'
    (tmp_path / "in").write_text(
        f'[{{"session": "z1", "user": "kate", "provider": "tg", "chat_id": "9", "messages": [{message}]}}]'
    )
    ended = reverie("ingest", "in", "--channel", "trips")
    assert ended.code == 0
    (call,) = given
    expected = {"session": "z1", "user": "kate", "provider": "tg", "chat_id": "9", "channel": "trips", "strict": False}
    assert {name: call[name] for name in expected} == expected


def test_a_health_check_of_no_queue_is_refused(reverie: Reverie) -> None:
    """Given a list of queues that is empty, then it is not healthy by default."""
    ended = reverie("health", "worker", "--queues", ",")
    assert (ended.code, ended.out) == (2, "")


def test_an_explanation_is_for_people() -> None:
    """Given the score of a retriever, then ranks and scores are readable."""
    shown = _explained(Explanation(score=0.7584783, vector=RetrieverScore(rank=3, score=0.37, normalised=0.6549)))
    assert shown == "score 0.758: vector rank 3 (0.655)"


def test_the_version_is_told() -> None:
    """Given --version, then the version of the installed distribution is printed and nothing else is done."""
    ended = subprocess.run([sys.executable, "-P", "-m", "cli", "--version"], capture_output=True, text=True)
    assert ended.returncode == 0
    assert ended.stdout.startswith("reverie 0.")


def test_each_message_at_fault_is_told_by_itself(reverie: Reverie, tmp_path: Path) -> None:
    """Given messages of which none can be stored, then each stands under its own number with its own reason."""
    (tmp_path / "bad.jsonl").write_text('{"role": "user", "content": ""}\n{"role": "wizard", "content": "hi"}\n')
    ended = reverie("ingest", "bad.jsonl", "--session", "s")
    assert ended.code == 1
    first, second = ended.out.splitlines()[1:]
    assert first.startswith("  message 0: content")
    assert second.startswith("  message 1: role")


@pytest.fixture(scope="module")
def root() -> Any:
    """All commands. Typer makes them anew for each call, which takes 40 ms."""
    return typer.main.get_command(application)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_has_the_help_of_each(name: str, root: Any) -> None:
    """Given a command, then the table that `reverie --help` prints has the first sentence of its own help."""
    command = root.get_command(None, name)
    assert command.help.split("\n")[0].startswith(COMMANDS[name].help)


def test_every_command_is_in_the_table(reverie: Reverie) -> None:
    """Given all modules of commands, then what they register is what the table names."""
    for name in COMMANDS:
        import_command(name)
    root: Any = typer.main.get_command(application)
    assert set(root.commands) == set(COMMANDS)
    listed = reverie("--help").out
    for panel, entries in PANELS.items():
        shown = listed.partition(f"\n{panel}:\n")[2].partition("\n\n")[0]
        assert [name for name in entries if f"\n  {name} " not in f"\n{shown}"] == [], panel


def test_a_common_option_may_stand_after_the_command(reverie: Reverie, tmp_path: Path) -> None:
    """Given an agent before and after the command, then the one after it counts."""
    (tmp_path / "d").mkdir()
    ended = reverie("--agent", "kim", "memory", "list", "--agent", "ana", "--data", str(tmp_path / "d"))
    assert ended.code == 0
    assert "Agent ana has no memories" in ended.out


def test_an_unknown_command_is_answered_with_the_nearest(reverie: Reverie) -> None:
    """Given a command that is misspelt, then the error names the right one."""
    ended = reverie("memry")
    assert (ended.code, ended.out) == (2, "")
    assert "Did you mean 'memory'?" in ended.err


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("version", "No such command 'version'. Did you mean '--version'?"),  # not sessions
        ("memory delete x", "No such command 'delete'. Did you mean 'remove'?"),
        ("memory get x", "No such command 'get'. Did you mean 'show'?"),  # not list
        ("sessions remove x", "No such command 'remove'. Did you mean 'delete'?"),  # not restore
        ("schedules create x", "No such command 'create'. Did you mean 'add'?"),  # not secret
        ("recall what must I not eat", "(must I not eat): a text with blanks needs quotes around it"),
        ("recall x --limit abc", "Invalid value for '--limit': it is not a whole number"),
        ("connect vim", "Invalid value for 'TOOL': 'vim' is not one of 'claude-code'"),
    ],
)
def test_a_slip_is_answered_with_what_to_type(reverie: Reverie, typed: str, answer: str) -> None:
    """Given what somebody types who does not know the command yet, then the error says in words what is expected."""
    assert answer in reverie(*typed.split()).err


def test_the_help_of_a_group_says_all_of_each_command(reverie: Reverie) -> None:
    """Given a group whose commands say much, then its help says it to the end."""
    assert "everything it superseded." in reverie("memory", "--help").out


@pytest.mark.parametrize("arguments", [("memory", "search", "x"), ("recall", "x"), ("sessions", "search", "x")])
def test_without_a_data_folder_a_search_says_how_to_get_one(
    reverie: Reverie, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Given an empty folder and nothing that runs, then the one line names `reverie up`, and nothing is created."""
    ended = reverie(*arguments)
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "start Reverie with `reverie up`" in ended.err
    assert list(tmp_path.iterdir()) == []


def client_of(monkeypatch: pytest.MonkeyPatch, reverie: Reverie, *arguments: str) -> dict[str, Any]:
    """Return with which arguments `ingest` makes its client."""
    made: list[dict[str, Any]] = []

    def record(**fields: Any) -> Any:
        made.append(fields)
        raise Unavailable("enough is known")

    monkeypatch.setattr("reverie.client.Reverie", record)
    Path("in").write_text('{"role": "user", "content": "x"}')
    reverie(*arguments, "ingest", "in", "--session", "s")
    return made[0]


def test_messages_go_to_the_server_that_is_named(reverie: Reverie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given REVERIE_URL, then messages go there, and not into the broker of a data folder nearby."""
    monkeypatch.setenv("REVERIE_URL", "http://reverie.example:7437")
    made = client_of(monkeypatch, reverie)
    assert made["url"] == "http://reverie.example:7437"
    assert made.get("broker") is None


def test_messages_for_a_data_folder_never_go_to_another_server(
    reverie: Reverie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given --data and REVERIE_URL, then messages go to the broker of that folder or to no server but its own."""
    monkeypatch.setenv("REVERIE_URL", "http://reverie.example:7437")
    made = client_of(monkeypatch, reverie, "--data", str(tmp_path / "d"))
    assert "d/run/broker.sock" in made["broker"]
    assert made["url"] is None


@pytest.mark.parametrize("named_by", ["REVERIE_URL", "REVERIE_PORT"])
@pytest.mark.parametrize("command", [("ingest", "in", "--session", "s"), ("files", "add", "in")])
def test_where_no_reverie_runs_messages_are_refused_though_another_listens(
    reverie: Reverie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], named_by: str
) -> None:
    """Given a folder without a Reverie, and a server elsewhere, then that is not asked, and one line says why."""
    (tmp_path / "d").mkdir()
    Path("in").write_text('{"role": "user", "content": "x"}')
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv(named_by, f"http://127.0.0.1:{port}" if named_by == "REVERIE_URL" else str(port))
        ended = reverie("--data", str(tmp_path / "d"), *command)
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "d/run/broker.sock" in ended.err
    assert "Start it with `reverie up`" in ended.err


@pytest.mark.parametrize(
    "command",
    [
        ("run", "prune-decayed"),
        ("db", "status"),
        ("db", "migrate"),
        ("db", "hosts"),
        ("db", "verify"),
        ("db", "verify", "--all"),
        ("db", "delete", "w", "--yes"),
    ],
)
def test_a_data_folder_that_is_not_there_is_not_created(
    reverie: Reverie, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Given a folder that does not exist, then a command that works on the data in it says so and creates nothing."""
    ended = reverie("--data", str(tmp_path / "nowhere"), *command)
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "there is no data folder at" in ended.err
    assert "start Reverie with `reverie up`" in ended.err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("command", [("memory", "list"), ("memory", "add", "x"), ("run", "prune-decayed")])
def test_a_data_folder_without_rights_is_one_line_of_advice(
    reverie: Reverie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Given a folder of another user, then the line names it, the reason, and what to do."""

    def refuse(folder: object) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    (tmp_path / "d").mkdir()
    monkeypatch.setattr("cli.target.os.scandir", refuse)
    monkeypatch.setattr("cli.target.supervisor_pid", refuse)
    ended = reverie("--data", str(tmp_path / "d"), *command)
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert f"the data folder {tmp_path / 'd'} cannot be used (Permission denied)" in ended.err
    assert "as the user who owns it" in ended.err


def test_a_file_in_the_place_of_the_data_folder_is_one_line_of_advice(reverie: Reverie, tmp_path: Path) -> None:
    """Given a file, then the line names it, the reason, and what to do."""
    (tmp_path / "file").touch()
    ended = reverie("--data", str(tmp_path / "file"), "memory", "list")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "cannot be used (Not a directory)" in ended.err
    assert "name another folder with --data" in ended.err


def test_a_server_of_another_version_is_told_with_what_to_do(
    reverie: Reverie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a server of another version, then a line names both versions and says what to do."""
    server = ServerFile(url="http://127.0.0.1:1", version="9.9.9", workspace="default")
    monkeypatch.setattr("cli.target.running_server", lambda _: server)
    ended = reverie("--data", str(tmp_path), "memory", "list")
    first = ended.err.splitlines()[0]
    assert "is of version 9.9.9" in first
    assert "restart it with the `reverie up` of this version" in first


def test_usage_help_and_errors_name_arguments_in_capitals(reverie: Reverie) -> None:
    """Given commands with arguments, then these are named as the documentation does."""
    shown = reverie("context", "--help").out
    assert "context [OPTIONS] [SESSION] [QUERY]\n" in shown
    assert "  QUERY TEXT " in shown
    assert "Missing argument 'QUERY'" in reverie("recall").err


def test_a_filter_that_takes_several_values_names_each_once(reverie: Reverie) -> None:
    """Given the statuses of a schedule, of which one or several may be given, then the help names each once."""
    shown = " ".join(reverie("schedules", "list", "--help").out.split())
    assert "active, paused, completed, failed or disabled." in shown
    assert shown.count("completed") == 1
