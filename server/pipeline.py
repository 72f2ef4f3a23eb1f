"""Calls about the pipeline: ingest, files, dead letters, status."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from memory.conversion import convert
from memory.lifecycle.forgetting import forget_file
from memory.pipeline.dead_letters import await_replay, drop, replay
from memory.pipeline.storing import NOT_OWN_SESSION
from reverie.calls import scope_of
from reverie.checks import check_wait
from reverie.contract import Payload
from reverie.errors import NotFound, QuotaExceeded, Rejected, Unavailable
from reverie.pipeline import calls
from reverie.pipeline.calls import DeadLetter, DeadLetterList, File, Receipt
from reverie.pipeline.status import PipelineStatus
from reverie.pipeline.submission import Submission, build_file, build_session, enqueue, prepare_messages, single
from reverie.types import Deleted
from server.authorisation import amounts_of, require_reach, require_scope, seen_store
from server.caller import Caller, principal_of
from server.endpoints import Endpoints, Statuses
from server.responses import NamedRoute
from server.services import Services
from storage.pipeline import records
from storage.stores import Store
from worker.runtime import STAGE_TASKS

endpoints = Endpoints("ingest")

_SESSION_FIELDS: Final = ("session", "user", "provider", "chat_id", "channel", "visibility", "strict")


def _waits(call: calls.IngestMessages | calls.IngestFile) -> bool:
    return check_wait(call.wait, call.timeout_seconds) != "queued"


_STATUSES: Final = Statuses(
    lambda call: 202 if call.wait == "queued" else 200,
    {"202": "In the inbox", "200": "Stored or searchable, as requested by `wait`"},
)


@endpoints.serves(calls.IngestMessages, waits=_waits, statuses=_STATUSES)
def ingest_messages(services: Services, caller: Caller, call: calls.IngestMessages) -> Receipt:
    """Put messages into the inbox."""
    given = {name: getattr(call, name) for name in _SESSION_FIELDS} | {"user": caller.user or call.user}
    session_input = build_session(given)
    _check_may_share(caller, call)
    if caller.user is not None and session_input.session is not None:
        _check_own_session(services, caller, session_input.session)
    submission = prepare_messages(call.messages, agent=caller.agent, session_input=session_input, trace=caller.trace)
    for payload in submission.payloads:
        _check_may_share(caller, payload)
    return _deliver(services, caller, _of_caller(caller, submission), call)


@endpoints.serves(calls.IngestFile, waits=_waits, statuses=_STATUSES)
def _ingest_file(services: Services, caller: Caller, call: calls.IngestFile) -> Receipt:
    _check_may_share(caller, call)
    if caller.user is not None and call.session is not None:
        _check_own_session(services, caller, call.session)
    given = msgspec.structs.replace(call, user=caller.user or call.user)
    payload = build_file(given, agent=caller.agent, trace=caller.trace)
    return _deliver(services, caller, _of_caller(caller, single(payload)), call)


def _list_files(store: Store, *, agent: str, session: str | None, limit: int, offset: int) -> list[File]:
    with store.reading() as tx:
        return tx.for_agent(agent).files.page(session=session, limit=limit, offset=offset)


endpoints.passes(calls.ListFiles, _list_files, seen_store)


@endpoints.serves(calls.DeleteFile)
def _delete_file(services: Services, caller: Caller, call: calls.DeleteFile) -> Deleted:
    store = services.store_to_forget_in(caller.workspace)
    if store is None:
        return Deleted(deleted=False)
    store = store.seen_by(services.viewer(caller, call))
    runtime = services.runtime

    def forget(file_id: str) -> bool:
        return forget_file(runtime.stores, store, runtime.inbox, agent=caller.agent, file_id=file_id)

    if forget(call.id):
        return Deleted(deleted=True)
    with store.reading() as tx:
        ids = tx.for_agent(caller.agent).files.ids_of(call.id)
    found = [forget(file_id) for file_id in ids]
    return Deleted(deleted=any(found))


def _check_may_share(caller: Caller, given: calls.IngestMessages | calls.IngestFile | Payload) -> None:
    """Raise `Rejected` if a caller who acts for one user wants all users to see something."""
    if caller.user is not None and given.visibility == "shared":
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
            # The broker's limits may be outdated: rows may have been deleted since, or a quota raised.
            if quotas.refresh(caller.workspace, refused=True):
                raise
        return send(on_accepted=release)


@endpoints.serves(calls.ListDeadLetters, tag="dead letters")
def _list_dead_letters(services: Services, caller: Caller, call: calls.ListDeadLetters) -> DeadLetterList:
    if call.all_agents:
        require_reach(caller.principal, "workspace")
    store = services.existing_store(caller.workspace)
    if store is None:
        return DeadLetterList(dead_letters=[])
    with store.reading() as tx:
        listed = tx.dead_letters if call.all_agents else tx.for_agent(caller.agent).dead_letters
        letters = listed.list(limit=call.limit, offset=call.offset)
    return DeadLetterList(dead_letters=[to_dead_letter(record, with_payload=False) for record in letters])


@endpoints.serves(calls.GetDeadLetter, tag="dead letters")
def _get_dead_letter(services: Services, caller: Caller, call: calls.GetDeadLetter) -> DeadLetter:
    with _store(services, caller, call.letter_id).reading() as tx:
        return to_dead_letter(tx.for_agent(caller.agent).dead_letters.get(call.letter_id), with_payload=True)


@endpoints.serves(calls.ReplayDeadLetter, tag="dead letters", waits=lambda call: call.timeout_seconds > 0)
def _replay(services: Services, caller: Caller, call: calls.ReplayDeadLetter) -> DeadLetter:
    runtime, store = services.runtime, _store(services, caller, call.letter_id)
    record = replay(store, runtime.inbox, call.letter_id, agent=caller.agent)
    if record.stage in STAGE_TASKS:  # sessions are read again by the next sweep
        runtime.notify_stage(record.stage, caller.workspace, trace=caller.trace)
    state, letter = await_replay(store, record, timeout_seconds=call.timeout_seconds)
    return msgspec.structs.replace(to_dead_letter(letter, with_payload=False), replay=state)


@endpoints.serves(calls.DropDeadLetter, tag="dead letters")
def _drop(services: Services, caller: Caller, call: calls.DropDeadLetter) -> Deleted:
    try:
        drop(_store(services, caller, call.letter_id), call.letter_id, agent=caller.agent)
    except NotFound:
        return Deleted(deleted=False)
    return Deleted(deleted=True)


def to_dead_letter(record: records.DeadLetter, *, with_payload: bool) -> DeadLetter:
    """Convert a stored dead letter to that of the API."""
    payload = record.payload.decode("utf-8", "replace") if with_payload and record.payload is not None else None
    return convert(record, DeadLetter, payload=payload)


def _store(services: Services, caller: Caller, letter_id: int) -> Store:
    store = services.existing_store(caller.workspace)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no dead letter {letter_id}", field="id")
    return store


@endpoints.serves(calls.GetStatus, tag="operations", subject="server")
def _get_status(services: Services, _: Caller, __: calls.GetStatus) -> PipelineStatus:
    return services.status()


def probes(services: Services) -> list[NamedRoute]:
    """Return the routes of probes and Prometheus, which are not part of the API."""

    def reaches_broker() -> bool:
        try:
            return services.runtime.inbox.now_micros() > 0
        except Unavailable:
            return False

    async def get_health(_: Request) -> Response:
        healthy = await services.threads.probe(reaches_broker)
        return Response("ok\n" if healthy else "not ok\n", status_code=200 if healthy else 503, media_type="text/plain")

    async def get_metrics(request: Request) -> Response:
        principal = principal_of(request)
        require_scope(principal, scope_of(calls.GetStatus))
        require_reach(principal, "server")
        return Response(await services.threads.run(services.metrics.text), media_type=CONTENT_TYPE_LATEST)

    return [NamedRoute("/healthz", get_health, "GET"), NamedRoute("/metrics", get_metrics, "GET")]
