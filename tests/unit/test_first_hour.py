"""What somebody new to Reverie gets wrong in the first hour, and what the errors tell them."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage

import reverie.client
from cli.output import print_table
from reverie import AsyncReverie, Reverie
from reverie.calls import refused, validated
from reverie.errors import Limited, Rejected
from reverie.pipeline.submission import build_session, prepare_messages
from reverie.scheduling.calls import AddSchedule, ClaimReminders, PreviewRuns, Remind, fields_of
from reverie.scheduling.types import WebhookExecutor
from server.page.pipeline import curves
from storage.pipeline.samples import PipelineSample
from support.command_line import CommandLine

HOUR = timedelta(hours=1)


# --- arguments that a method does not take ---


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda m: m.recall("x", top_k=3), "recall() has no argument 'top_k'; did you mean limit?"),
        (lambda m: m.recall("x", limits=3), "recall() has no argument 'limits'; did you mean limit?"),
        (lambda m: m.recall("x", 3), "recall(): too many positional arguments; give by name "),
        (lambda m: m.recall(), "recall(): missing a required argument: 'query'"),
        (
            lambda m: m.ingest(session_id="s", messages=[]),
            "ingest() has no argument 'session_id'; did you mean session?",
        ),
        (lambda m: m.ingest("s", message=[]), "ingest() has no argument 'message'; did you mean messages?"),
        (lambda m: m.context("s", max_tokens=9), "context() has no argument 'max_tokens'; did you mean token_budget?"),
        (
            lambda m: m.reminders.add("s", "kate", "Tea", at="2027-05-01T09:30:00Z"),
            "argument 'at'; did you mean due_at?",
        ),
        (lambda m: m.sessions.start("s", title="Tea"), "start() has no argument 'title'; did you mean metadata?"),
        (lambda m: m.schedules.add("Tea", every_seconds=60), "argument 'every_seconds'; did you mean every?"),
        (lambda m: m.remember(text="x"), "remember() has no argument 'text'; did you mean content?"),
        (lambda m: m.facts.list(zzz=1), "Facts.list() has no argument 'zzz'; known are "),
    ],
)
def test_a_wrong_argument_is_named_with_the_method_and_the_right_one(call: Callable[[Any], Any], expected: str) -> None:
    """Given an argument of another program's, or one too many, then both clients say what the method takes instead."""
    with pytest.raises(TypeError) as wrong:
        call(Reverie("ana"))
    assert expected in str(wrong.value)
    assert re.match(r"(Reverie|Facts|Reminders|Schedules|Sessions)\.", str(wrong.value))

    async def awaited() -> None:
        async with AsyncReverie("ana") as client:
            await call(client)

    with pytest.raises(TypeError, match=re.escape(expected)):
        asyncio.run(awaited())


def test_a_type_error_inside_a_call_is_not_taken_for_a_wrong_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given right arguments, when something else raises a TypeError, then it arrives as it is."""

    def broken(*_: object, **__: object) -> None:
        raise TypeError("unsupported operand")

    client = Reverie("ana")
    monkeypatch.setattr(client.connection, "send", broken)
    with pytest.raises(TypeError, match=r"^unsupported operand$"):
        client.recall("x")


def test_a_wrong_argument_of_the_client_and_a_method_of_other_programs_are_answered_by_ours() -> None:
    """Given `agent_id`, `add` and `search`, then the errors name the class and what it has instead."""
    for kind in (Reverie, AsyncReverie):
        with pytest.raises(TypeError, match=rf"^{kind.__name__}\(\) has no argument 'agent_id'; did you mean agent\?"):
            kind(agent_id="ana")  # type: ignore[call-arg]
        for name, ours in (("add", "remember"), ("search", "recall")):
            with pytest.raises(AttributeError, match=f"has no attribute '{name}'; did you mean {ours}"):
                getattr(kind("ana"), name)


@pytest.mark.parametrize("kind", [Reverie, AsyncReverie])
def test_help_shows_the_arguments_of_a_client(kind: Callable[..., object]) -> None:
    """Given a client's class, then its signature names what it takes, not what it hands on to itself."""
    assert list(inspect.signature(kind).parameters)[:2] == ["agent", "url"]


