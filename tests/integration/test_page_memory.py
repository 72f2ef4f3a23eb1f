"""One memory on the memory page, in a real browser: its origin and history, and every change with its undo."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from memory.lifecycle.restore import apply_tombstones
from memory.recall import record_recalls
from reverie import Reverie
from storage.memories.records import NewMemory
from support.browsing import MakeVisitor, Visitor
from support.stages import drain
from worker.runtime import Runtime

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\n</textarea>\u202e\u200b \"quoted\""


def test_a_memory_shows_where_it_came_from(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a memory from a message, then the message is shown in its conversation, and leads there."""
    talk = [{"id": f"m{number}", "role": "user", "content": f"This is line {number}"} for number in range(40)]
    operator.ingest("chat-1", talk)
    drain(runtime)
    kept = operator.remember("Line 20 matters", session="chat-1", source_message="m20")
    page = visitor.open("/memory", id=kept.id)
    expect(page.locator(".turn")).to_have_count(7)
    expect(page.locator(".turn.source")).to_contain_text("This is line 20")
    assert visitor.violations() == []
    page.get_by_role("link", name="This is line 0").click()
    expect(page.locator(".turn.source")).to_contain_text("This is line 20")


def test_a_memory_in_markdown_is_shown_as_such(visitor: Visitor, operator: Reverie) -> None:
    """Given a memory with Markdown and HTML, then it is formatted and the HTML stays text, in the page's heading."""
    kept = operator.remember("Kate **never** takes:\n\n- `milk`\n- <b>tea</b>")
    page = visitor.open("/memory", id=kept.id)
    heading = page.get_by_role("heading", level=1)
    expect(heading.locator("strong")).to_have_text("never")
    expect(heading.get_by_role("listitem")).to_have_text(["milk", "<b>tea</b>"])
    assert visitor.violations() == []


def test_a_memory_shows_what_it_was_merged_from(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given two memories that say the same, when the job has merged them, then one shows the other, and the log."""
    for name in ("one", "two"):
        operator.remember("The parser fails loudly on a trailing comma", id=name)
    drain(runtime)
    assert operator.admin.jobs.run("consolidate-memories").counts["merged"] == 1
    (left,) = operator.memories.list()
    page = visitor.open("/memory", id=left.id)
    expect(page.get_by_role("region", name="Merged from")).to_contain_text("fails loudly on a trailing comma")
    assert visitor.violations() == []
    page.get_by_role("link", name="undo in the log").click()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("Undone")
    assert len(operator.memories.list()) == 2


def test_a_memory_shows_what_recalled_it_and_how_its_relevance_moved(
    visitor: Visitor, operator: Reverie, runtime: Runtime
) -> None:
    """Given three recalls by two queries, then the queries are listed, and the drawing says the relevance in words."""
    kept = operator.remember("Kate takes oat milk")
    operator.remember("The release goes out on Thursdays")
    drain(runtime)
    for query in ("oat milk", "oat milk", "what does Kate take?"):
        operator.recall(query)
    runtime.recall_buffer.flush()
    record_recalls(runtime.recall_log, runtime.stores, workspace="default")
    page = visitor.open("/memory", id=kept.id)
    recalled = page.get_by_role("region", name="Recalled by")
    expect(recalled.get_by_role("listitem")).to_have_count(2)
    expect(recalled).to_contain_text("2 times")
    expect(page.get_by_role("img", name="Relevance since")).to_be_visible()
    expect(page.get_by_text("recalled 3 times")).to_be_visible()
    (event, *_) = operator.memories.recall_events(memory=kept.id)
    assert event.id == kept.id
    assert list(operator.memories.recall_events(memory="unknown")) == []


def test_a_memory_is_written_edited_pinned_and_each_of_it_undone(visitor: Visitor, operator: Reverie) -> None:
    """Given the page, when somebody writes, edits and pins a memory, then each change is stored, and can be undone."""
    page = visitor.open("/")
    page.get_by_role("link", name="New memory").click()
    page.get_by_label("What to remember").fill("Kate takes oat milk")
    page.get_by_label("Tags").fill("coffee, kitchen")
    page.get_by_label("Kind").select_option("preference")
    assert visitor.violations() == []
    page.get_by_role("button", name="Remember").click()
    expect(page.get_by_role("status")).to_contain_text("Remembered")
    page.wait_for_load_state()  # the scripts, which know the key, run after the text is shown
    (stored,) = operator.memories.list()
    assert (stored.content, stored.kind, stored.source) == ("Kate takes oat milk", "preference", "user")
    assert stored.tags == ["coffee", "kitchen"]

    page.keyboard.press("e")
    page.get_by_label("What it says").fill("Kate takes soy milk\nsince May")
    page.get_by_label("Importance").fill("0.75")
    assert visitor.violations() == []
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    changed = operator.memories.get(stored.id)
    assert (changed.content, changed.importance) == ("Kate takes soy milk\nsince May", 0.75)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("Undone")
    again = operator.memories.get(stored.id)
    assert (again.content, again.importance, again.tags) == (stored.content, stored.importance, stored.tags)

    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("Pinned")
    assert operator.memories.get(stored.id).pinned
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("No longer pinned")
    assert not operator.memories.get(stored.id).pinned


def test_a_deleted_memory_is_gone_and_comes_back_by_undo(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a memory that a job found in a message, when it is deleted, nothing is left; undo brings all of it back."""
    operator.ingest("chat-1", {"id": "m1", "role": "user", "content": "I'm allergic to peanuts."})
    drain(runtime)
    found = NewMemory(
        id="k1",
        content="Kate is allergic to peanuts",
        created_at=runtime.now(),
        source="extraction",
        session="chat-1",
        source_message="m1",
        made_by="extract-memories",
        tags=("food",),
        metadata={"from": "a test"},
    )
    with runtime.stores.workspace("default").writing() as tx:
        tx.for_agent("ana").memories.add(found, now=runtime.now())
    before = operator.memories.get("k1")
    page = visitor.open("/memory", id=before.id)
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("status")).to_contain_text("Deleted")
    assert operator.memories.list() == []
    assert visitor.violations() == []
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("Restored")
    expect(page.get_by_role("region", name="Where it came from")).to_contain_text("I'm allergic to peanuts.")
    after = operator.memories.get(before.id)
    assert after == before
    assert after.provenance is not None
    assert (after.provenance.made_by, after.provenance.message) == ("extract-memories", "m1")
    drain(runtime)
    assert before.id in [found.id for found in operator.memories.search("peanuts").results]
    # A backup that holds it is made later than its tombstone.
    assert apply_tombstones(runtime.stores, now=runtime.now()).get("memories", 0) == 0
    assert operator.memories.get(before.id) == before


