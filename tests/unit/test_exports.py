"""Everything about a person or an agent, out into one file and in again elsewhere, with ids and times."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from memory.recall.events import record_recalls
from reverie import Conflict, Rejected, Reverie
from reverie.problems import Forbidden
from reverie.trust.export_calls import ImportRecords, ReadExport
from reverie.trust.export_files import private_file, send_import, write_export_file
from reverie.trust.export_reading import open_export
from reverie.trust.export_types import (
    ExportedMemory,
    ExportedMessage,
    ExportedSession,
    ExportHeader,
    ExportPage,
    Selection,
)
from storage.upkeep.verify import verify
from support.agents import until
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime

Make = Callable[..., Runtime]
ALL = {"trusted": True}


@contextmanager
def installation(make_runtime: Make, data: Path) -> Iterator[tuple[Runtime, Reverie]]:
    """Run an installation of its own, and yield its runtime and ana's client."""
    runtime = make_runtime(data=data, broker_prefix=f"t-{data.name}:")
    with running_server(runtime) as url, Reverie("ana", url=url) as client:
        yield runtime, client


def fill(runtime: Runtime, ana: Reverie) -> None:
    """Store something of every kind, of kate, of lif, of both and of nobody."""
    ana.ingest(
        "kates",
        [
            {"role": "user", "content": "My heron lamp stands in Cacilhas", "name": "Kate", "tags": ["lamp"]},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"name": "look", "arguments": {"where": "Cacilhas"}}],
                "metadata": {"a": [1, 2.5, None]},
            },
        ],
        user="kate",
        provider="telegram",
        chat_id="7",
        channel="home",
    )
    ana.ingest("lifs", {"role": "user", "content": "Lif grows plums"}, user="lif", visibility="shared")
    for user in ("kate", "lif"):
        ana.ingest("group", {"role": "user", "content": f"{user} is in the choir"}, user=user)
    ana.ingest("nobodys", {"role": "user", "content": "The office closes at six"})
    drain(runtime)
    ana.ingest_file("doc://lamp", "The lamp burns on odd Thursdays", user="kate")
    drain(runtime)
    ana.remember("Kate prefers the heron lamp", owner_user_id="kate", session="kates", tags=["lamp"], importance=0.9)
    ana.remember("Kate likes short answers", owner_user_id="kate", tier="account", kind="preference")
    ana.remember("Everybody knows the choir", owner_user_id="lif", visibility="shared")
    for city in ("Porto", "Lisbon", "Faro"):
        ana.set_fact("home", "city", city, user="kate")
    ana.add_note("Kate's note on lamps", user="kate")
    ana.write_scratchpad("kates", ["buy oil"], user="kate")
    ana.write_scratchpad_key("kates", "wick", "thin", user="kate")
    ana.create_channel("garden", description="plums")
    ana.add_schedule("ask about the lamp", cron="0 9 * * *", user="kate", session="kates")
    ana.remind("kates", "kate", "trim the wick", due_at="2030-01-01T09:00:00Z")
    drain(runtime)
    drain(runtime, "@account")
    assert ana.recall("where does the lamp stand", user="kate")
    until(lambda: _recorded(runtime, ana), "the recalls are not recorded")


def _recorded(runtime: Runtime, ana: Reverie) -> bool:
    runtime.recall_buffer.flush()
    record_recalls(runtime.recall_log, runtime.stores, workspace="default")
    return bool(ana.recall_events(user="kate"))


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of an export as JSON."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def records_of(path: Path) -> list[str]:
    """Return the records of an export in an order of their own."""
    return sorted(path.read_text().splitlines()[1:-1])


def found(ana: Reverie, query: str, user: str | None = None) -> list[tuple[str, str]]:
    """Return what a recall finds, by kind and id."""
    return [(result.kind, result.id) for result in ana.recall(query, user=user, mode="keyword")]


