"""The two clients, `Reverie` and `AsyncReverie`, and the names of their methods.

Each call is declared in the `calls` module of its subject. Celery, redis and httpx2 are imported when they are first
needed.
"""

from __future__ import annotations

from reverie.items import calls as item_calls
from reverie.memories import calls as memory_calls
from reverie.memories.transfer import import_memories
from reverie.methods import AsyncClient, Method, SyncClient, method
from reverie.pipeline import calls as pipeline_calls
from reverie.pipeline.ingesting import ingest, ingest_file
from reverie.recall import calls as recall_calls
from reverie.scheduling import calls as scheduling_calls
from reverie.scheduling import reminder_calls
from reverie.scheduling.delivering import confirm_delivery
from reverie.sessions import calls as session_calls
from reverie.sessions import coding_calls
from reverie.sessions.newest_messages import read_working_memory
from reverie.trust import calls as trust_calls
from reverie.trust import erasure_calls, export_calls, quota_calls
from reverie.trust.export_files import export_file, import_file
from reverie.types import Deleted
from reverie.upkeep import calls as upkeep_calls


def _deleted(answer: Deleted) -> bool:
    return answer.deleted


class _Calls:
    """The methods of both clients."""

    ingest = Method(ingest, pipeline_calls.IngestMessages)
    ingest_file = Method(ingest_file, pipeline_calls.IngestFile)
    files = method(pipeline_calls.ListFiles, lambda answer: answer.files)
    delete_file = method(pipeline_calls.DeleteFile, _deleted)
    status = method(pipeline_calls.GetStatus)
    dead_letters = method(pipeline_calls.ListDeadLetters, lambda answer: answer.dead_letters)
    dead_letter = method(pipeline_calls.GetDeadLetter)
    replay = method(pipeline_calls.ReplayDeadLetter)
    drop = method(pipeline_calls.DropDeadLetter, _deleted)

    recall = method(recall_calls.Recall)
    search_sessions = method(recall_calls.SearchSessions)
    recall_events = method(recall_calls.ListRecallEvents, lambda answer: answer.recall_events)
    context = method(recall_calls.GetContext)
    restore = method(recall_calls.RestoreSession)

    sessions = method(session_calls.ListSessions, lambda answer: answer.sessions)
    session = method(session_calls.GetSession)
    session_by_ref = method(session_calls.GetSessionByRef)
    messages = method(session_calls.ListMessages, lambda answer: answer.messages)
    newest_messages = method(session_calls.ListNewestMessages, lambda answer: answer.messages)
    pop_message = method(session_calls.ForgetNewestMessage, lambda answer: answer.message)
    export_session = method(session_calls.ExportSession)
    forget_session = method(session_calls.ForgetSession, _deleted)
    workspaces = method(session_calls.ListWorkspaces, lambda answer: answer.workspaces)
    agents = method(session_calls.ListAgents, lambda answer: answer.agents)
    delete_workspace = method(session_calls.DeleteWorkspace, _deleted)
    start_session = method(session_calls.StartSession)
    close_session = method(session_calls.CloseSession)
    archive_session = method(session_calls.ArchiveSession)
    summary = method(session_calls.GetSummary)
    compact = method(session_calls.CompactSession)
    move_session = method(session_calls.MoveSession)
    channels = method(session_calls.ListChannels, lambda answer: answer.channels)
    channel = method(session_calls.GetChannel)
    create_channel = method(session_calls.CreateChannel)
    describe_channel = method(session_calls.DescribeChannel)
    delete_channel = method(session_calls.DeleteChannel, _deleted)
    scratchpad = method(session_calls.GetScratchpad, lambda answer: answer.items)
    write_scratchpad = method(session_calls.WriteScratchpad, lambda answer: answer.items)
    clear_scratchpad = method(session_calls.ClearScratchpad, lambda answer: answer.cleared)
    scratchpad_keys = method(session_calls.ListScratchpadKeys, lambda answer: answer.entries)
    scratchpad_key = method(session_calls.GetScratchpadKey)
    write_scratchpad_key = method(session_calls.WriteScratchpadKey)
    delete_scratchpad_key = method(session_calls.DeleteScratchpadKey, _deleted)
    clear_scratchpad_keys = method(session_calls.ClearScratchpadKeys, lambda answer: answer.cleared)

    record_event = method(coding_calls.RecordEvent)

    working = Method(read_working_memory, session_calls.GetWorkingMemory)

    remember = method(memory_calls.Remember)
    memory = method(memory_calls.GetMemory)
    memories = method(memory_calls.ListMemories, lambda answer: answer.memories)
    search_memories = method(memory_calls.SearchMemories)
    update_memory = method(memory_calls.UpdateMemory)
    forget = method(memory_calls.Forget, _deleted)
    memory_stats = method(memory_calls.GetMemoryStats)
    approve_memory = method(memory_calls.ApproveMemory)
    pending_memories = method(memory_calls.ListPendingMemories, lambda answer: answer.memories)
    export_memories = method(memory_calls.ExportMemories)
    import_memories = Method(import_memories, memory_calls.ImportMemories)
    set_fact = method(memory_calls.SetFact)
    fact = method(memory_calls.GetFact)
    facts = method(memory_calls.ListFacts, lambda answer: answer.facts)
    fact_history = method(memory_calls.GetFactHistory, lambda answer: answer.facts)
    forget_fact = method(memory_calls.ForgetFact, _deleted)
    add_note = method(memory_calls.AddNote)
    update_note = method(memory_calls.UpdateNote)
    note = method(memory_calls.GetNote)
    notes = method(memory_calls.ListNotes, lambda answer: answer.notes)
    delete_note = method(memory_calls.DeleteNote, _deleted)

    put_item = method(item_calls.PutItem)
    item = method(item_calls.GetItem)
    search_items = method(item_calls.SearchItems)
    item_namespaces = method(item_calls.ListItemNamespaces, lambda answer: answer.namespaces)
    delete_item = method(item_calls.DeleteItem, _deleted)
    batch_items = method(item_calls.BatchItems, lambda answer: answer.outcomes)
    sweep_items = method(item_calls.SweepItems, lambda answer: answer.removed)

    curation = method(upkeep_calls.ListCuration, lambda answer: answer.entries)
    curation_entry = method(upkeep_calls.GetCurationEntry)
    undo = method(upkeep_calls.Undo)
    undo_all = method(upkeep_calls.UndoAll)
    jobs = method(upkeep_calls.ListJobs, lambda answer: answer.jobs)
    run_job = method(upkeep_calls.RunJob)
    checkpoint = method(upkeep_calls.MakeCheckpoint)
    history = method(upkeep_calls.ListHistory, lambda answer: answer.commits)
    diff = method(upkeep_calls.GetDiff, lambda answer: answer.text)
    promotions = method(upkeep_calls.ListPromotions, lambda answer: answer.promotions)

    erase = method(erasure_calls.Erase)
    erasure = method(erasure_calls.GetErasure)
    erasures = method(erasure_calls.ListErasures, lambda answer: answer.erasures)
    export_file = Method(export_file, export_calls.ReadExport)
    import_file = Method(import_file, export_calls.ImportRecords)
    create_token = method(trust_calls.CreateToken)
    tokens = method(trust_calls.ListTokens, lambda answer: answer.tokens)
    rotate_token = method(trust_calls.RotateToken)
    revoke_token = method(trust_calls.RevokeToken, lambda answer: answer.tokens)
    audit = method(trust_calls.ListAudit, lambda answer: answer.entries)
    quotas = method(quota_calls.ListQuotas, lambda answer: answer.quotas)
    set_quotas = method(quota_calls.SetQuotas, lambda answer: answer.quotas)

    add_schedule = method(scheduling_calls.AddSchedule)
    schedule = method(scheduling_calls.GetSchedule)
    schedules = method(scheduling_calls.ListSchedules)
    count_schedules = method(scheduling_calls.CountSchedules, lambda answer: answer.count)
    update_schedule = method(scheduling_calls.UpdateSchedule)
    pause_schedule = method(scheduling_calls.PauseSchedule)
    resume_schedule = method(scheduling_calls.ResumeSchedule)
    delete_schedule = method(scheduling_calls.DeleteSchedule, _deleted)
    next_runs = method(scheduling_calls.GetNextRuns)
    preview_runs = method(scheduling_calls.PreviewRuns)
    run_schedule_now = method(scheduling_calls.RunScheduleNow)
    schedule_runs = method(scheduling_calls.ListScheduleRuns, lambda answer: answer.runs)
    worker_key = method(scheduling_calls.GetWorkerKey)
    schedule_run = method(scheduling_calls.GetRun)
    complete_run = method(scheduling_calls.CompleteRun)
    cancel_run = method(scheduling_calls.CancelRun)
    remind = method(reminder_calls.Remind)
    reminder = method(reminder_calls.GetReminder)
    reminders = method(reminder_calls.ListReminders)
    claim_reminders = method(reminder_calls.ClaimReminders, lambda answer: answer.claimed)
    reminder_delivered = Method(confirm_delivery, reminder_calls.ConfirmReminder)
    cancel_reminder = method(reminder_calls.CancelReminder, _deleted)
    notifications = method(reminder_calls.ListNotifications)
    acknowledge_notifications = method(reminder_calls.AcknowledgeNotifications, lambda answer: answer.acknowledged)


class Reverie(_Calls, SyncClient):
    """A client for the memory of one agent in one workspace.

    Arguments left out are read once from the environment: REVERIE_AGENT, REVERIE_URL, REVERIE_BROKER, REVERIE_TOKEN,
    REVERIE_WORKSPACE and REVERIE_BROKER_PREFIX. Connections are opened by the first call. A client may be shared
    between threads and used after a fork.
    """


class AsyncReverie(_Calls, AsyncClient):
    """A client for asyncio. Arguments, results and errors are those of `Reverie`; every method must be awaited."""
