"""The login of the memory page, and what protects it, in a real browser."""

from __future__ import annotations

import httpx2
import pytest
from playwright.sync_api import expect

from reverie import Reverie
from support.browsing import TOKEN, MakeVisitor, Visitor


def test_a_visitor_logs_in_reads_and_logs_out(make_visitor: MakeVisitor, operator: Reverie) -> None:
    """Given a memory, when somebody opens the page, then it is shown after a login, and not after the logout."""
    operator.remember("Kate takes oat milk")
    visitor = make_visitor(token=None)
    visitor.open("/")
    assert visitor.page.get_by_role("heading", name="Reverie").is_visible()
    visitor.page.get_by_label("Token").fill(TOKEN)
    visitor.page.get_by_role("button", name="Log in").click()
    visitor.page.get_by_text("Kate takes oat milk").wait_for()
    visitor.page.get_by_role("button", name="Log out").click()
    visitor.page.get_by_label("Token").wait_for()
    visitor.open("/")
    assert visitor.page.get_by_label("Token").is_visible()


def test_the_login_leads_back_to_where_it_was_asked_for(make_visitor: MakeVisitor) -> None:
    visitor = make_visitor(token=None)
    visitor.open("/agents")
    visitor.page.get_by_label("Token").fill(TOKEN)
    visitor.page.get_by_role("button", name="Log in").click()
    expect(visitor.page.get_by_role("heading", name="Agents and users")).to_be_visible()


def test_a_wrong_token_is_refused_with_the_reason(make_visitor: MakeVisitor) -> None:
    visitor = make_visitor(token="rv_wrong")
    assert "not valid" in visitor.page.get_by_role("alert").inner_text()
    assert visitor.context.cookies() == []
    visitor.complaints.clear()  # the browser reports the status 401


def test_the_cookie_is_for_this_site_alone_and_tells_no_token(make_visitor: MakeVisitor) -> None:
    """Given a login, then its cookie is closed to scripts and to other sites, and does not show the token."""
    visitor = make_visitor()
    visitor.page.get_by_role("heading", name="Memories").wait_for()
    (cookie,) = [one for one in visitor.context.cookies() if one.get("name") != "reverie-zone"]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    assert TOKEN not in cookie["value"]
    visitor.page.wait_for_function("document.cookie")  # the zone is set by the page's own script
    assert visitor.page.evaluate("document.cookie").partition("=")[0] == "reverie-zone"


def test_two_logins_at_once_are_none(page_url: str) -> None:
    """Given the cookie of a login beside another of its name, as a site of the same domain may set it, then neither."""
    login = httpx2.post(f"{page_url}/login", data={"token": TOKEN})
    name, _, value = login.headers["set-cookie"].partition(";")[0].partition("=")
    for cookies, status in ((f"{name}={value}", 200), (f"{name}=other; {name}={value}", 422)):
        assert httpx2.get(f"{page_url}/", headers={"Cookie": cookies}, follow_redirects=True).status_code == status


def test_a_login_ends_with_its_token(make_visitor: MakeVisitor, operator: Reverie) -> None:
    """Given the login of a token, when the token is revoked, then the next click asks for another one."""
    created = operator.admin.tokens.create(agents=["ana"], workspace="default", name="of a guest")
    visitor = make_visitor(token=created.token)
    visitor.page.get_by_role("heading", name="Memories").wait_for()
    operator.admin.tokens.revoke(created.id)
    visitor.page.reload()
    visitor.page.get_by_label("Token").wait_for()
    assert [one.get("name") for one in visitor.context.cookies()] == ["reverie-zone"]


def test_who_searches_with_a_revoked_token_comes_back_to_the_search(
    make_visitor: MakeVisitor, operator: Reverie
) -> None:
    """Given a login that ends while somebody types, when they log in again, then they are where they were."""
    created = operator.admin.tokens.create(agents=["ana"], workspace="default", name="of a guest")
    visitor = make_visitor(token=created.token)
    operator.remember("Kate takes oat milk")
    page = visitor.open("/", kind="fact")
    page.get_by_text("still being indexed: 1").wait_for()  # what the page loads by itself is there
    operator.admin.tokens.revoke(created.id)
    page.get_by_role("searchbox").press_sequentially("milk")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(visitor.address("/", kind="fact"))


