"""With a broker key, only what a producer with the key sent becomes a memory."""

from __future__ import annotations

import base64
import contextlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from adapters.broker.inbox import WorkerInbox
from memory.pipeline.dead_letters import replay
from reverie.config import parse_keys
from reverie.contract import RUN_SCHEDULE, TASK_QUEUES
from reverie.errors import Rejected, ReverieError
from reverie.pipeline.inbox import Inbox, inbox_field, sign_payload
from support.pipeline import WORKSPACE, Pipeline, as_json, turns
from worker.app import app, use_runtime
from worker.runtime import Runtime
from worker.settings import load_settings

app.loader.import_default_modules()
WITH_WORKSPACE = [name for name in TASK_QUEUES if "workspace" in inspect.signature(app.tasks[name].body).parameters]
KEY = b"k" * 64
OTHER = b"o" * 64


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline whose worker has a key."""
    pipe = Pipeline(tmp_path / "data")
    use_keys(pipe, KEY)
    yield pipe
    pipe.close()


def use_keys(pipe: Pipeline, *keys: bytes) -> None:
    pipe.inbox = WorkerInbox(pipe.broker, prefix=pipe.prefix, keys=keys)


def send(pipe: Pipeline, text: str, *keys: bytes) -> None:
    """Send a message as a producer with these keys."""
    Inbox(pipe.broker, prefix=pipe.prefix, keys=keys).accept(WORKSPACE, turns({"id": text, "content": text}))


def test_what_has_been_signed_is_stored_as_it_was_sent(pipe: Pipeline) -> None:
    """Given producer and worker with the same key, then the message is stored, and its signature nowhere."""
    send(pipe, "I moved to Lisbon", KEY)
    assert (pipe.ingest().stored, pipe.contents(), pipe.dead_letters()) == (1, ["I moved to Lisbon"], [])


@pytest.mark.parametrize(("keys", "reason"), [((), "it is not signed"), ((OTHER,), "its signature is wrong")])
def test_what_has_not_been_signed_is_a_dead_letter(pipe: Pipeline, keys: tuple[bytes, ...], reason: str) -> None:
    """Given a producer without the key, or with another, then its message is set aside, and others are stored."""
    send(pipe, "good", KEY)
    send(pipe, "forged", *keys)
    report = pipe.ingest()
    assert (report.stored, report.dead, pipe.contents()) == (1, 1, ["good"])
    (letter,) = pipe.dead_letters()
    assert reason in letter.error
    assert "broker_key" in letter.error
    assert (letter.agent, letter.item_id, letter.session) == ("ana", "forged", "s")
    assert letter.payload is not None
    assert msgspec.json.decode(letter.payload)["content"] == "forged"


def payload() -> bytes:
    return as_json(turns({"id": "m1", "content": "pay the plumber"})[0])


Forge = Callable[[], bytes]
FIELD = inbox_field(turns({"id": "m1", "content": "pay the plumber"})[0])
FORGED: dict[str, Forge] = {
    "changed": lambda: sign_payload(KEY, WORKSPACE, FIELD, payload()).replace(b"plumber", b"painter"),
    "of another workspace": lambda: sign_payload(KEY, "other", FIELD, payload()),
    "of another id": lambda: sign_payload(KEY, WORKSPACE, FIELD.replace("m1", "m2"), payload()),
    "of another agent": lambda: sign_payload(KEY, WORKSPACE, FIELD.replace("ana", "bob"), payload()),
    "shortened": lambda: b"#1 " + sign_payload(KEY, WORKSPACE, FIELD, payload())[4:],
    "empty": lambda: b"#1 " + b" " + payload(),
    "not ASCII": lambda: b"#1 " + b"\xff" * 64 + b" " + payload(),
    "of another format": lambda: sign_payload(KEY, WORKSPACE, FIELD, payload()).replace(b"#1", b"#2"),
    "base64": lambda: b"#1 " + base64.b64encode(b"x" * 48) + b" " + payload(),
    "nothing but a signature": lambda: sign_payload(KEY, WORKSPACE, FIELD, payload())[:67],
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_no_other_signature_is_accepted(pipe: Pipeline, forge: Forge) -> None:
    """Given a signature that was moved, cut or made up, then the payload is set aside, once."""
    pipe.smuggle(forge(), item_id="m1")
    report = pipe.ingest()
    assert (report.stored, report.dead, pipe.waiting_in_inbox()) == (0, 1, 0)
    assert "sign" in pipe.dead_letters()[0].error


def test_a_worker_without_a_key_accepts_both(pipe: Pipeline) -> None:
    """Given a worker that has no key yet, then it stores what is signed and what is not: producers may come first."""
    use_keys(pipe)
    send(pipe, "signed", KEY)
    send(pipe, "not signed")
    assert (pipe.ingest().stored, pipe.contents()) == (2, ["signed", "not signed"])


def test_while_a_key_is_replaced_both_are_accepted(pipe: Pipeline) -> None:
    """Given two keys, then payloads of either are stored, and what is sent again is signed by the first."""
    use_keys(pipe, OTHER, KEY)
    send(pipe, "old", KEY)
    send(pipe, "new", OTHER)
    assert pipe.ingest().stored == 2
    pipe.say("own")
    use_keys(pipe, OTHER)
    assert pipe.ingest().stored == 1


def test_an_operator_can_accept_what_was_refused(pipe: Pipeline) -> None:
    """Given a dead letter without a signature, when it is replayed, then it is signed and stored."""
    send(pipe, "sent before the producer had the key")
    pipe.ingest()
    (letter,) = pipe.dead_letters()
    replay(pipe.store, pipe.inbox, letter.id, agent="ana")
    assert (pipe.ingest().stored, pipe.dead_letters()) == (1, [])


@pytest.mark.parametrize("text", ["short", "k" * 31, f"{'k' * 64} short"])
def test_a_short_key_is_refused_without_showing_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a key that could be guessed, then no process starts with it, and the error says how to make one."""
    monkeypatch.setenv("REVERIE_BROKER_KEY", text)
    with pytest.raises(Rejected, match="openssl rand") as refused:
        load_settings()
    assert text not in str(refused.value)
    assert refused.value.field == "broker_key"


