"""The client by itself: where it looks, what it sends over HTTP, and what it makes of the answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import reverie
from reverie import errors as problems
from reverie.calls import Call
from reverie.client import Reverie
from reverie.config import without_password
from reverie.connection import HttpTransport, path_segment, post_submission
from reverie.errors import Conflict, NotFound, Permanent, Rejected, Rejection, ReverieError, Unavailable, WaitTimeout
from reverie.pipeline.calls import Receipt
from reverie.pipeline.submission import Submission, build_session, prepare_messages

NOWHERE = "http://127.0.0.1:1"


class FakeTransport:
    """Answers each POST by a function of its body; keeps the bodies."""

    def __init__(self, answer: Callable[[dict[str, Any]], Receipt]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._answer = answer

    def send(self, call: Call[Receipt], **_: Any) -> Receipt:
        body = msgspec.structs.asdict(call)
        self.bodies.append(body)
        return self._answer(body)


def accept(body: dict[str, Any]) -> Receipt:
    return Receipt(state=body["wait"], accepted=[message["id"] for message in body["messages"]])


def submission(count: int, size: int = 10) -> Submission:
    messages = [{"role": "user", "content": "x" * size} for _ in range(count)]
    return prepare_messages(messages, agent="ana", session_input=build_session({"session": "s"}), trace="t")


def post(transport: FakeTransport, sent: Submission, wait: Any = "queued") -> Receipt:
    return post_submission(transport, sent, wait=wait, timeout_seconds=5)  # type: ignore[arg-type]


# --- where it looks ---


def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given both, then the argument counts; an empty variable counts as none."""
    monkeypatch.setenv("REVERIE_AGENT", "from-env")
    monkeypatch.setenv("REVERIE_WORKSPACE", "env-place")
    monkeypatch.setenv("REVERIE_URL", "")
    assert Reverie().agent == "from-env"
    assert Reverie().workspace == "env-place"
    assert Reverie("ana", workspace="mine").agent == "ana"
    assert Reverie("ana", workspace="mine").workspace == "mine"
    assert Reverie().connection.config.url == "http://127.0.0.1:7437"
    assert not Reverie().connection.config.url_given


