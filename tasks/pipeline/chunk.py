"""Stage 2: from messages and files to chunks, searchable by their words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.pipeline.chunking import chunk_messages as cut_messages
from reverie import contract
from worker.app import runtime, task


@task(contract.CHUNK_MESSAGES)
def chunk_messages(*, workspace: str) -> Mapping[str, Any]:
    """Cut what waits, then notify the embedder; without one, the messages are searchable now."""
    here = runtime()
    here.inbox.clear_notification(contract.CHUNK_MESSAGES, workspace)
    store = here.stores.workspace(workspace, create=False)
    with_vectors = here.settings.embedding_provider != "none"

    def on_batch(message_rows: list[int]) -> None:
        if with_vectors:
            here.notify_stage("embed", workspace)
        with store.reading() as tx:
            ready = tx.chunks.messages_ready(message_rows, with_vectors=with_vectors)
        here.searchable(store, ready, at=here.now())

    def on_files(file_rows: list[int]) -> None:
        with store.reading() as tx:
            ready = tx.chunks.files_ready(file_rows, with_vectors=with_vectors)
        here.searchable(store, ready, at=here.now())

    report = cut_messages(store, now=here.now, on_batch=on_batch, on_files=on_files)
    if report.more:
        here.notify_stage("chunk", workspace)
    return {**report.counts(), "traces": report.traces}
