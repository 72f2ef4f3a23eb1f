// Written by generate.py from /openapi.json: do not edit.
export type AcceptChanges = { /** The ids of entries. */ "entries"?: Array<string>; "run"?: (string | null); };
export type Accepted = { "accepted": Array<string>; };
export type AcknowledgeNotifications = { /** The ids of 1 to 1,000 notifications. */ "ids": Array<string>; "user"?: (string | null); /** Include content of all users and of nobody; for operators and deliveries. */ "all_users"?: boolean; };
export type Acknowledged = { "acknowledged": number; };
export type AddNote = { /** What to remember, at most 64 KiB. */ "content": string; "note_id"?: (string | null); /** Tags, at most 16 of 64 characters. */ "tags"?: Array<string>; /** Who it comes from; jobs never rewrite memories with source "user". */ "source"?: string; /** Importance, 0 to 1. */ "importance"?: number; /** The end user it is about. */ "user"?: (string | null); /** Your own data, at most 64 KiB of JSON. */ "metadata"?: Record<string, unknown>; };
export type AddSchedule = { /** What to do, at most 16 KiB. */ "goal": string; "cron"?: (string | null); "at"?: (string | null); "every"?: (number | null); "tz"?: (string | null); "webhook"?: (string | null); "task"?: (string | null); "queue"?: (string | null); "user"?: (string | null); "name"?: (string | null); /** Which finished runs create a notification. */ "notification_policy"?: "always" | "conditional" | "never" | "on_failure"; "channel"?: (string | null); "session"?: (string | null); /** The maximum number of seconds of a whole run. */ "timeout_seconds"?: number; /** The maximum number of recalled texts to send with the goal. */ "recall_limit"?: number; "id"?: (string | null); "cadence"?: ((Cron | Once | Interval) | null); "executor"?: ((WebhookExecutor | TaskExecutor | LlmExecutor) | null); };
export type AgentList = { "agents": Array<AgentSummary>; };
export type AgentSummary = { "name": string; "sessions": number; "memories": number; };
export type ApproveMemory = { /** The content that was read; another one is not approved. */ "content"?: (string | null); };
export type ArchiveSession = { "user"?: (string | null); /** Archive an active session too. */ "force"?: boolean; };
export type AuditList = { "entries": Array<AuditRecord>; };
export type AuditRecord = { "id": number; "at": string; "actor": string; "action": string; "target"?: string; "outcome": string; "workspace"?: string; "agent"?: string; "origin"?: string; "trace"?: string; "token"?: string; "count"?: number; };
export type BatchItems = { /** Operations: `operation` is put, get, search or namespaces; at most 500. */ "operations": Array<(PutOperation | GetOperation | SearchOperation | NamespacesOperation)>; "user"?: (string | null); };
export type CancelRun = { "user"?: (string | null); /** Include content of all users and of nobody; for operators and deliveries. */ "all_users"?: boolean; };
export type Channel = { "id": string; "description": string; "is_default": boolean; "sessions": number; "memories": number; "created_at"?: (string | null); };
export type ChannelList = { "channels": Array<Channel>; };
export type Checkpoint = { "commit"?: (Commit | null); "refused"?: Array<RefusedFile>; };
export type ClaimReminders = { /** The maximum number of reminders to claim. */ "limit"?: number; "user"?: (string | null); /** Include content of all users and of nobody; for operators and deliveries. */ "all_users"?: boolean; /** Seconds until the claim expires. */ "lease_seconds"?: number; /** Only for this recipient. */ "recipient"?: (string | null); };
export type ClaimedReminder = { "reminder": Reminder; "token": string; };
export type ClaimedReminders = { "claimed": Array<ClaimedReminder>; };
export type Cleared = { "cleared": number; };
export type CloseSession = { "user"?: (string | null); };
export type Commit = { "id": string; "at": string; "message": string; "changed"?: Array<string>; };
export type CommitList = { "commits": Array<Commit>; };
export type CompactSession = { "token_budget"?: (number | null); "user"?: (string | null); };
export type Compacted = { "condensed": number; "summary": SessionSummary; };
export type CompleteRun = { /** The output of the run, at most 1 MiB. */ "output"?: string; "user"?: (string | null); /** How the run ended. */ "status"?: "failed" | "success"; "summary"?: (string | null); /** Why the run failed, at most 8 KiB. */ "error"?: string; /** The number of turns of the run. */ "turn_count"?: number; /** The cost of the run, in a currency of your choice. */ "cost"?: number; /** Whether to notify, for the policy conditional. */ "notify"?: (boolean | null); };
export type ConfirmMemory = { "user"?: (string | null); };
export type ConfirmReminder = { /** The token of the claim. */ "token": string; "user"?: (string | null); };
export type Context = { "text": string; "tokens": number; "messages": Array<Message>; "memories": Array<ContextMemory>; "left_out": LeftOut; "instructions"?: Array<ContextMemory>; "degraded"?: string; "id"?: string; };
export type ContextMemory = { "id": string; "kind": "file" | "memory" | "message"; "tier": "account" | "channel" | "conversation" | "workspace"; "text": string; "created_at": string; "session"?: (string | null); "role"?: (string | null); "name"?: (string | null); "tags"?: Array<string>; "source_message"?: (string | null); "provenance"?: (Provenance | null); "replaced_by"?: (string | null); "replaced_at"?: (string | null); "changed_since"?: (LaterChange | null); };
export type CreateChannel = { /** The id of a channel. */ "id": string; /** What the channel is about, at most 4 KiB. */ "description"?: string; };
export type CreateToken = { /** Only for this workspace; by default for all. */ "workspace"?: (string | null); /** Only for these agents; by default for all. */ "agents"?: Array<string>; /** Only for this end user; by default for all. */ "user"?: (string | null); /** What it allows: read, write, forget, schedule, operate; several are separated by commas. */ "scopes"?: Array<string>; /** Its name in lists and in the audit log. Default: as in acme/ana/kate. */ "name"?: (string | null); /** For how many seconds it is valid; by default for ever. */ "expires_seconds"?: (number | null); /** The tenant of the workspace, which shares one account tier. Default: the workspace is its own tenant. */ "tenant"?: (string | null); };
export type CreatedToken = { "token": string; "info": TokenInfo; };
export type Cron = { "type": "cron"; "expression": string; "tz"?: string; };
export type CurationChange = { "table": string; "before"?: (Record<string, unknown> | null); "after"?: (Record<string, unknown> | null); };
export type CurationEntry = { "id": string; "at": string; "job": string; "action": string; "why": string; "effect"?: string; "sensitive"?: (string | null); "before"?: (string | null); "after"?: (string | null); "memories"?: Array<string>; "session"?: (string | null); "undone_at"?: (string | null); "accepted_at"?: (string | null); "changes"?: Array<CurationChange>; };
export type CurationList = { "entries": Array<CurationEntry>; };
export type CurationRun = { "id": string; "job": string; "at": string; "summary": string; "lines": number; "open"?: number; "due"?: number; "entries"?: Array<CurationEntry>; };
export type CurationRunList = { "runs": Array<CurationRun>; };
export type DeadLetter = { "id": number; "agent": string; "stage": string; "item_id": string; "error_type": string; "error": string; "attempts": number; "created_at": string; "session"?: (string | null); "trace"?: string; "payload"?: (string | null); "replay"?: ("failed" | "queued" | "succeeded" | null); };
export type DeadLetterList = { "dead_letters": Array<DeadLetter>; };
export type Deleted = { "deleted": boolean; };
export type DescribeChannel = { /** What the channel is about, at most 4 KiB. */ "description": string; };
export type Difference = { "text": string; };
export type DueMemory = { "memory": Memory; "why": string; };
export type EmbedderStatus = { "state": "down" | "none" | "up"; "model"?: string; "dtype"?: string; "device"?: string; "error"?: string; };
export type Erase = { /** Everything of this end user, or with `about` only texts about it. */ "user"?: (string | null); /** This session and what came from it, or the session of `message`. */ "session"?: (string | null); /** This message and what came from it. */ "message"?: (string | null); /** This memory, fact or note, with its history. */ "memory"?: (string | null); /** Messages and memories about this, such as "my sister"; several names as "Ana / my sister". */ "about"?: (string | null); /** Ids of messages and memories about it that stay. */ "keep"?: Array<string>; /** Only of this agent, or alone: everything of this agent. */ "agent"?: (string | null); /** Only in this workspace, or alone: the whole workspace. */ "workspace"?: (string | null); /** Only count what would be removed. */ "dry_run"?: boolean; };
export type ErasedItem = { "kind": "memory" | "message"; "id": string; "session"?: string; "at": string; "reason": "alias" | "derived" | "named" | "same conversation"; "text": string; };
export type Erasure = { "id": string; "kind": "agent" | "memory" | "message" | "selection" | "session" | "user" | "workspace"; "state": "done" | "failed" | "planned" | "running" | "waiting"; "step": string; "steps": Array<string>; "target"?: (string | null); "target_hash"?: string; "agent"?: (string | null); "workspace"?: (string | null); "requested_by"?: string; "requested_at": string; "finished_at"?: (string | null); "counts"?: Record<string, Record<string, number>>; "error"?: string; "attempts"?: number; "next_try_at"?: (string | null); "receipt"?: (ErasureReceipt | null); "items"?: Array<ErasedItem>; "people"?: Array<string>; };
export type ErasureList = { "erasures": Array<Erasure>; };
export type ErasureReceipt = { "version"?: number; "erasure": string; "kind": "agent" | "memory" | "message" | "selection" | "session" | "user" | "workspace"; "target_hash": string; "requested_by": string; "requested_at": string; "finished_at": string; "removed": Record<string, Record<string, number>>; "searched": Searched; "leftovers": Record<string, number>; "remains": Array<Remaining>; "hosts"?: Array<string>; };
export type Explanation = { "score": number; "keyword"?: (RetrieverScore | null); "vector"?: (RetrieverScore | null); "keyword_around"?: (RetrieverScore | null); "vector_around"?: (RetrieverScore | null); "speaker"?: (RetrieverScore | null); "date"?: (RetrieverScore | null); "reranker"?: (number | null); };
export type ExportHeader = { "part": "header"; "exported_at": string; "selection": Selection; "tenants": Record<string, Array<string>>; "reverie"?: string; "format"?: string; "schema_version"?: number; };
export type ExportPage = { "records": Array<(ExportedChannel | ExportedSession | ExportedMessage | ExportedFile | ExportedMemory | ExportedScratchpadList | ExportedScratchpadKey | ExportedItem | ExportedSchedule | ExportedRun | ExportedReminder | ExportedNotification | ExportedDeadLetter | ExportedRecallEvent | ExportedContext)>; "cursor"?: (string | null); "header"?: (ExportHeader | null); "counts"?: Record<string, number>; };
export type ExportedChannel = { "part": "channels"; "workspace": string; "agent": string; "id": string; "created_at": string; "description"?: string; "is_default"?: boolean; };
export type ExportedContext = { "part": "contexts"; "workspace": string; "agent": string; "id": string; "at": string; "token_budget": number; "tokens": number; "session"?: (string | null); "query"?: string; "user"?: (string | null); "degraded"?: string; "items"?: Array<Record<string, unknown>>; };
export type ExportedDeadLetter = { "part": "dead_letters"; "workspace": string; "agent": string; "stage": string; "item_id": string; "error_type": string; "error": string; "attempts": number; "created_at": string; "session"?: (string | null); "payload"?: (string | null); "trace"?: string; "variant"?: string; };
export type ExportedFile = { "part": "files"; "workspace": string; "agent": string; "id": string; "source_uri": string; "content": string; "created_at": string; "session"?: (string | null); "tags"?: Array<string>; "metadata"?: Record<string, unknown>; "trace"?: string; "user"?: (string | null); "visibility"?: ("private" | "shared" | null); };
export type ExportedItem = { "part": "items"; "workspace": string; "agent": string; "namespace": Array<string>; "key": string; "value": Record<string, unknown>; "user"?: (string | null); "ttl_seconds"?: (number | null); "expires_at"?: (string | null); "index_fields"?: (Array<string> | null); "created_at": string; "updated_at": string; };
export type ExportedMemory = { "part": "memories"; "workspace": string; "agent": string; "id": string; "content": string; "tier": "account" | "channel" | "conversation" | "workspace"; "lifetime": "conversation" | "long_term" | "short_term"; "kind": "event" | "fact" | "instruction" | "note" | "preference" | "procedure" | "task"; "source": string; "importance": number; "created_at": string; "updated_at": string; "accessed_at": string; "access_count"?: number; "expires_at"?: (string | null); "owner_user_id"?: (string | null); "tags"?: Array<string>; "concept_tags"?: Array<string>; "metadata"?: Record<string, unknown>; "session"?: (string | null); "source_message"?: (string | null); "channel"?: (string | null); "note_id"?: (string | null); "category"?: (string | null); "key"?: (string | null); "value"?: (string | null); "subject"?: (string | null); "confidence"?: (number | null); "pinned"?: boolean; "visibility"?: "private" | "requested" | "shared"; "superseded_by"?: (string | null); "superseded_at"?: (string | null); "trace"?: string; "made_by"?: (string | null); "confirmed_at"?: (string | null); "promoted_at"?: (string | null); "promotion_score"?: (number | null); "promotion_phase"?: (string | null); };
export type ExportedMessage = { "part": "messages"; "workspace": string; "agent": string; "id": string; "session": string; "sequence": number; "role": "assistant" | "system" | "tool" | "user"; "content": string; "created_at": string; "name"?: (string | null); "tool_call_id"?: (string | null); "tool_name"?: (string | null); "tool_calls"?: Array<Record<string, unknown>>; "token_count"?: (number | null); "importance"?: number; "tags"?: Array<string>; "metadata"?: Record<string, unknown>; "trace"?: string; "consolidated_at"?: (string | null); "user"?: (string | null); "visibility"?: ("private" | "shared" | null); "original"?: (string | null); };
export type ExportedNotification = { "part": "notifications"; "workspace": string; "agent": string; "id": string; "kind": "alert" | "disabled" | "run"; "schedule": string; "title": string; "body": string; "created_at": string; "user"?: (string | null); "schedule_name"?: (string | null); "run"?: (string | null); "run_status"?: ("cancelled" | "failed" | "pending" | "running" | "success" | "timed_out" | null); "channel"?: (string | null); "session"?: (string | null); "attempts"?: number; "error"?: string; "delivered_at"?: (string | null); "acknowledged_at"?: (string | null); };
export type ExportedRecallEvent = { "part": "recall_events"; "workspace": string; "agent": string; "recall": string; "query": string; "score": number; "at": string; "found_kind": "file" | "memory" | "message"; "found": string; "chunk": string; "in_account"?: boolean; "user"?: (string | null); "found_session"?: (string | null); };
export type ExportedReminder = { "part": "reminders"; "workspace": string; "agent": string; "id": string; "session": string; "recipient": string; "message": string; "delivery": "auto" | "pull" | "push"; "due_at": string; "created_at": string; "user"?: (string | null); "channel"?: (string | null); "attempts"?: number; "error"?: string; "delivered_at"?: (string | null); };
export type ExportedRun = { "part": "runs"; "workspace": string; "agent": string; "id": string; "schedule": string; "due_at": string; "first_due_at": string; "trigger": "manual" | "retry" | "schedule"; "status": "cancelled" | "failed" | "pending" | "running" | "success" | "timed_out"; "created_at": string; "coalesced"?: number; "attempt"?: number; "started_at"?: (string | null); "finished_at"?: (string | null); "summary"?: string; "output"?: string; "error"?: string; "turn_count"?: number; "cost"?: number; "notified"?: boolean; "trace"?: string; };
export type ExportedSchedule = { "part": "schedules"; "workspace": string; "agent": string; "id": string; "goal": string; "cadence": Record<string, unknown>; "executor": Record<string, unknown>; "policy": "always" | "conditional" | "never" | "on_failure"; "status": "active" | "completed" | "disabled" | "failed" | "paused"; "timeout_seconds": number; "recall_limit": number; "created_at": string; "updated_at": string; "user"?: (string | null); "name"?: (string | null); "channel"?: (string | null); "session"?: (string | null); "next_run_at"?: (string | null); "last_run_at"?: (string | null); "last_run_status"?: ("cancelled" | "failed" | "pending" | "running" | "success" | "timed_out" | null); "consecutive_failures"?: number; "retries"?: number; };
export type ExportedScratchpadKey = { "part": "scratchpads"; "workspace": string; "agent": string; "session": string; "key": string; "value": string; "created_at": string; "updated_at": string; };
export type ExportedScratchpadList = { "part": "scratchpad_lists"; "workspace": string; "agent": string; "session": string; "items": Array<unknown>; "updated_at": string; };
export type ExportedSession = { "part": "sessions"; "workspace": string; "agent": string; "id": string; "ref_code": string; "started_at": string; "updated_at": string; "status"?: "active" | "archived" | "idle"; "user"?: (string | null); "users"?: Array<string>; "provider"?: (string | null); "chat_id"?: (string | null); "channel"?: (string | null); "ended_at"?: (string | null); "metadata"?: Record<string, unknown>; "last_sequence"?: number; "summary_text"?: (string | null); "summary_epoch"?: number; "summary_upper_sequence"?: number; "extracted_up_to"?: number; };
export type Fact = { "category": string; "key": string; "value": string; "id": string; "source": string; "created_at": string; "updated_at": string; "importance"?: number; "confidence"?: (number | null); "tags"?: Array<string>; "superseded_at"?: (string | null); "valid_from"?: (string | null); "valid_to"?: (string | null); "review"?: string; };
export type FactList = { "facts": Array<Fact>; };
export type File = { "id": string; "source_uri": string; "created_at": string; "bytes": number; "session"?: (string | null); "tags"?: Array<string>; "metadata"?: Record<string, unknown>; "user"?: (string | null); "visibility"?: (string | null); };
export type FileList = { "files": Array<File>; };
export type Finding = { "subject": string; "state": "ok" | "problem" | "warning"; "found": string; "advice"?: string; "runbook"?: string; };
export type FoundItem = { "key": string; "namespace": Array<string>; "value": Record<string, unknown>; "created_at": string; "updated_at": string; "expires_at"?: (string | null); "score"?: (number | null); };
export type FoundItems = { "items": Array<FoundItem>; "degraded"?: string; };
export type FoundMemories = { "results": Array<Memory>; "relevances"?: Record<string, number>; "duplicates"?: Record<string, number>; "changed_since"?: Record<string, LaterChange>; "degraded"?: string; };
export type FoundSession = { "session": string; "ref_code": string; "updated_at": string; "messages": number; "excerpt": string; "relevance"?: number; "title"?: (string | null); "last_said_at"?: (string | null); };
export type FoundSessions = { "results": Array<FoundSession>; "degraded"?: string; };
export type GetContext = { /** The conversation that goes on; by default none, for a new one. */ "session"?: (string | null); /** What the agent is about to answer; by default the newest user turn. */ "query"?: (string | null); "user"?: (string | null); /** The channel to search; by default the session's own. */ "channel"?: (string | null); "token_budget"?: (number | null); /** Tokens of the budget that the rest of the prompt needs; by default none of a given budget. */ "reserved_tokens"?: (number | null); /** The maximum number of tokens of results from elsewhere. */ "memory_tokens"?: (number | null); /** The maximum number of tokens of standing instructions; by default the server's setting. */ "instruction_tokens"?: (number | null); /** The order of results. `recall`: how well they fit the query; `decay`: that, multiplied by importance, decay with time and the number of recalls. */ "ranking"?: "decay" | "recall"; /** The maximum number of the session's messages; by default the server's setting. */ "max_messages"?: (number | null); /** Leave out results less relevant than this; by default all are left out if none fits the query. */ "min_score"?: (number | null); "as_of"?: (string | null); /** Let the language model drop irrelevant items. */ "refine"?: boolean; };
export type GetOperation = { "operation": "get"; /** The labels of the namespace, at most 16. */ "namespace": Array<string>; /** The key within the namespace, at most 512 characters. */ "key": string; /** Restart the time to live of the returned items. */ "refresh_ttl"?: boolean; /** Return expired items too, which the next sweep removes. */ "expired"?: boolean; };
export type HookContext = { "hookEventName": string; "additionalContext": string; };
export type HookOutput = { "hookSpecificOutput"?: (HookContext | null); "additional_context"?: (string | null); };
export type HostStatus = { "id": string; "name": string; "silent_seconds": number; "erasures": number; "error"?: string; };
export type ImportMemories = { "memories": Array<ImportedMemory>; "schema_version"?: number; "user"?: (string | null); };
export type ImportRecords = { /** Records of an export. */ "records": Array<(ExportedChannel | ExportedSession | ExportedMessage | ExportedFile | ExportedMemory | ExportedScratchpadList | ExportedScratchpadKey | ExportedItem | ExportedSchedule | ExportedRun | ExportedReminder | ExportedNotification | ExportedDeadLetter | ExportedRecallEvent | ExportedContext)>; /** When the export was made. */ "exported_at"?: (string | null); /** The workspaces of the export by tenant, from its header. */ "tenants"?: Record<string, Array<string>>; /** The end user to whom all of it shall belong. Default: as in the export. */ "user"?: (string | null); /** Take over approvals, promotions, recall events and webhooks as they are. */ "trusted"?: boolean; /** Only check and count. */ "dry_run"?: boolean; /** These records begin a file: note the import in the audit log. */ "first"?: boolean; /** Leave out records whose id is taken, instead of refusing the call; and records that were erased since `exported_at`, instead of storing them again. */ "lenient"?: boolean; };
export type ImportReport = { "added"?: Record<string, number>; "present"?: Record<string, number>; "left_out"?: Record<string, number>; "erased"?: Record<string, number>; "shared"?: number; "waiting"?: number; };
export type ImportedMemory = { "id": string; "agent": string; "tier": "account" | "channel" | "conversation" | "workspace"; "lifetime": "conversation" | "long_term" | "short_term"; "kind": "event" | "fact" | "instruction" | "note" | "preference" | "procedure" | "task"; "source": string; "content": string; "importance": number; "access_count": number; "created_at": string; "updated_at": string; "accessed_at": string; "expires_at"?: (string | null); "owner_user_id"?: (string | null); "tags"?: Array<string>; "concept_tags"?: Array<string>; "session"?: (string | null); "source_message"?: (string | null); "channel"?: (string | null); "note_id"?: (string | null); "category"?: (string | null); "key"?: (string | null); "value"?: (string | null); "subject"?: (string | null); "confidence"?: (number | null); "pinned"?: boolean; "metadata"?: Record<string, unknown>; "visibility"?: "private" | "requested" | "shared"; "superseded_by"?: (string | null); "valid_from"?: (string | null); "valid_to"?: (string | null); "confirmed_at"?: (string | null); "provenance"?: (Provenance | null); "review"?: string; };
export type InboxStatus = { "workspace": string; "size": number; "oldest_age_seconds": number; "bytes"?: number; "full"?: number; };
export type InboxUse = { "items"?: number; "bytes"?: number; "max_items"?: number; "max_bytes"?: number; "full"?: number; "accepted"?: number; };
export type IngestFile = { "source_uri": string; "content": string; "id"?: (string | null); "session"?: (string | null); "user"?: (string | null); "visibility"?: ("private" | "shared" | null); "tags"?: Array<string>; "metadata"?: Record<string, unknown>; /** Return once the messages are queued, stored or searchable. */ "wait"?: "queued" | "searchable" | "stored"; "timeout_seconds"?: number; };
export type IngestMessages = { "messages": Array<MessageInput>; "session"?: (string | null); "user"?: (string | null); "provider"?: (string | null); "chat_id"?: (string | null); "channel"?: (string | null); "visibility"?: ("private" | "shared" | null); "strict"?: boolean; /** Return once the messages are queued, stored or searchable. */ "wait"?: "queued" | "searchable" | "stored"; "timeout_seconds"?: number; };
export type Interval = { "type": "interval"; "seconds": number; "tz"?: string; "anchor"?: (string | null); };
export type Item = { "key": string; "namespace": Array<string>; "value": Record<string, unknown>; "created_at": string; "updated_at": string; "expires_at"?: (string | null); };
export type ItemOutcome = { "item"?: (Item | null); "found"?: (FoundItems | null); "namespaces"?: (Array<Array<string>> | null); };
export type ItemOutcomes = { "outcomes": Array<ItemOutcome>; };
export type Job = { "name": string; "description": string; "every_seconds": number; "dry_run": boolean; "limits"?: Array<"agent" | "workspace">; "last_run"?: (JobStatus | null); };
export type JobChange = { "job": string; "action": string; "at": string; };
export type JobList = { "jobs": Array<Job>; };
export type JobReport = { "job": string; "dry_run": boolean; "counts": Record<string, unknown>; "planned"?: Array<PlannedChange>; };
export type JobStatus = { "started_at": string; "finished_at": (string | null); "counts": Record<string, unknown>; "error": (string | null); };
export type LagStatus = { "samples"?: number; "p50_seconds"?: (number | null); "p99_seconds"?: (number | null); };
export type LanguageModelStatus = { "state"?: "down" | "none" | "up"; "model"?: string; "error"?: string; "daily_tokens"?: (number | null); "today"?: LanguageModelUse; "last_30_days"?: LanguageModelUse; "purposes"?: Record<string, LanguageModelUse>; };
export type LanguageModelUse = { "calls"?: number; "failures"?: number; "input_tokens"?: number; "output_tokens"?: number; "cost"?: number; "messages"?: number; };
export type LaterChange = { "id": string; "text": string; "at": string; };
export type LeftOut = { "memories"?: number; "relevant"?: number; "important"?: number; "recent"?: number; "shortened"?: number; "refined"?: number; "instructions"?: number; "duplicates"?: number; };
export type LlmExecutor = { "type": "llm"; };
export type MakeCheckpoint = { /** The message of the commit, at most 4 KiB. */ "message"?: (string | null); };
export type Memory = { "id": string; "agent": string; "tier": "account" | "channel" | "conversation" | "workspace"; "lifetime": "conversation" | "long_term" | "short_term"; "kind": "event" | "fact" | "instruction" | "note" | "preference" | "procedure" | "task"; "source": string; "content": string; "importance": number; "access_count": number; "created_at": string; "updated_at": string; "accessed_at": string; "expires_at"?: (string | null); "owner_user_id"?: (string | null); "tags"?: Array<string>; "concept_tags"?: Array<string>; "session"?: (string | null); "source_message"?: (string | null); "channel"?: (string | null); "note_id"?: (string | null); "category"?: (string | null); "key"?: (string | null); "value"?: (string | null); "subject"?: (string | null); "confidence"?: (number | null); "pinned"?: boolean; "metadata"?: Record<string, unknown>; "visibility"?: "private" | "requested" | "shared"; "superseded_by"?: (string | null); "valid_from"?: (string | null); "valid_to"?: (string | null); "confirmed_at"?: (string | null); "provenance"?: (Provenance | null); "review"?: string; };
export type MemoryExport = { "memories": Array<Memory>; "schema_version"?: number; };
export type MemoryImport = { "added": number; "present": number; };
export type MemoryList = { "memories": Array<Memory>; };
export type MemoryStats = { "memories": number; "by_tier": Record<string, number>; "by_lifetime": Record<string, number>; "by_kind": Record<string, number>; "by_source": Record<string, number>; "facts": number; "notes": number; "superseded": number; "promoted": number; "oldest"?: (string | null); "newest"?: (string | null); };
export type Message = { "id": string; "session": string; "sequence": number; "role": "assistant" | "system" | "tool" | "user"; "content": string; "created_at": string; "name"?: (string | null); "tool_call_id"?: (string | null); "tool_name"?: (string | null); "tool_calls"?: Array<Record<string, unknown>>; "token_count"?: (number | null); "importance"?: number; "tags"?: Array<string>; "metadata"?: Record<string, unknown>; "embedding_error"?: (string | null); "consolidated_at"?: (string | null); "user"?: (string | null); "visibility"?: ("private" | "shared" | null); "original"?: (string | null); };
export type MessageInput = { "role": "assistant" | "system" | "tool" | "user"; "content"?: (string | null | Array<{ "type": string; "text": string; }>); "id"?: (string | null); "created_at"?: (string | null); "name"?: (string | null); "tool_call_id"?: (string | null); "tool_name"?: (string | null); "tool_calls"?: Array<Record<string, unknown>>; "token_count"?: (number | null); "importance"?: (number | null); "metadata"?: Record<string, unknown>; "tags"?: Array<string>; "sequence"?: (number | null); "original"?: (string | null); "user"?: (string | null); "visibility"?: ("private" | "shared" | null); };
export type MessageList = { "messages": Array<Message>; "offset"?: number; };
export type MoveSession = { /** The id of a channel. */ "channel": string; "user"?: (string | null); };
export type NamespaceList = { "namespaces": Array<Array<string>>; };
export type NamespacesOperation = { "operation": "namespaces"; /** Only of namespaces that begin with these labels. */ "prefix"?: Array<string>; /** Only of namespaces that begin with these labels. */ "suffix"?: Array<string>; "max_depth"?: (number | null); /** The maximum number to return. */ "limit"?: number; /** The number of items to skip. */ "offset"?: number; "expired"?: boolean; };
export type NextRuns = { "at": Array<string>; "local": Array<string>; };
export type Note = { "note_id": string; "content": string; "source": string; "created_at": string; "updated_at": string; "tags"?: Array<string>; "importance"?: number; "user"?: (string | null); "session"?: (string | null); "metadata"?: Record<string, unknown>; };
export type NoteList = { "notes": Array<Note>; };
export type Notification = { "id": string; "agent": string; "kind": "alert" | "disabled" | "run"; "schedule_id": string; "title": string; "body": string; "created_at": string; "user"?: (string | null); "run_id"?: (string | null); "schedule_name"?: (string | null); "run_status"?: (string | null); "channel"?: (string | null); "session"?: (string | null); "delivered_at"?: (string | null); "acknowledged_at"?: (string | null); };
export type NotificationPage = { "notifications": Array<Notification>; "total": number; };
export type Once = { "type": "once"; "at": string; "tz"?: string; };
export type PauseSchedule = { "user"?: (string | null); /** Include content of all users and of nobody; for operators and deliveries. */ "all_users"?: boolean; };
export type PipelineStatus = { "at": string; "broker": "down" | "up"; "broker_error": string; "queues": Record<string, number>; "inboxes": Array<InboxStatus>; "workers": Array<WorkerStatus>; "lag": LagStatus; "stages": Record<string, StageStatus>; "dead_letters": number; "wal_bytes": number; "workspaces": Array<WorkspaceStatus>; "workspaces_total": number; "workspaces_unread": number; "account"?: WorkspaceStatus; "memories"?: number; "jobs": Record<string, JobStatus>; "embedder": EmbedderStatus; "language_model"?: LanguageModelStatus; "reranker"?: RerankerStatus; "time"?: TimeStatus; "stored"?: Record<string, number>; "quota_use"?: Record<string, number>; "inbox"?: InboxUse; "broker_warnings"?: Array<string>; "faults"?: Array<string>; "hosts"?: Array<HostStatus>; "findings"?: Array<Finding>; "errors": Record<string, string>; };
export type PlannedChange = { "store": string; "agent": string; "action": string; "about": string; "text": string; };
export type PoppedMessage = { "message"?: (Message | null); };
export type Problem = { "type": string; "title": string; "status": number; "detail": string; "field"?: string; "trace"?: string; "accepted"?: Array<string>; "unconfirmed"?: Array<string>; "rejected"?: Array<Rejection>; };
export type Promotion = { "memory": string; "at": string; "score": number; "phase": string; "kind"?: (string | null); "content"?: (string | null); };
export type PromotionList = { "promotions": Array<Promotion>; };
export type Provenance = { "made_by": string; "trust": string; "said_at": string; "user"?: (string | null); "role"?: (string | null); "name"?: (string | null); "session"?: (string | null); "ref_code"?: (string | null); "workspace"?: (string | null); "message"?: (string | null); "message_readable"?: boolean; "changes"?: Array<JobChange>; };
export type PutItem = { /** The labels of the namespace, at most 16. */ "namespace": Array<string>; /** The key within the namespace, at most 512 characters. */ "key": string; /** Any JSON object of at most 512 KiB. */ "value": Record<string, unknown>; "ttl_seconds"?: (number | null); "index"?: (Array<string> | null); "vectors"?: (Array<Array<number>> | null); "user"?: (string | null); };
export type PutOperation = { "operation": "put"; /** The labels of the namespace, at most 16. */ "namespace": Array<string>; /** The key within the namespace, at most 512 characters. */ "key": string; "value"?: (Record<string, unknown> | null); "ttl_seconds"?: (number | null); "index"?: (Array<string> | null); "vectors"?: (Array<Array<number>> | null); };
export type QuotaList = { "quotas": Array<QuotaUse>; };
export type QuotaUse = { "holder": "tenant" | "workspace"; "name": string; "tenant": string; "resource": "bytes" | "memories" | "messages" | "schedules" | "workspaces"; "used": number; "limit"?: (number | null); "set_for"?: "" | "tenant" | "workspace"; };
export type Recall = { /** What to search for, in natural language. */ "query": string; "user"?: (string | null); /** Only this session, unless `scope` widens it. */ "session"?: (string | null); /** Only this channel. */ "channel"?: (string | null); /** How far beyond the session to search. */ "scope"?: ("account" | "channel" | "conversation" | "workspace" | null); /** Only results with all of these tags; at most 16. */ "tags"?: Array<string>; /** Only these kinds of result. */ "kinds"?: Array<"file" | "memory" | "message">; /** Search by words, by meaning, or by both. */ "mode"?: "hybrid" | "keyword" | "vector"; /** The maximum number of results. */ "limit"?: number; /** The vector of the query; by default the server embeds the query. */ "query_embedding"?: (Array<number> | null); /** How keyword and vector scores are fused. */ "fusion"?: "contextual" | "rrf" | "weighted"; /** The weight of vector search, from 0 to 1; keyword search has the rest. */ "vector_weight"?: (number | null); /** The weight of keyword search, from 0 to 1; vector search has the rest. */ "fts_weight"?: (number | null); "min_score"?: (number | null); "as_of"?: (string | null); /** The number of messages to return before and after each result. */ "neighbours"?: number; /** Return ranks and scores. */ "explain"?: boolean; /** Let the server's reranker order the results, if it has one. */ "rerank"?: boolean; };
export type RecallEvent = { "recall": string; "query": string; "at": string; "kind": "file" | "memory" | "message"; "id": string; "access_count": number; "session"?: (string | null); "score"?: (number | null); "account"?: boolean; };
export type RecallEventList = { "recall_events": Array<RecallEvent>; };
export type RecallResponse = { "results": Array<RecallResult>; "mode": "hybrid" | "keyword" | "vector"; "degraded"?: string; };
export type RecallResult = { "id": string; "kind": "file" | "memory" | "message"; "text": string; "created_at": string; "relevance"?: number; "session"?: (string | null); "ref_code"?: (string | null); "role"?: (string | null); "name"?: (string | null); "tags"?: Array<string>; "tier"?: ("account" | "channel" | "conversation" | "workspace" | null); "source_message"?: (string | null); "valid_to"?: (string | null); "replaced_by"?: (string | null); "replaced_at"?: (string | null); "changed_since"?: (LaterChange | null); "waits"?: boolean; "excerpt"?: (string | null); "duplicates"?: number; "before"?: Array<Turn>; "after"?: Array<Turn>; "explanation"?: (Explanation | null); };
export type Receipt = { "state": "queued" | "searchable" | "stored"; "accepted": Array<string>; "rejected"?: Array<Rejection>; "trace"?: string; "degraded"?: string; };
export type RecordEvent = { /** The coding agent of the hook. */ "tool": "claude-code" | "codex" | "cursor" | "gemini"; /** The id of the event, made once by the hook. */ "id": string; /** The hook's input, unchanged. */ "event": Record<string, unknown>; /** When it happened; by default now. */ "at"?: (string | null); };
export type RefusedFile = { "path": string; "why": string; };
export type Rejection = { "index": number; "field": string; "error": string; "conflict"?: boolean; };
export type Remaining = { "what": string; "responsible": string; };
export type Remember = { /** What to remember, at most 64 KiB. */ "content": string; "id"?: (string | null); /** Where the memory applies. */ "tier"?: "account" | "channel" | "conversation" | "workspace"; "lifetime"?: ("conversation" | "long_term" | "short_term" | null); /** The kind of knowledge; an instruction is told in every context until it is taken back. */ "kind"?: "event" | "fact" | "instruction" | "note" | "preference" | "procedure" | "task"; /** Who it comes from; jobs never rewrite memories with source "user". */ "source"?: string; /** Importance, 0 to 1. */ "importance"?: number; /** Tags, at most 16 of 64 characters. */ "tags"?: Array<string>; "expires_at"?: (string | null); /** The same as `user`, by its name in results. */ "owner_user_id"?: (string | null); /** The session it comes from. */ "session"?: (string | null); /** The id of the message it comes from. */ "source_message"?: (string | null); "channel"?: (string | null); /** Its subject: a newer memory supersedes an older one with the same subject. */ "subject"?: (string | null); "confidence"?: (number | null); /** Make it long-term, and keep jobs from merging or superseding it. */ "pinned"?: boolean; /** Your own data, at most 64 KiB of JSON. */ "metadata"?: Record<string, unknown>; /** Seen by the user that it belongs to, or by all users of the agent. */ "visibility"?: "private" | "shared"; /** The end user it belongs to; by default that of its session. */ "user"?: (string | null); /** Return once it is stored or searchable. */ "wait"?: "searchable" | "stored"; /** The maximum number of seconds to wait. */ "timeout_seconds"?: number; };
export type Remembered = { "id": string; "ok"?: boolean; };
export type Remind = { /** The id of a session. */ "session": string; /** The person to remind. */ "recipient": string; /** The text, at most 16 KiB. */ "message": string; /** The due time, with a time zone, such as 2027-05-01T09:30:00Z. */ "due_at"?: (string | null); /** Seconds from now until it is due. */ "in_seconds"?: (number | null); /** The end user it belongs to; by default those of its session. */ "user"?: (string | null); "channel"?: (string | null); /** Who delivers it. */ "delivery"?: "auto" | "pull" | "push"; "id"?: (string | null); };
export type Reminder = { "id": string; "agent": string; "session": string; "recipient": string; "message": string; "due_at": string; "status": "claimed" | "delivered" | "due" | "waiting"; "created_at": string; "user"?: (string | null); "channel"?: (string | null); "delivery"?: "auto" | "pull" | "push"; "claimed_at"?: (string | null); "claim_expires_at"?: (string | null); "delivered_at"?: (string | null); "attempts"?: number; "error"?: string; };
export type ReminderPage = { "reminders": Array<Reminder>; "total": number; };
export type ReplayDeadLetter = { /** The maximum number of seconds to wait for it. */ "timeout_seconds"?: number; };
export type RerankerStatus = { "state"?: "down" | "none" | "up"; "model"?: string; "error"?: string; };
export type RestoreSession = { "token_budget"?: (number | null); "user"?: (string | null); };
export type Restored = { "session": string; "messages": Array<Message>; "tokens": number; "left_out": number; "summary"?: (string | null); "shortened"?: number; "uncovered"?: number; };
export type ResumeSchedule = { "user"?: (string | null); /** Include content of all users and of nobody; for operators and deliveries. */ "all_users"?: boolean; };
export type RetrieverScore = { "rank": number; "score": number; "normalised": number; };
export type Review = { "listed": number; "entries": Array<CurationEntry>; "waiting": Array<Memory>; "due": Array<DueMemory>; };
export type RotateToken = { /** For how many seconds the old one stays valid. */ "grace_seconds"?: number; };
export type RunJob = { /** Show what would be done, and change nothing. */ "dry_run"?: boolean; /** Only for this agent; by default for all. */ "agent"?: (string | null); /** Only in this workspace; by default in all and the account. */ "workspace"?: (string | null); };
export type RunScheduleNow = { /** An id of your own for the run. */ "id"?: (string | null); "user"?: (string | null); /** Include content of all users and of nobody; for operators and deliveries. */ "all_users"?: boolean; };
export type Schedule = { "id": string; "agent": string; "goal": string; "cadence": (Cron | Once | Interval); "executor": (WebhookExecutor | TaskExecutor | LlmExecutor); "notification_policy": "always" | "conditional" | "never" | "on_failure"; "status": "active" | "completed" | "disabled" | "failed" | "paused"; "timeout_seconds": number; "created_at": string; "updated_at": string; "user"?: (string | null); "name"?: (string | null); "channel"?: (string | null); "session"?: (string | null); "recall_limit"?: number; "next_run_at"?: (string | null); "last_run_at"?: (string | null); "last_run_status"?: ("cancelled" | "failed" | "pending" | "running" | "success" | "timed_out" | null); "consecutive_failures"?: number; };
export type ScheduleCount = { "count": number; };
export type SchedulePage = { "schedules": Array<Schedule>; "total": number; "lacks"?: Array<"language_model" | "worker">; };
export type ScheduleRun = { "id": string; "schedule_id": string; "due_at": string; "trigger": "manual" | "retry" | "schedule"; "status": "cancelled" | "failed" | "pending" | "running" | "success" | "timed_out"; "created_at": string; "attempt"?: number; "first_due_at"?: (string | null); "coalesced"?: number; "started_at"?: (string | null); "finished_at"?: (string | null); "summary"?: string; "output"?: string; "error"?: string; "turn_count"?: number; "cost"?: number; "notified"?: boolean; };
export type ScheduleRunList = { "runs": Array<ScheduleRun>; };
export type ScratchpadEntries = { "entries": Array<ScratchpadEntry>; };
export type ScratchpadEntry = { "key": string; "value": unknown; "created_at": string; "updated_at": string; };
export type ScratchpadList = { "items": Array<string>; "updated_at"?: (string | null); };
export type SearchItems = { /** Only of namespaces that begin with these labels. */ "namespace"?: Array<string>; /** What to search for, in natural language. */ "query"?: string; /** Conditions on fields of the value: {"kind": "note", "year": {"$gte": 2020}}. */ "filter"?: Record<string, unknown>; /** The maximum number to return. */ "limit"?: number; /** The number of items to skip. */ "offset"?: number; /** Restart the time to live of the returned items. */ "refresh_ttl"?: boolean; /** Return expired items too, which the next sweep removes. */ "expired"?: boolean; "query_vector"?: (Array<number> | null); /** How vectors of your own embedder are compared. */ "distance"?: "cosine" | "inner_product" | "l2"; "user"?: (string | null); };
export type SearchMemories = { /** What to search for, in natural language. */ "query": string; "user"?: (string | null); /** Only with all of these tags. */ "tags"?: Array<string>; /** Search by words, by meaning, or by both. */ "mode"?: "hybrid" | "keyword" | "vector"; /** The maximum number of results. */ "limit"?: number; "min_score"?: (number | null); "as_of"?: (string | null); };
export type SearchOperation = { "operation": "search"; /** Only of namespaces that begin with these labels. */ "namespace"?: Array<string>; /** What to search for, in natural language. */ "query"?: string; /** Conditions on fields of the value: {"kind": "note", "year": {"$gte": 2020}}. */ "filter"?: Record<string, unknown>; /** The maximum number to return. */ "limit"?: number; /** The number of items to skip. */ "offset"?: number; /** Restart the time to live of the returned items. */ "refresh_ttl"?: boolean; /** Return expired items too, which the next sweep removes. */ "expired"?: boolean; "query_vector"?: (Array<number> | null); "distance"?: "cosine" | "inner_product" | "l2"; };
export type SearchSessions = { /** What to search for, in natural language. */ "query": string; "user"?: (string | null); /** Only results with all of these tags; at most 16. */ "tags"?: Array<string>; /** Search by words, by meaning, or by both. */ "mode"?: "hybrid" | "keyword" | "vector"; /** The maximum number of results. */ "limit"?: number; "min_score"?: (number | null); };
export type Searched = { "files": number; "bytes": number; "forms": Array<string>; "parts": number; "explained"?: number; "too_short"?: number; };
export type Selection = { "user"?: (string | null); "agent"?: (string | null); "workspace"?: (string | null); "session"?: (string | null); };
export type ServedContext = { "id": string; "at": string; "token_budget": number; "tokens": number; "session"?: (string | null); "included"?: number; "left_out"?: number; "query"?: string; "user"?: (string | null); "degraded"?: string; "items"?: Array<ServedItem>; };
export type ServedContextList = { "contexts": Array<ServedContext>; };
export type ServedItem = { "section": "important" | "instruction" | "memory" | "recent" | "relevant"; "kind": "file" | "memory" | "message"; "id": string; "session"?: (string | null); "relevance"?: (number | null); "left_out"?: "" | "dropped by the language model" | "held back" | "no room" | "not relevant enough" | "says the same"; "text"?: (string | null); "forgotten"?: boolean; "changed"?: boolean; };
export type Session = { "id": string; "ref_code": string; "status": "active" | "archived" | "idle"; "started_at": string; "updated_at": string; "messages": number; "last_sequence": number; "user"?: (string | null); "provider"?: (string | null); "chat_id"?: (string | null); "channel"?: (string | null); "ended_at"?: (string | null); "metadata"?: Record<string, unknown>; "is_group"?: boolean; "title"?: (string | null); "speakers"?: Array<string>; "first_said_at"?: (string | null); "last_said_at"?: (string | null); };
export type SessionExport = { "session": Session; "messages": Array<Message>; "schema_version"?: number; };
export type SessionList = { "sessions": Array<Session>; };
export type SessionSummary = { "session": string; "text": string; "tokens": number; "epoch": number; "upper_sequence": number; "covers": number; "uncovered": number; };
export type SetFact = { /** The value, at most 8 KiB. */ "value": string; "user"?: (string | null); /** Who it comes from. */ "source"?: "agent" | "user"; /** Importance, 0 to 1. */ "importance"?: number; "confidence"?: (number | null); /** Tags, at most 16 of 64 characters. */ "tags"?: Array<string>; };
export type SetQuotas = { "messages"?: (number | null); "bytes"?: (number | null); "memories"?: (number | null); "schedules"?: (number | null); "workspaces"?: (number | null); /** Remove these quotas, so that the wider one holds: tenant, settings. */ "inherit"?: Array<string>; };
export type StageStatus = { "waiting"?: number; "oldest_age_seconds"?: number; "held"?: number; "retrying"?: number; "moved_at"?: (string | null); "suspects"?: number; };
export type StartSession = { /** The end user. */ "user"?: (string | null); /** The chat platform. */ "provider"?: (string | null); /** The id of the chat on that platform. */ "chat_id"?: (string | null); "channel"?: (string | null); /** Your own data, at most 64 KiB of JSON. */ "metadata"?: Record<string, unknown>; };
export type SweepItems = { "user"?: (string | null); };
export type SweptItems = { "removed": number; };
export type TaskDeath = { "task": string; "at": string; };
export type TaskExecutor = { "type": "task"; "task": string; "queue": string; };
export type TimeStatus = { "schedules"?: Record<string, number>; "schedules_overdue"?: number; "schedules_oldest_overdue_seconds"?: number; "runs_open"?: Record<string, number>; "runs_oldest_pending_seconds"?: number; "start_lag"?: LagStatus; "runs_failed_last_day"?: number; "reminders_waiting"?: number; "reminders_due"?: number; "reminders_oldest_due_seconds"?: number; "reminders_oldest_push_seconds"?: number; "notifications_waiting"?: number; "notifications_unacknowledged"?: number; "pushes_put_back"?: number; };
export type TokenInfo = { "id": string; "name": string; "workspace"?: (string | null); "tenant"?: string; "agents"?: Array<string>; "user"?: (string | null); "scopes": Array<"forget" | "operate" | "read" | "schedule" | "write">; "created_at": string; "created_by": string; "expires_at"?: (string | null); "last_used_at"?: (string | null); "revoked_at"?: (string | null); "replaces"?: (string | null); };
export type TokenList = { "tokens": Array<TokenInfo>; };
export type Turn = { "id": string; "role": string; "text": string; "created_at": string; "name"?: (string | null); };
export type UndoAll = { /** Only entries of this job, such as dream-sweep. */ "job"?: (string | null); /** Only entries of this action, such as merge. */ "action"?: (string | null); /** Only entries since this time, with a time zone. */ "since"?: (string | null); /** Only entries of this run. */ "run"?: (string | null); /** Undo all entries. */ "all"?: boolean; };
export type Undone = { "undone": Array<string>; "failed"?: Record<string, string>; };
export type UpdateMemory = { "user"?: (string | null); /** What to remember, at most 64 KiB. */ "content"?: string; /** Where the memory applies. */ "tier"?: "account" | "channel" | "conversation" | "workspace"; /** How long the memory is kept. */ "lifetime"?: "conversation" | "long_term" | "short_term"; /** The kind of knowledge; an instruction is told in every context until it is taken back. */ "kind"?: "event" | "fact" | "instruction" | "note" | "preference" | "procedure" | "task"; /** Importance, 0 to 1. */ "importance"?: number; /** Tags, at most 16 of 64 characters. */ "tags"?: Array<string>; /** The channel it belongs to, for the channel tier. */ "channel"?: string; /** Make it long-term, and keep jobs from merging or superseding it. */ "pinned"?: boolean; "expires_at"?: (string | null); /** Your own data, at most 64 KiB of JSON. */ "metadata"?: Record<string, unknown>; /** Seen by the user that it belongs to, or by all users of the agent. */ "visibility"?: "private" | "shared"; };
export type UpdateNote = { /** What to remember, at most 64 KiB. */ "content"?: string; "user"?: (string | null); /** Tags, at most 16 of 64 characters. */ "tags"?: Array<string>; /** Importance, 0 to 1. */ "importance"?: number; /** Your own data, at most 64 KiB of JSON. */ "metadata"?: Record<string, unknown>; };
export type UpdateSchedule = { "user"?: (string | null); /** Include content of all users and of nobody; for operators and deliveries. */ "all_users"?: boolean; /** What to do, at most 16 KiB. */ "goal"?: string; "cron"?: (string | null); "at"?: (string | null); "every"?: (number | null); "tz"?: (string | null); "webhook"?: (string | null); "task"?: (string | null); "queue"?: (string | null); /** Give the goal to the language model. */ "llm"?: boolean; "name"?: (string | null); /** Which finished runs create a notification. */ "notification_policy"?: "always" | "conditional" | "never" | "on_failure"; "channel"?: (string | null); "session"?: (string | null); /** The maximum number of seconds of a whole run. */ "timeout_seconds"?: number; /** The maximum number of recalled texts to send with the goal. */ "recall_limit"?: number; "cadence"?: ((Cron | Once | Interval) | null); "executor"?: ((WebhookExecutor | TaskExecutor | LlmExecutor) | null); };
export type WebhookExecutor = { "type": "webhook"; "url": string; };
export type WorkerKey = { "key": string; };
export type WorkerStatus = { "name": string; "host": string; "pid": number; "queues": Array<string>; "started_at": string; "seen_at": string; "stalled_seconds"?: number; "shares_name_with"?: string; "deaths"?: Array<TaskDeath>; "progress_at": (string | null); "tasks_done": number; "embedder": string; "language_model"?: string; };
export type WorkspaceList = { "workspaces": Array<WorkspaceSummary>; };
export type WorkspaceStatus = { "name": string; "stages"?: Record<string, StageStatus>; "dead_letters"?: number; "memories"?: number; "wal_bytes"?: number; "outside_latin"?: number; "not_english"?: number; "advice"?: string; "stored"?: Record<string, number>; "full"?: Array<string>; "error"?: string; };
export type WorkspaceSummary = { "name": string; "agents"?: number; "sessions"?: number; "memories"?: number; "error"?: string; };
export type WriteScratchpad = { /** At most 32 items of 240 characters. */ "items": Array<string>; "user"?: (string | null); };
export type WriteScratchpadKey = { /** Any JSON value of at most 64 KiB. */ "value": unknown; "user"?: (string | null); };
export interface Calls {
  accept_changes: { args: AcceptChanges; result: Accepted };
  acknowledge_notifications: { args: AcknowledgeNotifications; result: Acknowledged };
  add_note: { args: AddNote; result: Note };
  add_schedule: { args: AddSchedule; result: Schedule };
  approve_memory: { args: { "id": string } & ApproveMemory; result: Memory };
  archive_session: { args: { "session": string } & ArchiveSession; result: Session };
  batch_items: { args: BatchItems; result: ItemOutcomes };
  cancel_reminder: { args: { "id": string; "user"?: (string | null); "all_users"?: boolean }; result: Deleted };
  cancel_run: { args: { "run": string } & CancelRun; result: ScheduleRun };
  claim_reminders: { args: ClaimReminders; result: ClaimedReminders };
  clear_scratchpad: { args: { "session": string; "user"?: (string | null) }; result: Cleared };
  clear_scratchpad_keys: { args: { "session": string; "user"?: (string | null) }; result: Cleared };
  close_session: { args: { "session": string } & CloseSession; result: Session };
  compact_session: { args: { "session": string } & CompactSession; result: Compacted };
  complete_run: { args: { "run": string } & CompleteRun; result: ScheduleRun };
  confirm_memory: { args: { "id": string } & ConfirmMemory; result: Memory };
  confirm_reminder: { args: { "id": string } & ConfirmReminder; result: Reminder };
  count_schedules: { args: { "user"?: (string | null); "all_users"?: boolean; "status"?: ("active" | "completed" | "disabled" | "failed" | "paused" | Array<"active" | "completed" | "disabled" | "failed" | "paused"> | null); "name"?: (string | null); "text"?: (string | null); "executor"?: ("llm" | "task" | "webhook" | null); "cadence"?: ("cron" | "interval" | "once" | null); "channel"?: (string | null); "session"?: (string | null); "due_before"?: (string | null); "due_after"?: (string | null) }; result: ScheduleCount };
  create_channel: { args: CreateChannel; result: Channel };
  create_token: { args: CreateToken; result: CreatedToken };
  delete_channel: { args: { "channel": string }; result: Deleted };
  delete_file: { args: { "id": string; "user"?: (string | null) }; result: Deleted };
  delete_item: { args: { "namespace": Array<string>; "key": string; "user"?: (string | null) }; result: Deleted };
  delete_note: { args: { "note_id": string; "user"?: (string | null) }; result: Deleted };
  delete_schedule: { args: { "id": string; "user"?: (string | null); "all_users"?: boolean }; result: Deleted };
  delete_scratchpad_key: { args: { "session": string; "key": string; "user"?: (string | null) }; result: Deleted };
  delete_workspace: { args: {}; result: Deleted };
  describe_channel: { args: { "channel": string } & DescribeChannel; result: Channel };
  drop_dead_letter: { args: { "id": number }; result: Deleted };
  erase: { args: Erase; result: Erasure };
  export_memories: { args: { "user"?: (string | null) }; result: MemoryExport };
  export_session: { args: { "session": string; "user"?: (string | null) }; result: SessionExport };
  forget: { args: { "id": string; "user"?: (string | null) }; result: Deleted };
  forget_fact: { args: { "category": string; "key": string; "user"?: (string | null) }; result: Deleted };
  forget_newest_message: { args: { "session": string; "user"?: (string | null) }; result: PoppedMessage };
  forget_session: { args: { "session": string; "user"?: (string | null) }; result: Deleted };
  get_channel: { args: { "channel": string }; result: Channel };
  get_context: { args: GetContext; result: Context };
  get_curation_entry: { args: { "entry": string }; result: CurationEntry };
  get_curation_run: { args: { "run": string; "limit"?: number; "offset"?: number }; result: CurationRun };
  get_dead_letter: { args: { "id": number }; result: DeadLetter };
  get_diff: { args: { "a": string; "b"?: (string | null) }; result: Difference };
  get_erasure: { args: { "id": string; "user"?: (string | null) }; result: Erasure };
  get_fact: { args: { "category": string; "key": string; "as_of"?: (string | null); "user"?: (string | null) }; result: Fact };
  get_fact_history: { args: { "category": string; "key": string; "user"?: (string | null) }; result: FactList };
  get_item: { args: { "namespace": Array<string>; "key": string; "refresh_ttl"?: boolean; "expired"?: boolean; "user"?: (string | null) }; result: Item };
  get_memory: { args: { "id": string; "user"?: (string | null) }; result: Memory };
  get_memory_stats: { args: { "user"?: (string | null) }; result: MemoryStats };
  get_next_runs: { args: { "id": string; "count"?: number; "user"?: (string | null); "all_users"?: boolean }; result: NextRuns };
  get_note: { args: { "note_id": string; "user"?: (string | null) }; result: Note };
  get_reminder: { args: { "id": string; "user"?: (string | null); "all_users"?: boolean }; result: Reminder };
  get_review: { args: { "limit"?: number }; result: Review };
  get_run: { args: { "run": string; "user"?: (string | null); "all_users"?: boolean; "session"?: (string | null) }; result: ScheduleRun };
  get_schedule: { args: { "id": string; "user"?: (string | null); "all_users"?: boolean }; result: Schedule };
  get_scratchpad: { args: { "session": string; "user"?: (string | null) }; result: ScratchpadList };
  get_scratchpad_key: { args: { "session": string; "key": string; "user"?: (string | null) }; result: ScratchpadEntry };
  get_session: { args: { "session": string; "user"?: (string | null) }; result: Session };
  get_session_by_ref: { args: { "ref_code": string; "user"?: (string | null) }; result: Session };
  get_status: { args: {}; result: PipelineStatus };
  get_summary: { args: { "session": string; "user"?: (string | null) }; result: SessionSummary };
  get_worker_key: { args: {}; result: WorkerKey };
  get_working_memory: { args: { "session": string; "user"?: (string | null) }; result: MessageList };
  import_memories: { args: ImportMemories; result: MemoryImport };
  import_records: { args: ImportRecords; result: ImportReport };
  ingest_file: { args: IngestFile; result: Receipt };
  ingest_messages: { args: IngestMessages; result: Receipt };
  list_agents: { args: { "limit"?: number; "offset"?: number }; result: AgentList };
  list_audit: { args: { "limit"?: number; "offset"?: number; "since"?: (string | null); "actor"?: (string | null); "action"?: (string | null); "target"?: (string | null) }; result: AuditList };
  list_channels: { args: {}; result: ChannelList };
  list_contexts: { args: { "user"?: (string | null); "all_users"?: boolean; "session"?: (string | null); "limit"?: number; "offset"?: number }; result: ServedContextList };
  list_curation: { args: { "limit"?: number; "offset"?: number; "memory"?: (string | null); "job"?: (string | null); "action"?: (string | null) }; result: CurationList };
  list_curation_runs: { args: { "limit"?: number; "offset"?: number; "job"?: (string | null); "due"?: boolean }; result: CurationRunList };
  list_dead_letters: { args: { "limit"?: number; "offset"?: number; "all_agents"?: boolean }; result: DeadLetterList };
  list_erasures: { args: { "limit"?: number; "offset"?: number; "user"?: (string | null) }; result: ErasureList };
  list_facts: { args: { "category"?: (string | null); "as_of"?: (string | null); "limit"?: number; "offset"?: number; "user"?: (string | null) }; result: FactList };
  list_files: { args: { "limit"?: number; "offset"?: number; "user"?: (string | null); "session"?: (string | null) }; result: FileList };
  list_history: { args: { "limit"?: number }; result: CommitList };
  list_item_namespaces: { args: { "prefix"?: Array<string>; "suffix"?: Array<string>; "max_depth"?: (number | null); "limit"?: number; "offset"?: number; "expired"?: boolean; "user"?: (string | null) }; result: NamespaceList };
  list_jobs: { args: {}; result: JobList };
  list_memories: { args: { "limit"?: number; "offset"?: number; "user"?: (string | null); "tier"?: ("account" | "channel" | "conversation" | "workspace" | null); "lifetime"?: ("conversation" | "long_term" | "short_term" | null); "kind"?: ("event" | "fact" | "instruction" | "note" | "preference" | "procedure" | "task" | null); "source"?: (string | null); "tag"?: Array<string>; "session"?: (string | null); "channel"?: (string | null); "owner_user_id"?: (string | null); "text"?: (string | null); "superseded"?: boolean; "expired"?: boolean; "since"?: (string | null); "until"?: (string | null) }; result: MemoryList };
  list_messages: { args: { "session": string; "user"?: (string | null); "limit"?: number; "offset"?: number; "around"?: (string | null) }; result: MessageList };
  list_newest_messages: { args: { "session": string; "limit"?: number; "before"?: (number | null); "user"?: (string | null) }; result: MessageList };
  list_notes: { args: { "limit"?: number; "offset"?: number; "user"?: (string | null); "tag"?: Array<string> }; result: NoteList };
  list_notifications: { args: { "user"?: (string | null); "all_users"?: boolean; "limit"?: number; "offset"?: number; "schedule"?: (string | null); "channel"?: (string | null); "everything"?: boolean }; result: NotificationPage };
  list_pending_memories: { args: { "limit"?: number; "offset"?: number }; result: MemoryList };
  list_promotions: { args: { "limit"?: number; "offset"?: number }; result: PromotionList };
  list_quotas: { args: { "limit"?: number; "offset"?: number; "workspace"?: (string | null) }; result: QuotaList };
  list_recall_events: { args: { "limit"?: number; "offset"?: number; "user"?: (string | null); "memory"?: (string | null); "explain"?: boolean }; result: RecallEventList };
  list_reminders: { args: { "user"?: (string | null); "all_users"?: boolean; "limit"?: number; "offset"?: number; "status"?: ("claimed" | "delivered" | "due" | "waiting" | null); "session"?: (string | null); "recipient"?: (string | null) }; result: ReminderPage };
  list_schedule_runs: { args: { "id": string; "limit"?: number; "offset"?: number; "user"?: (string | null); "all_users"?: boolean }; result: ScheduleRunList };
  list_schedules: { args: { "limit"?: number; "offset"?: number; "user"?: (string | null); "all_users"?: boolean; "status"?: ("active" | "completed" | "disabled" | "failed" | "paused" | Array<"active" | "completed" | "disabled" | "failed" | "paused"> | null); "name"?: (string | null); "text"?: (string | null); "executor"?: ("llm" | "task" | "webhook" | null); "cadence"?: ("cron" | "interval" | "once" | null); "channel"?: (string | null); "session"?: (string | null); "due_before"?: (string | null); "due_after"?: (string | null) }; result: SchedulePage };
  list_scratchpad_keys: { args: { "session": string; "user"?: (string | null) }; result: ScratchpadEntries };
  list_sessions: { args: { "limit"?: number; "offset"?: number; "status"?: ("active" | "archived" | "idle" | null); "ids"?: Array<string>; "user"?: (string | null); "all_users"?: boolean }; result: SessionList };
  list_tokens: { args: { "limit"?: number; "offset"?: number; "everything"?: boolean }; result: TokenList };
  list_workspaces: { args: { "limit"?: number; "offset"?: number }; result: WorkspaceList };
  make_checkpoint: { args: MakeCheckpoint; result: Checkpoint };
  move_session: { args: { "session": string } & MoveSession; result: Session };
  pause_schedule: { args: { "id": string } & PauseSchedule; result: Schedule };
  preview_runs: { args: { "user"?: (string | null); "cron"?: (string | null); "at"?: (string | null); "every"?: (number | null); "tz"?: string; "count"?: number }; result: NextRuns };
  put_item: { args: PutItem; result: Item };
  read_export: { args: { "user"?: (string | null); "agent"?: (string | null); "workspace"?: (string | null); "session"?: (string | null); "cursor"?: (string | null); "dry_run"?: boolean }; result: ExportPage };
  recall: { args: Recall; result: RecallResponse };
  record_event: { args: RecordEvent; result: HookOutput };
  remember: { args: Remember; result: Remembered };
  remind: { args: Remind; result: Reminder };
  replay_dead_letter: { args: { "id": number } & ReplayDeadLetter; result: DeadLetter };
  restore_session: { args: { "session": string } & RestoreSession; result: Restored };
  resume_schedule: { args: { "id": string } & ResumeSchedule; result: Schedule };
  revoke_token: { args: { "token": string }; result: TokenList };
  rotate_token: { args: { "token": string } & RotateToken; result: CreatedToken };
  run_job: { args: { "job": "apply-retention" | "back-up" | "backfill-embeddings" | "close-idle-sessions" | "consolidate-conversations" | "consolidate-memories" | "continue-erasures" | "deliver-reminders" | "dream-sweep" | "extract-memories" | "optimize-store" | "prune-decayed" | "recover-inbox" | "run-due-schedules" | "summarize-sessions" | "sweep-stages" | "verify-store" } & RunJob; result: JobReport };
  run_schedule_now: { args: { "schedule": string } & RunScheduleNow; result: ScheduleRun };
  search_items: { args: SearchItems; result: FoundItems };
  search_memories: { args: SearchMemories; result: FoundMemories };
  search_sessions: { args: SearchSessions; result: FoundSessions };
  set_fact: { args: { "category": string; "key": string } & SetFact; result: Fact };
  set_quotas: { args: { "holder": "tenant" | "workspace"; "name": string } & SetQuotas; result: QuotaList };
  show_context: { args: { "id": string; "user"?: (string | null); "all_users"?: boolean }; result: ServedContext };
  start_session: { args: { "session": string } & StartSession; result: Session };
  sweep_items: { args: SweepItems; result: SweptItems };
  undo: { args: { "entry": string }; result: CurationEntry };
  undo_all: { args: UndoAll; result: Undone };
  update_memory: { args: { "id": string } & UpdateMemory; result: Memory };
  update_note: { args: { "note_id": string } & UpdateNote; result: Note };
  update_schedule: { args: { "id": string } & UpdateSchedule; result: Schedule };
  write_scratchpad: { args: { "session": string } & WriteScratchpad; result: ScratchpadList };
  write_scratchpad_key: { args: { "session": string; "key": string } & WriteScratchpadKey; result: ScratchpadEntry };
}
export const routes: Record<keyof Calls, readonly [string, string]> = {
  accept_changes: ["POST", "/v1/curation/accept"],
  acknowledge_notifications: ["POST", "/v1/notifications/acknowledge"],
  add_note: ["POST", "/v1/notes"],
  add_schedule: ["POST", "/v1/schedules"],
  approve_memory: ["POST", "/v1/memories/{id}/approve"],
  archive_session: ["POST", "/v1/sessions/{session}/archive"],
  batch_items: ["POST", "/v1/items/batch"],
  cancel_reminder: ["DELETE", "/v1/reminders/{id}"],
  cancel_run: ["POST", "/v1/runs/{run}/cancel"],
  claim_reminders: ["POST", "/v1/reminders/claim"],
  clear_scratchpad: ["DELETE", "/v1/scratchpads/{session}/items"],
  clear_scratchpad_keys: ["DELETE", "/v1/scratchpads/{session}/keys"],
  close_session: ["POST", "/v1/sessions/{session}/idle"],
  compact_session: ["POST", "/v1/sessions/{session}/compact"],
  complete_run: ["POST", "/v1/runs/{run}/complete"],
  confirm_memory: ["POST", "/v1/memories/{id}/confirm"],
  confirm_reminder: ["POST", "/v1/reminders/{id}/delivered"],
  count_schedules: ["GET", "/v1/schedules/count"],
  create_channel: ["POST", "/v1/channels"],
  create_token: ["POST", "/v1/tokens"],
  delete_channel: ["DELETE", "/v1/channels/{channel}"],
  delete_file: ["DELETE", "/v1/files/{id}"],
  delete_item: ["DELETE", "/v1/items"],
  delete_note: ["DELETE", "/v1/notes/{note_id}"],
  delete_schedule: ["DELETE", "/v1/schedules/{id}"],
  delete_scratchpad_key: ["DELETE", "/v1/scratchpads/{session}/keys/{key}"],
  delete_workspace: ["DELETE", "/v1/workspace"],
  describe_channel: ["PATCH", "/v1/channels/{channel}"],
  drop_dead_letter: ["DELETE", "/v1/dead-letters/{id}"],
  erase: ["POST", "/v1/erasures"],
  export_memories: ["GET", "/v1/export"],
  export_session: ["GET", "/v1/sessions/{session}/export"],
  forget: ["DELETE", "/v1/memories/{id}"],
  forget_fact: ["DELETE", "/v1/facts/{category}/{key}"],
  forget_newest_message: ["DELETE", "/v1/sessions/{session}/newest"],
  forget_session: ["DELETE", "/v1/sessions/{session}"],
  get_channel: ["GET", "/v1/channels/{channel}"],
  get_context: ["POST", "/v1/context"],
  get_curation_entry: ["GET", "/v1/curation/{entry}"],
  get_curation_run: ["GET", "/v1/curation/runs/{run}"],
  get_dead_letter: ["GET", "/v1/dead-letters/{id}"],
  get_diff: ["GET", "/v1/history/diff"],
  get_erasure: ["GET", "/v1/erasures/{id}"],
  get_fact: ["GET", "/v1/facts/{category}/{key}"],
  get_fact_history: ["GET", "/v1/facts/{category}/{key}/history"],
  get_item: ["GET", "/v1/items"],
  get_memory: ["GET", "/v1/memories/{id}"],
  get_memory_stats: ["GET", "/v1/memories/stats"],
  get_next_runs: ["GET", "/v1/schedules/{id}/next"],
  get_note: ["GET", "/v1/notes/{note_id}"],
  get_reminder: ["GET", "/v1/reminders/{id}"],
  get_review: ["GET", "/v1/memories/review"],
  get_run: ["GET", "/v1/runs/{run}"],
  get_schedule: ["GET", "/v1/schedules/{id}"],
  get_scratchpad: ["GET", "/v1/scratchpads/{session}/items"],
  get_scratchpad_key: ["GET", "/v1/scratchpads/{session}/keys/{key}"],
  get_session: ["GET", "/v1/sessions/{session}"],
  get_session_by_ref: ["GET", "/v1/sessions/by-ref/{ref_code}"],
  get_status: ["GET", "/v1/status"],
  get_summary: ["GET", "/v1/sessions/{session}/summary"],
  get_worker_key: ["GET", "/v1/worker-key"],
  get_working_memory: ["GET", "/v1/sessions/{session}/working"],
  import_memories: ["POST", "/v1/import"],
  import_records: ["POST", "/v1/import/records"],
  ingest_file: ["POST", "/v1/files"],
  ingest_messages: ["POST", "/v1/messages"],
  list_agents: ["GET", "/v1/agents"],
  list_audit: ["GET", "/v1/audit"],
  list_channels: ["GET", "/v1/channels"],
  list_contexts: ["GET", "/v1/contexts"],
  list_curation: ["GET", "/v1/curation"],
  list_curation_runs: ["GET", "/v1/curation/runs"],
  list_dead_letters: ["GET", "/v1/dead-letters"],
  list_erasures: ["GET", "/v1/erasures"],
  list_facts: ["GET", "/v1/facts"],
  list_files: ["GET", "/v1/files"],
  list_history: ["GET", "/v1/history"],
  list_item_namespaces: ["GET", "/v1/items/namespaces"],
  list_jobs: ["GET", "/v1/jobs"],
  list_memories: ["GET", "/v1/memories"],
  list_messages: ["GET", "/v1/sessions/{session}/messages"],
  list_newest_messages: ["GET", "/v1/sessions/{session}/newest"],
  list_notes: ["GET", "/v1/notes"],
  list_notifications: ["GET", "/v1/notifications"],
  list_pending_memories: ["GET", "/v1/memories/pending"],
  list_promotions: ["GET", "/v1/promotions"],
  list_quotas: ["GET", "/v1/quotas"],
  list_recall_events: ["GET", "/v1/recall-events"],
  list_reminders: ["GET", "/v1/reminders"],
  list_schedule_runs: ["GET", "/v1/schedules/{id}/runs"],
  list_schedules: ["GET", "/v1/schedules"],
  list_scratchpad_keys: ["GET", "/v1/scratchpads/{session}/keys"],
  list_sessions: ["GET", "/v1/sessions"],
  list_tokens: ["GET", "/v1/tokens"],
  list_workspaces: ["GET", "/v1/workspaces"],
  make_checkpoint: ["POST", "/v1/checkpoints"],
  move_session: ["PUT", "/v1/sessions/{session}/channel"],
  pause_schedule: ["POST", "/v1/schedules/{id}/pause"],
  preview_runs: ["GET", "/v1/next-runs"],
  put_item: ["PUT", "/v1/items"],
  read_export: ["GET", "/v1/export/records"],
  recall: ["POST", "/v1/recall"],
  record_event: ["POST", "/v1/coding-agents/events"],
  remember: ["POST", "/v1/memories"],
  remind: ["POST", "/v1/reminders"],
  replay_dead_letter: ["POST", "/v1/dead-letters/{id}/replay"],
  restore_session: ["POST", "/v1/sessions/{session}/restore"],
  resume_schedule: ["POST", "/v1/schedules/{id}/resume"],
  revoke_token: ["POST", "/v1/tokens/{token}/revoke"],
  rotate_token: ["POST", "/v1/tokens/{token}/rotate"],
  run_job: ["POST", "/v1/jobs/{job}/run"],
  run_schedule_now: ["POST", "/v1/schedules/{schedule}/run"],
  search_items: ["POST", "/v1/items/search"],
  search_memories: ["POST", "/v1/memories/search"],
  search_sessions: ["POST", "/v1/sessions/search"],
  set_fact: ["PUT", "/v1/facts/{category}/{key}"],
  set_quotas: ["PUT", "/v1/quotas/{holder}/{name}"],
  show_context: ["GET", "/v1/contexts/{id}"],
  start_session: ["POST", "/v1/sessions/{session}/start"],
  sweep_items: ["POST", "/v1/items/sweep"],
  undo: ["POST", "/v1/curation/{entry}/undo"],
  undo_all: ["POST", "/v1/curation/undo"],
  update_memory: ["PATCH", "/v1/memories/{id}"],
  update_note: ["PUT", "/v1/notes/{note_id}"],
  update_schedule: ["PATCH", "/v1/schedules/{id}"],
  write_scratchpad: ["PUT", "/v1/scratchpads/{session}/items"],
  write_scratchpad_key: ["PUT", "/v1/scratchpads/{session}/keys/{key}"],
};
export const subjects = {
  "ingest": "ingest_messages",
  "recall": "recall",
  "context": "get_context",
  "working": "get_working_memory",
  "restore": "restore_session",
  "remember": "remember",
  "forget": "forget",
  "status": "get_status",
  "memories": {
    "list": "list_memories",
    "get": "get_memory",
    "search": "search_memories",
    "update": "update_memory",
    "pending": "list_pending_memories",
    "approve": "approve_memory",
    "confirm": "confirm_memory",
    "review": "get_review",
    "stats": "get_memory_stats",
    "recallEvents": "list_recall_events",
    "export": "export_memories",
    "import": "import_memories"
  },
  "contexts": {
    "list": "list_contexts",
    "show": "show_context"
  },
  "facts": {
    "set": "set_fact",
    "get": "get_fact",
    "list": "list_facts",
    "history": "get_fact_history",
    "forget": "forget_fact"
  },
  "notes": {
    "add": "add_note",
    "get": "get_note",
    "list": "list_notes",
    "update": "update_note",
    "delete": "delete_note"
  },
  "files": {
    "add": "ingest_file",
    "list": "list_files",
    "delete": "delete_file"
  },
  "items": {
    "put": "put_item",
    "get": "get_item",
    "search": "search_items",
    "namespaces": "list_item_namespaces",
    "delete": "delete_item",
    "batch": "batch_items",
    "sweep": "sweep_items"
  },
  "sessions": {
    "start": "start_session",
    "list": "list_sessions",
    "get": "get_session",
    "getByRef": "get_session_by_ref",
    "search": "search_sessions",
    "messages": "list_messages",
    "newestMessages": "list_newest_messages",
    "popMessage": "forget_newest_message",
    "summary": "get_summary",
    "compact": "compact_session",
    "move": "move_session",
    "close": "close_session",
    "archive": "archive_session",
    "export": "export_session",
    "forget": "forget_session",
    "recordEvent": "record_event"
  },
  "channels": {
    "create": "create_channel",
    "get": "get_channel",
    "list": "list_channels",
    "describe": "describe_channel",
    "delete": "delete_channel"
  },
  "scratchpads": {
    "get": "get_scratchpad",
    "write": "write_scratchpad",
    "clear": "clear_scratchpad",
    "keys": "list_scratchpad_keys",
    "getKey": "get_scratchpad_key",
    "writeKey": "write_scratchpad_key",
    "deleteKey": "delete_scratchpad_key",
    "clearKeys": "clear_scratchpad_keys"
  },
  "schedules": {
    "add": "add_schedule",
    "get": "get_schedule",
    "list": "list_schedules",
    "count": "count_schedules",
    "update": "update_schedule",
    "pause": "pause_schedule",
    "resume": "resume_schedule",
    "delete": "delete_schedule",
    "nextRuns": "get_next_runs",
    "previewRuns": "preview_runs",
    "runNow": "run_schedule_now"
  },
  "runs": {
    "list": "list_schedule_runs",
    "get": "get_run",
    "complete": "complete_run",
    "cancel": "cancel_run",
    "workerKey": "get_worker_key"
  },
  "reminders": {
    "add": "remind",
    "get": "get_reminder",
    "list": "list_reminders",
    "claim": "claim_reminders",
    "confirm": "confirm_reminder",
    "cancel": "cancel_reminder"
  },
  "notifications": {
    "list": "list_notifications",
    "acknowledge": "acknowledge_notifications"
  },
  "curation": {
    "list": "list_curation",
    "get": "get_curation_entry",
    "runs": "list_curation_runs",
    "run": "get_curation_run",
    "accept": "accept_changes",
    "undo": "undo",
    "undoAll": "undo_all",
    "promotions": "list_promotions"
  },
  "memoryFiles": {
    "checkpoint": "make_checkpoint",
    "history": "list_history",
    "diff": "get_diff"
  },
  "admin": {
    "tokens": {
      "create": "create_token",
      "list": "list_tokens",
      "rotate": "rotate_token",
      "revoke": "revoke_token"
    },
    "quotas": {
      "list": "list_quotas",
      "set": "set_quotas"
    },
    "workspaces": {
      "list": "list_workspaces",
      "agents": "list_agents",
      "delete": "delete_workspace"
    },
    "jobs": {
      "list": "list_jobs",
      "run": "run_job"
    },
    "deadLetters": {
      "list": "list_dead_letters",
      "get": "get_dead_letter",
      "replay": "replay_dead_letter",
      "drop": "drop_dead_letter"
    },
    "erasures": {
      "create": "erase",
      "get": "get_erasure",
      "list": "list_erasures"
    },
    "audit": "list_audit",
    "exportFile": "read_export",
    "importFile": "import_records"
  }
} as const;
