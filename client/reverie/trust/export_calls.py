"""The calls for exports and imports: all about a user, a session, an agent or a workspace, with ids and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from reverie.calls import Call, Resource
from reverie.contract import MAX_FILE_BYTES
from reverie.fields import label
from reverie.trust.export_types import (
    AnyRecord,
    ExportedFile,
    ExportedMemory,
    ExportedMessage,
    ExportedRecord,
    ExportedReminder,
    ExportedSchedule,
    ExportPage,
    ImportReport,
)

# Records in one call; the client sends about two megabytes, or one larger record.
MAX_IMPORTED: Final = 1_000


# The resource that each kind of record counts for in rates and quotas.
_RESOURCES: Final[Mapping[type[ExportedRecord], Resource]] = {
    ExportedMessage: "messages",
    ExportedFile: "messages",
    ExportedMemory: "memories",
    ExportedSchedule: "schedules",
    ExportedReminder: "schedules",
}


def amounts_of_records(records: Sequence[AnyRecord]) -> Mapping[Resource, int]:
    """Return how much records add."""
    return Counter(resource for record in records if (resource := _RESOURCES.get(type(record))) is not None)


class ReadExport(Call[ExportPage], kw_only=True, frozen=True):
    """Return a page of an export: everything about a user, a session, an agent or a workspace; without any, everything.

    The export of a user has what belongs to that user in all agents and workspaces, or in those that are given. A
    session needs its agent and workspace. The first page has a header and the number of records by part; `cursor`
    returns the next page. A token for one user exports that user; everything else needs the scope operate. Vectors and
    indexes are not in it: they are made again. `admin.export_file` writes a whole export. Raises `Rejected` and
    `NotFound`.
    """

    route: ClassVar = "GET /v1/export/records"
    user: Annotated[str | None, label("Everything about this end user.")] = None
    agent: Annotated[str | None, label("Only of this agent.")] = None
    workspace: Annotated[str | None, label("Only in this workspace.")] = None
    session: Annotated[str | None, label("Only this session.")] = None
    cursor: Annotated[str | None, Meta(description="Go on after this page.")] = None
    dry_run: Annotated[bool, Meta(description="Only count the records.")] = False


class ImportRecords(Call[ImportReport], kw_only=True, frozen=True):
    """Store the records of an export that are not there yet, with their ids and times; send them in their order.

    What is there stays as it is, so sending records again changes nothing, and continues an import that was
    interrupted. They are chunked, embedded and indexed like anything that is stored. With a `user`, all of them become
    that user's. Without the scope operate, only sessions, messages, files and memories are taken, and nothing that is
    shared. Unless the file is `trusted`, shared memories wait for approval, promotions and recall events are left out,
    and schedules that call a webhook are paused. With `dry_run` nothing is stored. `admin.import_file` sends a whole
    file. Raises `Rejected`, naming the record at fault, `Conflict` for an id that somebody else has, and
    `QuotaExceeded`, if they would not fit although none is there yet.
    """

    route: ClassVar = "POST /v1/import/records"
    # As for a file that is ingested: the largest record has the text of one.
    body_bytes: ClassVar = 2 * MAX_FILE_BYTES + 1024 * 1024
    response_timeout_seconds: ClassVar = 120.0
    records: Annotated[Sequence[AnyRecord], Meta(max_length=MAX_IMPORTED, description="Records of an export.")]
    exported_at: Annotated[datetime | None, Meta(description="When the export was made.")] = None
    tenants: Annotated[
        Mapping[str, Sequence[str]], Meta(description="The workspaces of the export by tenant, from its header.")
    ] = {}
    user: Annotated[str | None, label("The end user to whom all of it shall belong. Default: as in the export.")] = None
    trusted: Annotated[
        bool, Meta(description="Take over approvals, promotions, recall events and webhooks as they are.")
    ] = False
    dry_run: Annotated[bool, Meta(description="Only check and count.")] = False
    first: Annotated[bool, Meta(description="It begins a file: note the import in the audit log.")] = False
    lenient: Annotated[
        bool,
        Meta(
            description="Leave out records whose id something else has, and what was erased since `exported_at`,"
            " instead of refusing the call or storing them again."
        ),
    ] = False

    def amounts(self) -> Mapping[Resource, int]:
        """Return how much the call adds."""
        if self.dry_run:
            return {}
        return amounts_of_records(self.records)