def test_a_method_that_a_subject_lacks_is_answered_by_those_that_there_are() -> None:
    """Given `memories.add`, then the error names the methods, and where memories are added."""
    with pytest.raises(AttributeError, match=r"no attribute 'add'; its methods are approve, .*`remember` and `forget`"):
        _ = Reverie("ana").memories.add  # type: ignore[attr-defined]
    assert not hasattr(reverie.client.Reverie("ana").facts, "add")


def test_a_refusal_keeps_its_kind_when_its_fields_are_named_as_the_arguments() -> None:
    """Given the refusal of a rate, when it is told with the caller's arguments, then it still says when to retry."""
    error = refused(Limited("in_seconds: 10 schedules an hour", retry_after_seconds=60), Remind)
    assert isinstance(error, Limited)
    assert (error.retry_after_seconds, str(error)) == (60, "in_: 10 schedules an hour")


# --- durations ---


def test_a_duration_may_be_a_timedelta() -> None:
    """Given timedeltas where seconds are taken, then they are taken, and a fraction only where seconds may have one."""
    assert validated(AddSchedule("x", every=HOUR, timeout_seconds=timedelta(minutes=5))).every == 3_600  # type: ignore[arg-type]
    assert validated(PreviewRuns(every=HOUR)).every == 3_600
    assert validated(ClaimReminders(lease_seconds=timedelta(seconds=1.5))).lease_seconds == 1.5  # type: ignore[arg-type]
    assert Reverie("ana", timeout_seconds=HOUR).connection.config.timeout_seconds == 3_600
    with pytest.raises(Rejected, match="every must be a whole number"):
        validated(AddSchedule("x", every=timedelta(seconds=90.5)))
    with pytest.raises(Rejected, match=r"timeout_seconds is 3600; it must be more than 0 and at most"):
        Reverie("ana").ingest("s", {"role": "user", "content": "x"}, timeout_seconds=HOUR)


# --- names of fields in errors ---


def test_an_error_about_a_webhook_names_the_argument_that_the_caller_gave() -> None:
    """Given a webhook that is refused, then the text begins with the name of the argument, as `field` has it."""
    for call, name in (
        (AddSchedule("x", every=60, webhook="http://127.0.0.1/"), "webhook"),
        (AddSchedule("x", every=60, executor=WebhookExecutor(url="http://127.0.0.1/")), "executor.url"),
    ):
        with pytest.raises(Rejected) as refusal, fields_of(call):
            raise Rejected("url leads to 127.0.0.1: not a public address, as a url of others", field="url")
        assert (str(refusal.value).partition(" leads")[0], refusal.value.field) == (name, name)
        assert str(refusal.value).endswith("as a url of others")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Runs the command line as ana on an empty data folder, without a broker or a server."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return CommandLine(monkeypatch, capsys, "--data", str(tmp_path / "data"), "--agent", "ana")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("schedules", "add", "x"), "give exactly one of --cron, --at and --every, not none of them"),
        (("schedules", "add", "x", "--every", "30s"), "--every is 30 seconds; it must be at least 60"),
        (("schedules", "add", "x", "--every", "1h", "--recall-limit", "99"), "--recall-limit is 99; it must be"),
        (("schedules", "add", "x", "--every", "1h", "--webhook", "no"), "--webhook is not the URL of a webhook"),
        (("schedules", "add", "x", "--at", "at noon"), "--at 'at noon' is not a valid time with its zone"),
        (("reminders", "add", "s", "kate", "tea"), "give either --at or --in: when the reminder is due"),
        (("memory", "update", "x", "--importance", "3"), "--importance is 3.0; it must be from 0 to 1"),
        (("memory", "add", "x", "--tag", "t" * 99), "a tag has 99 characters"),
        (("recall", "x", "--kind", "song"), "--kind is 'song'; it must be one of"),
        (("recall", "x", "--as-of", "soon"), "--as-of 'soon' is not a time"),
        (("memory", "add", " "), "content is blank"),
    ],
)
def test_an_error_of_a_command_names_its_options(
    command: CommandLine, arguments: tuple[str, ...], expected: str
) -> None:
    """Given an invalid option, then the error names the option as it is typed, and an argument by its name."""
    ended = command(*arguments)
    assert (ended.code, ended.err.startswith(f"reverie: {expected}")) == (2, True), ended.err


