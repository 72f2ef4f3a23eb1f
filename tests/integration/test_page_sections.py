"""The other sections of the memory page, in a real browser: each path, and no barriers on any of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from memory.recall import record_recalls
from reverie import Reverie
from reverie.errors import NotFound
from reverie.scheduling.types import Interval
from server.authentication import Access
from storage.memories.records import NewMemory
from support.browsing import TOKEN, MakeVisitor, Visitor
from support.http import running_server
from support.stages import drain, pipeline_at_work
from worker.runtime import Runtime


def test_conversations_are_listed_searched_and_read(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a conversation of 130 messages, then its end is shown, and what came before a click away."""
    operator.ingest("long", [{"role": "user", "content": f"This is line {number}"} for number in range(129)])
    operator.ingest("long", {"role": "user", "content": "My dentist is Dr. Sousa"})
    operator.ingest("odd/../id?x=1&y", [{"role": "tool", "content": "{}", "tool_name": "find"}])
    drain(runtime)
    page = visitor.open("/conversations")
    expect(page.locator("[data-item]")).to_have_count(2)
    assert visitor.violations() == []
    page.get_by_role("link", name="odd/../id").click()
    expect(page.get_by_role("heading", name="odd/../id?x=1&y")).to_be_visible()
    visitor.open("/conversations", q="dentist Sousa")
    page.get_by_role("link", name="This is line 0").click()
    expect(page.get_by_role("heading", name="This is line 0")).to_be_visible()
    expect(page.get_by_text("Messages 31 to 130 of 130")).to_be_visible()
    assert visitor.violations() == []
    page.get_by_role("link", name="Earlier messages").click()
    expect(page.get_by_role("listitem").get_by_text("This is line 0", exact=True)).to_be_visible()


def test_the_timeline_tells_since_and_until_when_something_holds(
    visitor: Visitor, operator: Reverie, runtime: Runtime
) -> None:
    """Given what two people said about themselves, then each has what holds, what happened and what held before."""
    told = [("kate", "I live in Lisbon.", 300), ("kate", "I moved to Porto.", 100), ("luis", "I live in Faro.", 90)]
    for name, content, days in told:
        at = datetime.now(UTC) - timedelta(days=days)
        operator.ingest(f"chat-{days}", {"role": "user", "name": name, "content": content, "created_at": at})
    drain(runtime)
    operator.remember("Kate ran a marathon", kind="event")
    for city in ("Braga", "Evora"):
        operator.facts.set("kate", "birthplace", city)
    operator.remember("Skates are in the cellar")
    page = visitor.open("/timeline")
    page.get_by_role("link", name="kate 2").click()
    holds, happened, held = (page.get_by_role("region", name=name) for name in ("Holds now", "Happened", "Held before"))
    expect(holds.get_by_role("listitem")).to_have_count(2)
    expect(holds).to_contain_text("I moved to Porto.")
    expect(holds).to_contain_text("told by kate in")
    expect(holds).to_contain_text("Evora")
    expect(happened.get_by_role("listitem")).to_have_count(1)
    expect(held).to_contain_text("I live in Lisbon.")
    expect(held).to_contain_text("Braga")
    expect(held.locator(".when time")).to_have_count(4)
    assert visitor.violations() == []
    holds.get_by_role("link", name="I moved to Porto.").click()
    expect(page.locator(".turn.source")).to_contain_text("I moved to Porto.")
    visitor.open("/timeline", q="nobody at all")
    expect(page.get_by_text("Nothing is known")).to_be_visible()


def test_a_title_from_right_to_left_begins_where_the_others_do(
    visitor: Visitor, operator: Reverie, runtime: Runtime
) -> None:
    """Given a conversation in Arabic, then its title is read from right to left, at the left of the list."""
    operator.ingest("chat-1", {"role": "user", "content": "متى نسافر؟"})
    drain(runtime)
    title = visitor.open("/conversations").get_by_text("متى نسافر؟").first
    expect(title).to_have_css("direction", "rtl")
    expect(title).to_have_css("text-align", "left")


