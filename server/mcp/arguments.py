"""The types of the arguments of tools, described for a model that has never seen them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reverie.memories.types import MemoryKind

Content = Annotated[
    str,
    Field(
        description="One self-contained statement in plain words, with names instead of pronouns and dates instead of"
        " 'today': 'Kate moved to Lisbon in May 2026.'"
    ),
]
NewContent = Annotated[str | None, Field(description="The corrected statement, complete.")]
Kind = Annotated[
    MemoryKind,
    Field(
        description="fact; preference (what someone likes); procedure (how something is done); event; task; note; or"
        " instruction: what the user wants of you from now on, which is told in every context until it is forgotten."
    ),
]
OnlyKind = Annotated[MemoryKind | None, Field(description="Only memories of this kind.")]
Tags = Annotated[list[str], Field(description="Keywords, at most 16.")]
NewTags = Annotated[list[str] | None, Field(description="The new tags, instead of all old ones.")]
OnlyTags = Annotated[list[str], Field(description="Only with all of these tags.")]
Source = Annotated[
    Literal["user", "agent"],
    Field(
        description="user: the user said it, or asked you to remember it, and it is kept for good. agent: you concluded"
        " it; it fades if it is never recalled."
    ),
]
Subject = Annotated[
    str | None,
    Field(
        description="What the statement is the current value of, such as 'home city of Kate': it replaces the earlier"
        " memory with the same subject, which is kept as history."
    ),
]
Expires = Annotated[
    str | None,
    Field(description="Forget it at this time, with its offset from UTC: '2027-05-01T09:30:00+01:00'."),
]
MemoryId = Annotated[str, Field(description="The id of a memory, as recall, list_memories and remember return it.")]
Pinned = Annotated[bool | None, Field(description="true: keep it for good and never merge it with others.")]
DryRun = Annotated[bool, Field(description="true: delete nothing, and return what would be deleted.")]
Query = Annotated[str, Field(description="What to look for, in words or as a question: 'where does Kate live?'")]
About = Annotated[str, Field(description="What the user is asking or doing now, in one sentence.")]
Limit = Annotated[int, Field(ge=1, le=20, description="The maximum number of results.")]
PageSize = Annotated[int, Field(ge=1, le=50, description="The maximum number of memories.")]
Offset = Annotated[int, Field(ge=0, le=1_000_000, description="How many to skip: for the next page.")]
Text = Annotated[str | None, Field(description="Only memories that contain this text, ignoring case.")]
Kinds = Annotated[
    list[Literal["message", "file", "memory"]],
    Field(description="Only messages of conversations, files, or memories; by default all of them."),
]
SessionId = Annotated[str | None, Field(description="Only this conversation, by the session id that results show.")]
ContextSession = Annotated[
    str | None, Field(description="The session id of the conversation to continue, if it is stored in Reverie.")
]
AsOf = Annotated[
    str | None,
    Field(description="Look back: only what was known at this time, '2026-05-03' or '2026-05-03T09:30:00Z'."),
]
Budget = Annotated[int, Field(ge=200, le=8_000, description="The maximum number of tokens of the result.")]
Goal = Annotated[str | None, Field(description="add: what is to be done then, in one or two sentences.")]
Cron = Annotated[
    str | None,
    Field(description="add: repeatedly, 'minute hour day-of-month month day-of-week': '0 9 * * 1-5'."),
]
At = Annotated[str | None, Field(description="add: once, at this time with its offset: '2027-05-01T09:30:00+01:00'.")]
Zone = Annotated[str | None, Field(description="add: the time zone of cron, such as 'Europe/Lisbon'; by default UTC.")]
ScheduleId = Annotated[str | None, Field(description="pause, resume and delete: the id that list returns.")]
ScheduleAction = Annotated[Literal["add", "list", "pause", "resume", "delete"], Field(description="What to do.")]
ReminderAction = Annotated[
    Literal["list", "add", "delete"],
    Field(description="list: those that are due or waiting. delete: one that was told or is not wanted any more."),
]
ReminderText = Annotated[str | None, Field(description="add: what to remind the user of.")]
InMinutes = Annotated[float | None, Field(gt=0, le=5_256_000, description="add: due in this many minutes.")]
ReminderId = Annotated[str | None, Field(description="delete: the id that list returns.")]