def test_a_command_without_anything_to_change_lists_its_options(command: CommandLine) -> None:
    """Given an update without options, then the error lists the options, and no field beside them."""
    ended = command("memory", "update", "x")
    listed = ended.err.partition("give one of ")[2].strip().split(", ")
    assert {"--content", "--tag", "--pin", "--expires-at"} <= set(listed)
    assert all(name.startswith("--") for name in listed)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingest", "none.jsonl", "--session", "s"),
        ("files", "add", "none.md"),
        ("import", "none.jsonl"),
        ("memory", "import", "none.json"),
        ("items", "load", "n", "none.jsonl"),
        ("backup", "verify", "none", "--key-file", "none.key"),
    ],
)
def test_a_missing_file_is_a_failure_for_every_command(command: CommandLine, arguments: tuple[str, ...]) -> None:
    """Given the name of a file that does not exist, then every command that reads one exits with 1."""
    assert command(*arguments).code == 1


@pytest.mark.parametrize("text", ["- [ ] water the plants", "-5 degrees", "--dry run"])
def test_a_text_that_begins_with_a_dash_is_answered_by_how_to_write_it(command: CommandLine, text: str) -> None:
    """Given a text that is taken for an option, then the error says what goes before it, and so it is stored."""
    ended = command("memory", "add", text)
    assert (ended.code, "write -- before a text that begins with a dash" in ended.err) == (2, True)
    assert command("memory", "add", "--", text).code == 0
    assert "write --" not in command("memory", "add", "--contents", "x").err
    assert "write --" not in command("doctor", "-x").err
    assert "needs quotes" not in command("jobs", "run").err


# --- messages as OpenAI has them ---


def message_of(**fields: Any) -> Any:
    """Return the payload of a message."""
    session = build_session({"session": "s"})
    sent = prepare_messages(fields, agent="ana", session_input=session, trace="t")
    return sent.payloads[0]


def test_the_parts_of_a_content_are_one_text() -> None:
    """Given a content in parts, then their texts are joined; null and empty lists are what a message lacks."""
    parts = [{"type": "text", "text": "I moved"}, {"type": "input_text", "text": "to Lisbon"}]
    assert message_of(role="user", content=parts).content == "I moved\nto Lisbon"
    answer = {"role": "assistant", "content": "Noted", "refusal": None, "annotations": [], "tool_calls": None}
    assert message_of(**answer).content == "Noted"
    assert message_of(role="developer", content="Be brief").role == "system"


def test_the_answer_of_a_model_is_ingested_as_it_came() -> None:
    """Given the message object of OpenAI's library, alone and in a list, then it is a message."""
    answer = ChatCompletionMessage(role="assistant", content="Noted", annotations=[])
    for messages in (answer, [{"role": "user", "content": "hi"}, answer]):
        sent = prepare_messages(messages, agent="ana", session_input=build_session({"session": "s"}), trace="t")
        assert (sent.payloads[-1].content, sent.rejected) == ("Noted", ())
    with pytest.raises(Rejected, match=r'messages must be a list, as in \[\{"role": "user"'):
        Reverie("ana").ingest("s", "hello")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "image_url"),
        ({"type": "text", "text": None}, "text"),
        (7, "a whole number"),
    ],
)
def test_a_part_that_is_no_text_is_refused_and_not_dropped(part: object, kind: str) -> None:
    """Given a picture among the parts, then the message is refused with what to do."""
    with pytest.raises(
        Rejected, match=rf"^content: part 2 is '{kind}', and only text is stored: .*describe it"
    ) as wrong:
        message_of(role="user", content=[{"type": "text", "text": "Look"}, part])
    assert wrong.value.field == "content"


# --- the page ---


def test_a_curve_of_one_sample_is_a_point() -> None:
    """Given one sample of a day, then its curve has a single point, which the page draws as a dot."""
    (line,) = curves([PipelineSample(1_000, 0, 7, None, None)], minute=1_000)[2].lines
    assert " " not in line
    template = Path("server/page/templates/parts/pipeline_figures.html")
    assert 'class="point" points="{{ points }} {{ points }}"' in (Path(__file__).parents[2] / template).read_text()


def test_what_a_row_of_a_table_lacks_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    """Given a context of no session, as lists have it, then the table of the command line says a dash, not `None`."""
    print_table(("id", "session"), [("c1", None), ("c2", "s")], empty="")
    assert capsys.readouterr().out.split() == ["id", "session", "c1", "-", "c2", "s"]