@pytest.mark.parametrize("kind", ["fact", "note", "replaced value"])
def test_a_deleted_fact_or_note_comes_back_with_its_history(visitor: Visitor, operator: Reverie, kind: str) -> None:
    """Given a fact with earlier values, and a note, when one is deleted and restored, then all is as it was."""
    for value in ("Porto", "Lisbon", "Faro"):
        operator.facts.set("home", "city", value)
    note = operator.notes.add("Ask about the rent", metadata={"for": "May"})
    history, before = operator.facts.history("home", "city"), operator.memories.list(superseded=True)
    one = {"fact": history[0].id, "note": note.note_id, "replaced value": history[1].id}[kind]
    page = visitor.open("/memory", id=one)
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("status")).to_contain_text("Deleted")
    assert len(operator.memories.list(superseded=True)) < len(before)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("Restored")
    assert operator.facts.history("home", "city") == history
    assert sorted(operator.memories.list(superseded=True), key=lambda memory: memory.id) == sorted(
        before, key=lambda memory: memory.id
    )
    assert operator.notes.get(note.note_id) == note


def test_a_deleted_fact_that_has_a_new_value_is_not_restored(visitor: Visitor, operator: Reverie) -> None:
    """Given a deleted fact, when its key gets another value before the undo, then that one stays, without history."""
    for value in ("Porto", "Lisbon"):
        operator.facts.set("home", "city", value)
    page = visitor.open("/memory", id=operator.facts.get("home", "city").id)
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("status")).to_contain_text("Deleted")
    operator.facts.set("home", "city", "Faro")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("has its place by now")).to_be_visible()
    assert [fact.value for fact in operator.facts.history("home", "city")] == ["Faro"]
    visitor.complaints.clear()  # the browser reports the status 409


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("form => { form.action = form.action.replace('agent=ana', 'agent=ben') }", "about another agent"),
        ("form => { form.records.value = form.records.value.slice(2) }", "not one of this login"),
    ],
)
def test_what_was_deleted_comes_back_to_its_own_place_only(
    visitor: Visitor, operator: Reverie, change: str, text: str
) -> None:
    """Given the page of a deletion, when its form is changed or sent about another agent, then nothing is restored."""
    kept = operator.remember("Kate takes oat milk")
    page = visitor.open("/memory", id=kept.id)
    page.get_by_role("button", name="Delete").click()
    page.locator("form[action*=restore]").evaluate(change)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text(text)).to_be_visible()
    assert operator.memories.list() == []
    visitor.complaints.clear()  # the browser reports the status 422


def test_what_was_erased_since_its_deletion_does_not_come_back(visitor: Visitor, operator: Reverie) -> None:
    """Given the page of a deletion, when the memory's user is erased before the undo, then nothing is restored."""
    kept = operator.remember("Kate takes oat milk", user="kate")
    page = visitor.open("/memory", id=kept.id, user="kate")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Undo").wait_for()
    operator.admin.erasures.create(user="kate")
    operator.admin.jobs.run("continue-erasures")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("it was not brought back")).to_be_visible()
    assert operator.memories.list(user="kate") == []
    visitor.complaints.clear()  # the browser reports the status 409


