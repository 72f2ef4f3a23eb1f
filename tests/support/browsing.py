"""A real Chromium over a real server: logs in, opens pages, and collects whatever a browser complains about."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

# The one without windows takes half the processor time of the other.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium") or shutil.which("chromium-browser")
TOKEN = "a-token-of-the-operator-that-is-long-enough"
# A browser that shares two cores with other tests is slow to answer.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)
# What WCAG 2.2 AA asks for, as far as a program can tell.
_RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
# The rules that look at colours. In the dark nothing else changes, which `tests/unit/test_page_texts.py` checks.
_OF_COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """One browser without windows. Skips the test if Chromium is not installed."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        # The sandbox needs rights that containers and the user root do not have.
        # Nothing is drawn that somebody sees: no process for graphics, and one for all visitors' pages.
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--in-process-gpu", "--disable-gpu-compositing"]
        options += ["--renderer-process-limit=1", "--process-per-site"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """A person at a browser, with the cookies of their own. `complaints` are errors of scripts and of the policy."""

    def __init__(self, context: BrowserContext, url: str, *, agent: str = "ana", workspace: str = "default") -> None:
        context.set_default_timeout(PATIENCE_MS)
        self.context = context
        self.url = url
        self.place = {"agent": agent, "workspace": workspace}
        self.complaints: list[str] = []
        self.page = self.new_tab()

    def new_tab(self) -> Page:
        """Open another tab of the same browser."""
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        return page

    def log_in(self, token: str = TOKEN) -> None:
        """Log in with a token."""
        self.page.goto(f"{self.url}/login")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Log in").click()

    def log_in_unseen(self, token: str = TOKEN) -> None:
        """Send the form of the login page, without drawing that page and the one it leads to."""
        answer = self.context.request.post(f"{self.url}/login", form={"token": token}, max_redirects=0)
        assert answer.status == 303, answer.text()

    def open(self, path: str, **parameters: Any) -> Page:
        """Open a page about the visitor's agent."""
        self.page.goto(self.address(path, **parameters))
        return self.page

    def address(self, path: str, **parameters: Any) -> str:
        """The address of a page about the visitor's agent."""
        return f"{self.url}{path}?{urlencode({**self.place, **parameters})}"

    def violations(self) -> list[str]:
        """What axe finds wrong with the page that is open, in both colour schemes."""
        found: list[str] = []
        self.page.evaluate(AXE_SCRIPT)
        for scheme, rules in (("light", _RULES), ("dark", _OF_COLOURS)):
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            run = "options => axe.run(options).then(results => results.violations)"
            for violation in self.page.evaluate(run, {**rules, "resultTypes": ["violations"]}):
                nodes = [node["html"][:160] for node in violation["nodes"]]
                found.append(f"{scheme}: {violation['id']}: {violation['help']}: {nodes}")
        return found


MakeVisitor = Callable[..., Visitor]
