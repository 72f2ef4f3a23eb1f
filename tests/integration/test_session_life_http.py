"""Sessions, scratchpads and channels over HTTP, by both clients and on the command line; and their jobs as tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from reverie import contract
from reverie.client import AsyncReverie, Reverie
from reverie.errors import Conflict, NotFound, Rejected
from support.command_line import CommandLine
from support.stages import drain
from worker import app as worker_app
from worker.runtime import Runtime

ODD = "../a b/ü?#%2F"


@pytest.fixture
def here(make_runtime: Callable[..., Runtime]) -> Iterator[Runtime]:
    """A runtime that the tasks of this process get, too."""
    runtime = make_runtime(session_idle_hours=0.000001, message_retention_days=1)
    with worker_app.use_runtime(runtime):
        worker_app.app.loader.import_default_modules()
        yield runtime


@pytest.fixture
def reverie(
    here: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_BROKER_PREFIX", here.settings.broker_prefix)
    return CommandLine(
        monkeypatch, capsys, "--data", str(here.settings.data), "--agent", "ana", "--broker", here.settings.broker_url
    )


def say(here: Runtime, client: Reverie, content: str, session: str = "s", **more: Any) -> None:
    client.ingest(session, {"role": "user", "content": content}, **more)
    drain(here)


def test_a_session_is_started_ended_and_put_aside(here: Runtime, ana: Reverie) -> None:
    """Given a session with an odd name, then each step answers with the session, and a wrong one is a conflict."""
    started = ana.sessions.start(ODD, user="kate", channel="trips", metadata={"plan": 9})
    assert (started.status, started.user, started.channel, started.messages) == ("active", "kate", "trips", 0)
    assert ana.sessions.get_by_ref(started.ref_code, user="kate") == started
    for other in ("luis", None):
        with pytest.raises(NotFound, match="reference code"):
            ana.sessions.get_by_ref(started.ref_code, user=other)
    say(here, ana, "My favourite colour is turquoise, remember that.", ODD)
    closed = ana.sessions.close(ODD)
    assert (closed.status, closed.ended_at is not None) == ("idle", True)
    with pytest.raises(Conflict, match="is idle: it cannot become idle"):
        ana.sessions.close(ODD)
    assert ana.sessions.archive(ODD).status == "archived"
    with pytest.raises(Conflict, match="is archived"):
        ana.sessions.archive(ODD, force=True)
    with pytest.raises(NotFound):
        ana.sessions.close("nowhere")
    with pytest.raises(NotFound, match="reference code"):
        ana.sessions.get_by_ref("nowhere")
    # The last extraction has read what was said.
    assert any("turquoise" in memory.content for memory in ana.memories.list(user="kate"))
    assert ana.sessions.list(user="kate") == []
    assert [session.id for session in ana.sessions.list(status="archived", user="kate")] == [ODD]
    assert (ana.memories.list(), ana.sessions.list(status="archived")) == ([], [])


def test_a_session_whose_messages_still_wait_is_asked_about(ana: Reverie, reverie: CommandLine) -> None:
    """Given a message that is accepted and not yet stored, then deleting its session asks first."""
    ana.ingest("waiting", {"role": "user", "content": "The safe is behind the map."})
    ended = reverie("sessions", "delete", "waiting")
    assert (ended.code, "--yes" in ended.err) == (1, True), ended.err


def test_reading_makes_no_workspace(here: Runtime, ana: Reverie) -> None:
    """Given nothing stored, then reads answer as for what is empty, and no file is made."""
    assert ana.scratchpads.get("s") == []
    assert ana.scratchpads.keys("s") == []
    assert (ana.scratchpads.clear("s"), ana.scratchpads.clear_keys("s")) == (0, 0)
    assert ana.scratchpads.delete_key("s", "k") is False
    assert ana.channels.delete("garden") is False
    assert [channel.id for channel in ana.channels.list()] == ["general"]
    assert ana.channels.get("general").is_default
    assert ana.curation.list() == []
    for missing in (
        lambda: ana.scratchpads.get_key("s", "k"),
        lambda: ana.channels.get("garden"),
        lambda: ana.sessions.move("s", "general"),
        lambda: ana.sessions.get_by_ref("aaaaaaaaaaa"),
    ):
        with pytest.raises(NotFound):
            missing()
    assert here.stores.names() == []


def test_a_scratchpad_over_http(ana: Reverie) -> None:
    """Given odd names, then lists and keys are written, read and removed; limits are told before anything is sent."""
    assert ana.scratchpads.write(ODD, ["one", "two"]) == ["one", "two"] == ana.scratchpads.get(ODD)
    entry = ana.scratchpads.write_key(ODD, ODD, {"deep": [1, None]})
    assert ana.scratchpads.get_key(ODD, ODD) == entry
    assert ana.scratchpads.keys(ODD) == [entry]
    ana.scratchpads.write_key(ODD, ".", None)
    assert ana.scratchpads.get_key(ODD, ".").value is None
    assert ana.scratchpads.delete_key(ODD, ".") is True
    assert ana.scratchpads.clear_keys(ODD) == 1
    assert ana.scratchpads.clear(ODD) == 2
    with pytest.raises(Rejected, match=r"items\[0\]"):
        ana.scratchpads.write("s", ["x" * 241])
    with pytest.raises(Rejected, match="value has"):
        ana.scratchpads.write_key("s", "k", "x" * 70_000)


def test_channels_over_http(here: Runtime, ana: Reverie) -> None:
    """Given sessions in channels, then channels are made, described, filled, emptied and deleted."""
    say(here, ana, "tulips", channel=ODD)
    assert ana.channels.create("cellar", "wine").description == "wine"
    with pytest.raises(Conflict, match="already"):
        ana.channels.create("cellar")
    assert ana.channels.describe(ODD, "flowers").sessions == 1
    with pytest.raises(Conflict, match="has 1 session and 0 memories"):
        ana.channels.delete(ODD)
    assert ana.sessions.move("s", "cellar").channel == "cellar"
    assert ana.channels.delete(ODD) is True
    assert [channel.id for channel in ana.channels.list()] == ["general", "cellar"]
    assert [result.text for result in ana.recall("tulips", channel="cellar").results] == ["tulips"]


def test_requests_that_are_wrong_are_told_by_field(url: str) -> None:
    """Given bodies that no client of ours would send, then each answer names the field."""
    with httpx2.Client(base_url=url, headers={"X-Reverie-Agent": "ana"}) as client:
        for method, path, body, field in (
            ("PUT", "/v1/scratchpads/s/items", {"items": "abc"}, "items"),
            ("PUT", "/v1/scratchpads/s/items", {"items": ["x" * 241]}, "items[0]"),
            ("PUT", "/v1/scratchpads/s/keys/k", {}, "value"),
            ("POST", "/v1/channels", {"id": " "}, "id"),
            ("PATCH", "/v1/channels/general", {"description": 1}, "description"),
            ("PUT", "/v1/sessions/s/channel", {"channel": ""}, "channel"),
            ("POST", "/v1/sessions/s/start", {"user": "\x01"}, "user"),
            ("POST", "/v1/sessions/s/archive", {"force": "yes"}, "force"),
        ):
            answer = client.request(method, path, json=body)
            assert (answer.status_code, answer.json()["field"]) == (422, field), (path, answer.text)
        paths = set(client.get("/openapi.json").json()["paths"])
    assert {"/v1/sessions/{session}/start", "/v1/sessions/by-ref/{ref_code}", "/v1/channels/{channel}"} <= paths


def test_a_request_in_which_nothing_has_to_be_given_needs_no_body(url: str) -> None:
    """Given requests without a body, then they work where nothing is asked for, and else say what is missing."""
    with httpx2.Client(base_url=url, headers={"X-Reverie-Agent": "ana"}) as client:
        assert client.post("/v1/sessions/s/start").json()["status"] == "active"
        assert client.post("/v1/sessions/s/idle").json()["status"] == "idle"
        assert client.post("/v1/sessions/s/archive").json()["status"] == "archived"
        missing = client.put("/v1/sessions/s/channel")
    assert (missing.status_code, missing.json()["field"]) == (422, "channel")


def test_the_same_for_asyncio(url: str) -> None:
    """Given the client for asyncio, then every call is there and answers as the other."""

    async def use() -> None:
        async with AsyncReverie("ana", url=url) as ana:
            started = await ana.sessions.start("s", channel="garden")
            assert (await ana.sessions.get_by_ref(started.ref_code)).id == "s"
            assert await ana.scratchpads.write("s", ["a"]) == await ana.scratchpads.get("s")
            entry = await ana.scratchpads.write_key("s", "k", 1)
            assert [entry] == await ana.scratchpads.keys("s")
            assert entry == await ana.scratchpads.get_key("s", "k")
            assert await ana.scratchpads.delete_key("s", "k")
            assert (await ana.scratchpads.clear("s"), await ana.scratchpads.clear_keys("s")) == (1, 0)
            assert (await ana.channels.create("cellar")).id == "cellar"
            assert (await ana.channels.describe("cellar", "wine")).description == "wine"
            assert (await ana.channels.get("cellar")).sessions == 0
            assert await ana.channels.delete("cellar")
            assert (await ana.sessions.move("s", "general")).channel == "general"
            assert len(await ana.channels.list()) == 1
            assert (await ana.sessions.close("s")).status == "idle"
            assert (await ana.sessions.archive("s")).status == "archived"

    asyncio.run(use())


def test_the_jobs_run_as_tasks_by_hand_and_dry(here: Runtime, ana: Reverie, reverie: CommandLine) -> None:
    """Given a silent session, then the task ends it and tells counts; dry it changes nothing; retention finds none."""
    say(here, ana, "hello")
    tasks = worker_app.app.tasks
    assert tasks[contract.CLOSE_IDLE_SESSIONS].body(manual=True, dry_run=True)["closed"] == 1
    assert ana.sessions.get("s").status == "active"
    assert tasks[contract.CLOSE_IDLE_SESSIONS].body(manual=True)["closed"] == 1
    assert ana.sessions.get("s").status == "idle"
    assert "closed" not in tasks[contract.CLOSE_IDLE_SESSIONS].body(manual=True)
    assert set(tasks[contract.APPLY_RETENTION].body(manual=True)) == {"seconds"}
    (entry,) = ana.curation.list(job="close-idle-sessions", action="close")
    assert "status: active -> idle" in reverie("curation", "show", entry.id).out


def test_the_command_line_of_sessions(here: Runtime, ana: Reverie, reverie: CommandLine) -> None:
    """Given sessions, then they are started, shown by their code, ended and put aside; wrong steps are one line."""
    started = reverie("sessions", "start", "s", "--channel", "garden", "--user", "kate", "--json").json
    say(here, ana, "hello")
    shown = reverie("sessions", "show", started["ref_code"], "--user", "kate", "--json").json
    assert (shown["session"]["id"], len(shown["messages"])) == ("s", 1)
    assert "no session" in reverie("sessions", "show", started["ref_code"]).err
    working = reverie("sessions", "show", started["ref_code"], "--user", "kate", "--working", "--json").json
    assert working["messages"] == shown["messages"]
    assert "no session" in reverie("sessions", "show", "s", "--user", "luis", "--working").err
    refused = reverie("sessions", "archive", "s")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "let it go idle first" in refused.err
    assert "is idle." in reverie("sessions", "idle", "s").out
    assert reverie("sessions", "archive", "s", "--force", "--json").json["status"] == "archived"
    assert "no session 'nowhere'" in reverie("sessions", "show", "nowhere").err


def test_the_command_line_of_scratchpads(reverie: CommandLine) -> None:
    """Given notes, then they are written, shown and cleared, for people and as JSON."""
    assert reverie("scratchpads", "write", "s", "find flights", "book").out == "2 items written.\n"
    assert reverie("scratchpads", "write", "s", "--key", "k", "--value", '{"a": 1}').out == "k is set.\n"
    assert reverie("scratchpads", "show", "s").out.splitlines() == ["- find flights", "- book", 'k = {"a":1}']
    assert reverie("scratchpads", "show", "s", "--key", "k").json == {"a": 1}
    assert reverie("scratchpads", "show", "s", "--json").json["items"] == ["find flights", "book"]
    assert reverie("scratchpads", "clear", "s", "--json").json == {"cleared": 3}
    assert "The scratchpad of session s is empty" in reverie("scratchpads", "show", "s").out
    for wrong in (["s"], ["s", "x", "--key", "k", "--value", "1"], ["s", "--key", "k"]):
        assert reverie("scratchpads", "write", *wrong).code == 2
    assert "is not JSON" in reverie("scratchpads", "write", "s", "--key", "k", "--value", "plain").err


def test_the_command_line_keeps_users_apart(ana: Reverie, reverie: CommandLine, tmp_path: Path) -> None:
    """Given what belongs to kate, then each command answers with it for her, and not for luis or for nobody."""
    ana.sessions.start("s", user="kate")
    ana.scratchpads.write_key("s", "k", 1)
    assert reverie("scratchpads", "show", "s", "--user", "kate").out == "k = 1\n"
    assert "k = 1" not in reverie("scratchpads", "show", "s", "--user", "luis").out
    reverie("scratchpads", "clear", "s", "--user", "luis")
    assert reverie("scratchpads", "clear", "s", "--user", "kate", "--json").json == {"cleared": 1}
    for value in ("Porto", "Lisbon"):
        ana.facts.set("profile", "city", value, user="kate")
    history = reverie("facts", "get", "profile", "city", "--history", "--user", "kate", "--json").json
    assert [fact["value"] for fact in history] == ["Lisbon", "Porto"]
    file = tmp_path / "export.json"
    reverie("memory", "export", "--user", "kate", "--output", str(file))
    for other in (["--user", "luis"], []):
        assert reverie("facts", "get", "profile", "city", "--history", *other).code == 1
        assert reverie("memory", "stats", *other, "--json").json["memories"] == 0
        assert reverie("memory", "export", *other, "--json").json["memories"] == []
    assert reverie("memory", "stats", "--user", "kate", "--json").json["memories"] == 1
    assert reverie("--agent", "bob", "memory", "import", str(file), "--user", "luis", "--json").json["added"] == 1
    assert reverie("--agent", "bob", "facts", "get", "profile", "city", "--user", "kate").code == 1
    assert "Lisbon" in reverie("--agent", "bob", "facts", "get", "profile", "city", "--user", "luis").out


def test_the_command_line_of_channels(here: Runtime, ana: Reverie, reverie: CommandLine) -> None:
    """Given channels, then they are made, listed, described, filled and deleted, for people and as JSON."""
    say(here, ana, "hello")
    assert "is created" in reverie("channels", "create", "garden", "--description", "beds").out
    assert reverie("channels", "move", "s", "garden").out == "Session s is in channel garden.\n"
    assert "1 session, 0 memories" in reverie("channels", "show", "garden").out
    assert reverie("channels", "describe", "garden", "roses", "--json").json["description"] == "roses"
    assert [channel["id"] for channel in reverie("channels", "list", "--json").json] == ["general", "garden"]
    assert "roses" in reverie("channels", "list").out
    assert (reverie("channels", "delete", "garden").code, reverie("channels", "create", "garden").code) == (1, 1)
    reverie("channels", "move", "s", "general")
    assert reverie("channels", "delete", "garden").out == "Deleted.\n"