def test_what_was_typed_before_a_login_ended_can_be_sent_after_the_next_one(visitor: Visitor) -> None:
    """Given a form whose login has ended, when it is sent, then a person logs in, goes back to it, and sends it."""
    page = visitor.open("/memory/new")
    page.get_by_label("What to remember").fill("Kate takes oat milk")
    visitor.context.clear_cookies()
    page.get_by_role("button", name="Remember").click()
    expect(page.get_by_role("alert")).to_contain_text("nothing was changed")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(visitor.address("/memory/new"))
    for heading in ("Reverie", "New memory"):
        page.go_back()
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    expect(page.get_by_label("What to remember")).to_have_value("Kate takes oat milk")
    page.get_by_role("button", name="Remember").click()
    expect(page.get_by_role("status")).to_contain_text("Remembered")


def test_the_page_opens_where_something_is_remembered(make_visitor: MakeVisitor, page_url: str) -> None:
    """Given memories in the demonstration's workspace alone, then the page opens there, else in the default one."""
    visitor = make_visitor()
    with Reverie("demo", workspace="demo", url=page_url, token=TOKEN) as client:
        client.remember("My greyhound hides when the doorbell rings")
    visitor.page.goto(f"{page_url}/")
    expect(visitor.page.get_by_text("My greyhound hides")).to_be_visible()
    with Reverie("ana", url=page_url, token=TOKEN) as client:
        client.remember("Kate takes oat milk")
    visitor.page.goto(f"{page_url}/")
    expect(visitor.page.get_by_text("Kate takes oat milk")).to_be_visible()


def test_a_token_of_one_agent_opens_that_agent_alone(make_visitor: MakeVisitor, operator: Reverie) -> None:
    """Given a token for ben, when the address names ana, then the page says what the token lacks."""
    created = operator.admin.tokens.create(agents=["ben"], workspace="default", scopes=["read"])
    visitor = make_visitor(token=created.token)
    assert visitor.page.locator(".place").inner_text().split()[1] == "ben"
    visitor.open("/", agent="ana")
    assert visitor.page.get_by_text("the token is not for this agent").is_visible()
    visitor.complaints.clear()  # the browser reports the status 403


def test_every_page_is_sent_with_headers_that_let_nothing_foreign_run(page_url: str) -> None:
    for path in ("/login", "/", "/page-assets/page.css"):
        headers = httpx2.get(f"{page_url}{path}", follow_redirects=True).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}],
    ids=str,
)
def test_another_site_can_neither_log_in_nor_send_a_form(page_url: str, headers: dict[str, str]) -> None:
    """Given a form on a page of another site, then the gate refuses it, whatever it sends."""
    for path in ("/login", "/logout"):
        refused = httpx2.post(f"{page_url}{path}", data={"token": TOKEN}, headers=headers)
        assert refused.status_code == 403
        assert "set-cookie" not in refused.headers


@pytest.mark.parametrize("page", ["//evil.example", "https://evil.example/", "/\\evil.example", "evil"])
def test_a_login_leads_to_no_other_site(page_url: str, page: str) -> None:
    logged_in = httpx2.post(f"{page_url}/login", data={"token": TOKEN, "page": page})
    assert (logged_in.status_code, logged_in.headers["location"]) == (303, "/")


def test_an_unknown_address_is_a_page_for_browsers_and_json_for_programs(page_url: str) -> None:
    page = httpx2.get(f"{page_url}/nothing-here", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "no page at this address" in page.text
    assert httpx2.get(f"{page_url}/nothing-here").json()["status"] == 404
    assert httpx2.get(f"{page_url}/v1/nothing", headers={"Accept": "text/html"}).status_code == 401


def test_what_is_no_form_of_the_page_is_refused(page_url: str) -> None:
    assert httpx2.post(f"{page_url}/login", json={"token": TOKEN}).status_code == 415
    assert httpx2.post(f"{page_url}/login", data={"token": "x" * 20_000}).status_code == 413


def test_the_login_has_no_barriers(make_visitor: MakeVisitor) -> None:
    visitor = make_visitor(token=None)
    visitor.open("/login")
    assert visitor.violations() == []
