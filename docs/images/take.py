"""Take the pictures of the memory page: run everything in a temporary folder, tell it two months, and look at it.

    python docs/images/take.py

Needs Chromium, pngquant, and the fonts Inter and Noto Serif (fonts-inter and fonts-noto-core of Debian). What is shown
is made up, and so is the day of the pipeline's curves.
"""

from __future__ import annotations

import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

from reverie import Reverie
from reverie.clock import now_micros
from reverie.errors import ReverieError
from storage.pipeline.samples import MINUTE_MICROS, SAMPLES_KEPT, PipelineSample
from storage.stores import Stores

HERE: Final = Path(__file__).parent
PORT: Final = 7479
AGENT: Final = "ana"
# Conversations: days ago, and what Kate and the agent said in turn.
STORY: Final[dict[int, list[str]]] = {
    61: [
        "I live in Vienna, near the Naschmarkt, and I work at Hofer as an analyst.",
        "Good to know. Shall I keep an eye on anything?",
        "On my coffee order. I take oat milk in my coffee.",
        "I will remember that.",
    ],
    52: [
        "My dentist is Dr. Sousa. Please remind me a week before each visit.",
        "I will.",
        "I'm allergic to peanuts, so no satay when you order lunch.",
        "No peanuts, then.",
    ],
    40: [
        "Big news: I moved to Porto last week! The flat is near the river.",
        "Congratulations. Which floor?",
        "The third. I now work at Acme.",
        "I have changed both.",
    ],
    27: [
        "I prefer window seats and trains to planes.",
        "Then the night train to Madrid may please you.",
        "I visited Coimbra with Luis on Sunday, and we loved the old library.",
        "I am glad. Shall I plan another weekend?",
    ],
    13: [
        "I started learning the cello. My teacher is Marta.",
        "How lovely. When are the lessons?",
        "On Tuesdays at six.",
        "I will keep Tuesday evenings free.",
    ],
    4: [
        "Order oat milk and two bags of coffee beans, please.",
        "Two litres of oat milk as always, and the beans from Rua das Flores?",
        "Yes. And the oat milk without sugar this time.",
        "Ordered; they come on Friday.",
    ],
    1: [
        "I bought a bike yesterday, so no more tram tickets.",
        "Then I will stop renewing the monthly pass.",
        "My dentist is Dr. Almeida now, in Rua do Almada.",
        "I have moved your visit in May to Dr. Almeida.",
    ],
}


@contextmanager
def running(data: Path) -> Iterator[Reverie]:
    """Everything, with a client of the agent."""
    command = [sys.executable, "-m", "cli", "up", "--open", "--data", str(data), "--port", str(PORT)]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(data), "REVERIE_EXTRACTION_DEBOUNCE_SECONDS": "0"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        with Reverie(AGENT, url=f"http://127.0.0.1:{PORT}") as client:
            until(client.status)
            yield client
    finally:
        process.terminate()
        process.wait()


def until(is_done: Callable[[], object], seconds: float = 180) -> None:
    """Wait until something is true, and not an error."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if is_done():
                return
        except ReverieError:
            pass
        time.sleep(0.5)
    raise TimeoutError(is_done)


def tell(client: Reverie) -> None:
    """Tell the story with the dates of its days, and wait until what can be learned from it is found."""
    for days, lines in STORY.items():
        began = datetime.now(UTC) - timedelta(days=days, hours=2)
        turns = [
            {
                "role": "assistant" if place % 2 else "user",
                "name": "Ana" if place % 2 else "Kate",
                "content": line,
                "created_at": began + timedelta(minutes=place),
            }
            for place, line in enumerate(lines)
        ]
        client.ingest(f"chat-{days}", turns, wait="stored")
    client.remember("Answer in English, in two sentences at most", kind="instruction", source="user")
    client.remember("Kate takes oat milk in her coffee, and no sugar", kind="preference", pinned=True, tags=["coffee"])
    client.facts.set("office", "floor", "4")
    until(lambda: client.admin.jobs.run("extract-memories") and list(client.memories.list(text="peanuts")))
    until(lambda: not any(stage.waiting for stage in client.status().stages.values()))
    for query in ("What does Kate take in her coffee?", "oat milk", "coffee order"):
        client.recall(query)


def draw_a_day(data: Path, accepted: int) -> None:
    """Write samples of a day with a working day in it, up to the number of messages that were accepted."""
    chance, stores, minute = random.Random(7), Stores(data), now_micros() // MINUTE_MICROS
    share = [max(0.0, math.sin((place - 400) / 600 * math.pi)) if place > 400 else 0.0 for place in range(SAMPLES_KEPT)]
    rates = [0.4 + 8 * one * chance.uniform(0.75, 1) for one in share]
    accepted -= sum(int(60 * rate) for rate in rates)
    for place, rate in enumerate(rates):
        accepted += int(60 * rate)
        lag = 0.3 + rate * chance.uniform(0.05, 0.25)
        at, waiting = minute - SAMPLES_KEPT + place, int(rate * chance.uniform(0, 2))
        stores.pipeline_samples().add(PipelineSample(at, accepted, waiting, lag / 2, lag))
    stores.close()


def take(page: Page, name: str, path: str, *, scheme: str, size: tuple[int, int] = (1120, 840), **query: str) -> None:
    """Take a picture of a page in a colour scheme, once nothing moves in it any more."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    named = {"agent": AGENT, "workspace": "default", **query}
    page.goto(f"http://127.0.0.1:{PORT}{path}?{urlencode(named)}", wait_until="load")
    page.wait_for_function("document.fonts.ready.then(() => !document.querySelector('.htmx-request'))")
    if page.locator("details.why").count():
        page.locator("details.why summary").first.click()
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur()")
    picture = HERE / f"{name}-{scheme}.png"
    page.screenshot(path=picture, animations="disabled")
    subprocess.run(["pngquant", "--force", "--strip", "--quality", "80-98", "--output", picture, picture], check=True)


def main() -> None:
    """Take all pictures."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as client, sync_playwright() as playwright:
        tell(client)
        draw_a_day(Path(folder), client.status().inbox.accepted)
        source = next(iter(client.memories.list(text="peanuts")))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(timezone_id="Europe/Lisbon", reduced_motion="reduce").new_page()
        take(page, "page-list", "/", scheme="light")
        take(page, "page-list", "/", scheme="light")  # in the zone that the first page has noted
        take(page, "page-memory", "/memory", scheme="dark", id=source.id)
        take(page, "page-timeline", "/timeline", scheme="light", q="Kate")
        for scheme in ("light", "dark"):
            take(page, "page-search", "/", scheme=scheme, q="oat milk")
            take(page, "pipeline", "/pipeline", scheme=scheme, size=(1200, 860))
        browser.close()


if __name__ == "__main__":
    main()
