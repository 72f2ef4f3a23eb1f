"""What was erased after a backup was made does not come back when it is restored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.backups.repository import create_repository, locked, open_repository
from adapters.kept_secrets import KEY_FILE
from memory.lifecycle.backup import back_up
from memory.lifecycle.erasing import continue_erasures
from memory.lifecycle.erasure_rows import Scope
from memory.lifecycle.erasures import request_erasure
from memory.lifecycle.restore import RestoreOptions, restore
from memory.trust.webhook_secrets import AgentSecrets
from reverie import Reverie
from storage.stores import Stores
from support.http import running_server
from support.stages import drain
from worker.backups import backup_source
from worker.runtime import Runtime

pytestmark = pytest.mark.sqlite("copies its files")

SECRET = "The heron lantern of Cacilhas burns only on odd Thursdays"
QUEUED = "The blue kiosk of Belém closes whenever the ferry horn sounds"


@pytest.mark.parametrize("way", ["newer backup", "replaced folder"])
def test_an_erasure_after_the_backup_is_repeated_when_it_is_restored(
    make_runtime: Callable[..., Runtime], tmp_path: Path, way: str
) -> None:
    """Given tombstones in a newer backup, or in the folder that is replaced, then no byte of the erased is restored."""
    runtime = make_runtime()
    data, dest = runtime.settings.data, tmp_path / "dest"
    create_repository(dest, None)
    repository = open_repository(dest, None)
    with running_server(runtime) as url, Reverie("ana", url=url) as ana, locked(dest):
        ana.ingest("chat", [{"role": "user", "content": SECRET}], user="kate")
        ana.ingest("other", [{"role": "user", "content": "plums are ripe"}], user="lif")
        drain(runtime)
        ana.ingest("chat", [{"role": "user", "content": QUEUED}], user="kate")
        before = back_up(backup_source(runtime), repository)
        drain(runtime)
        kate = Scope("user", "kate", None, None)
        request_erasure(runtime.stores, data, kate, requested_by="tester", now=runtime.now())
        assert continue_erasures(runtime.erasure_services) == {"finished": 1, "waiting": 0}
        newest = back_up(backup_source(runtime), repository)
    runtime.stores.close()
    if way == "newer backup":
        target = tmp_path / "restored"
        options = RestoreOptions(now=runtime.now, newest=newest)
    else:
        target = data
        options = RestoreOptions(now=runtime.now, replace=True)

    report = restore(repository, before, target, options)

    everything = b"".join(path.read_bytes() for path in target.rglob("*") if path.is_file())
    assert report.tombstones == 1
    assert report.stored_from_queue == 1
    assert b"plums are ripe" in everything
    for text in (SECRET, QUEUED):
        assert text.encode() not in everything


def test_the_secrets_that_an_erased_agent_replaced_do_not_come_back_with_a_backup(
    make_runtime: Callable[..., Runtime], tmp_path: Path
) -> None:
    """Given rotated secrets, when an agent is erased after the backup, then a restore names none and counts on."""
    runtime = make_runtime()
    data, dest = runtime.settings.data, tmp_path / "dest"
    create_repository(dest, None)
    repository = open_repository(dest, None)
    with running_server(runtime) as url, locked(dest):
        for agent in ("heron", "plover"):
            with Reverie(agent, url=url) as client:
                client.remember("plums are ripe")
            AgentSecrets(runtime.stores, "default").rotate(agent, datetime.now(UTC))
        before = back_up(backup_source(runtime), repository)
        heron = Scope("agent", "", "heron", None)
        request_erasure(runtime.stores, data, heron, requested_by="tester", now=runtime.now())
        assert continue_erasures(runtime.erasure_services) == {"finished": 1, "waiting": 0}
        newest = back_up(backup_source(runtime), repository)
    restore(repository, before, tmp_path / "restored", RestoreOptions(now=runtime.now, newest=newest))
    (tmp_path / "restored" / KEY_FILE).write_bytes((data / KEY_FILE).read_bytes())
    now = datetime.now(UTC)
    with closing(Stores(tmp_path / "restored")) as restored:
        with restored.workspace("default").reading() as tx:
            names = tx.connection.exec_driver_sql("SELECT agent_hash FROM webhook_rotations").scalars().all()
        assert not {"heron", "plover"}.intersection(names)
        for agent in ("heron", "plover"):
            wanted = AgentSecrets(runtime.stores, "default").secrets(agent, now)
            assert AgentSecrets(restored, "default").secrets(agent, now) == wanted
            assert len(wanted) == 2