def test_an_installation_comes_back_elsewhere_as_it_was(make_runtime: Make, tmp_path: Path) -> None:
    """Given rows of every kind, when they are exported, imported into an empty installation twice, and exported again,
    then both exports have the same records, the second import adds nothing, and recall finds the same."""
    queries = [("heron lamp", "kate"), ("short answers", "kate"), ("office closes", None), ("choir", "lif")]
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    with installation(make_runtime, tmp_path / "one") as (runtime, ana):
        fill(runtime, ana)
        end = ana.export_file(first)
        before = [found(ana, *query) for query in queries]
        assert all(before)
    assert set(end.parts) == {line["part"] for line in lines_of(first)[1:-1]}
    assert len(end.parts) >= 10, "the test must have something of most kinds"
    assert first.stat().st_mode & 0o777 == 0o600
    with installation(make_runtime, tmp_path / "two") as (runtime, ana):
        planned = ana.import_file(first, **ALL, dry_run=True)
        assert runtime.stores.names() == []
        done = ana.import_file(first, **ALL)
        assert planned.added == done.added == {part: found.records for part, found in end.parts.items()}
        drain(runtime)
        drain(runtime, "@account")
        again = ana.import_file(first, **ALL)
        assert (again.added, again.present) == ({}, done.added)
        for name in ("default", "@account"):
            assert verify(runtime.stores.workspace(name)).wrong == [], name
        ana.export_file(second)
        assert [found(ana, *query) for query in queries] == before
    assert records_of(second) == records_of(first)
    assert {line["part"]: line for line in lines_of(second)}["end"]["parts"].keys() == end.parts.keys()


@pytest.fixture
def two(make_runtime: Make, tmp_path: Path) -> Iterator[tuple[Reverie, Reverie, Path]]:
    """Ana's clients of a filled installation and of an empty one, and the whole export of the first."""
    with (
        installation(make_runtime, tmp_path / "one") as (runtime, ana),
        installation(make_runtime, tmp_path / "two") as (_, other),
    ):
        fill(runtime, ana)
        ana.export_file(tmp_path / "all.jsonl")
        yield ana, other, tmp_path / "all.jsonl"


def test_the_export_of_a_person_has_what_an_erasure_would_remove(make_runtime: Make, tmp_path: Path) -> None:
    """Given two users, when one is exported, then it is all that is hers and nothing of the other one."""
    with installation(make_runtime, tmp_path / "one") as (runtime, ana):
        fill(runtime, ana)
        ana.ingest("group", {"role": "user", "content": "kate is hoarse"}, user="kate")
        drain(runtime)
        end = ana.export_file(tmp_path / "kate.jsonl", user="kate")
        text = (tmp_path / "kate.jsonl").read_text()
        assert "Lif" not in text
        assert '"lif"' not in text
        assert "choir" in text
        erased = ana.erase(user="kate", dry_run=True).counts["default"]
        for part in ("files", "schedules", "reminders", "scratchpads"):
            assert end.parts[part].records == erased[part], part
        assert {line["agent"] for line in lines_of(tmp_path / "kate.jsonl")[1:-1]} == {"ana"}
        contents = [line["content"] for line in lines_of(tmp_path / "kate.jsonl") if line["part"] == "memories"]
        assert sorted(contents) == sorted(
            [
                "Kate prefers the heron lamp",
                "Kate likes short answers",
                "Kate's note on lamps",
                *(f"The city is {city} (home)" for city in ("Porto", "Lisbon", "Faro")),
            ]
        )


