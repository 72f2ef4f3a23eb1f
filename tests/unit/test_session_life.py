"""The life of a session: active, idle, archived; and the job that ends those in which nothing is said any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.jobs import RunOptions
from memory.lifecycle.curation import list_entries, undo_all, undo_entry
from memory.sessions.lifecycle import (
    SessionEndHooks,
    archive_session,
    close_idle_sessions,
    idle_session,
    session_by_ref,
    start_session,
)
from reverie.errors import Conflict, NotFound, StoreUnavailable
from reverie.sessions.calls import StartSession
from storage.curation import CurationFilter
from storage.memories.records import NewMemory
from storage.sessions.records import SessionContent
from storage.stores import Store
from storage.verify import verify
from support.curating import everything, remember
from support.pipeline import WORKSPACE, Pipeline

HOUR_SECONDS = 3_600


class Recorder:
    """An ending that remembers what it was asked, and may fail."""

    def __init__(self) -> None:
        self.extracted: list[str] = []
        self.published: list[str] = []
        self.failing: BaseException | None = None

    @property
    def ending(self) -> SessionEndHooks:
        return SessionEndHooks(self._extract, self._publish)

    def _extract(self, store: Store, agent: str, session: str) -> None:
        assert store.name == WORKSPACE
        self.extracted.append(f"{agent}/{session}")

    def _publish(self, _: Store, agent: str) -> None:
        if self.failing is not None:
            raise self.failing
        self.published.append(agent)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A session of ana's with a memory that serves its conversation alone, and one that does not."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("where do we go?")
    pipe.settle()
    remember(pipe, "plan", "what is planned now", tier="conversation", session="s")
    remember(pipe, "lasting", "she likes trains", session="s")
    pipe.settle()
    yield pipe
    pipe.close()


@pytest.fixture
def seen() -> Recorder:
    return Recorder()


def state(pipe: Pipeline, session: str = "s") -> tuple[str, bool]:
    with pipe.store.reading() as tx:
        found = tx.for_agent("ana").sessions.get(session)
    return found.status, found.ended_at is not None


def close(pipe: Pipeline, seen: Recorder, **more: Any) -> dict[str, Any]:
    counts = close_idle_sessions(pipe.stores, seen.ending, now=pipe.now(), idle_hours=12, **more)
    return {name: count for name, count in counts.items() if name in ("closed", "cleared", "errors", "not_reached")}


def test_a_session_goes_idle_and_is_archived(pipe: Pipeline, seen: Recorder) -> None:
    """Given an active session, when it goes idle, then it has ended and what served it alone is cleared; then aside."""
    idle = idle_session(pipe.store, seen.ending, agent="ana", session="s", now=pipe.now())
    assert (idle.status, idle.ended_at is not None) == ("idle", True)
    assert (seen.extracted, seen.published) == (["ana/s"], ["ana"])
    assert pipe.found("planned") == []
    assert pipe.found("trains") == ["she likes trains"]
    archived = archive_session(pipe.store, seen.ending, agent="ana", session="s", now=pipe.now() + 5)
    assert (archived.status, archived.ended_at) == ("archived", idle.ended_at)
    assert verify(pipe.store).wrong == []


def test_a_step_out_of_order_is_an_error_that_names_the_state(pipe: Pipeline, seen: Recorder) -> None:
    """Given sessions in each state, then a step that does not fit is refused and nothing is done around it."""
    call: dict[str, Any] = {"agent": "ana", "session": "s", "now": pipe.now()}
    with pytest.raises(Conflict, match="is active: let it go idle first, or archive it with force"):
        archive_session(pipe.store, seen.ending, **call)
    idle_session(pipe.store, seen.ending, **call)
    with pytest.raises(Conflict, match="'s' is idle: it cannot become idle"):
        idle_session(pipe.store, seen.ending, **call)
    archive_session(pipe.store, seen.ending, **call)
    for step in (idle_session, archive_session):
        with pytest.raises(Conflict, match="'s' is archived: it cannot become"):
            step(pipe.store, seen.ending, **call)
    with pytest.raises(Conflict, match="archived: it cannot become archived"):
        archive_session(pipe.store, seen.ending, **call, force=True)
    with pytest.raises(Conflict, match="cannot be started again"):
        start_session(pipe.store, StartSession("s"), agent="ana", now=pipe.now())
    assert len(seen.extracted) == 2
    with pytest.raises(NotFound, match="no session 'nowhere'"):
        idle_session(pipe.store, seen.ending, agent="ana", session="nowhere", now=1)


def test_force_archives_an_active_session(pipe: Pipeline, seen: Recorder) -> None:
    """Given an active session, when archived with force, then it has ended and what served it alone is cleared."""
    archived = archive_session(pipe.store, seen.ending, agent="ana", session="s", now=pipe.now(), force=True)
    assert (archived.status, archived.ended_at is not None) == ("archived", True)
    assert pipe.count("memories") == 1


def test_a_new_message_makes_an_idle_session_active_and_leaves_an_archived_one(pipe: Pipeline, seen: Recorder) -> None:
    """Given an idle and an archived session, when something is said, then it is stored, and only the first wakes."""
    idle_session(pipe.store, seen.ending, agent="ana", session="s", now=pipe.now())
    pipe.say("one more thing")
    pipe.settle()
    assert state(pipe) == ("active", False)
    archive_session(pipe.store, seen.ending, agent="ana", session="s", now=pipe.now(), force=True)
    pipe.say("are you there?")
    pipe.settle()
    assert state(pipe) == ("archived", True)
    assert pipe.contents()[-1] == "are you there?"


def test_a_session_is_made_before_its_first_message(pipe: Pipeline, seen: Recorder) -> None:
    """Given nothing, when a session is started twice, then it is there once, with what either call knew of it."""
    first = start_session(pipe.store, StartSession("new", channel="trips", metadata={"a": 1}), agent="ana", now=5)
    again = start_session(
        pipe.store,
        StartSession("new", user="kate", provider="p", chat_id="7", metadata={"b": None}),
        agent="ana",
        now=6,
    )
    assert (first.messages, first.status, first.ref_code) == (0, "active", again.ref_code)
    assert (again.channel, again.user, again.provider, again.chat_id) == ("trips", "kate", "p", "7")
    assert again.metadata == {"a": 1, "b": None}
    idle_session(pipe.store, seen.ending, agent="ana", session="new", now=7)
    assert start_session(pipe.store, StartSession("new"), agent="ana", now=8).status == "active"
    pipe.say("hello", session=None, provider="p", chat_id="7")
    pipe.settle()
    assert pipe.contents("new") == ["hello"]


def test_a_session_is_found_by_its_reference_code(pipe: Pipeline) -> None:
    """Given a session, then its code finds it for its agent alone."""
    with pipe.store.reading() as tx:
        code = tx.for_agent("ana").sessions.get("s").ref_code
    assert len(code) == 11
    assert session_by_ref(pipe.store, agent="ana", ref_code=code).id == "s"
    for agent, asked in (("bob", code), ("ana", "aaaaaaaaaaa")):
        with pytest.raises(NotFound, match="no session with reference code"):
            session_by_ref(pipe.store, agent=agent, ref_code=asked)


def test_the_job_ends_what_has_been_silent_for_long_and_nothing_else(pipe: Pipeline, seen: Recorder) -> None:
    """Given a silent session, when the job runs before and after its hours, then it ends once and can be undone."""
    before = everything(pipe.store)
    pipe.advance(11 * HOUR_SECONDS)
    assert close(pipe, seen) == {}
    pipe.advance(2 * HOUR_SECONDS)
    assert close(pipe, seen, options=RunOptions(dry_run=True)) == {"closed": 1}
    dry = close_idle_sessions(pipe.stores, seen.ending, now=pipe.now(), idle_hours=12, options=RunOptions(dry_run=True))
    assert [(p["agent"], p["action"], p["about"]) for p in dry["planned"]] == [("ana", "close", "session s")]
    assert (seen.extracted, everything(pipe.store)) == ([], before)
    assert close(pipe, seen) == {"closed": 1, "cleared": 1}
    assert (state(pipe), seen.extracted, seen.published) == (("idle", True), ["ana/s"], ["ana"])
    after = everything(pipe.store)
    assert close(pipe, seen) == {}
    assert everything(pipe.store) == after
    actions = [entry.action for entry in list_entries(pipe.store, agent="ana")]
    assert actions == ["close", "clear"]
    closings = CurationFilter(job="close-idle-sessions")
    done, failed = undo_all(pipe.store, agent="ana", now=pipe.now(), matching=closings)
    assert (len(done), failed) == (2, {})
    assert everything(pipe.store) == before


def test_what_a_person_has_opened_again_stays_open_until_somebody_speaks(pipe: Pipeline, seen: Recorder) -> None:
    """Given an end that was undone, when the job runs again, then it is left; after a message and silence it ends."""
    pipe.advance(13 * HOUR_SECONDS)
    close(pipe, seen)
    undo_all(pipe.store, agent="ana", now=pipe.now())
    assert close(pipe, seen) == {}
    assert state(pipe) == ("active", False)
    pipe.advance(HOUR_SECONDS)
    pipe.say("back again")
    pipe.settle()
    pipe.advance(13 * HOUR_SECONDS)
    # The memory that a person brought back is not cleared again.
    assert close(pipe, seen) == {"closed": 1, "cleared": 0}
    assert pipe.count("memories", "tier = 'conversation'") == 1


def test_an_end_cannot_be_undone_once_somebody_has_spoken(pipe: Pipeline, seen: Recorder) -> None:
    """Given an end, when a message made the session active since, then there is nothing to put back."""
    pipe.advance(13 * HOUR_SECONDS)
    close(pipe, seen)
    pipe.say("hello again")
    pipe.settle()
    entry = next(entry for entry in list_entries(pipe.store, agent="ana") if entry.action == "close")
    with pytest.raises(Conflict, match="a row of sessions has been changed since"):
        undo_entry(pipe.store, agent="ana", entry=entry.id, now=pipe.now())


def test_a_session_in_which_somebody_speaks_while_the_job_runs_is_left(pipe: Pipeline, seen: Recorder) -> None:
    """Given a message that comes during the last extraction, then the session goes on."""
    pipe.advance(13 * HOUR_SECONDS)

    def speak(*_: object) -> None:
        pipe.say("wait, there is more")
        pipe.settle()

    counts = close_idle_sessions(
        pipe.stores, SessionEndHooks(speak, lambda *_: None), now=pipe.now() - HOUR_SECONDS, idle_hours=12
    )
    assert "closed" not in counts
    assert state(pipe) == ("active", False)


def test_killed_between_its_steps_the_job_comes_to_the_same_end(pipe: Pipeline, seen: Recorder) -> None:
    """Given a kill after the extraction or after the commit, when the job runs again, then nothing is done twice."""
    pipe.advance(13 * HOUR_SECONDS)
    now = pipe.now()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        close_idle_sessions(pipe.stores, SessionEndHooks(killed, killed), now=now, idle_hours=12)
    assert state(pipe) == ("active", False)
    seen.failing = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        close_idle_sessions(pipe.stores, seen.ending, now=now, idle_hours=12)
    assert state(pipe) == ("idle", True)
    assert pipe.count("curation_log") == 2
    seen.failing = None
    assert close(pipe, seen) == {}
    assert seen.published == ["ana"], "what the killed one had not committed"
    assert close(pipe, seen) == {}
    assert seen.published == ["ana"]
    assert pipe.count("curation_log") == 2


@pytest.mark.parametrize("by", ["job", "call"])
def test_many_memories_of_a_conversation_are_cleared_in_steps(pipe: Pipeline, seen: Recorder, by: str) -> None:
    """Given a conversation with many memories, when it ends, then each transaction clears some, and all are cleared."""
    with pipe.store.writing() as tx:
        for number in range(250):
            one = NewMemory(
                id=f"m{number}", content=f"step {number}", created_at=pipe.now(), tier="conversation", session="s"
            )
            tx.for_agent("ana").memories.add(one, now=pipe.now())
    pipe.settle()
    if by == "call":
        idle_session(pipe.store, seen.ending, agent="ana", session="s", now=pipe.now())
    else:
        pipe.advance(13 * HOUR_SECONDS)
        assert close(pipe, seen) == {"closed": 1, "cleared": 251}
    assert pipe.count("memories", "tier = 'conversation'") == 0
    assert pipe.count("curation_log", "action = 'clear'") == 6
    assert state(pipe) == ("idle", True)


def test_a_call_whose_commit_to_git_fails_has_ended_the_session(pipe: Pipeline, seen: Recorder) -> None:
    """Given a disk that git cannot write to, when a session is closed, then the error is told and it has ended."""
    seen.failing = StoreUnavailable("the disk is full")
    with pytest.raises(StoreUnavailable):
        idle_session(pipe.store, seen.ending, agent="ana", session="s", now=pipe.now())
    assert state(pipe) == ("idle", True)
    seen.failing = None
    close(pipe, seen)
    assert seen.published == ["ana"], "the job has made good for it"


def test_what_is_remembered_for_a_conversation_after_its_end_is_cleared_later(pipe: Pipeline, seen: Recorder) -> None:
    """Given a conversation memory written for an idle session, when it is old, then the job clears it."""
    idle_session(pipe.store, seen.ending, agent="ana", session="s", now=pipe.now())
    with pipe.store.writing() as tx:
        late = NewMemory(id="late", content="too late", created_at=pipe.now(), tier="conversation", session="s")
        tx.for_agent("ana").memories.add(late, now=pipe.now())
    assert close(pipe, seen) == {}
    pipe.advance(13 * HOUR_SECONDS)
    assert close(pipe, seen, options=RunOptions(dry_run=True)) == {"cleared": 1}
    assert close(pipe, seen) == {"cleared": 1}
    assert pipe.count("memories", "tier = 'conversation'") == 0


@pytest.mark.sqlite("damages a file")
def test_a_workspace_that_cannot_be_read_holds_up_no_other(pipe: Pipeline, seen: Recorder) -> None:
    """Given a damaged workspace beside a sound one, then the sound one's sessions end and the other is named."""
    broken = pipe.stores.database_path("broken")
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"this is no database" * 300)
    pipe.advance(13 * HOUR_SECONDS)
    counts = close_idle_sessions(pipe.stores, seen.ending, now=pipe.now(), idle_hours=12)
    assert counts["closed"] == 1
    assert list(counts["unreadable"]) == ["broken"]


@pytest.mark.parametrize(
    ("first_words", "title"),
    [
        ("## Plan for **Lisbon**\n\n- trains\n- `hotel.md`", "Plan for Lisbon trains hotel.md"),
        ("> see [the map](https://example.org/map) first", "see the map first"),
        ("```python\nprint(__name__)\n```", "print(__name__)"),
        ("Why does *this* fail?\n\n```python\nprint(__name__)\n```", "Why does this fail?"),
        ("2 * 3 * 4, snake_case, -5 degrees, #hashtag", "2 * 3 * 4, snake_case, -5 degrees, #hashtag"),
        ("---", "---"),
    ],
)
def test_a_title_from_the_first_words_has_no_marks_of_markdown(first_words: str, title: str) -> None:
    """Given a session without a title, then its first words are shown as plain text; a title that was given stays."""
    content = SessionContent(1, first_words, None, None)
    assert content.title({}) == title
    assert content.title({"title": "**mine**"}) == "**mine**"