def test_people_of_more_conversations_than_are_counted_have_at_least_so_many(
    visitor: Visitor, operator: Reverie, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given three conversations of which the latest two are counted, then Kate has two or more."""
    monkeypatch.setattr("server.page.timeline._CONVERSATIONS", 2)
    for number in range(3):
        operator.ingest(f"chat-{number}", {"role": "user", "name": "kate", "content": "Hello"})
    drain(runtime)
    page = visitor.open("/timeline")
    expect(page.get_by_role("link", name="kate 2+")).to_have_attribute("title", "2 conversations of the latest 2")


def test_names_stand_where_ids_would(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a conversation, then lists name it by its first line, users are there to choose from, and counts are."""
    operator.ingest("chat-1", {"role": "user", "content": "Where is the harbour?"}, user="kate")
    drain(runtime)
    operator.context("chat-1", "the harbour")
    runtime.recall_buffer.flush()
    record_recalls(runtime.recall_log, runtime.stores, workspace="default")
    operator.remember("The harbour is in Porto")
    page = visitor.open("/contexts")
    expect(page.get_by_text("Where is the harbour?")).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("chat-1")
    visitor.open("/")
    expect(page.get_by_text("still being indexed: 1")).to_be_visible()
    visitor.open("/agents")
    page.get_by_role("navigation", name="Users").get_by_role("link", name="kate 1 conversation").click()
    expect(page.locator(".place")).to_contain_text("as user kate")
    visitor.open("/conversations", user="kate")
    expect(page.get_by_role("link", name="Where is the harbour?")).to_be_visible()


def test_who_takes_part_in_a_conversation_is_named_once(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a user who is called as its id, an agent and a tool, then the user and the agent take part."""
    said = [("user", "Kate", "What is in it?"), ("tool", "read_file", "def f(): ..."), ("assistant", "Ana", "A stub.")]
    messages = [{"role": role, "name": name, "content": content} for role, name, content in said]
    operator.ingest("chat-1", messages, user="kate")
    drain(runtime)
    page = visitor.open("/conversations", user="kate")
    expect(page.locator(".rows .meta")).to_contain_text("Kate, Ana · 3 messages")
    visitor.open("/timeline", user="kate")
    expect(page.get_by_role("navigation", name="People").get_by_role("link")).to_have_count(2)


@pytest.mark.parametrize("path", ["/conversations", "/timeline", "/"])
def test_a_section_without_anything_of_nobodys_offers_the_users(
    visitor: Visitor, operator: Reverie, runtime: Runtime, path: str
) -> None:
    """Given conversations of users alone, when none is chosen, then the empty section lets one choose."""
    operator.ingest("chat-1", {"role": "user", "name": "Kate", "content": "My sister lives in Graz."}, user="kate")
    operator.remember("Kate takes oat milk", user="kate")
    drain(runtime)
    page = visitor.open(path)
    assert visitor.violations() == []
    page.get_by_role("navigation", name="Users").get_by_role("link", name="kate 1 conversation").click()
    expect(page).to_have_url(visitor.address(path, user="kate"))
    expect(page.locator("main")).to_contain_text("Kate")


def test_a_scratchpad_is_shown_as_working_notes(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    operator.ingest("chat-1", {"role": "user", "content": "Hello"})
    drain(runtime)
    operator.scratchpads.write("chat-1", ["Find a plumber", "<b>Ask</b> about the rent"])
    operator.scratchpads.write_key("chat-1", "flat", {"rooms": 3})
    page = visitor.open("/conversation", id="chat-1")
    notes = page.get_by_role("region", name="Working notes")
    expect(notes).to_contain_text("<b>Ask</b> about the rent")
    expect(notes).to_contain_text('"rooms": 3')
    assert visitor.violations() == []


def test_the_log_shows_what_a_job_changed_and_undoes_it(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a merge by a job, then its run is told in words, line by line, and a line is accepted and undone."""
    for name in ("one", "two"):
        operator.remember("The parser fails loudly on a trailing comma", id=name)
    drain(runtime)
    operator.admin.jobs.run("consolidate-memories")
    page = visitor.open("/log")
    assert visitor.violations() == []
    page.get_by_role("link", name="1 merged").click()
    expect(page.get_by_role("deletion")).to_have_text("The parser fails loudly on a trailing comma")
    assert visitor.violations() == []
    page.get_by_role("link", name="Merged").click()
    expect(page.get_by_role("heading", name="Merged")).to_be_visible()
    expect(page.get_by_text("Memory: replaced by another one")).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("[]")
    assert visitor.violations() == []
    page.go_back()
    page.get_by_role("button", name="Accept:").click()
    expect(page.get_by_role("status")).to_contain_text("Accepted")
    expect(page.get_by_role("button", name="all")).to_have_count(0)
    assert [run.open for run in operator.curation.runs()] == [0]
    page.get_by_role("button", name="Undo:").click()
    expect(page.get_by_role("status")).to_contain_text("Undone")
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    assert len(operator.memories.list()) == 2


def test_what_is_due_is_accepted_corrected_and_forgotten_by_one_key_each(
    visitor: Visitor, operator: Reverie, runtime: Runtime
) -> None:
    """Given three tasks that nobody confirmed for long, when each gets a key, then it holds, is edited, or is gone."""
    long_ago = runtime.now() - 60 * 86_400_000_000
    with runtime.stores.workspace("default").writing() as tx:
        for place, name in enumerate(("first", "second", "third")):
            due = NewMemory(id=name, content=f"Call the {name} plumber", created_at=long_ago + place, kind="task")
            tx.for_agent("ana").memories.add(due, now=long_ago)
    page = visitor.open("/review")
    assert visitor.violations() == []
    rows = page.get_by_role("region", name="May not hold any more").get_by_role("listitem")
    expect(rows).to_have_count(3)
    page.wait_for_load_state()  # the scripts, which know the keys, run after the text is shown
    page.keyboard.press("j")
    page.keyboard.press("a")
    expect(page.get_by_role("status")).to_contain_text("Confirmed")
    expect(rows).to_have_count(2)
    page.wait_for_load_state()
    page.keyboard.press("j")
    page.keyboard.press("e")
    expect(page.get_by_label("What it says")).to_have_value("Call the second plumber")
    visitor.open("/review")
    page.wait_for_load_state()
    page.keyboard.press("k")
    page.keyboard.press("x")
    expect(page.get_by_role("status")).to_contain_text("Deleted")
    assert sorted(memory.id for memory in operator.memories.list()) == ["first", "second"]


def test_a_sensitive_change_is_corrected_by_one_key(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given an allergy that a job learned, when `e` is pressed, then what it says can be edited."""
    operator.ingest("chat-1", {"role": "user", "name": "Kate", "content": "I'm allergic to peanuts."})
    drain(runtime)
    operator.sessions.close("chat-1")  # which extracts at once
    page = visitor.open("/review")
    page.wait_for_load_state()
    page.keyboard.press("j")
    page.keyboard.press("e")
    expect(page.get_by_label("What it says")).to_have_value("Kate is allergic to peanuts.")


def test_all_sensitive_changes_that_are_shown_are_accepted_at_once(
    visitor: Visitor, operator: Reverie, runtime: Runtime
) -> None:
    """Given allergies of two runs, and a third one after the page, when all are accepted, then only the third waits."""
    page = visitor.page
    for number, food in enumerate(("peanuts", "walnuts", "shrimps")):
        operator.ingest(f"chat-{number}", {"role": "user", "name": "Kate", "content": f"I'm allergic to {food}."})
        drain(runtime)
        if number == 2:
            visitor.open("/review")
        operator.sessions.close(f"chat-{number}")
    page.get_by_role("button", name="Accept all 2").click()
    expect(page.get_by_role("status")).to_contain_text("Accepted")
    expect(page.get_by_role("region", name="Sensitive changes").get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_text("Kate is allergic to shrimps.")).to_be_visible()
    assert page.get_by_role("button", name="Accept all").count() == 0


def test_waiting_reminders_are_listed_with_the_schedules(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a reminder and no schedule, then its text, recipient and time are shown instead of an empty page."""
    operator.ingest("chat-1", {"role": "user", "content": "Water the fern"})
    drain(runtime)
    operator.reminders.add("chat-1", "kate", "Water the fern tomorrow", in_=86_400)
    page = visitor.open("/schedules")
    expect(page.get_by_role("link", name="Water the fern tomorrow")).to_contain_text("for kate · due in")
    assert page.get_by_text("Nothing is planned").count() == 0
    assert visitor.violations() == []
    for number in range(51):
        operator.reminders.add("chat-1", "kate", f"Water plant {number}", in_=90_000 + number)
    page = visitor.open("/schedules")
    expect(page.get_by_text("2 later ones: reverie reminders list")).to_be_visible()


def test_a_schedule_is_added_and_changed(visitor: Visitor, operator: Reverie) -> None:
    """Given the form, when a schedule is added and its goal changed, then it fires as entered, and says so in words."""
    page = visitor.open("/schedules")
    page.get_by_role("link", name="New schedule").click()
    expect(page.get_by_text("No language model is set: without a webhook, a run returns what is")).to_be_visible()
    page.get_by_label("What to do").fill("Summarise what is open")
    page.get_by_label("Time zone").fill("Europe/Lisbon")
    expect(page.get_by_label("At what times")).to_have_accessible_description(re.compile("9:00 every day"))
    page.get_by_label("At what times").fill("every morning")
    page.get_by_role("button", name="Add").click()
    failure = page.locator(".failure")
    expect(failure).to_contain_text("cron 'every morning' has 2 of 5 fields")
    expect(failure).not_to_contain_text("Trace")
    expect(failure).to_be_focused()
    page.get_by_role("link", name="Back").click()
    expect(page.get_by_label("What to do")).to_have_value("Summarise what is open")
    expect(page.get_by_label("At what times")).to_have_value("every morning")
    visitor.complaints.clear()  # the browser's console reports the refusal
    page.get_by_label("At what times").fill("0 9 * * 1-5")
    assert visitor.violations() == []
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_text("At 09:00, Monday through Friday, cron 0 9 * * 1-5 (Europe/Lisbon)")).to_be_visible()
    expect(page.get_by_text("No language model is set: a run returns what is recalled for it")).to_be_visible()
    (added,) = operator.schedules.list()
    page.get_by_role("link", name="Change").click()
    page.get_by_label("What to do").fill("Summarise what is new")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Changed.")).to_be_visible()
    changed = operator.schedules.get(added.id)
    assert (changed.goal, changed.cadence, changed.next_run_at) == (
        "Summarise what is new",
        added.cadence,
        added.next_run_at,
    )
    visitor.open("/schedule/new")
    page.get_by_label("What to do").fill("x")
    page.get_by_label("At what times").fill("every day")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_text("cron 'every day' has 2 of 5 fields")).to_be_visible()
    visitor.complaints.clear()  # the browser reports the status 422


def test_a_schedule_of_an_interval_is_added_and_changed(visitor: Visitor, operator: Reverie) -> None:
    """Given seconds in the form, then the schedule has this interval, and keeps it when its goal is changed."""
    page = visitor.open("/schedule/new")
    page.get_by_label("What to do").fill("Water the plants")
    page.get_by_label("When").select_option("every")
    page.get_by_label("At what times").fill("1000000")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_text("Added.")).to_be_visible()
    (added,) = operator.schedules.list()
    assert isinstance(added.cadence, Interval)
    assert added.cadence.seconds == 1_000_000
    page.get_by_role("link", name="Change").click()
    expect(page.get_by_label("At what times")).to_have_value("1000000")
    page.get_by_label("What to do").fill("Water the flowers")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Changed.")).to_be_visible()
    assert operator.schedules.get(added.id).cadence == added.cadence
    visitor.open("/schedule/new")
    page.get_by_label("What to do").fill("x")
    page.get_by_label("When").select_option("every")
    for wrong, expected in (("90.5", "every must be a whole number"), ("inf", "every must be a whole number")):
        page.get_by_label("At what times").fill(wrong)
        page.get_by_role("button", name="Add").click()
        expect(page.get_by_text(expected)).to_be_visible()
        page.go_back()
    visitor.complaints.clear()  # the browser reports the status 422


