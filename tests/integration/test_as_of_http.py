"""What held at an earlier time, through every face: both clients, HTTP and the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from adapters.broker.recall_log import RecallBuffer
from reverie import AsyncReverie, Reverie
from reverie.errors import NotFound, Rejected
from support.command_line import CommandLine
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime

_BEFORE = datetime(2023, 5, 1, tzinfo=UTC)
_SAID = datetime(2023, 5, 3, 9, 30, tzinfo=UTC)


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """A server over a message of 2023 and a fact that was just replaced."""
    with running_server(runtime) as address:
        with Reverie("ana", url=address) as ana:
            ana.ingest("s", [{"id": "m", "role": "user", "content": "The city is loud", "created_at": _SAID}])
            ana.facts.set("profile", "city", "Porto")
            ana.facts.set("profile", "city", "Lisbon")
        drain(runtime)
        yield address


def test_each_face_looks_back(
    ana: Reverie, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a time between two values, then every call of every face answers as of then."""
    lisbon, porto = ana.facts.history("profile", "city")
    assert porto.valid_to == lisbon.valid_from
    assert (porto.valid_from, lisbon.valid_to) == (porto.created_at, None)
    assert lisbon.valid_from is not None
    then = lisbon.valid_from - timedelta(microseconds=1)
    old = "The city is Porto (profile)"

    found = ana.recall("city", as_of=then)
    assert {one.text for one in found} == {"The city is loud", old}
    assert {one.text: one.valid_to for one in found}[old] == lisbon.valid_from
    [memory] = ana.memories.search("city", as_of=then)
    assert (memory.content, memory.valid_to, memory.superseded_by) == (old, lisbon.valid_from, lisbon.id)
    assert ana.facts.get("profile", "city", as_of=then).value == "Porto"
    assert [fact.value for fact in ana.facts.list(as_of=then)] == ["Porto"]
    assert old in str(ana.context("s", "city", as_of=then))
    assert "before that Porto" in str(ana.context("s", "city"))

    async def later() -> str:
        async with AsyncReverie("ana", url=url) as client:
            return (await client.facts.get("profile", "city", as_of=then.isoformat())).value

    assert asyncio.run(later()) == "Porto"

    monkeypatch.setenv("REVERIE_URL", url)
    reverie = CommandLine(monkeypatch, capsys, "--agent", "ana")
    assert "until" in reverie("recall", "city", "--as-of", then.isoformat()).out
    assert "Porto" in reverie("facts", "list", "--as-of", then.isoformat()).out
    assert reverie("facts", "get", "profile", "city", "--as-of", then.isoformat(), "--json").json["value"] == "Porto"
    assert "since" in reverie("facts", "list").out

    headers = {"X-Reverie-Agent": "ana"}
    read = httpx2.get(f"{url}/v1/facts/profile/city", params={"as_of": then.isoformat()}, headers=headers)
    assert read.json()["value"] == "Porto"
    assert "valid_to" in read.json()


def test_before_anything_was_said_there_is_nothing(ana: Reverie) -> None:
    """Given a time before the first message, then recalls are empty, the context says so, and there is no fact."""
    assert ana.recall("city", as_of=_BEFORE).results == []
    assert ana.memories.search("city", as_of="2023-05-01").results == []
    assert "Nothing else that is stored fits the query." in str(ana.context("s", "city", as_of="2023-05-01"))
    assert ana.facts.list(as_of="2023-05-01") == []
    with pytest.raises(NotFound, match="as of 2023-05-01T23:59:59"):
        ana.facts.get("profile", "city", as_of="2023-05-01")
    assert [one.id for one in ana.recall("city", as_of="2023-05-03")] == ["m"]


def test_looking_back_is_not_recorded(ana: Reverie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given recalls and contexts of an earlier time, then nothing counts as recalled; without a time it does."""
    noted: list[str] = []
    monkeypatch.setattr(RecallBuffer, "note", lambda _, store, *__, **___: noted.append(store))
    ana.recall("city", as_of="2023-05-03")
    ana.context("s", "city", as_of="2023-05-03")
    assert noted == []
    ana.recall("city")
    assert noted == ["default"]


def test_what_is_no_time_is_refused_by_name(ana: Reverie, url: str) -> None:
    """Given a time without a zone, or none, then the argument is named, by the client and by the server."""
    with pytest.raises(Rejected, match="as_of '2023-05-03T10:00:00' has no time zone"):
        ana.recall("city", as_of="2023-05-03T10:00:00")
    answer = httpx2.post(
        f"{url}/v1/recall", json={"query": "city", "as_of": "soon"}, headers={"X-Reverie-Agent": "ana"}
    )
    assert (answer.status_code, answer.json()["field"]) == (422, "as_of")
