"""Measure how fast the memory page is in a browser: from the click to the first paint, on a store of a million chunks.

A real Chromium on the same machine opens pages of the real server, one after the other, each in a new visit with its
files cached, as somebody who works with the page has them.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright
from rich.table import Table

from adapters.embedders import build_embedder
from benchmarks.harness.big_store import StoreSize
from benchmarks.harness.figures import percentile, rounded
from benchmarks.harness.haystack import client_of
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.recall_stores import BuiltStore, built_store
from benchmarks.harness.result import Goal, Result, console, settings_of
from benchmarks.harness.stack import WORKSPACE, Stack
from benchmarks.harness.timed import Asked, warm_up
from reverie.memories.types import Memory, MemoryExport
from worker.model_specs import embedder_spec
from worker.settings import load_settings
from worker.supervision.local_token import read_local_token

SIZE: Final = StoreSize(1_000_000)
_TINY: Final = StoreSize(120)
MEMORIES: Final = 10_000
_GOAL_MS: Final = 100.0
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
# On two busy cores 10,000 memories take some minutes.
_INDEXED_SECONDS: Final = 900.0
_PAUSE_SECONDS: Final = 0.5
_WAITING: Final = """
    SELECT (SELECT count(*) FROM memories WHERE chunked_at IS NULL)
        + (SELECT count(*) FROM chunks WHERE indexed_at IS NULL)
"""
# When something of the page was shown for the first time, and when all of it had come, since the browser began to ask.
_FIRST_PAINT: Final = """() => new Promise((painted) => {
    const look = () => {
        const [entry] = performance.getEntriesByName("first-contentful-paint");
        const [page] = performance.getEntriesByType("navigation");
        if (entry) painted([entry.startTime, page.responseEnd]); else requestAnimationFrame(look);
    };
    look();
})"""


def main() -> None:
    """Measure and write the result."""
    options = _options()
    size: StoreSize = options.size or (_TINY if options.quick else SIZE)
    visits = int(value_or_default(options.visits, quick=options.quick, tiny=2, full=30))
    memories = 20 if options.quick else MEMORIES
    result = Result(benchmark="page_speed", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    result.settings.update(size=str(size), visits=visits, memories=memories)
    embedder = build_embedder(embedder_spec(load_settings()))
    if embedder is None:
        raise SystemExit("this benchmark needs an embedder: unset REVERIE_EMBEDDING_PROVIDER")
    embedder.load()
    tell = Progress()
    with built_store(size, embedder, questions=visits, seed=options.seed, keep=options.stores, tell=tell) as store:
        tell.step(f"{size}: built")
        _measure(store, memories, result)
    _print(result)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("page_speed", __doc__, data=False)
    options.add_argument("--size", type=StoreSize.parse, help="CHUNKSxAGENTS (1000000; 120 with --quick)")
    options.add_argument("--visits", type=int, help="visits to each page (30; 2 with --quick)")
    options.add_argument("--stores", type=Path, help="keep the store in this folder and reuse it")
    return options.parse_args()


def _measure(store: BuiltStore, memories: int, result: Result) -> None:
    stack = Stack()
    store.show(stack.data)
    with stack:
        if not stack.wait_server():
            raise RuntimeError("the server does not answer: the page cannot be measured")
        agent = store.questions[0].agent
        with client_of(stack, agent, WORKSPACE) as client:
            # The index is built before anything is timed, and the pipeline at rest.
            warm_up(lambda question: client.recall(question.text).degraded, store.questions[:1])
            client.import_memories(MemoryExport(memories=list(_memories(agent, memories))))
            _wait_for_vectors(stack)
            # Jobs still look at what was imported, in turns with the browser on a machine with two cores.
            stack.wait_for_rest()
        with _logged_in(stack) as page:
            for name, addresses in _addresses(stack.url, agent, store.questions).items():
                paints, responses = zip(*(_first_paint_ms(page, address) for address in addresses), strict=True)
                result.add(f"{name}_p50", rounded(percentile(paints, 0.5)), "ms")
                result.add(f"{name}_p95", rounded(percentile(paints, 0.95)), "ms")
                result.add(f"{name}_response_p50", rounded(percentile(responses, 0.5)), "ms")
        with client_of(stack, agent, WORKSPACE) as client:
            if (left := client.memory_stats().memories) < memories:
                raise RuntimeError(f"a job has removed memories meanwhile, {left:,} are left: nothing was measured")
    result.goals.append(
        Goal(
            what="first paint of the list, p50",
            relation="<",
            goal=_GOAL_MS,
            figure=None if result.quick else result.figures["list_p50"],
            unit="ms",
            note="a quick run measures nothing" if result.quick else "",
        )
    )


def _wait_for_vectors(stack: Stack) -> None:
    """Wait until no chunk waits for a worker: the memories that were imported are embedded and indexed."""
    deadline = time.monotonic() + _INDEXED_SECONDS
    with stack.watch() as watch:
        while watch.number(_WAITING):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the memories were not indexed within {_INDEXED_SECONDS:g} s")
            time.sleep(_PAUSE_SECONDS)


def _memories(agent: str, count: int) -> Iterator[Memory]:
    for number in range(count):
        at = _START + timedelta(minutes=number)
        yield Memory(
            id=f"page-speed-{number}",
            agent=agent,
            tier="workspace",
            lifetime="long_term",
            kind="fact",
            source="agent",
            content=f"Box {number} holds the parts of machine {number % 97}, which is {number % 13} years old.",
            importance=0.5,
            # The hourly job prunes what faded since, which would be all of them.
            pinned=True,
            access_count=0,
            created_at=at,
            updated_at=at,
            accessed_at=at,
        )


def _addresses(url: str, agent: str, questions: Sequence[Asked]) -> dict[str, list[str]]:
    """Return the addresses of each kind of page that are visited."""

    def address(path: str, **parameters: str) -> str:
        return f"{url}{path}?{urlencode({'agent': agent, 'workspace': WORKSPACE, **parameters})}"

    visits = len(questions)
    return {
        "list": [address("/") for _ in range(visits)],
        "search": [address("/", q=question.text) for question in questions],
        "memory": [address("/memory", id=f"page-speed-{number}") for number in range(visits)],
        "conversations": [address("/conversations") for _ in range(visits)],
    }


@contextmanager
def _logged_in(stack: Stack) -> Iterator[Page]:
    """Yield a browser's page with a login."""
    program = shutil.which("chromium")
    token = read_local_token(stack.data)
    if program is None or token is None:
        raise SystemExit("this benchmark needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            page = browser.new_page()
            page.goto(f"{stack.url}/login")
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Log in").click()
            page.locator("main h1").wait_for()
            yield page
        finally:
            browser.close()


def _first_paint_ms(page: Page, address: str) -> tuple[float, float]:
    """Return when a page was painted first, and when the browser had all of it."""
    page.goto(address)
    painted, received = page.evaluate(_FIRST_PAINT)
    return float(painted), float(received)


def _print(result: Result) -> None:
    table = Table("page", "p50 ms", "p95 ms", "page received, p50 ms", title="From the click to the first paint")
    for name in ("list", "search", "memory", "conversations"):
        table.add_row(name, *(f"{result.figures[f'{name}_{part}']:.1f}" for part in ("p50", "p95", "response_p50")))
    console.print(table)


if __name__ == "__main__":
    run(main)
