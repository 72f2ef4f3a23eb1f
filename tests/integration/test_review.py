"""What a person should look at: by the clients, on the command line and on the page, and how it is settled."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from reverie import Reverie, contract
from storage.curation import EntryDraft
from storage.memories.memories import _SELECT_DUE
from storage.memories.records import NewMemory
from support.browsing import Visitor
from support.command_line import CommandLine
from worker.runtime import Runtime

DAY = 86_400_000_000


@pytest.fixture
def here(runtime: Runtime) -> Runtime:
    """A sensitive change, a memory that waits, an old fact, a new one, and two that contradict each other."""
    now = runtime.now()
    with runtime.store("default").writing() as tx:
        rows = tx.for_agent("ana")
        how = {"job": contract.EXTRACT_MEMORIES, "agent": "ana", "action": "extract", "at": now}
        with tx.curation.entry(EntryDraft("said in message 1", sensitive="health"), **how):
            rows.memories.add(NewMemory(id="knee", content="Ana's knee hurts", created_at=now), now=now)
        for memory in (
            NewMemory(id="shy", content="Tests run first", created_at=now, kind="procedure", visibility="requested"),
            NewMemory(id="old", content="Ana works at Acme", created_at=now - 400 * DAY, kind="fact"),
            NewMemory(id="new", content="Ana lives in Lisbon", created_at=now - 300 * DAY, kind="fact"),
            NewMemory(id="past", content="Ana moved in 2020", created_at=now - 900 * DAY, kind="event"),
            NewMemory(id="tea", content="Ana drinks tea", created_at=now, kind="preference", subject="drink"),
            NewMemory(id="mate", content="Ana drinks mate", created_at=now, kind="preference", subject="drink"),
            NewMemory(
                id="bob", content="Bob drinks milk", created_at=now, kind="preference", subject="drink",
                owner_user_id="bob",
            ),
        ):  # fmt: skip
            rows.memories.add(memory, now=now)
    return runtime


def test_what_is_due_is_listed_and_settled(here: Runtime, ana: Reverie) -> None:
    """Given what is sensitive, waits, is old or contradicts, then it is listed with the reason until it is settled."""
    found = ana.memories.review()
    assert [(entry.memories, entry.sensitive, entry.after) for entry in found.entries] == [
        (["knee"], "health", "Ana's knee hurts")
    ]
    assert [memory.id for memory in found.waiting] == ["shy"]
    assert [(due.memory.id, due.why.partition(" since")[0]) for due in found.due] == [
        ("tea", "memory mate says something else"),
        ("mate", "memory tea says something else"),
        ("old", "not said again"),
    ]
    remarks = {memory.id: memory.review.partition(" since")[0] for memory in ana.memories.list() if memory.review}
    assert remarks == {
        "shy": "waits for approval to be shared",
        "tea": "memory mate says something else",
        "mate": "memory tea says something else",
        "old": "not said again",
    }
    assert ana.memories.get("tea").review == remarks["tea"]
    ana.curation.accept([found.entries[0].id])
    ana.memories.approve("shy")
    logged = len(ana.curation.list())
    assert ana.memories.approve("shy").visibility == "shared"
    assert len(ana.curation.list()) == logged, "nothing has changed"
    assert ana.memories.confirm("old").confirmed_at is not None
    ana.forget("tea")
    settled = ana.memories.review()
    assert settled.listed == 0
    assert [memory.id for memory in ana.memories.list() if memory.review] == []


@pytest.mark.sqlite("PostgreSQL's plans have a test of their own")
def test_what_contradicts_is_found_by_its_index(here: Runtime) -> None:
    """Given the query of what is due, then it looks up the subject of each memory, and reads no table twice."""
    with here.store("default").reading() as tx:
        sql = f"EXPLAIN QUERY PLAN {_SELECT_DUE}"
        plan = [row[3] for row in tx.connection.exec_driver_sql(sql, {"agent": "ana", "now": 0})]
    looked_up = [step for step in plan if " o " in f"{step} "]
    assert looked_up
    assert all("memories_by_subject" in step for step in looked_up), plan


def test_the_command_line_shows_the_review(
    here: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given what is due, then the command prints each part with what to do about it, and nothing for another agent."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_BROKER_PREFIX", here.settings.broker_prefix)
    target = ("--data", str(here.settings.data), "--broker", here.settings.broker_url)
    reverie = CommandLine(monkeypatch, capsys, *target, "--agent", "ana")
    shown = reverie("memory", "review").out
    assert "1  learned [health]: said in message 1\n    + Ana's knee hurts\n" in shown
    assert "shy  Tests run first\n" in shown
    assert "tea  Ana drinks tea (memory mate says something else)\n" in shown
    assert "Tests run first (waits for approval to be shared)" in reverie("memory", "list").out
    assert reverie("memory", "approve", "--id", "shy").out == "Approved for all users: Tests run first\n"
    assert reverie("memory", "confirm", "old").out == "Confirmed: Ana works at Acme\n"
    assert "Acme" not in reverie("memory", "review").out
    other = CommandLine(monkeypatch, capsys, *target, "--agent", "bob")
    assert other("memory", "review").out == "Nothing to review.\n"


def test_the_page_settles_what_is_due(here: Runtime, visitor: Visitor, operator: Reverie) -> None:
    """Given what is due, then the page lists it, and accepts, approves and confirms by a click each."""
    page = visitor.open("/")
    expect(page.get_by_role("link", name="Tests run first")).to_contain_text("waits for approval")
    page.get_by_role("link", name="Ana drinks tea").click()
    page.get_by_role("link", name="Decide").click()
    expect(page.get_by_role("region", name="Sensitive changes")).to_contain_text("Ana's knee hurts")
    assert visitor.violations() == []
    page.get_by_role("button", name="Accept:").click()
    expect(page.get_by_role("status")).to_contain_text("Accepted")
    page.get_by_role("button", name="Approve: Tests run first").click()
    expect(page.get_by_role("status")).to_contain_text("Approved")
    page.get_by_role("button", name="Still holds: Ana works at Acme").click()
    expect(page.get_by_role("status")).to_contain_text("Confirmed")
    left = operator.memories.review()
    assert (left.entries, left.waiting, [due.memory.id for due in left.due]) == ([], [], ["tea", "mate"])
