"""The pipeline page in a real browser: figures, live, across a restart, and only for operators."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from reverie import Reverie
from server.authentication import Access
from support.browsing import PATIENCE_MS, TOKEN, MakeVisitor, Visitor
from support.http import running_server
from support.ports import free_port
from support.stages import run_stage_tasks
from worker.job_runs import run_job
from worker.runtime import Runtime

ACCESS = Access(tokens={"operator": TOKEN})


def waiting(visitor: Visitor, text: str) -> None:
    """Wait until the page says how many messages wait in the inbox."""
    tile = visitor.page.locator(".tiles > div", has_text="In the inbox").locator("dd")
    expect(tile).to_have_text(text, timeout=PATIENCE_MS)


def test_an_operator_sees_the_pipeline_live(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given an open page, when messages come and are stored, then its figures follow without a reload."""
    visitor.open("/pipeline")
    visitor.page.evaluate("window.wasNotReloaded = true")
    waiting(visitor, "0")
    operator.ingest("s", [{"role": "user", "content": text} for text in ("one", "two")])
    waiting(visitor, "2")
    run_stage_tasks(runtime)
    waiting(visitor, "0")
    assert visitor.page.evaluate("window.wasNotReloaded")
    assert visitor.page.locator("[data-connection]").inner_text() == "Live"


def test_a_dead_letter_is_no_good_news(visitor: Visitor, operator: Reverie, runtime: Runtime) -> None:
    """Given a message that could not be stored, then the first line leads to it instead of saying that all is well."""
    taken = {"role": "user", "content": "First.", "sequence": 1}
    operator.ingest("s", [taken, {"role": "user", "content": "Second.", "sequence": 1}])
    run_stage_tasks(runtime)
    visitor.open("/pipeline")
    visitor.page.get_by_role("link", name="Replay or drop it").click()
    expect(visitor.page.get_by_text("sequence 1 of session 's' is taken")).to_be_visible()


def test_jobs_are_shown_with_their_errors_as_text(visitor: Visitor, runtime: Runtime) -> None:
    """Given a job that failed with an error that looks like a page, then it is shown as text."""
    run_job(runtime, "reverie.sweep_stages", every_seconds=15, work=lambda: {"looked_at": 3})

    def fail() -> dict[str, int]:
        raise ValueError("<img src=x onerror=alert(1)>")

    with pytest.raises(ValueError, match="img"):
        run_job(runtime, "reverie.verify_store", every_seconds=15, work=fail)
    visitor.open("/pipeline")
    rows = visitor.page.get_by_role("region", name="Periodic jobs").get_by_role("row")
    expect(rows.filter(has_text="sweep-stages")).to_contain_text("3 looked at")
    expect(rows.filter(has_text="verify-store")).to_contain_text("<img src=x onerror=alert(1)>")


def test_the_page_connects_again_after_a_restart(
    runtime: Runtime, chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an open page, when the server is stopped and started again, then it says so, and goes on."""
    port = free_port()
    context = chromium.new_context()
    try:
        with running_server(runtime, access=ACCESS, port=port) as url:
            visitor = Visitor(context, url)
            visitor.log_in()
            visitor.open("/pipeline")
            waiting(visitor, "0")
        expect(visitor.page.locator("[data-connection]")).to_contain_text("Not connected", timeout=PATIENCE_MS)
        with running_server(runtime, access=ACCESS, port=port) as url, Reverie("ana", url=url, token=TOKEN) as memory:
            memory.ingest("s", {"role": "user", "content": "after the restart"})
            waiting(visitor, "1")
            expect(visitor.page.locator("[data-connection]")).to_have_text("Live", timeout=PATIENCE_MS)
    finally:
        context.close()


def test_a_revoked_token_leads_to_the_login(make_visitor: MakeVisitor, operator: Reverie) -> None:
    """Given an open page, when its token is revoked, then it asks for another one."""
    created = operator.admin.tokens.create(name="of an operator", scopes=["operate"])
    visitor = make_visitor(token=created.token)
    visitor.open("/pipeline")
    waiting(visitor, "0")
    operator.admin.tokens.revoke(created.id)
    expect(visitor.page.get_by_label("Token")).to_be_visible()
    visitor.complaints.clear()  # the stream ended with an answer that is none


def test_the_page_is_for_operators(make_visitor: MakeVisitor, operator: Reverie, page_url: str) -> None:
    """Given a token that may only read, then there is no such section, and neither page nor stream answer."""
    created = operator.admin.tokens.create(agents=["ana"], workspace="default", scopes=["read"])
    visitor = make_visitor(token=created.token)
    visitor.page.get_by_role("heading", name="Memories").wait_for()
    assert visitor.page.get_by_role("link", name="Pipeline").count() == 0
    visitor.open("/pipeline")
    assert visitor.page.get_by_role("heading", name="Workers").count() == 0
    visitor.complaints.clear()  # the browser reports the status 403
    assert httpx2.get(f"{page_url}/pipeline/events").status_code == 303


def test_without_a_broker_the_page_says_so(chromium: Browser, make_runtime: Callable[..., Runtime]) -> None:
    """Given a broker that is away, then the page shows what the databases know, and why the rest is missing."""
    runtime = make_runtime(broker="redis://127.0.0.1:1/0")
    context = chromium.new_context()
    try:
        with running_server(runtime, access=ACCESS) as url:
            visitor = Visitor(context, url)
            visitor.log_in()
            visitor.open("/pipeline")
            expect(visitor.page.get_by_role("alert")).to_contain_text("does not answer", timeout=PATIENCE_MS)
            assert visitor.page.get_by_role("region", name="Stages").is_visible()
    finally:
        context.close()


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_is_accessible(make_visitor: MakeVisitor, operator: Reverie, runtime: Runtime, width: int) -> None:
    """Given a page with figures, on a phone and on a screen, then axe finds nothing, and nothing is cut off."""
    operator.ingest("s", {"role": "user", "content": "one"})
    run_stage_tasks(runtime)
    run_job(runtime, "reverie.sweep_stages", every_seconds=15, work=lambda: {"looked_at": 3})
    visitor = make_visitor(viewport={"width": width, "height": 800})
    visitor.open("/pipeline")
    assert visitor.violations() == []
    assert visitor.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