def test_no_key_is_no_signature() -> None:
    """Given neither a setting nor blanks alone, then there are no keys."""
    assert parse_keys(None) == parse_keys("  ") == ()


def test_what_was_not_signed_does_not_get_in_by_a_backup(pipe: Pipeline) -> None:
    """Given items that wait, then those that a backup reads are the ones that would be stored."""
    send(pipe, "good", KEY)
    send(pipe, "forged", OTHER)
    send(pipe, "unsigned")
    assert [field for field, _ in pipe.inbox.peek(WORKSPACE)] == [
        inbox_field(turns({"id": "good", "content": "good"})[0]).encode()
    ]
    use_keys(pipe)
    assert len(list(pipe.inbox.peek(WORKSPACE))) == 3


@pytest.mark.parametrize("task", WITH_WORKSPACE)
@pytest.mark.parametrize("workspace", ["../x", "a/b", "W", "", "x" * 64])
def test_no_task_opens_what_is_no_workspace(
    make_runtime: Callable[..., Runtime], tmp_path: Path, task: str, workspace: str
) -> None:
    """Given a forged task that names no workspace, then nothing is made for it, in the data folder or beside it."""
    runtime = make_runtime()
    body = app.tasks[task].body
    extra = {"run": "r1"} if task == RUN_SCHEDULE else {}
    with use_runtime(runtime), contextlib.suppress(ReverieError):
        body(workspace=workspace, **extra)
    assert not list((tmp_path / "data" / "workspaces").glob("*"))
    assert [path.name for path in tmp_path.iterdir()] in ([], ["data"])