def test_a_schedule_is_paused_resumed_run_and_deleted(visitor: Visitor, operator: Reverie) -> None:
    """Given a schedule, then its next times and runs are shown, and its state is changed and its deletion undone."""
    added = operator.schedules.add("Summarise what is open", name="Weekly", cron="0 9 * * 1", tz="Europe/Lisbon")
    page = visitor.open("/schedules")
    assert visitor.violations() == []
    page.get_by_role("link", name="Weekly").click()
    expect(page.get_by_role("heading", name="Next times")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("Paused")
    assert operator.schedules.get(added.id).status == "paused"
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status")).to_contain_text("Resumed")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("status")).to_contain_text("A run has started")
    assert len(operator.runs.list(added.id)) == 1
    assert visitor.violations() == []
    before = operator.schedules.get(added.id)
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("status")).to_contain_text("Deleted")
    assert visitor.violations() == []
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("Restored")
    assert operator.schedules.get(added.id) == before
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("link", name="All schedules").click()
    expect(page.get_by_text("Nothing is planned")).to_be_visible()


def test_a_dead_letter_is_read_replayed_and_dropped(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a message that cannot be stored, then its letter has the error and the payload."""
    taken = {"role": "user", "content": "First.", "sequence": 1}
    with pipeline_at_work(runtime):
        operator.ingest("s", taken, wait="stored")
        operator.ingest("s", [{"role": "user", "content": "Free."}, {**taken, "id": "late"}])
        operator.ingest("s", {"role": "user", "content": "Last."}, wait="stored")
        page = visitor.open("/dead-letters")
        assert visitor.violations() == []
        page.get_by_role("button", name="Replay").click()
        expect(page.get_by_role("status")).to_contain_text("Replayed")
    drain(runtime)  # the page waits 3 s for what becomes of it, which a busy machine exceeds
    visitor.open("/dead-letters")
    page.locator("[data-item]").first.click()
    expect(page.get_by_label("Payload")).to_contain_text('  "content": "First."')
    assert visitor.violations() == []
    page.get_by_role("button", name="Drop for good").click()
    expect(page.get_by_role("status")).to_contain_text("Dropped")
    expect(page.get_by_text("No dead letters")).to_be_visible()


def test_a_dream_is_shown_as_a_diff(visitor: Visitor, operator: Reverie) -> None:
    """Given two commits of the memory files, then the later one shows the lines that it added."""
    operator.notes.add("Ask for the tram timetable", note_id="errand")
    operator.memory_files.checkpoint("First notes")
    operator.notes.update("errand", "Ask for the <b>ferry</b> timetable")
    operator.memory_files.checkpoint("Second notes")
    page = visitor.open("/dreams")
    assert visitor.violations() == []
    page.get_by_role("link", name="Second notes").click()
    expect(page.locator(".file-diff .added").first).to_contain_text("ferry")
    expect(page.locator(".file-diff")).to_contain_text("<b>ferry<")
    expect(page.locator(".file-diff .file")).to_have_text("notes/errand.md")
    assert visitor.violations() == []
    visitor.open("/dreams")
    page.get_by_role("link", name="First notes").click()
    expect(page.get_by_text("nothing to compare them with")).to_be_visible()


def test_an_erasure_is_planned_confirmed_and_proved(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a conversation, when it is erased on the page, then its numbers are shown first, and a receipt last."""
    operator.ingest("chat-1", {"role": "user", "content": "My dentist is Dr. Sousa"})
    drain(runtime)
    page = visitor.open("/conversation", id="chat-1")
    page.get_by_role("link", name="Erase").click()
    plan = page.get_by_role("button", name="See what would be removed")
    expect(plan).to_be_visible()
    assert visitor.violations() == []
    plan.click()
    expect(page.get_by_role("table")).to_contain_text("messages")
    expect(page.get_by_role("cell", name="vectors", exact=True)).to_be_visible()  # not the name of their table
    assert operator.sessions.list() != []
    assert visitor.violations() == []
    page.get_by_label("I know that this cannot be undone").check()
    page.get_by_role("button", name="Erase it").click()
    expect(page.get_by_role("heading", name="A conversation")).to_be_visible()
    operator.admin.jobs.run("continue-erasures")
    expect(page.get_by_role("region", name="Receipt")).to_contain_text("Nothing of it was found afterwards")
    assert visitor.violations() == []
    assert operator.sessions.list() == []
    visitor.open("/erasures")
    expect(page.locator("[data-item]")).to_have_count(1)


def test_what_an_erasure_about_somebody_lists_can_be_kept(
    visitor: Visitor, operator: Reverie, runtime: Runtime
) -> None:
    """Given two messages that name a person, when one is kept in the list and the rest erased, then it stays."""
    for number, text in enumerate(("Ilse is allergic to walnuts", "Ilse recommends the film")):
        operator.ingest(f"chat-{number}", {"role": "user", "content": text})
    drain(runtime)
    page = visitor.open("/erasures")
    page.get_by_label("What").select_option(label="What is about somebody or something")
    page.get_by_label("Its name or id").fill("Ilse")
    page.get_by_role("button", name="See what would be removed").click()
    page.get_by_label("Keep: Ilse recommends the film").check()
    assert visitor.violations() == []
    page.get_by_label("I know that this cannot be undone").check()
    page.get_by_role("button", name="Erase it").click()
    operator.admin.jobs.run("continue-erasures")
    expect(page.get_by_role("region", name="Receipt")).to_contain_text("Nothing of it was found afterwards")
    assert [result.text for result in operator.recall("Ilse")] == ["Ilse recommends the film"]


def test_every_empty_section_says_what_it_is_for(visitor: Visitor) -> None:
    for path in ("/conversations", "/schedules", "/dreams", "/log", "/dead-letters", "/erasures", "/agents"):
        visitor.open(path)
        assert visitor.violations() == [], path


def test_a_phone_needs_no_sideways_scrolling(make_visitor: MakeVisitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a screen of 360 pixels and a word of 300 letters, then no page is wider than the screen."""
    kept = operator.remember("W" * 300, tags=["t" * 60])
    operator.remember("Kate takes oat milk")
    drain(runtime)
    visitor = make_visitor(viewport={"width": 360, "height": 740})
    for path, parameters in (("/", {}), ("/memory", {"id": kept.id}), ("/memory/edit", {"id": kept.id}), ("/log", {})):
        page = visitor.open(path, **parameters)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    page = visitor.open("/", q="oat milk")
    page.locator("details.why summary").first.click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_low_screen_shows_the_way_out(make_visitor: MakeVisitor) -> None:
    """Given the height that a small laptop leaves to a page, then all of the side is in sight."""
    page = make_visitor(viewport={"width": 1280, "height": 700}).open("/", user="mia")
    expect(page.get_by_role("button", name="Log out")).to_be_in_viewport(ratio=1)


def test_a_login_survives_a_restart_of_the_server(
    make_runtime: Callable[..., Runtime], make_visitor: MakeVisitor, page_url: str, tmp_path: Path
) -> None:
    """Given a login, when another process serves the same data, then the browser is still logged in."""
    visitor = make_visitor()
    with Reverie("ana", url=page_url, token=TOKEN) as client:
        client.remember("Kate takes oat milk")
    (cookie,) = [one for one in visitor.context.cookies() if one.get("name") != "reverie-zone"]
    with running_server(make_runtime(), access=Access(tokens={"operator": TOKEN})) as again:
        port = again.rpartition(":")[2]
        visitor.context.add_cookies([{**cookie, "name": f"reverie-{port}"}])  # type: ignore[list-item]
        visitor.page.goto(f"{again}/?agent=ana&workspace=default")
        expect(visitor.page.get_by_text("Kate takes oat milk")).to_be_visible()


def test_thousands_of_memories_are_paged_and_searched(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given 2,000 memories, then the page lists the newest, leads to older ones, and finds one among them."""
    from reverie.clock import from_micros
    from reverie.memories.types import Memory, MemoryExport

    made = [
        Memory(
            id=f"n{number}",
            agent="ana",
            tier="workspace",
            lifetime="long_term",
            kind="fact",
            source="agent",
            content=f"Box {number} holds the parts of machine {number % 97}",
            importance=0.5,
            access_count=0,
            created_at=from_micros(1_700_000_000_000_000 + number * 60_000_000),
            updated_at=from_micros(1_700_000_000_000_000 + number * 60_000_000),
            accessed_at=from_micros(1_700_000_000_000_000 + number * 60_000_000),
        )
        for number in range(2_000)
    ]
    operator.memories.import_(MemoryExport(memories=made))
    page = visitor.open("/")
    expect(page.get_by_text("2,000 memories")).to_be_visible()
    expect(page.locator("[data-item]")).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(page.locator("[data-item]").first).to_contain_text("Box 1949")
    drain(runtime)
    visitor.open("/", q="box 1321")
    expect(page.locator("li.result").first).to_contain_text("Box 1321")


def test_a_page_of_messages_lies_around_one_of_them(operator: Reverie, runtime: Runtime) -> None:
    """Given twenty messages, then the page around one has it in its middle, and says how many come before."""
    operator.ingest("chat-1", [{"id": f"m{number}", "role": "user", "content": "x"} for number in range(20)])
    drain(runtime)
    assert [message.id for message in operator.sessions.messages("chat-1", around="m10", limit=3)] == [
        "m9",
        "m10",
        "m11",
    ]
    assert [message.id for message in operator.sessions.messages("chat-1", around="m0", limit=3)] == ["m0", "m1", "m2"]
    with pytest.raises(NotFound, match="no message 'm99'"):
        operator.sessions.messages("chat-1", around="m99")
