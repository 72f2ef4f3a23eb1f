"""Search and lists of the memory page, in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from reverie import Reverie
from support.browsing import MakeVisitor, Visitor
from support.stages import drain
from worker.runtime import Runtime


def test_what_is_typed_is_searched(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given memories and messages, when somebody types, then what fits is shown with the share of each retriever."""
    operator.remember("Kate takes oat milk in her coffee")
    operator.remember("The release goes out on Thursdays")
    operator.ingest("chat-1", [{"role": "user", "content": "Please buy oat milk on the way"}])
    drain(runtime)
    page = visitor.open("/")
    page.get_by_role("searchbox").press_sequentially("oat milk")
    results = page.locator("li.result")
    # What is found for a part of the words is replaced, with what was opened in it.
    expect(page).to_have_url(re.compile(r"[?&]q=oat\+milk(&|$)"))
    expect(results).to_have_count(2)
    expect(page.locator("#results")).not_to_contain_text("Thursdays")
    results.first.get_by_text("Found by its words").click()
    expect(results.first.get_by_role("row", name="Its words")).to_be_visible()
    page.get_by_role("link", name="Please buy oat milk").click()
    expect(page.locator(".turn.source")).to_contain_text("Please buy oat milk")
    page.go_back()
    expect(results).to_have_count(2)
    page.get_by_role("link", name="Memories", exact=True).last.click()
    expect(page.locator("li.result")).to_have_count(1)
    page.reload()
    expect(page.locator("li.result")).to_have_count(1)


