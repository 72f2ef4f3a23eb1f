"""What each call needs of a token, and what the audit log keeps of it."""

from __future__ import annotations

import pytest

from reverie.sessions.calls import ForgetSession
from server.app import endpoints
from server.authorisation import action_of, is_audited, target_of

# Every call by the scope that it needs. A new call is added here on purpose: its default may not be what it needs.
CALLS = {
    "read": """
        ListFiles Recall SearchSessions GetContext RestoreSession ListRecallEvents ListSessions GetSession ExportSession
        ListContexts ShowContext ListMessages ListNewestMessages GetWorkingMemory GetSessionByRef GetScratchpad
        ListScratchpadKeys
        GetScratchpadKey ListChannels GetChannel ListAgents GetSummary SearchMemories
        GetMemoryStats ListMemories GetMemory ExportMemories ListFacts GetFact GetFactHistory ListNotes GetNote
        ListSchedules CountSchedules GetSchedule GetNextRuns PreviewRuns ListScheduleRuns GetRun ListReminders
        GetItem SearchItems ListItemNamespaces GetReminder ListNotifications GetErasure ListErasures ReadExport
    """,
    "write": """
        IngestMessages IngestFile StartSession CloseSession ArchiveSession WriteScratchpad WriteScratchpadKey
        ClearScratchpad DeleteScratchpadKey ClearScratchpadKeys CreateChannel DescribeChannel MoveSession CompactSession
        Remember UpdateMemory ConfirmMemory ImportMemories SetFact AddNote UpdateNote ImportRecords RecordEvent
        PutItem DeleteItem BatchItems SweepItems
    """,
    "forget": "DeleteFile ForgetSession ForgetNewestMessage DeleteChannel Forget ForgetFact DeleteNote Erase",
    "schedule": """
        AddSchedule UpdateSchedule DeleteSchedule PauseSchedule ResumeSchedule RunScheduleNow CompleteRun CancelRun
        GetWorkerKey Remind ClaimReminders ConfirmReminder CancelReminder AcknowledgeNotifications
    """,
    "operate": """
        GetStatus ListWorkspaces DeleteWorkspace ListDeadLetters GetDeadLetter ReplayDeadLetter DropDeadLetter ListJobs
        RunJob CreateToken ListTokens RotateToken RevokeToken ListAudit
        ApproveMemory ListPendingMemories ListCuration GetCurationEntry UndoAll Undo MakeCheckpoint ListHistory GetDiff
        ListPromotions ListCurationRuns GetCurationRun AcceptChanges GetReview ListQuotas SetQuotas
    """,
}


def test_every_call_needs_the_scope_that_is_listed_for_it() -> None:
    """Given all endpoints, then each needs the scope listed here, and none is missing."""
    listed = {name: scope for scope, names in CALLS.items() for name in names.split()}
    served = {endpoint.kind.__name__: endpoint.scope for endpoint in endpoints()}
    assert served == listed


@pytest.mark.parametrize("endpoint", list(endpoints()), ids=lambda endpoint: endpoint.kind.__name__)
def test_deletions_exports_and_operations_are_audited(endpoint: object) -> None:
    """Given a call, then the audit log has it if it deletes, exports, or changes the installation."""
    kind = endpoint.kind  # type: ignore[attr-defined]
    name = kind.__name__
    deletes = name.startswith(
        ("Forget", "DeleteFile", "DeleteNote", "DeleteWorkspace", "DeleteChannel", "Drop", "Erase")
    )
    expected = deletes or name.startswith("Export") or name in ("ReplayDeadLetter", "RunJob")
    assert is_audited(kind) == expected or name in CALLS["operate"]


def test_an_action_is_the_name_of_its_call_and_its_target_the_id_in_the_path() -> None:
    """Given a call about a session, then its audit entry names the call and the id."""
    assert action_of(ForgetSession) == "forget-session"
    assert target_of(ForgetSession(session="s-1")) == "s-1"
