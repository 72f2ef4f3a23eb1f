"""What was erased does not come back with a backup that was made before."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from memory.lifecycle.erasing import continue_erasures
from memory.lifecycle.erasure_rows import Scope
from memory.lifecycle.erasures import request_erasure
from memory.lifecycle.restore import apply_tombstones
from memory.tombstones import hash_key, note_forgotten, read_tombstones, target_hash
from reverie import Reverie
from storage.stores import Stores
from support.copied_data import copy_data, copy_databases
from support.stages import drain
from worker.runtime import Runtime

SECRET = "The heron lantern of Cacilhas burns only on odd Thursdays"


def erase(runtime: Runtime, scope: Scope) -> None:
    request_erasure(runtime.stores, runtime.settings.data, scope, requested_by="tester", now=runtime.now())
    assert continue_erasures(runtime.erasure_services) == {"finished": 1, "waiting": 0}


def restored(runtime: Runtime, backup: Path) -> Stores:
    """Put a backup's databases in the place of today's and accept them, and leave the tombstones as they are."""
    data = runtime.settings.data
    runtime.stores.close()
    for name in ("workspaces", "account.db", "account.db-wal", "account.db-shm", "known"):
        path = data / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if (backup / name).exists():
            (shutil.copytree if (backup / name).is_dir() else shutil.copy)(backup / name, path)
    copy_databases(backup, data)
    return runtime.stores


def fill(ana: Reverie, runtime: Runtime) -> str:
    ana.ingest("chat", [{"role": "user", "content": SECRET}], user="kate")
    ana.ingest("other", [{"role": "user", "content": "plums are ripe"}], user="lif")
    drain(runtime)
    ana.remember(SECRET, kind="preference", tier="account", owner_user_id="kate")
    return ana.remember("a memory of the workspace", owner_user_id="kate").id


def seen(ana: Reverie) -> dict[str | None, tuple[set[str], set[str]]]:
    """Return the sessions and the memories that each user sees, and a call without a user."""
    return {
        user: ({one.id for one in ana.sessions.list(user=user)}, {one.content for one in ana.memories.list(user=user)})
        for user in (None, "kate", "lif")
    }


@pytest.mark.parametrize("kind", ["user", "session", "memory", "agent", "workspace"])
def test_a_restored_backup_loses_what_was_erased_after_it(
    runtime: Runtime, ana: Reverie, tmp_path: Path, kind: str
) -> None:
    """Given a backup from before an erasure, when tombstones are applied to it, then it is as after the erasure."""
    memory = fill(ana, runtime)
    before = seen(ana)
    assert (before["kate"][0], before["lif"][0]) == ({"chat"}, {"other"})
    assert "a memory of the workspace" in before["kate"][1]
    backup = tmp_path / "backup"
    runtime.stores.close()
    copy_data(runtime.settings.data, backup)
    scopes = {
        "user": Scope("user", "kate", None, None),
        "session": Scope("session", "chat", "ana", "default"),
        "memory": Scope("memory", memory, "ana", "default"),
        "agent": Scope("agent", "", "ana", None),
        "workspace": Scope("workspace", "", None, "default"),
    }
    erase(runtime, scopes[kind])
    after = seen(ana)
    assert after != before
    stores = restored(runtime, backup)
    assert seen(ana) == before, "the backup has it"
    counts = apply_tombstones(stores, now=runtime.now())
    assert sum(counts.values()) > 0
    assert seen(ana) == after
    assert apply_tombstones(stores, now=runtime.now()) == {}, "a second time changes nothing"


def test_an_erasure_that_was_asked_for_is_not_lost_with_the_request(
    runtime: Runtime, ana: Reverie, tmp_path: Path
) -> None:
    """Given an erasure that no job has begun, when an earlier backup is restored, then it is carried out there."""
    fill(ana, runtime)
    before = seen(ana)
    runtime.stores.close()
    copy_data(runtime.settings.data, tmp_path / "backup")
    scope = Scope("user", "kate", None, None)
    request_erasure(runtime.stores, runtime.settings.data, scope, requested_by="tester", now=runtime.now())
    stores = restored(runtime, tmp_path / "backup")
    assert (seen(ana), stores.erasures().unfinished()) == (before, [])
    assert sum(apply_tombstones(stores, now=runtime.now()).values()) > 0
    assert seen(ana)["kate"] == (set(), set())
    assert seen(ana)["lif"] == before["lif"]


def test_what_was_said_after_the_erasure_is_kept(runtime: Runtime, ana: Reverie) -> None:
    """Given a user who was erased and came back, when tombstones are applied, then the new words stay."""
    fill(ana, runtime)
    erase(runtime, Scope("user", "kate", None, None))
    ana.ingest("chat", [{"role": "user", "content": "I am back"}], user="kate")
    drain(runtime)
    assert apply_tombstones(runtime.stores, now=runtime.now()) == {}
    assert [message.content for message in ana.sessions.messages("chat")] == ["I am back"]


def test_tombstones_tell_nothing_and_are_readable_by_their_owner_only(runtime: Runtime, ana: Reverie) -> None:
    """Given an erasure, then its tombstone holds neither names nor content, and only the owner can read it."""
    fill(ana, runtime)
    erase(runtime, Scope("user", "kate", None, None))
    folder = runtime.settings.data / "tombstones"
    of_request, of_job = read_tombstones(runtime.settings.data)
    assert (of_request.hash, of_request.at <= of_job.at) == (of_job.hash, True)
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert b"kate" not in path.read_bytes()


def test_what_plain_calls_removed_does_not_come_back(runtime: Runtime, ana: Reverie, tmp_path: Path) -> None:
    """Given a backup, when a session, a file, a memory, a note and a fact with an earlier value are removed by their
    calls and the backup is restored, then none of them comes back; and one that was stored again since stays."""
    fill(ana, runtime)
    ana.files.add("doc://lamp", f"A document: {SECRET}")
    drain(runtime)
    (lamp,) = ana.files.list()
    kept = ana.remember("the office closes at six")
    gone = ana.remember(f"in short: {SECRET}")
    note = ana.notes.add(f"a note: {SECRET}")
    ana.facts.set("lamp", "place", "Cacilhas")
    backup = tmp_path / "backup"
    runtime.stores.close()
    copy_data(runtime.settings.data, backup)
    ana.facts.set("lamp", "place", "Almada")  # the backup has the value before, which this one replaced
    assert ana.sessions.forget("chat", user="kate")
    assert ana.files.delete(lamp.id)
    assert ana.forget(gone.id)
    assert ana.notes.delete(note.note_id)
    assert ana.facts.forget("lamp", "place")
    assert not ana.forget("unknown")
    stones = list(read_tombstones(runtime.settings.data))
    assert len(stones) == 6, "one for each, one for the fact's earlier value, and none for what was not there"
    stores = restored(runtime, backup)
    removed = apply_tombstones(stores, now=runtime.now())
    assert removed["sessions"] == removed["files"] == 1
    assert [session.id for session in ana.sessions.list(user="kate")] == []
    assert ana.files.list() == []
    assert [memory.id for memory in ana.memories.list()] == [kept.id]
    assert [session.id for session in ana.sessions.list(user="lif")] == ["other"]
    assert apply_tombstones(stores, now=runtime.now()) == {}


def test_tokens_that_have_ended_do_not_come_back(runtime: Runtime, ana: Reverie, tmp_path: Path) -> None:
    """Given a backup, when a token is revoked, one is rotated, and the user of a third is erased, and the backup is
    restored, then none of the three is valid, the user is not named, and a fourth token still is valid."""
    fill(ana, runtime)
    for name in ("revoked", "rotated", "kept"):
        ana.admin.tokens.create(workspace="default", agents=["ana"], scopes=["read"], name=name)
    ana.admin.tokens.create(workspace="default", agents=["ana"], user="kate", scopes=["read"], name="kates")
    backup = tmp_path / "backup"
    runtime.stores.close()
    copy_data(runtime.settings.data, backup)
    ana.admin.tokens.revoke("revoked")
    ana.admin.tokens.rotate("rotated")
    erase(runtime, Scope("user", "kate", None, None))
    stores = restored(runtime, backup)

    assert apply_tombstones(stores, now=runtime.now())["tokens"] == 3

    tokens = stores.tokens().list(workspace=None, valid_at=None, limit=9, offset=0)
    assert [token.name for token in tokens if token.is_valid(runtime.now())] == ["kept"]
    assert not {"kate", "kates"} & {value for token in tokens for value in (token.name, token.user)}
    assert apply_tombstones(stores, now=runtime.now()) == {}, "a second time changes nothing"


def test_an_incomplete_line_does_not_swallow_the_next_tombstone(tmp_path: Path) -> None:
    """Given a tombstone of which a full disk took only the beginning, when another is written, then it is read."""
    note_forgotten(tmp_path, "session", ["one"], workspace="w", agent="a")
    path = tmp_path / "tombstones" / "tombstones.jsonl"
    path.write_bytes(path.read_bytes() + b'{"v":1,"erasure":"","ki')

    note_forgotten(tmp_path, "session", ["two"], workspace="w", agent="a")

    key = hash_key(tmp_path)
    expected = [target_hash(key, "session", workspace="w", agent="a", target=name) for name in ("one", "two")]
    assert [stone.hash for stone in read_tombstones(tmp_path)] == expected