def test_a_found_message_is_in_sight_in_its_conversation(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a long conversation, when a message in it is found and opened, then it is in sight, and no memory's."""
    told = [{"role": "user", "content": f"Line {number} is about boxes"} for number in range(30)]
    operator.ingest("chat-1", [*told, {"role": "user", "content": "The cat is called Zanzibar"}, *told])
    drain(runtime)
    page = visitor.open("/")
    page.get_by_role("searchbox").fill("Zanzibar")
    page.get_by_role("searchbox").press("Enter")
    expect(page).to_have_url(re.compile(r"[?&]q=Zanzibar$"))
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.get_by_role("link", name="The cat is called").click()
    found = page.locator(".turn.source")
    expect(found).to_be_in_viewport(ratio=1)
    expect(found).to_contain_text(re.compile(r"\d\d:\d\d this message"))


def test_looking_around_does_not_count_as_recalled(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a search of a person, then no recall is noted: memories last by what the agent needs."""
    operator.remember("Kate takes oat milk")
    drain(runtime)
    visitor.open("/", q="oat milk")
    expect(visitor.page.locator("li.result")).to_have_count(1)
    runtime.recall_buffer.flush()
    assert runtime.recall_log.workspaces() == []


def test_a_search_without_an_answer_shows_no_results_of_another_one(visitor: Visitor, operator: Reverie) -> None:
    """Given results, when the server is away for the next search, then it says so, and Enter searches again."""
    operator.remember("Kate takes oat milk")
    page = visitor.open("/")
    expect(page.get_by_text("Kate takes oat milk")).to_be_visible()
    visitor.context.set_offline(True)
    page.get_by_role("searchbox").press_sequentially("tea")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(page.get_by_text("Kate takes oat milk")).to_have_count(0)
    visitor.complaints.clear()  # the browser reports what failed
    visitor.context.set_offline(False)
    page.get_by_role("searchbox").press("Enter")
    expect(page.get_by_text("Nothing fits")).to_be_visible()


def test_a_search_without_results_says_so(visitor: Visitor) -> None:
    visitor.open("/", q="zebra")
    expect(visitor.page.get_by_text("Nothing fits")).to_be_visible()
    assert visitor.violations() == []


def test_memories_are_filtered_by_what_the_address_says(visitor: Visitor, operator: Reverie) -> None:
    """Given a filter, then only what matches is listed, and the filter can be taken away."""
    operator.remember("Kate takes oat milk", kind="preference", tags=["coffee"])
    operator.remember("The release goes out on Thursdays", kind="procedure")
    page = visitor.open("/")
    page.get_by_text("Filter", exact=True).click()
    page.get_by_label("Kind").select_option("preference")
    expect(page.locator("[data-item]")).to_have_count(1)
    expect(page.get_by_text("Kate takes oat milk")).to_be_visible()
    page.get_by_role("link", name="Kind: preference").click()
    expect(page.locator("[data-item]")).to_have_count(2)
    visitor.open("/", tag="coffee")
    expect(page.locator("[data-item]")).to_have_count(1)
    for day, count in (("2000-01-01", 0), ("2999-01-01", 2)):
        visitor.open("/", until=day)
        expect(page.locator("[data-item]")).to_have_count(count)
    visitor.open("/", since="2000-01-01", until="2999-01-01")
    expect(page.locator("[data-item]")).to_have_count(2)
    visitor.open("/", tag="tea")
    expect(page.get_by_text("No such memories")).to_be_visible()


def test_a_time_says_what_the_readers_clock_said_when_it_is_pointed_at(visitor: Visitor, operator: Reverie) -> None:
    """Given a time in a list, when somebody points at it, then its title has the local time and that in UTC."""
    operator.remember("Kate takes oat milk")
    time = visitor.open("/").locator("time").first
    in_utc = time.get_attribute("title") or ""
    assert in_utc.endswith("UTC")
    for _ in range(2):
        time.hover()
        expect(time).to_have_attribute("title", re.compile(rf"^.+\n{re.escape(in_utc)}$"))
        visitor.page.mouse.move(0, 0)


def test_the_keyboard_searches_walks_the_list_and_helps(visitor: Visitor, operator: Reverie) -> None:
    """Given two memories, then / reaches the search, j and k the entries, ? the list of keys, and g each section."""
    operator.remember("First")
    operator.remember("Second")
    page = visitor.open("/")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.locator("[data-item]").first).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator("[data-item]").last).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator("[data-item]").first).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert visitor.violations() == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    for key, section in (("f", "Dead letters"), ("e", "Erasures"), ("4", "Review"), ("m", "Memories")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1, name=section)).to_be_visible()


def test_escape_leaves_what_was_found(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given what was found while somebody typed, when Escape leaves the field, then the keys walk through it."""
    operator.remember("Kate takes oat milk")
    operator.remember("The release goes out on Thursdays")
    drain(runtime)
    page = visitor.open("/", kind="fact")
    page.keyboard.press("/")
    page.keyboard.type("oat milk")
    expect(page).to_have_url(visitor.address("/", q="oat milk", kind="fact"))
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.locator("li.result [data-item]")).to_be_focused()
    expect(page.get_by_role("searchbox")).to_have_value("oat milk")


def test_hostile_text_is_only_text(make_visitor: MakeVisitor, operator: Reverie, runtime: Runtime) -> None:
    """Given markup, scripts and invisible characters in memories, then all of it is shown and none of it works."""
    hostile = "<script>document.title='owned'</script><img src=x onerror=alert(1)> \u202egnp.exe\u202c a\u200bb \x07"
    operator.remember(hostile, tags=["<b>tag</b>"], source="\"><script>alert('s')</script>")
    drain(runtime)
    visitor = make_visitor()
    visitor.page.on("dialog", lambda dialog: visitor.complaints.append(f"a script ran: {dialog.message}"))
    for parameters in ({}, {"q": "owned document title"}, {"q": "<script>alert(2)</script>"}, {"tag": "\"'><b>"}):
        page = visitor.open("/", **parameters)
        assert page.title() == "Memories · Reverie"
        assert page.locator("main img, main script, main b").count() == 0
    visitor.open("/")
    shown = visitor.page.locator(".said").inner_text()
    assert "<script>document.title='owned'</script>" in shown
    assert "⟨U+202E⟩gnp.exe⟨U+202C⟩ a⟨U+200B⟩b ⟨U+0007⟩" in shown


def test_it_works_without_scripts(make_visitor: MakeVisitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a browser that runs no scripts, then search, filters and the number of memories need a click more."""
    operator.remember("Kate takes oat milk", kind="preference")
    drain(runtime)
    page = make_visitor(java_script_enabled=False).page
    page.get_by_role("searchbox").fill("oat milk")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator("li.result")).to_have_count(1)
    page.get_by_role("link", name="How many are there?").click()
    expect(page.get_by_text("1 memory")).to_be_visible()


def test_an_empty_memory_and_a_full_one_have_no_barriers(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    visitor.open("/")
    assert visitor.violations() == []
    operator.remember("Kate takes oat milk", tags=["coffee"], pinned=True)
    drain(runtime)
    for path, parameters in (("/", {}), ("/", {"q": "oat milk"}), ("/", {"kind": "fact"}), ("/agents", {})):
        visitor.open(path, **parameters)
        assert visitor.violations() == []
