"""The page that follows a deletion: its form holds the deleted records, the only copy, and can restore them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Final, TypeVar

from msgspec import json
from starlette.responses import Response

from reverie.clock import to_micros
from reverie.errors import Rejected
from reverie.trust.exports import AnyRecord
from server.authorisation import admitted_records
from server.caller import Caller
from server.page.site import MAX_FORM_BYTES, Visit
from server.services import Services

_R = TypeVar("_R", bound=AnyRecord)
# What a page keeps of a deletion, so that its form can send it back.
_MAX_KEPT_BYTES: Final = MAX_FORM_BYTES // 2
# By kind: the page that lists the remaining ones, its name, what the other deleted records are called, and a note.
_KINDS: Final = {
    "memory": ("/", "All memories", "earlier value", "What was said in conversations stays."),
    "schedule": ("/schedules", "All schedules", "earlier run", "The result of an unfinished run is dropped."),
}


def deleted_page(visit: Visit, kind: str, text: str, records: Sequence[AnyRecord]) -> Response:
    """Return the page that follows a deletion: the text of what is gone, and its records in a form that undoes it."""
    ends = accumulate(len(json.encode(record)) for record in records)
    kept = [record for record, end in zip(records, ends, strict=True) if end <= _MAX_KEPT_BYTES]
    section, others, rest, note = _KINDS[kind]
    return visit.page(
        "deleted.html",
        kind=kind,
        text=text,
        document=visit.sealed([to_micros(visit.now), kept]) if kept else "",
        lost=len(records) - len(kept),
        section=section,
        others=others,
        rest=rest,
        note=note,
    )


def deleted_records(visit: Visit, kind: Any) -> tuple[int, list[Any]]:
    """Return when something was deleted, in microseconds, and its records, as the form sent them back.

    Raises `Rejected`.
    """
    at, records = visit.unsealed(visit.form.text("records"), tuple[int, list[kind]])
    return at, records


@contextmanager
def restoring(services: Services, caller: Caller, records: Sequence[AnyRecord]) -> Iterator[None]:
    """Reserve room for the records. Raises `Rejected` if they belong to another agent, and `QuotaExceeded`."""
    if {(record.workspace, record.agent) for record in records} != {(caller.workspace, caller.agent)}:
        raise Rejected("the form is about another agent: nothing was restored", field="records")
    with admitted_records(services, records):
        yield