def test_without_an_agent_it_is_the_one_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given neither an argument nor the variable, then the agent is the default one, as on the command line."""
    monkeypatch.delenv("REVERIE_AGENT", raising=False)
    assert Reverie().agent == "default"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"agent": " "}, "agent"),
        ({"agent": ""}, "agent"),
        ({"agent": "a", "workspace": ""}, "workspace"),
        ({"agent": "a\x00"}, "agent"),
        ({"agent": "a", "workspace": "../x"}, "workspace"),
        ({"agent": "a", "url": "localhost:7437"}, "url"),
        ({"agent": "a", "url": "ftp://x"}, "url"),
        ({"agent": "a", "broker": "localhost:6379"}, "broker"),
        ({"agent": "a", "token": "rv_nopé"}, "token"),
        ({"agent": "a", "token": "rv_1\nrv_2"}, "token"),
        ({"agent": "a", "timeout_seconds": 0}, "timeout_seconds"),
        ({"agent": "a", "timeout_seconds": math.nan}, "timeout_seconds"),
    ],
)
def test_a_client_that_cannot_work_is_refused_when_it_is_made(arguments: dict[str, Any], field: str) -> None:
    """Given an argument at fault, then the error names it, before anything is connected."""
    with pytest.raises(Rejected) as caught:
        Reverie(**arguments)
    assert caught.value.field == field


def test_a_token_read_from_a_file_may_end_with_its_line() -> None:
    """Given a token with the line end of its file, then the token alone is sent."""
    assert Reverie("a", token="rv_1\r\n").connection.config.token == "rv_1"


def test_when_nothing_is_reachable_the_error_says_what_was_tried() -> None:
    """Given neither broker nor server, then both are named, passwords are not, and the ids are there."""
    with (
        Reverie("ana", broker="redis://user:secret@127.0.0.1:1/0", url=NOWHERE) as memory,
        pytest.raises(Unavailable) as caught,
    ):
        memory.ingest("s", {"role": "user", "content": "x", "id": "m-1"})
    error_text = str(caught.value)
    assert "redis://127.0.0.1:1/0" in error_text
    assert NOWHERE in error_text
    assert "secret" not in error_text
    assert caught.value.unconfirmed == ("m-1",)


def test_without_a_url_of_ones_own_nothing_is_sent_elsewhere() -> None:
    """Given a broker alone, when it is away, then no server is guessed at."""
    with Reverie("ana", broker="redis://127.0.0.1:1/0") as memory, pytest.raises(Unavailable) as caught:
        memory.ingest("s", {"role": "user", "content": "x", "id": "m-1"})
    assert "7437" not in str(caught.value)
    assert caught.value.unconfirmed == ("m-1",)


def test_nothing_is_sent_for_an_empty_list_or_a_bad_argument() -> None:
    """Given nothing to send, or a mistake that can be seen at once, then no connection is needed."""
    with Reverie("ana", url=NOWHERE) as memory:
        receipt = memory.ingest("s", [], trace="t")
        assert (receipt.accepted, receipt.rejected, receipt.trace) == ([], [], "t")
        for call in (
            lambda: memory.ingest("s", [{"role": "user", "content": "x"}], wait="done"),  # type: ignore[arg-type]
            lambda: memory.ingest("s", [{"role": "user", "content": "x"}], timeout_seconds=math.nan),
            lambda: memory.ingest("s", "hello"),  # type: ignore[arg-type]
            lambda: memory.ingest("s"),
            lambda: memory.sessions.start("s", provider="tg"),
            lambda: memory.sessions.start("s", chat_id="9"),
            lambda: memory.ingest([{"role": "user", "content": "x"}]),  # type: ignore[arg-type]
            lambda: memory.ingest("s", [{"role": "user", "content": "x"}], trace="a\nb"),
            lambda: memory.recall("\ud800"),
            lambda: memory.recall("x", tags="abc"),
            lambda: memory.memories.import_({"memories": []}),  # type: ignore[arg-type]
            lambda: memory.files.add("f://1", "x", metadata=[1]),  # type: ignore[arg-type]
            lambda: memory.sessions.get(""),
            lambda: memory.working("a\x00"),
        ):
            with pytest.raises(Rejected):
                call()


def test_a_number_that_json_does_not_have_is_refused_and_not_sent_as_null() -> None:
    """Given NaN or infinity in data or in a vector, then the error names the field before anything is sent."""
    with Reverie("ana", url=NOWHERE) as memory:
        message = {"role": "user", "content": "x", "metadata": {"a": [math.nan]}}
        with pytest.raises(Rejected, match="metadata contains NaN or infinity, which JSON cannot represent"):
            memory.ingest("s", message)
        with pytest.raises(Rejected, match="metadata contains NaN or infinity"):
            memory.remember("x", metadata={"a": math.inf})
        with pytest.raises(Rejected, match=r"query_embedding is \w+; it must be a finite number") as raised:
            memory.recall("x", query_embedding=[0.1, math.nan])
        assert raised.value.field == "query_embedding"


def test_the_public_names_are_there_and_no_others() -> None:
    """Given `import reverie`, then every public name loads, is listed, and an unknown one is an AttributeError."""
    for name in reverie.__all__:
        assert getattr(reverie, name) is not None
        assert name in dir(reverie)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = reverie.nonsense


def test_a_url_is_shown_without_its_password() -> None:
    """Given URLs with and without secrets, then only the place is left."""
    assert without_password("redis://u:p@h:1/0?x=y") == "redis://h:1/0"
    assert without_password("unix:///run/b.sock?db=0") == "unix:///run/b.sock"


@pytest.mark.parametrize(
    ("session", "path"),
    [("a/b", "a%2Fb"), ("..", "%2E%2E"), (".", "%2E"), ("a.b", "a.b"), ("100%", "100%25"), ("ä", "%C3%A4")],
)
def test_a_session_is_one_segment_of_a_path(session: str, path: str) -> None:
    """Given any text, then it stays one segment that no library shortens."""
    assert path_segment(session) == path


# --- what it sends ---


def test_a_large_call_is_sent_in_parts_of_bounded_size() -> None:
    """Given 6 MB, then no request holds more than 2 MiB, and the receipt is one."""
    transport = FakeTransport(accept)
    sent = submission(12, 500_000)
    receipt = post(transport, sent)
    assert receipt.accepted == list(sent.ids)
    assert [len(body["messages"]) for body in transport.bodies] == [4, 4, 4]


def test_when_a_part_fails_the_ids_not_known_are_told() -> None:
    """Given a server that goes away after the first part, then only the ids from there on are unconfirmed."""

    def once(body: dict[str, Any]) -> Receipt:
        if len(transport.bodies) > 1:
            raise Unavailable("gone")
        return accept(body)

    transport = FakeTransport(once)
    sent = submission(12, 500_000)
    with pytest.raises(Unavailable, match="gone") as caught:
        post(transport, sent)
    assert caught.value.unconfirmed == sent.ids[4:]


def test_when_the_time_is_up_the_rest_is_still_handed_over() -> None:
    """Given a wait that ends with the first part, then the others are sent without waiting, and all ids are told."""

    def slow(body: dict[str, Any]) -> Receipt:
        if body["wait"] != "queued":
            raise WaitTimeout("late")
        return accept(body)

    transport = FakeTransport(slow)
    sent = submission(12, 500_000)
    with pytest.raises(WaitTimeout, match="late") as caught:
        post(transport, sent, "stored")
    assert caught.value.accepted == sent.ids
    assert [body["wait"] for body in transport.bodies] == ["stored", "queued", "queued"]


def test_what_the_server_rejects_keeps_its_place_in_the_call() -> None:
    """Given items at fault here and there, then their places are those of the caller's list."""

    def picky(body: dict[str, Any]) -> Receipt:
        rejected = [Rejection(index=1, field="x", error="no")]
        return msgspec.structs.replace(accept(body), accepted=[body["messages"][0]["id"]], rejected=rejected)

    messages = [{"role": "robot", "content": "x"}, *({"role": "user", "content": "x"} for _ in range(2))]
    sent = prepare_messages(messages, agent="ana", session_input=build_session({"session": "s"}), trace="t")
    receipt = post(FakeTransport(picky), sent)
    assert [(item.index, item.field) for item in receipt.rejected] == [(0, "role"), (2, "x")]