def test_a_fact_is_corrected_and_its_values_are_shown(visitor: Visitor, operator: Reverie) -> None:
    """Given a fact, when its value is corrected on the page, then the earlier one is its history; undo sets it back."""
    operator.facts.set("home", "city", "Porto")
    page = visitor.open("/memory", id=operator.facts.get("home", "city").id)
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("The value of").fill("Lisbon")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    assert operator.facts.get("home", "city").value == "Lisbon"
    expect(page.get_by_role("region", name="Its values")).to_contain_text("Porto")
    assert visitor.violations() == []
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("Undone")
    assert operator.facts.get("home", "city").value == "Porto"


def test_of_two_tabs_the_second_does_not_overwrite_the_first(visitor: Visitor, operator: Reverie) -> None:
    """Given a memory open in two tabs, when both save, then the second is told, and its text is not lost."""
    kept = operator.remember("Kate takes oat milk")
    first, second = visitor.page, visitor.new_tab()
    for tab in (first, second):
        tab.goto(visitor.address("/memory/edit", id=kept.id))
    first.get_by_label("What it says").fill("Kate takes soy milk")
    first.get_by_role("button", name="Save").click()
    expect(first.get_by_role("status")).to_contain_text("Saved")
    second.get_by_label("What it says").fill("Kate takes rice milk")
    second.get_by_role("button", name="Save").click()
    expect(second.get_by_role("alert")).to_contain_text("Kate takes rice milk")
    expect(second.get_by_label("What it says")).to_have_value("Kate takes soy milk")
    assert operator.memories.get(kept.id).content == "Kate takes soy milk"
    visitor.complaints.clear()  # the browser reports the status 409


def test_tabs_show_different_agents_and_users(visitor: Visitor, operator: Reverie) -> None:
    """Given two agents and a user, then each tab stays with the one that its address names."""
    operator.remember("Of nobody")
    operator.remember("Of kate", user="kate")
    other = visitor.new_tab()
    other.goto(visitor.address("/", user="kate"))
    visitor.open("/", agent="ben")
    expect(visitor.page.get_by_text("Nothing is remembered yet")).to_be_visible()
    expect(other.locator("[data-item]")).to_have_count(2)
    other.get_by_role("link", name="As user: kate").click()
    expect(other.locator("[data-item]")).to_have_count(1)
    visitor.page.reload()
    expect(visitor.page.locator(".place")).to_contain_text("ben")


def test_hostile_text_survives_an_edit_as_it_is(make_visitor: MakeVisitor, operator: Reverie) -> None:
    """Given markup in a memory, when only its tags are changed, then its text stays, and nothing in it has worked."""
    kept = operator.remember(HOSTILE)
    visitor = make_visitor()
    page = visitor.open("/memory", id=kept.id)
    assert "owned" not in page.title().partition("<script>")[0]
    assert page.locator("main img, main script").count() == 0
    page.get_by_role("link", name="Edit").click()
    expect(page.get_by_label("What it says")).to_have_value(HOSTILE)
    page.get_by_label("Tags").fill("odd")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    stored = operator.memories.get(kept.id)
    assert (stored.content, stored.tags) == (HOSTILE, ["odd"])
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("Restored")
    (restored,) = operator.memories.list()
    assert restored.content == HOSTILE


@pytest.mark.parametrize(
    ("scopes", "buttons"), [(["read"], []), (["read", "write"], ["Pin"]), (["read", "forget"], ["Delete"])], ids=str
)
def test_the_page_offers_what_the_token_allows(
    make_visitor: MakeVisitor, operator: Reverie, scopes: list[str], buttons: list[str]
) -> None:
    kept = operator.remember("Kate takes oat milk")
    created = operator.admin.tokens.create(agents=["ana"], workspace="default", scopes=scopes)
    visitor = make_visitor(token=created.token)
    visitor.open("/memory", id=kept.id)
    shown = visitor.page.locator(".actions button").all_inner_texts()
    assert shown == buttons


def test_a_form_of_another_login_changes_nothing(visitor: Visitor, operator: Reverie) -> None:
    """Given a form whose token is not that of the login, then nothing is deleted, and the page says what to do."""
    kept = operator.remember("Kate takes oat milk")
    page = visitor.open("/memory", id=kept.id)
    page.locator("input[name=form_token]").evaluate_all("fields => fields.forEach(one => one.value = 'other')")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("belongs to another login")).to_be_visible()
    assert operator.memories.get(kept.id).content == "Kate takes oat milk"
    visitor.complaints.clear()  # the browser reports the status 403


def test_what_is_not_there_is_a_page_that_says_so(visitor: Visitor) -> None:
    visitor.open("/memory", id="../../etc/passwd")
    expect(visitor.page.get_by_role("heading", name="Not found")).to_be_visible()
    assert visitor.violations() == []
    visitor.complaints.clear()  # the browser reports the status 404