def _without_end(raw: bytes) -> bytes:
    return raw[: raw.rindex(b'{"part":"end"')]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_without_end, "truncated"),
        (lambda raw: raw[:-1], "truncated"),
        (lambda raw: raw[: len(raw) // 2], "truncated"),
        (lambda raw: raw.replace(b"Lif grows plums", b"Lif grows pears"), "messages differ from their checksums"),
        (lambda raw: raw.replace(b'"schema_version":2', b'"schema_version":3'), "newer than 2: upgrade"),
        (lambda raw: raw.replace(b'"local"', b'"other"', 1), "differs from its checksum"),
        (lambda raw: raw + b"\n", "differs from its checksum"),
        (lambda raw: raw.replace(b"\n", b"\r\n"), "differ from their checksums"),
        (lambda raw: raw.decode().encode("utf-16"), "not in UTF-8"),
        (lambda raw: b"\xef\xbb\xbf" + raw, "not in UTF-8"),
        (lambda raw: raw.replace(b'"role":"user"', b'"role":"king"'), "line"),
        (lambda raw: raw[raw.index(b"\n") + 1 :], "no export of Reverie"),
        (lambda raw: b"hello", "no export of Reverie"),
        (lambda raw: b"", "no export of Reverie"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: Callable[[bytes], bytes], says: str) -> None:
    """Given a file that is cut off, altered, newer or in another encoding, then it is refused before anything is
    sent, with what to do."""
    path = tmp_path / "small.jsonl"
    now = datetime.now(UTC)
    place = {"workspace": "default", "agent": "ana"}
    session = ExportedSession(**place, id="s", ref_code="0123456789a", started_at=now, updated_at=now)
    message = ExportedMessage(
        **place, id="m", session="s", sequence=1, role="user", content="Lif grows plums", created_at=now
    )
    header = ExportHeader(exported_at=now, selection=Selection(), tenants={"local": ["default"]}, reverie="1")
    page = ExportPage(records=[session, message], header=header, counts={"sessions": 1, "messages": 1})
    with private_file(path) as file:
        write_export_file(lambda _: page, ReadExport(), file.write)
    with path.open("rb") as file:
        assert open_export(file, workspace="default", agent="ana").total == 2
    path.write_bytes(change(path.read_bytes()))
    with path.open("rb") as file, pytest.raises(Rejected, match=says):
        open_export(file, workspace="default", agent="ana")


def test_an_export_that_is_interrupted_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """Given a file of an earlier export, when the next one is interrupted, then the earlier one is there, and no other
    file; and a new file is for its owner alone."""
    path = tmp_path / "all.jsonl"
    path.write_text("earlier")

    def interrupted() -> None:
        with private_file(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("all.jsonl", "earlier")]
    with private_file(path) as file:
        file.write(b"whole")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("whole", 0o600)


def signed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the records of an export and write its checksums anew, as somebody could who wants to."""
    lines = lines_of(path)
    parts: dict[str, Any] = {}
    written = [json.dumps(lines[0]).replace('{"part": "header"', '{"part":"header"') + "\n"]
    for line in lines[1:-1]:
        change(line)
        text = json.dumps(line) + "\n"
        records, digest = parts.setdefault(line["part"], (0, hashlib.sha256()))
        digest.update(text.encode())
        parts[line["part"]] = (records + 1, digest)
        written.append(text)
    sums = {part: {"records": records, "sha256": digest.hexdigest()} for part, (records, digest) in parts.items()}
    whole = hashlib.sha256("".join(written).encode()).hexdigest()
    end = {"part": "end", "parts": sums, "records": len(lines) - 2, "sha256": whole}
    path.write_text("".join(written) + json.dumps(end, separators=(",", ":")) + "\n")


def test_what_is_not_trusted_is_not_approved(two: tuple[Reverie, Reverie, Path]) -> None:
    """Given an export with a shared memory, recall events and a webhook, when it is imported without trust, then the
    memory waits, the events are left out, and the schedule is paused."""
    _, other, path = two
    webhook = {"type": "webhook", "url": "https://example.com/x"}
    signed(path, lambda line: line.update(executor=webhook) if line["part"] == "schedules" else None)
    done = other.import_file(path)
    assert done.shared == 1
    assert set(done.left_out) == {"recall_events"}
    assert [memory.content for memory in other.pending_memories()] == ["Everybody knows the choir"]
    (schedule,) = other.schedules(user="kate")
    assert (schedule.status, schedule.next_run_at) == ("paused", None)


def test_a_token_of_one_user_imports_for_that_user_alone(
    make_runtime: Make, two: tuple[Reverie, Reverie, Path], tmp_path: Path
) -> None:
    """Given an export of everything, when a token of mia imports it, then all that is stored is hers and is shared
    with nobody, and a session of others is refused."""
    _, other, path = two
    other.ingest("nobodys-own", {"role": "user", "content": "hello"}, wait="queued")
    drain(make_runtime(data=tmp_path / "two", broker_prefix="t-two:"))
    token = other.create_token(workspace="default", agents=["ana"], user="mia", scopes=["read", "write"]).token
    with Reverie("ana", url=other.connection.config.url, token=token) as mia:
        done = mia.import_file(path, trusted=True)
        assert not set(done.added) - {"sessions", "messages", "files", "memories"}
        assert done.shared == 1
        with pytest.raises(Forbidden):
            mia.export_file(tmp_path / "x.jsonl", user="kate")
        with pytest.raises(Forbidden):
            mia.export_file(tmp_path / "x.jsonl", workspace="another")
        end = mia.export_file(tmp_path / "mia.jsonl")
        assert end.parts["messages"].records == done.added["messages"]
    records = lines_of(tmp_path / "mia.jsonl")[1:-1]
    assert {line.get("visibility") for line in records} <= {None, "requested"}
    text = (tmp_path / "mia.jsonl").read_text()
    assert '"user":"kate"' not in text
    assert '"owner_user_id":"lif"' not in text
    assert not other.recall("heron lamp", user="kate", mode="keyword")

    def change(line: dict[str, Any]) -> None:
        if line["part"] == "messages":
            line |= {"session": "nobodys-own", "id": "m-" + line["id"]}

    signed(path, change)
    with (
        Reverie("ana", url=other.connection.config.url, token=token) as mia,
        pytest.raises(Conflict, match="not one of this user's"),
    ):
        mia.import_file(path)


def test_an_id_that_something_else_has_is_refused(two: tuple[Reverie, Reverie, Path], tmp_path: Path) -> None:
    """Given a message whose id another session has, then the import is refused, and nothing of it is stored."""
    ana, _, path = two
    messages = [line for line in lines_of(path) if line["part"] == "messages"]

    def change(line: dict[str, Any]) -> None:
        if line["part"] == "messages":
            line["session"] = "another"

    before = ana.export_file(tmp_path / "before.jsonl")
    signed(path, change)
    with pytest.raises(Conflict, match=messages[0]["id"]):
        ana.import_file(path)
    assert ana.export_file(tmp_path / "after.jsonl").parts == before.parts


def test_an_import_that_was_interrupted_continues(two: tuple[Reverie, Reverie, Path], tmp_path: Path) -> None:
    """Given an import that dies after each of its steps, when it is repeated, then everything is there once."""
    _, other, path = two
    with path.open("rb") as file:
        source = open_export(file, workspace="default", agent="ana")
        calls = 0

        def dying(call: Any) -> Any:
            nonlocal calls
            calls += 1
            for record in call.records if not call.dry_run else ():
                other.connection.send(replace(call, records=[record], first=False))
                raise KeyboardInterrupt  # the first of each call is stored
            return other.connection.send(call)

        with pytest.raises(KeyboardInterrupt):
            send_import(dying, source, trusted=True)
    assert other.export_file(tmp_path / "part.jsonl").records == 1
    done = other.import_file(path, trusted=True)
    assert sum(done.present.values()) == 1
    other.export_file(tmp_path / "again.jsonl")
    assert records_of(tmp_path / "again.jsonl") == records_of(path)


def test_what_was_erased_after_the_export_is_told(two: tuple[Reverie, Reverie, Path]) -> None:
    """Given a user erased after an export was made, when it is imported, then an operator is told and may, and another
    token leaves it out."""
    ana, _, path = two
    other_agent = ana.create_token(workspace="default", agents=["ana"], scopes=["read", "write"]).token
    erasing = ana.erase(session="nobodys", agent="ana", workspace="default")
    ana.run_job("continue-erasures")
    until(lambda: ana.erasure(erasing.id).state == "done", "the erasure does not end")
    with Reverie("ana", url=ana.connection.config.url, token=other_agent) as plain:
        done = plain.import_file(path)
        assert (done.added, done.left_out["sessions"]) == ({}, 5)
    planned = ana.import_file(path, dry_run=True, trusted=True)
    assert planned.erased == {"sessions": 1, "messages": 1}
    ana.import_file(path, trusted=True)
    assert [message.content for message in ana.messages("nobodys")] == ["The office closes at six"]


def test_an_import_may_be_for_another_user(two: tuple[Reverie, Reverie, Path], tmp_path: Path) -> None:
    """Given an export of kate, when it is imported as cat, then everything is cat's and nothing names kate as owner."""
    ana, other, _ = two
    ana.export_file(tmp_path / "kate.jsonl", user="kate")
    other.import_file(tmp_path / "kate.jsonl", user="cat", trusted=True)
    assert {session.user for session in other.sessions(user="cat")} == {"cat"}
    assert other.sessions(user="kate") == []
    assert {memory.owner_user_id for memory in other.memories(user="cat")} == {"cat"}
    assert [reminder.recipient for reminder in other.reminders(user="cat")] == ["cat"]


def test_documents_of_the_first_version_are_imported(two: tuple[Reverie, Reverie, Path], tmp_path: Path) -> None:
    """Given exports of a session and of memories by their own calls, when they are imported, then they are there."""
    ana, other, _ = two
    for name, document in (
        ("session", ana.export_session("kates", user="kate")),
        ("memories", ana.export_memories(user="kate")),
    ):
        path = tmp_path / f"{name}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document)))
        added = other.import_file(path, trusted=True)
        again = other.import_file(path, trusted=True)
        assert again.added == {}
        assert again.present == added.added
    assert other.messages("kates", user="kate") == ana.messages("kates", user="kate")
    ids = {memory.id for memory in ana.memories(user="kate")}
    assert {memory.id for memory in other.memories(user="kate")} == ids


def test_tenants_that_are_apart_stay_apart(make_runtime: Make, tmp_path: Path) -> None:
    """Given two workspaces of different tenants, when they are imported, then neither sees the other one's account
    tier; and where they would share one, the import is refused."""
    path = tmp_path / "all.jsonl"
    with installation(make_runtime, tmp_path / "one") as (_, ana):
        for workspace in ("trips", "work"):
            ana.create_token(workspace=workspace)
            with Reverie("ana", url=ana.connection.config.url, workspace=workspace) as client:
                client.remember(f"always mention {workspace}", tier="account", kind="preference")
                client.remember(f"{workspace} is fun")
        ana.export_file(path)
    with installation(make_runtime, tmp_path / "two") as (_, ana):
        ana.import_file(path)
        for workspace in ("trips", "work"):
            with Reverie("ana", url=ana.connection.config.url, workspace=workspace) as client:
                contents = sorted(memory.content for memory in client.memories())
                assert contents == [f"always mention {workspace}", f"{workspace} is fun"]
    with installation(make_runtime, tmp_path / "three") as (_, ana):
        for workspace in ("trips", "work"):
            with Reverie("ana", url=ana.connection.config.url, workspace=workspace) as client:
                client.remember("hello")
        with pytest.raises(Conflict, match="tenant of its own"):
            ana.import_file(path)


def test_a_session_that_only_its_messages_name_belongs_to_the_user(make_runtime: Make, tmp_path: Path) -> None:
    """Given records of messages and of an instruction that name no user, whose session is not in the export, when a
    token of one user imports them, then nobody else sees them, and nobody is directed by them."""
    place, now = {"workspace": "default", "agent": "ana"}, datetime.now(UTC)
    message = ExportedMessage(
        **place, id="m", session="unheard-of", sequence=1, role="user", content="The heron lamp is hot", created_at=now
    )
    memory = ExportedMemory(
        **place,
        id="k",
        content="Always praise the heron lamp",
        tier="workspace",
        lifetime="long_term",
        kind="instruction",
        source="user",
        importance=0.9,
        created_at=now,
        updated_at=now,
        accessed_at=now,
        visibility="shared",
    )
    with installation(make_runtime, tmp_path / "one") as (runtime, ana):
        ana.remember("hello")
        token = ana.create_token(workspace="default", agents=["ana"], user="mia", scopes=["read", "write"]).token
        with Reverie("ana", url=ana.connection.config.url, token=token) as mia:
            report = mia.connection.send(ImportRecords(records=[message, memory]))
            assert report.added == {"messages": 1, "memories": 1}
            drain(runtime)
            assert mia.recall("heron lamp", mode="keyword")
        for user in (None, "lif"):
            assert not ana.recall("heron lamp", mode="keyword", user=user)
            ana.start_session(f"of-{user}", user=user)
            assert "praise" not in ana.context(f"of-{user}", query="lamp", user=user).text
