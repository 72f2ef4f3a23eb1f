"""Tells whether what jobs go by has changed in a store: every job writes its lease, which alone is no change."""

from __future__ import annotations

from typing import Final

from storage.repository import Repository

_CONTENT: Final = """
    SELECT concat_ws(' ',
        (SELECT max(row_id) FROM messages), (SELECT max(id) FROM recall_events), (SELECT max(id) FROM curation_log),
        (SELECT max(undone_at) FROM curation_log),
        (SELECT concat_ws(' ', count(*), max(row_id), max(updated_at), max(accessed_at), sum(access_count),
            count(superseded_by), sum(pinned)) FROM memories),
        (SELECT concat_ws(' ', count(*), max(row_id), max(updated_at), max(ended_at), sum(summary_epoch)) FROM sessions)
    )
"""


class ContentMark(Repository):
    """Reads what stands for the messages, memories, sessions, recalls and undone changes of a store."""

    def read(self) -> str:
        """Return a text that differs after any change that a job goes by."""
        return str(self._value(_CONTENT))
