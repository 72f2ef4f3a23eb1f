"""/v1/notes: texts that an agent keeps under ids of their own."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.memories.notes import delete_note, list_notes, read_note, store_note, to_note, update_note
from reverie.checks import check_label, normalise_tags
from reverie.memories.checks import check_note, check_note_changes, check_note_id
from reverie.memories.types import Note, NoteChanges, NoteDraft, NoteList
from reverie.types import Deleted
from server.answers import answer
from server.caller import decoded, page_of, query_of
from server.memories.memories import holdings, notify_pipeline
from server.openapi import operation
from server.services import Services

_QUERY = {"limit": "integer", "offset": "integer", "user": "string", "tag": "string"}


def routes(services: Services) -> APIRouter:
    """The routes of notes."""
    router = APIRouter(tags=["notes"])
    _add_reading(router, services)
    _add_changing(router, services)
    return router


def _add_reading(router: APIRouter, services: Services) -> None:
    @router.get("/v1/notes", openapi_extra=operation(NoteList, query=_QUERY))
    async def get_notes(request: Request) -> Response:
        """Notes, the newest first: of a `user`, and with every `tag` given."""
        here = holdings(services, services.caller(request))
        limit, offset = page_of(request, limit=50, others=("user", "tag"))
        user = check_label("user", request.query_params.get("user"))
        tags = tuple(normalise_tags(request.query_params.getlist("tag"), field="tag"))

        def work() -> NoteList:
            return NoteList(notes=list_notes(here, user=user, tags=tags, limit=limit, offset=offset))

        return answer(await services.threads.run(work))

    @router.get("/v1/notes/{note}", openapi_extra=operation(Note))
    async def get_note(request: Request, note: str) -> Response:
        """One note."""
        query_of(request)
        here, note_id = holdings(services, services.caller(request)), _id_from(note)
        return answer(await services.threads.run(lambda: read_note(here, note_id)))


def _add_changing(router: APIRouter, services: Services) -> None:
    @router.post("/v1/notes", openapi_extra=operation(Note, body=NoteDraft))
    async def post_note(request: Request) -> Response:
        """Store a note, once however often it is sent under its id."""
        query_of(request)
        caller = services.caller(request)
        here = holdings(services, caller)
        body = await services.body(request, NoteDraft)

        def work() -> Note:
            kept = store_note(here, check_note(body), now=services.runtime.now(), trace=caller.trace)
            return to_note(notify_pipeline(services, kept).record)

        return answer(await services.threads.run(work))

    @router.put("/v1/notes/{note}", openapi_extra=operation(Note, body=NoteChanges))
    async def put_note(request: Request, note: str) -> Response:
        """Change a note in one transaction; its id and when it was made stay."""
        query_of(request)
        here, note_id = holdings(services, services.caller(request)), _id_from(note)
        body = await services.body(request, NoteChanges)

        def work() -> Note:
            kept = update_note(here, note_id, check_note_changes(body), now=services.runtime.now())
            return to_note(notify_pipeline(services, kept).record)

        return answer(await services.threads.run(work))

    @router.delete("/v1/notes/{note}", openapi_extra=operation(Deleted))
    async def remove_note(request: Request, note: str) -> Response:
        """Delete a note for good, with its vectors."""
        query_of(request)
        here, note_id = holdings(services, services.caller(request)), _id_from(note)
        return answer(await services.threads.run(lambda: Deleted(deleted=delete_note(here, note_id))))


def _id_from(encoded: str) -> str:
    return check_note_id(decoded(encoded.encode(), "note_id"))
