"""Each memory says who said it, when, in which message, and what made it a memory, as far as its reader may know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from memory.lifecycle.importing import import_memories
from memory.memories.agent_memories import AgentMemories
from memory.memories.facts import set_fact
from memory.memories.memories import export_memories, list_memories, read_memory, remember
from memory.memories.notes import store_note
from reverie.clock import from_micros
from reverie.memories.calls import ListMemories, Remember, SetFact
from reverie.memories.types import MemoryDraft, NoteDraft, Provenance
from storage.viewer import Viewer
from support.dreams import QUESTIONS, Dreamer
from support.extracting import Extracting, tell
from support.pipeline import WORKSPACE

LISBON = "I moved to Lisbon in May and work on sqlite-vec"


@pytest.fixture
def dreamer(tmp_path: Path) -> Iterator[Dreamer]:
    """A workspace with a past."""
    made = Dreamer(tmp_path)
    yield made
    made.close()


def memories_of(dreamer: Dreamer, user: str | None = None, *, operator: bool = False) -> AgentMemories:
    return AgentMemories(dreamer.stores, WORKSPACE, "ana", None if operator else Viewer(user))


def the_only(dreamer: Dreamer, user: str | None = None) -> Provenance:
    """Return the provenance of the only memory that a user sees, the same in a list and by itself."""
    memories = memories_of(dreamer, user)
    (listed,) = list_memories(memories, ListMemories(limit=10), now=dreamer.now())
    whole = read_memory(memories, listed.id).provenance
    assert listed.provenance is not None
    assert whole is not None
    assert listed.provenance.changes == []
    return whole


def test_what_extraction_made_names_user_message_session_and_job(dreamer: Dreamer) -> None:
    """Given words of kate that extraction made a memory of, then it says all of them, and the entry of the job."""
    (message,) = tell(
        dreamer, {"content": "I live in Lisbon with my cat.", "name": "Kate"}, user="kate", session="chat-42"
    )
    Extracting(dreamer).sweep()
    with dreamer.store.reading() as tx:
        said_at = tx.for_agent("ana").messages.with_id(message)[0].created_at
    found = the_only(dreamer, "kate")
    assert (found.made_by, found.trust, found.user, found.role, found.name) == (
        "extract-memories", "user", "kate", "user", "Kate",
    )  # fmt: skip
    assert (found.session, found.message, found.message_readable) == ("chat-42", message, True)
    assert found.said_at == from_micros(said_at)
    assert [(one.job, one.action) for one in found.changes] == [("extract-memories", "extract")]


def test_what_a_dream_made_of_an_assistants_words_is_not_the_users_word(dreamer: Dreamer) -> None:
    """Given words of the assistant that a dream sweep made a memory of, then the trust says whose they are."""
    dreamer.say({"role": "assistant", "content": LISBON}, user="kate")
    dreamer.settle()
    chunk = dreamer.chunk_of(LISBON)
    for query in QUESTIONS:
        dreamer.recalled(chunk, query=query, user="kate")
    dreamer.dream()
    found = the_only(dreamer, "kate")
    assert (found.made_by, found.trust, found.role, found.user) == ("dream-sweep", "assistant", "assistant", "kate")
    assert [one.action for one in found.changes] == ["promote"]


def test_a_call_cannot_pass_for_a_job_or_put_words_into_anothers_mouth(dreamer: Dreamer) -> None:
    """Given a memory of luis that claims to be extracted from a message of kate, then it is what luis remembered."""
    (message,) = tell(dreamer, "hello", user="kate", session="of-kate")
    draft = MemoryDraft(
        id="m",
        content="Kate owes luis money",
        lifetime="short_term",
        source="extraction",
        source_message=message,
        owner_user_id="luis",
        metadata={"found_by": "patterns"},
    )
    remember(memories_of(dreamer, "luis"), draft, now=dreamer.now())
    found = the_only(dreamer, "luis")
    assert (found.made_by, found.trust, found.user, found.role) == ("remember", "extraction", "luis", None)
    assert not found.message_readable


def test_facts_notes_and_imports_say_so(dreamer: Dreamer) -> None:
    """Given a fact, a note and an imported memory, then each says which call stored it."""
    memories = memories_of(dreamer)
    set_fact(memories, SetFact(category="profile", key="city", value="Lisbon"), now=dreamer.now())
    store_note(memories, NoteDraft(note_id="n", content="Ask for Ana"), now=dreamer.now())
    remember(
        memories, MemoryDraft(id="m", content="A statement", source="user", lifetime="long_term"), now=dreamer.now()
    )
    made = [memory.provenance for memory in list_memories(memories, ListMemories(), now=dreamer.now())]
    assert {(one.made_by, one.trust) for one in made if one} == {
        ("set-fact", "agent"),
        ("add-note", "agent"),
        ("remember", "user"),
    }
    document = export_memories(memories)
    import_memories(replace(memories, agent="bob"), document, now=dreamer.now())
    copies = list_memories(replace(memories, agent="bob"), ListMemories(), now=dreamer.now())
    assert [(copy.provenance.made_by, copy.provenance.trust) for copy in copies if copy.provenance] == [
        ("import", "import")
    ] * 3


def test_a_message_that_is_forgotten_or_of_another_is_only_named(dreamer: Dreamer) -> None:
    """Given a memory that kate shares, then luis is not shown her message, and when it is forgotten, nor is kate."""
    (message,) = tell(dreamer, "I live in Lisbon with my cat.", user="kate", session="chat-42")
    Extracting(dreamer).sweep()
    with dreamer.store.writing() as tx:
        rows = tx.for_agent("ana")
        (made,) = rows.memories.page()
        rows.memories.change(made.row_id, now=dreamer.now(), visibility="shared")
    assert the_only(dreamer, "kate").message_readable
    of_luis = the_only(dreamer, "luis")
    assert (of_luis.message_readable, of_luis.user, of_luis.name) == (False, "kate", None)
    with dreamer.store.writing() as tx:
        tx.connection.exec_driver_sql("DELETE FROM messages WHERE id = ?", (message,))
    gone = the_only(dreamer, "kate")
    assert (gone.message, gone.message_readable, gone.trust, gone.session) == (message, False, "user", "chat-42")


def test_a_promotion_and_a_merge_are_among_the_changes(dreamer: Dreamer) -> None:
    """Given a memory that a sweep promoted, then its changes say so; an undone one is not a change."""
    dreamer.remember(LISBON, made_by="remember")
    dreamer.make_hot(LISBON)
    dreamer.dream()
    assert [(one.job, one.action) for one in the_only(dreamer).changes] == [("dream-sweep", "promote")]
    dreamer.undo(dreamer.curations()[0])
    assert the_only(dreamer).changes == []


# --- in the files ---


def test_the_files_say_where_each_line_comes_from(dreamer: Dreamer) -> None:
    """Given a promoted message of kate, a fact and a note, then their lines end with who, when, where and by what."""
    (message,) = dreamer.say({"content": LISBON, "id": "m1"}, user="kate", session="chat-42")
    memories = memories_of(dreamer)
    set_fact(memories, SetFact(category="profile", key="city", value="Lisbon"), now=dreamer.began)
    store_note(
        memories_of(dreamer, "kate"), NoteDraft(note_id="n", content="Ask for Ana", user="kate"), now=dreamer.began
    )
    dreamer.settle()
    chunk = dreamer.chunk_of("sqlite-vec")
    for query in QUESTIONS:
        dreamer.recalled(chunk, query=query, user="kate")
    dreamer.dream()
    day = from_micros(dreamer.began)
    shown = f"{day.day} {day:%b} {day.year}"
    files = dreamer.files()
    (line,) = [line for line in files["MEMORY.md"].splitlines() if LISBON in line]
    assert line.endswith(f" — from kate (user), {shown}, session chat-42, message {message}, made by dream-sweep")
    assert f"- city: Lisbon — from agent, {shown}, made by set-fact\n" in files["facts.md"]
    assert f", from kate (agent), {shown}, session memory:kate, made by add-note\n" in files["notes/n.md"]

    with dreamer.store.writing() as tx:
        tx.connection.exec_driver_sql("DELETE FROM messages WHERE id = 'm1'")
    dreamer.dream()
    assert "m1" not in dreamer.files()["MEMORY.md"]
    assert LISBON in dreamer.files()["MEMORY.md"]


def test_a_session_named_like_a_secret_is_in_no_file(dreamer: Dreamer) -> None:
    """Given a session whose id looks like a key, then the file is written without it."""
    key = "AKIAIOSFODNN7EXAMPLE"
    dreamer.say("hello", user="kate", session=key)
    dreamer.settle()
    dreamer.remember(LISBON, owner_user_id="kate", session=key, made_by="remember")
    chunk = dreamer.chunk_of(LISBON)
    for query in QUESTIONS:
        dreamer.recalled(chunk, query=query, user="kate")
    dreamer.dream()
    assert LISBON in dreamer.files()["MEMORY.md"]
    assert key not in dreamer.files()["MEMORY.md"]


def test_remember_takes_no_made_by() -> None:
    """Given the call, then no field of it says which job made the memory."""
    assert "made_by" not in Remember.__struct_fields__
