"""/v1/messages and /v1/files: put the messages and files of agents into the inbox, list files, and delete them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import msgspec

from memory.conversion import convert
from memory.pipeline.forgetting import forget_file
from memory.pipeline.storing import NOT_OWN_SESSION
from reverie.checks import check_wait
from reverie.errors import Rejected
from reverie.pipeline import calls
from reverie.pipeline.items import build_file, build_session
from reverie.pipeline.submission import Submission, enqueue, prepare_messages, single
from reverie.pipeline.types import File, FileList, Receipt
from reverie.problems import QuotaExceeded
from reverie.types import Deleted
from server.admission import amounts_of
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("ingest")

_SESSION_FIELDS: Final = ("session", "user", "provider", "chat_id", "channel", "visibility", "strict")
_STATUSES: Final = {"202": "In the inbox", "200": "Stored or searchable, as requested by `wait`"}


def _waits(call: calls.IngestMessages | calls.IngestFile) -> bool:
    return check_wait(call.wait, call.timeout_seconds) != "queued"


def _status(call: calls.IngestMessages | calls.IngestFile) -> int:
    return 202 if call.wait == "queued" else 200


@endpoints.serves(calls.IngestMessages, waits=_waits, status=_status, statuses=_STATUSES)
def ingest_messages(services: Services, caller: Caller, call: calls.IngestMessages) -> Receipt:
    """Put messages into the inbox."""
    given = {name: getattr(call, name) for name in _SESSION_FIELDS} | {"user": caller.user or call.user}
    session_input = build_session(given)
    _check_may_share(caller, call)
    if caller.user is not None and session_input.session is not None:
        _check_own_session(services, caller, session_input.session)
    submission = prepare_messages(call.messages, agent=caller.agent, session_input=session_input, trace=caller.trace)
    return _deliver(services, caller, _of_caller(caller, submission), call)


@endpoints.serves(calls.IngestFile, waits=_waits, status=_status, statuses=_STATUSES)
def _ingest_file(services: Services, caller: Caller, call: calls.IngestFile) -> Receipt:
    _check_may_share(caller, call)
    if caller.user is not None and call.session is not None:
        _check_own_session(services, caller, call.session)
    payload = build_file(
        agent=caller.agent,
        user=caller.user or call.user,
        visibility=call.visibility,
        source_uri=call.source_uri,
        content=call.content,
        trace=caller.trace,
        session=call.session,
        metadata=call.metadata,
        tags=call.tags,
        item_id=call.id,
    )
    return _deliver(services, caller, _of_caller(caller, single(payload)), call)


@endpoints.serves(calls.ListFiles)
def _list_files(services: Services, caller: Caller, call: calls.ListFiles) -> FileList:
    store = services.seen_store(caller, call)
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
    store = store.seen_by(services.viewer(caller, call))
    runtime = services.runtime
    return Deleted(deleted=forget_file(runtime.stores, store, runtime.inbox, agent=caller.agent, file_id=call.id))


def _check_may_share(caller: Caller, call: calls.IngestMessages | calls.IngestFile) -> None:
    """Raise `Rejected` if a caller who acts for one user wants all users to see something."""
    if caller.user is not None and call.visibility == "shared":
        raise Rejected("a token of one user cannot share: leave out visibility", field="visibility")


def _check_own_session(services: Services, caller: Caller, session: str) -> None:
    """Raise `Rejected` if a session is not one of the user that a caller is limited to.

    The worker checks it again, as the session may be stored meanwhile.
    """
    store = services.existing_store(caller.workspace)
    if store is not None:
        with store.reading() as tx:
            sessions = tx.for_agent(caller.agent).sessions
            found = sessions.find(session)
            if found is not None and caller.user not in sessions.users(found):
                raise Rejected(NOT_OWN_SESSION.format(session=session), field="session")


def _of_caller(caller: Caller, submission: Submission) -> Submission:
    """Return a submission whose payloads join no session of others, if the caller is limited to one user."""
    if caller.user is None:
        return submission
    return replace(
        submission,
        payloads=tuple(msgspec.structs.replace(one, own_sessions_only=True) for one in submission.payloads),
    )


def _deliver(
    services: Services, caller: Caller, submission: Submission, call: calls.IngestMessages | calls.IngestFile
) -> Receipt:
    if not submission.payloads:
        return submission.receipt(call.wait)
    producer = services.producer(caller.workspace)
    if not services.quotas.any_set:
        return enqueue(producer, submission, wait=call.wait, timeout_seconds=call.timeout_seconds)
    quotas, amounts = services.quotas, amounts_of(submission.payloads)
    send = partial(enqueue, producer, submission, wait=call.wait, timeout_seconds=call.timeout_seconds)
    with quotas.admitted(caller.workspace, amounts) as release:
        try:
            return send(on_accepted=release)
        except QuotaExceeded:
            # There is room: what the broker was told is older. Something was deleted since, or a quota raised.
            if quotas.refresh(caller.workspace, refused=True):
                raise
        return send(on_accepted=release)
