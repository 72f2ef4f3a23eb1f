"""Reads odd and damaged files of each kind: each is taken, or refused with one of Reverie's errors."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from adapters.backups.manifest import decode_manifest, encode_manifest
from adapters.backups.repository import create_repository, open_repository
from adapters.embedders.base import HashEmbedder
from adapters.histories.carrying import FORMATS
from adapters.histories.reading import Reading
from memory.lifecycle.backup import BackupSource, back_up
from memory.lifecycle.importing import ImportRules, import_records
from memory.lifecycle.restore import RestoreOptions, restore
from memory.pipeline.broker_status import lost_lines
from memory.pipeline.chunking import chunk_messages
from memory.pipeline.embedding import EmbedHooks, embed_chunks, index_chunks
from memory.sessions.sessions import list_sessions, read_messages
from memory.tombstones import read_erased, read_tombstones
from retrieval.index.cache import AgentIndexes
from retrieval.query import RecallRequest
from retrieval.recaller import Recaller
from reverie.calls import check
from reverie.clock import from_micros, now_micros
from reverie.errors import ReverieError, StoreUnavailable
from reverie.pipeline.conversation_files import exported_sessions, ingest_calls, read_items
from reverie.trust.export_files import open_export
from reverie.trust.exports import ExportedMessage, ExportedSession, check_record
from storage.stores import Stores
from storage.verify import verify
from support.fuzzing.files import FileFuzzer, history_file
from worker.settings import load_settings
from worker.supervision.run_file import read_run_file

_TEXTS: Final = ("a lantern on the quay", "the tram is the 28", "漢字 in the attic", "plums and oil")


# Reads one file, made in a folder. Raises one of Reverie's errors: if it is refused.
Kind: TypeAlias = Callable[[FileFuzzer, Path], None]


def _exports(folder: Path) -> Kind:
    stores = Stores(folder / "data")
    rules = ImportRules(now=now_micros(), operator=True, trusted=True)

    def read(fuzzer: FileFuzzer, _: Path) -> None:
        source = open_export(BytesIO(fuzzer.export()), workspace="ws", agent="ana")
        import_records(stores, [record for record, _ in source.records()], rules)

    return read


def _conversations(_: Path) -> Kind:
    def read(fuzzer: FileFuzzer, _: Path) -> None:
        items = read_items(fuzzer.conversations(), name="file")
        defaults = {"session": "s"} if fuzzer.chance.random() < 0.7 else {}
        for call in chain(ingest_calls(items, defaults=defaults, batch_size=3), exported_sessions(items)):
            check(call)  # type: ignore[type-var]

    return read


def _settings(_: Path) -> Kind:
    def read(fuzzer: FileFuzzer, folder: Path) -> None:
        file = folder / "reverie.toml"
        file.write_bytes(fuzzer.fuzzer.settings())
        if fuzzer.chance.random() < 0.5:
            file.write_bytes(b"")
        variable = fuzzer.chance.choice(("REVERIE_PORT", "REVERIE_BROKER", "REVERIE_DATA", "REVERIE_LOG_LEVEL"))
        text = fuzzer.fuzzer.text().replace("\x00", "")[:200].encode("utf-8", "surrogatepass")
        os.environ.update({"REVERIE_CONFIG": str(file), variable: os.fsdecode(text)})
        try:
            load_settings()
        finally:
            del os.environ[variable]

    return read


def _histories(_: Path) -> Kind:
    def read(fuzzer: FileFuzzer, folder: Path) -> None:
        place = folder / "history"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        name = fuzzer.chance.choice(list(FORMATS))
        file_name, content = history_file(fuzzer, name)
        file = place / file_name
        file.write_bytes(content)
        history, reading = FORMATS[name], Reading("ws", "ana")
        try:
            for found in [*history.find(place, reading), *history.find(file, reading)]:
                for record in history.read(found, reading):
                    check_record(record)
        except OSError as error:  # which whoever imports expects
            raise StoreUnavailable(str(error)) from error

    return read


def _stores(folder: Path) -> Kind:
    original = _filled(folder / "original")
    content = original.database_path("ws").read_bytes()
    original.close()

    def read(fuzzer: FileFuzzer, folder: Path) -> None:
        data = folder / "damaged"
        shutil.rmtree(data, ignore_errors=True)
        stores = Stores(data)
        path = stores.database_path("ws")
        path.parent.mkdir(parents=True)
        path.write_bytes(fuzzer.damaged(content))
        try:
            _use(stores)
        finally:
            stores.close()

    return read


def _backups(folder: Path) -> Kind:
    stores = _filled(folder / "original")
    create_repository(folder / "repository", None)
    scratch = folder / "scratch"
    scratch.mkdir()
    source = BackupSource(folder / "original", None, {"port": 1}, scratch, "1", now_micros)
    back_up(source, open_repository(folder / "repository", None))
    stores.close()

    def read(fuzzer: FileFuzzer, folder: Path) -> None:
        for name in ("copy", "restored"):
            shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(folder / "repository", folder / "copy")
        files = sorted(path for path in (folder / "copy").rglob("*") if path.is_file())
        path = fuzzer.chance.choice([path for path in files if path.stat().st_size])
        path.write_bytes(_repacked(fuzzer, path))
        repository = open_repository(folder / "copy", None)
        manifests, damaged = repository.manifests()
        if damaged:
            raise repository_error(damaged[0].error)
        for manifest in manifests:
            restore(repository, manifest, folder / "restored", RestoreOptions(now=now_micros))

    return read


def repository_error(text: str) -> ReverieError:
    """Return the error of a backup that is listed as damaged."""
    return ReverieError(text)


def _repacked(fuzzer: FileFuzzer, path: Path) -> bytes:
    """Return a damaged file of a repository; of a manifest, often one whose hash is that of its odd content."""
    content = path.read_bytes()
    if path.parent.name != "manifests" or fuzzer.chance.random() < 0.3:
        return fuzzer.damaged(content)
    manifest = msgspec.json.encode(decode_manifest(zlib.decompress(content), path.name))
    odd = fuzzer.lines([msgspec.json.decode(manifest)]).strip()
    try:
        return zlib.compress(encode_manifest(msgspec.Raw(odd)))  # type: ignore[arg-type]
    except msgspec.MsgspecError:
        return fuzzer.damaged(content)


def _kept(folder: Path) -> Kind:
    """Read what processes keep for each other in the data folder."""
    run = folder / "run"
    run.mkdir()
    readers: Mapping[str, Callable[[], Any]] = {
        "run/up.json": lambda: read_run_file(folder),
        "run/broker.json": lambda: lost_lines(folder, now=now_micros()),
        "erased.json": lambda: read_erased(folder),
        "tombstones/tombstones.jsonl": lambda: list(read_tombstones(folder)),
    }
    (folder / "tombstones").mkdir()

    def read(fuzzer: FileFuzzer, folder: Path) -> None:
        name, reader = fuzzer.chance.choice(list(readers.items()))
        (folder / name).write_bytes(fuzzer.lines([{"id": "x", "items": 1, "seen_at": 1, "processes": [], "pid": 1}]))
        reader()

    return read


def _filled(folder: Path) -> Stores:
    """Return stores with a workspace of some messages that can be recalled."""
    stores = Stores(folder)
    at = from_micros(now_micros())
    session = ExportedSession(workspace="ws", agent="ana", id="s", ref_code="ab12", started_at=at, updated_at=at)
    messages = [
        ExportedMessage(
            workspace="ws", agent="ana", id=f"m{number}", session="s", sequence=number + 1, role="user",
            content=f"{text} {number}", created_at=at,
        )
        for number, text in enumerate(_TEXTS * 5)
    ]  # fmt: skip
    import_records(stores, [session, *messages], ImportRules(now=now_micros(), operator=True))
    store = stores.workspace("ws")
    chunk_messages(store, now=now_micros, on_batch=lambda _: None)
    hooks = EmbedHooks(lambda: None, lambda _ids, _reason: None)
    embed_chunks(store, HashEmbedder(), now=now_micros, hooks=hooks, batch_size=64)
    index_chunks(store, now=now_micros, on_indexed=lambda _: None)
    store.database.truncate_log()
    return stores


def _use(stores: Stores) -> None:
    """Do with a store what a server and workers do."""
    store = stores.workspace("ws", create=False)
    errors: list[ReverieError] = []
    embedder = HashEmbedder()
    recaller = Recaller(stores, lambda _: embedder, AgentIndexes(), now_micros, None)
    steps: tuple[Callable[[], object], ...] = (
        lambda: list_sessions(store, agent="ana", limit=10, offset=0, status=None),
        lambda: read_messages(store, agent="ana", session="s", limit=50, offset=0),
        lambda: recaller.recall("ws", RecallRequest(query="lantern", agent="ana", mode="keyword")),
        lambda: recaller.recall("ws", RecallRequest(query="lantern", agent="ana")),
        lambda: chunk_messages(store, now=now_micros, on_batch=lambda _: None),
        lambda: verify(store),
    )
    for step in steps:
        try:
            step()
        except ReverieError as error:
            errors.append(error)
    if errors:
        raise errors[0]


FILES: Final[Mapping[str, Callable[[Path], Kind]]] = {
    "exports": _exports,
    "conversations": _conversations,
    "settings": _settings,
    "histories": _histories,
    "stores": _stores,
    "backups": _backups,
    "kept": _kept,
}