def test_a_part_that_is_all_at_fault_does_not_hide_the_others() -> None:
    """Given a part that the server refuses whole, then its items are rejected and the other parts accepted."""

    def picky(body: dict[str, Any]) -> Receipt:
        if len(transport.bodies) == 2:
            items = tuple(Rejection(index=n, field="", error="no") for n in range(len(body["messages"])))
            raise Rejected("no", items=items)
        return accept(body)

    transport = FakeTransport(picky)
    receipt = post(transport, submission(12, 500_000))
    assert len(receipt.accepted) == 8
    assert [item.index for item in receipt.rejected] == [4, 5, 6, 7]


# --- what it makes of the answers ---


@pytest.mark.parametrize(
    "error",
    [
        Rejected("r", field="f", items=(Rejection(index=0, field="f", error="e"),)),
        NotFound("n", field="session"),
        Conflict("c", field="id"),
        Unavailable("u", unconfirmed=("a", "b")),
        WaitTimeout("w", accepted=("a",)),
        Permanent("p"),
        problems.TooLarge("t", field="body"),
        problems.Unauthorised("a", field="token"),
        problems.Malformed("m"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_as_it_was(error: ReverieError) -> None:
    """Given each error, when it went through problem details, then class, text, field and ids are the same."""
    wire = msgspec.json.encode(problems.problem_of(error, trace="t"))
    back = problems.error_of(msgspec.json.decode(wire, type=problems.Problem))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_an_answer_of_something_else_is_told_apart() -> None:
    """Given a proxy or another server in between, then its 502 is a passing failure and its 404 a wrong URL."""
    import httpx2

    transport = HttpTransport(Reverie("ana").connection.config)
    assert isinstance(transport._error(httpx2.Response(502, text="<html>")), Unavailable)
    other = transport._error(httpx2.Response(404, text="<html>"))
    assert isinstance(other, Permanent)
    assert "not a Reverie server" in str(other)


def test_metadata_nested_too_deep_names_its_field() -> None:
    """Given Python objects 100,000 deep, then the check does not break on them."""
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(Rejected, match="nested more than 32") as caught, Reverie("ana", url=NOWHERE) as memory:
        memory.ingest("s", {"role": "user", "content": "x", "metadata": {"a": deep}})
    assert caught.value.field == "metadata"
