"""Everything about a person or an agent, out into one file and in again elsewhere, with ids and times."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from reverie import Rejected, Reverie
from reverie.trust.export_files import open_export, private_file, send_import, write_export_file
from reverie.trust.exports import (
    ExportedMessage,
    ExportedSession,
    ExportHeader,
    ExportPage,
    ReadExport,
    Selection,
)
from storage.verify import verify
from support.exports import ALL, Make, fill, filled_and_empty, installation, lines_of, records_of
from support.stages import drain


@pytest.fixture
def two(make_runtime: Make, tmp_path: Path) -> Iterator[tuple[Reverie, Reverie, Path]]:
    """Ana's clients of a filled installation and of an empty one, and the whole export of the first."""
    with filled_and_empty(make_runtime, tmp_path) as both:
        yield both


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
        end = ana.admin.export_file(first)
        before = [found(ana, *query) for query in queries]
        assert all(before)
    assert set(end.parts) == {line["part"] for line in lines_of(first)[1:-1]}
    assert len(end.parts) >= 10, "the test must have something of most kinds"
    assert first.stat().st_mode & 0o777 == 0o600
    with installation(make_runtime, tmp_path / "two") as (runtime, ana):
        planned = ana.admin.import_file(first, **ALL, dry_run=True)
        assert runtime.stores.names() == []
        done = ana.admin.import_file(first, **ALL)
        assert planned.added == done.added == {part: found.records for part, found in end.parts.items()}
        drain(runtime)
        drain(runtime, "@account")
        again = ana.admin.import_file(first, **ALL)
        assert (again.added, again.present) == ({}, done.added)
        for name in ("default", "@account"):
            assert verify(runtime.stores.workspace(name)).wrong == [], name
        ana.admin.export_file(second)
        assert [found(ana, *query) for query in queries] == before
    assert records_of(second) == records_of(first)
    assert {line["part"]: line for line in lines_of(second)}["end"]["parts"].keys() == end.parts.keys()


def test_the_export_of_a_person_has_what_an_erasure_would_remove(make_runtime: Make, tmp_path: Path) -> None:
    """Given two users, when one is exported, then it is all that is hers and nothing of the other one."""
    with installation(make_runtime, tmp_path / "one") as (runtime, ana):
        fill(runtime, ana)
        ana.ingest("group", {"role": "user", "content": "kate is hoarse"}, user="kate")
        drain(runtime)
        end = ana.admin.export_file(tmp_path / "kate.jsonl", user="kate")
        text = (tmp_path / "kate.jsonl").read_text()
        assert "Lif" not in text
        assert '"lif"' not in text
        assert "choir" in text
        erased = ana.admin.erasures.create(user="kate", dry_run=True).counts["default"]
        for part in ("files", "schedules", "reminders", "scratchpads"):
            assert end.parts[part].records == erased[part], part
        assert {line["agent"] for line in lines_of(tmp_path / "kate.jsonl")[1:-1]} == {"ana"}
        told, before = (line for line in lines_of(tmp_path / "kate.jsonl") if line["part"] == "contexts")
        assert (before["query"], before.get("session")) == ("which lamp is for heron", None)
        assert (told["query"], told["session"], bool(told["items"])) == ("where does the lamp stand", "kates", True)
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
        (lambda raw: raw.replace(b'"schema_version":3', b'"schema_version":4'), "newer than 3: upgrade"),
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


def test_an_export_that_is_not_finished_has_no_file_that_a_kill_would_leave(tmp_path: Path) -> None:
    """Given a file that is being written, then its folder shows nothing of it, and all of it once it is finished."""
    with private_file(tmp_path / "out") as file:
        file.write(b"words")
        file.flush()
        assert list(tmp_path.iterdir()) == []
    (written,) = tmp_path.iterdir()
    assert (written.name, written.read_bytes(), written.stat().st_mode & 0o777) == ("out", b"words", 0o600)


def test_a_pipe_and_a_device_are_written_to_and_stay(tmp_path: Path) -> None:
    """Given a pipe in place of a file, then a reader gets the export; a full device is an error; both stay there."""
    pipe, full = tmp_path / "pipe", Path("/dev/full")
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read_bytes)
        with private_file(pipe) as file:
            file.write(b"whole")
        assert read.result(timeout=20) == b"whole"

    def too_much() -> None:
        with private_file(full) as file:
            file.write(b"whole")

    with pytest.raises(Rejected, match="/dev/full cannot be written: No space left on device"):
        too_much()
    assert (pipe.is_fifo(), full.is_char_device(), len(list(tmp_path.iterdir()))) == (True, True, 1)


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
    assert other.admin.export_file(tmp_path / "part.jsonl").records == 1
    done = other.admin.import_file(path, trusted=True)
    assert sum(done.present.values()) == 1
    other.admin.export_file(tmp_path / "again.jsonl")
    assert records_of(tmp_path / "again.jsonl") == records_of(path)


def test_documents_of_the_first_version_are_imported(two: tuple[Reverie, Reverie, Path], tmp_path: Path) -> None:
    """Given exports of a session and of memories by their own calls, when they are imported, then they are there."""
    ana, other, _ = two
    for name, document in (
        ("session", ana.sessions.export("kates", user="kate")),
        ("memories", ana.memories.export(user="kate")),
    ):
        path = tmp_path / f"{name}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document)))
        added = other.admin.import_file(path, trusted=True)
        again = other.admin.import_file(path, trusted=True)
        assert again.added == {}
        assert again.present == added.added
    assert other.sessions.messages("kates", user="kate") == ana.sessions.messages("kates", user="kate")
    ids = {memory.id for memory in ana.memories.list(user="kate")}
    assert {memory.id for memory in other.memories.list(user="kate")} == ids


def test_the_export_of_a_person_names_only_workspaces_that_hold_something_of_theirs(
    make_runtime: Make, tmp_path: Path
) -> None:
    """Given workspaces in which a person never was, then the header of their export does not name them."""
    with installation(make_runtime, tmp_path / "one") as (runtime, first):
        url = first.connection.config.url
        for workspace, user in (("alpha-secret", "bo"), ("home", "kate")):
            with Reverie("ana", url=url, workspace=workspace) as client:
                client.ingest("s", {"role": "user", "content": "I sing alto"}, user=user)
            drain(runtime, workspace)
        with Reverie("ana", url=url, workspace="home") as ana:
            ana.remember("Kate prefers tea", kind="preference", tier="account", user="kate")
            ana.admin.export_file(tmp_path / "kate.jsonl", user="kate")
            ana.admin.export_file(tmp_path / "all.jsonl")
    assert "alpha-secret" not in (tmp_path / "kate.jsonl").read_text()
    assert "Kate prefers tea" in (tmp_path / "kate.jsonl").read_text()
    assert "alpha-secret" in (tmp_path / "all.jsonl").read_text()
