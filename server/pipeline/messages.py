"""/v1/messages and /v1/files: put the messages and files of agents into the inbox, list files, and delete them."""

from __future__ import annotations

from typing import Final

from memory.conversion import convert
from memory.pipeline.forgetting import forget_file
from reverie.checks import check_wait
from reverie.pipeline import calls
from reverie.pipeline.items import build_file, build_session
from reverie.pipeline.submission import Submission, enqueue, prepare_messages, single
from reverie.pipeline.types import File, FileList, Receipt
from reverie.types import Deleted
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("ingest")

_SESSION_FIELDS: Final = ("session", "user", "provider", "chat_id", "channel", "strict")
_STATUSES: Final = {"202": "In the inbox", "200": "Stored or searchable, as requested by `wait`"}


def _waits(call: calls.IngestMessages | calls.IngestFile) -> bool:
    return check_wait(call.wait, call.timeout_seconds) != "queued"


def _status(call: calls.IngestMessages | calls.IngestFile) -> int:
    return 202 if call.wait == "queued" else 200


@endpoints.serves(calls.IngestMessages, waits=_waits, status=_status, statuses=_STATUSES)
def _ingest_messages(services: Services, caller: Caller, call: calls.IngestMessages) -> Receipt:
    session_input = build_session({name: getattr(call, name) for name in _SESSION_FIELDS})
    submission = prepare_messages(call.messages, agent=caller.agent, session_input=session_input, trace=caller.trace)
    return _deliver(services, caller, submission, call)


@endpoints.serves(calls.IngestFile, waits=_waits, status=_status, statuses=_STATUSES)
def _ingest_file(services: Services, caller: Caller, call: calls.IngestFile) -> Receipt:
    payload = build_file(
        agent=caller.agent,
        source_uri=call.source_uri,
        content=call.content,
        trace=caller.trace,
        session=call.session,
        metadata=call.metadata,
        tags=call.tags,
        item_id=call.id,
    )
    return _deliver(services, caller, single(payload), call)


@endpoints.serves(calls.ListFiles)
def _list_files(services: Services, caller: Caller, call: calls.ListFiles) -> FileList:
    store = services.existing_store(caller.workspace)
    if store is None:
        return FileList(files=[])
    with store.reading() as tx:
        found = tx.for_agent(caller.agent).files.page(session=call.session, limit=call.limit, offset=call.offset)
    return FileList(files=[convert(record, File) for record in found])


@endpoints.serves(calls.DeleteFile)
def _delete_file(services: Services, caller: Caller, call: calls.DeleteFile) -> Deleted:
    store = services.store_to_forget_in(caller.workspace)
    if store is None:
        return Deleted(deleted=False)
    return Deleted(deleted=forget_file(store, services.runtime.inbox, agent=caller.agent, file_id=call.id))


def _deliver(
    services: Services, caller: Caller, submission: Submission, call: calls.IngestMessages | calls.IngestFile
) -> Receipt:
    if not submission.payloads:
        return submission.receipt(call.wait)
    producer = services.producer(caller.workspace)
    return enqueue(producer, submission, wait=call.wait, timeout_seconds=call.timeout_seconds)
