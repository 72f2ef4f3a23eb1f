"""What the memory page makes of times, diffs, forms and characters that cannot be seen."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reverie.errors import Rejected
from reverie.inert import revealed
from reverie.memories.types import Memory
from reverie.recall.types import Explanation, RecallEvent, RecallResult, RetrieverScore, ServedItem
from reverie.scheduling.types import Interval
from server.page.curation import DiffLine, diff_lines
from server.page.memories import HEIGHT, WIDTH, curve_of, shares_of
from server.page.pipeline import cadence_text
from server.page.rendering import (
    address,
    date_text,
    day_heading,
    duration,
    exact,
    excerpt,
    formatted,
    in_words,
    marked,
    outcome,
    plain,
    zone_of,
)
from server.page.site import Logins, cookie_name, decode_form, own_path
from server.page.timeline import parts_of
from storage.memories.records import RATES

NOW = datetime(2026, 5, 12, 9, 30, tzinfo=UTC)
SECRET = b"k" * 32
PAGE = Path(__file__).resolve().parents[2] / "server" / "page"


def test_in_the_dark_nothing_but_colours_changes() -> None:
    """Given all files of the page, then one block is for dark schemes, and it sets colours that light ones have too.

    So the tests of the page in a browser look for what only colours can make wrong in both schemes, and for all else
    in one.
    """
    files = {file.name: file.read_text("utf-8") for file in PAGE.rglob("*") if file.suffix in {".css", ".js", ".html"}}
    assert "skeleton.html" in files
    assert [name for name, text in files.items() if "prefers-color-scheme" in text] == ["page.css"]
    assert files["page.css"].count("prefers-color-scheme") == 1
    light, dark = re.findall(r":root \{([^{}]*)\}", files["page.css"])
    assert f"(prefers-color-scheme: dark) {{\n  :root {{{dark}}}\n}}" in files["page.css"]
    of_light, of_dark = (dict(re.findall(r"(--[a-z-]+): ([^;]+);", block)) for block in (light, dark))
    assert re.sub(r"(--[a-z-]+): ([^;]+);", "", dark).strip() == ""
    shape = re.compile(r"#[0-9a-f]{6}|rgb\([^()]*\)")
    assert {name: shape.sub("", value) for name, value in of_dark.items()} == {
        name: shape.sub("", of_light[name]) for name in of_dark
    }


@pytest.mark.parametrize(
    ("distance", "words"),
    [
        (timedelta(seconds=5), "just now"),
        (timedelta(seconds=-5), "in a moment"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(hours=5, minutes=59), "5 hours ago"),
        (timedelta(days=3), "3 days ago"),
        (timedelta(hours=40), "2 days ago"),
        (-timedelta(days=3), "in 3 days"),
        (timedelta(days=13), "1 week ago"),
        (timedelta(days=40), "2 Apr 2026"),
    ],
    ids=str,
)
def test_a_time_is_said_in_words(distance: timedelta, words: str) -> None:
    assert in_words(NOW - distance, now=NOW) == words


def test_a_time_is_also_said_exactly() -> None:
    """Given a time in another zone, then the exact text and the headings of days are in UTC."""
    lisbon = datetime(2026, 5, 12, 0, 30, tzinfo=datetime.strptime("+0100", "%z").tzinfo)
    assert exact(lisbon) == "11 May 2026, 23:30:00 UTC"
    assert date_text(lisbon) == "11 May 2026"
    assert day_heading(lisbon, now=NOW) == "Yesterday"
    assert day_heading(NOW, now=NOW) == "Today"
    assert day_heading(NOW - timedelta(days=6), now=NOW) == "Wednesday, 6 May 2026"
    assert day_heading(NOW - timedelta(days=7), now=NOW) == "May 2026"
    assert [duration(0.44), duration(75), duration(7_200)] == ["0.4 seconds", "1 minute", "2 hours"]


def test_times_are_those_of_the_visitor() -> None:
    """Given the zone of a browser, then days begin there; given something else, then they are those of UTC."""
    tokyo = zone_of("Asia/Tokyo")
    late = datetime(2026, 5, 11, 20, 0, tzinfo=UTC)
    assert exact(late, tokyo) == "12 May 2026, 05:00:00 JST"
    assert day_heading(late, now=NOW, zone=tokyo) == "Today"
    assert day_heading(late, now=NOW) == "Yesterday"
    assert [zone_of(name) for name in ("", "Mars/Olympus", "../etc/passwd", "a" * 5_000)] == [UTC] * 4


def test_words_that_a_search_finds_are_marked() -> None:
    """Given a text, then the words of a query are marked in all their forms, and its tags are text."""
    assert marked("Tents & <b>camping</b>", "camp a tent") == (
        "<mark>Tents</mark> &amp; &lt;b&gt;<mark>camping</mark>&lt;/b&gt;"
    )
    assert marked("x", "") == "x"
    assert marked("Kate's tea, Ben's", "Kate's") == "<mark>Kate</mark>&#39;s tea, Ben&#39;s"


def test_words_of_grammar_are_marked_only_where_they_are_all_that_was_searched() -> None:
    """Given a query in words, then "the" is not marked in every result; a query of nothing else marks its words."""
    assert marked("with the kids at the sea", "camping with the kids") == "with the <mark>kids</mark> at the sea"
    assert marked("to be or not", "to be") == "<mark>to</mark> <mark>be</mark> or not"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3_600, "every hour"),
        (5_400, "every 90 minutes"),
        (100, "every 100 seconds"),
        (129_600, "every 36 hours"),
        (1_209_600, "every 2 weeks"),
    ],
)
def test_an_interval_is_said_exactly(seconds: int, words: str) -> None:
    assert cadence_text(Interval(seconds)) == words


def test_the_outcome_of_a_job_is_said_in_words() -> None:
    """Given the counts of a run, then each number stands before its noun, and the seconds are no count."""
    assert outcome({"looked_at": 20, "messages": 1_400, "pruned": 0, "seconds": 0.03}) == "20 looked at, 1,400 messages"
    assert outcome({"done": 29, "seconds": 10.172, "stores": {"w": {"done": 29}}}) == "29 done in 10 seconds"
    assert outcome({"newest_at": 1_767_225_600_000_000, "seconds": 0.001}) == "nothing to do"


def test_a_row_of_a_list_has_no_marks_of_markdown() -> None:
    """Given Markdown, then a list shows its words; what only looks like Markdown stays."""
    assert (
        plain("**Kate** takes `oat milk`, see [her list](https://example.org)") == "Kate takes oat milk, see her list"
    )
    assert plain("# Tea\n\n- black\n- green\n\n```\nx = 1\n```") == "Tea black green x = 1\n"
    assert plain("2 * 3 * 4 is snake_case_name") == "2 * 3 * 4 is snake_case_name"
    assert plain("2024. A **great** year") == "2024. A great year"
    assert plain("A plain sentence.") == "A plain sentence."
    assert plain("***") == "***"


def test_the_box_of_a_task_is_drawn() -> None:
    """Given tasks in a list, open and done, then each has a box; elsewhere, and without a blank, it is only text."""
    assert formatted("- [ ] milk\n- [x] **tea**\n\n1. [X] rye") == (
        "<ul>\n<li>\N{BALLOT BOX} milk</li>\n<li>\N{BALLOT BOX WITH CHECK} <strong>tea</strong></li>\n</ul>\n"
        "<ol>\n<li>\N{BALLOT BOX WITH CHECK} rye</li>\n</ol>\n"
    )
    assert plain("- [ ] milk\n- [x] tea") == "\N{BALLOT BOX} milk \N{BALLOT BOX WITH CHECK} tea"
    assert "[x] marks" in formatted("[x] marks the spot")
    assert formatted("- [x](https://example.org) y").count("href") == 1


def test_columns_of_a_table_are_aligned_without_styles() -> None:
    """Given a table in Markdown, then its cells have classes: a style would be refused by the page's policy."""
    shown = formatted("| a | b |\n| --: | :-: |\n| 1 | 2 |")
    assert '<td class="right">1</td>' in shown
    assert '<td class="center">2</td>' in shown
    assert "style" not in shown


def test_markdown_is_shown_and_runs_nothing() -> None:
    """Given Markdown, then it is formatted; HTML, scripts in links, images and hidden characters stay text."""
    assert formatted("**so** `it` is\n- one") == (
        "<p><strong>so</strong> <code>it</code> is</p>\n<ul>\n<li>one</li>\n</ul>\n"
    )
    assert formatted("# Title") == "<p><strong>Title</strong></p>"
    for hostile in (
        "<script>x</script>",
        "[a](javascript:x)",
        "![a](https://x.example/i.png)",
        "<img src=x onerror=y>",
    ):
        text = formatted(hostile)
        assert "<script" not in text
        assert "<img" not in text
        assert 'href="javascript' not in text
    assert "\u202e" not in formatted("a\u202eb")


def test_a_diff_is_read_by_its_hunks() -> None:
    """Given lines that look like the names of files, then inside a hunk they are lines."""
    text = "--- a/notes/x.md\n+++ b/notes/x.md\n@@ -1,2 +1,2 @@\n same\n--- was\n+++ is\n\\ No newline at end of file\n"
    assert diff_lines(text) == [
        DiffLine("file", "notes/x.md"),
        DiffLine("place", "@@ -1,2 +1,2 @@"),
        DiffLine("same", "same"),
        DiffLine("removed", "-- was"),
        DiffLine("added", "++ is"),
    ]
    assert diff_lines("") == []


def test_a_form_is_decoded_with_its_line_ends() -> None:
    form = decode_form(b"text=a%0D%0Ab&tags=+one+,,two&tags=three&empty=")
    assert (form.text("text"), form.tags(), form.word("empty"), form.word("absent")) == ("a\nb", ["three"], None, None)
    assert decode_form(b"").text("absent") == ""


@pytest.mark.parametrize("body", [b"\xff", b"a=%FF", b"no-field", b"&".join([b"a=1"] * 65)], ids=repr)
def test_what_is_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(Rejected, match="load the page again"):
        decode_form(body)


def test_a_number_in_a_form_is_checked() -> None:
    with pytest.raises(Rejected, match="importance must be a number, not 'much'"):
        decode_form(b"importance=much").number("importance")


def test_a_login_is_read_back_with_the_same_key_only() -> None:
    """Given a cookie, then it holds the token for this installation alone, and says nothing of it."""
    logins = Logins(lambda: SECRET)
    cookie = logins.sealed("rv_token")
    assert "rv_token" not in cookie
    assert Logins(lambda: SECRET).token_in(cookie) == "rv_token"
    assert Logins(lambda: b"o" * 32).token_in(cookie) is None
    for spoilt in ("", "x", cookie[:-2], cookie + "a" * 2_000, "\u202e"):
        assert logins.token_in(spoilt) is None
    assert cookie_name(7437) != cookie_name(7438)


def test_the_token_of_forms_is_that_of_all_logins_with_one_token() -> None:
    """Given two logins with one token and one with another, then the forms of the first two may be sent by both."""
    logins = Logins(lambda: SECRET)
    first, again, other = (logins.sealed(token) for token in ("rv_one", "rv_one", "rv_two"))
    assert first != again
    assert logins.is_form_token(logins.form_token(first), again)
    assert not logins.is_form_token(logins.form_token(first), other)
    assert not logins.is_form_token(logins.form_token(None), first)
    assert logins.is_form_token(logins.form_token(None), None)
    assert not logins.is_form_token("\u202e", first)


@pytest.mark.parametrize("text", ["", "x", "//evil", "/\\evil", "https://evil/", "/a\nb", "javascript:alert(1)"])
def test_only_a_path_of_this_site_is_gone_to(text: str) -> None:
    assert own_path(text) == "/"


def test_a_path_of_this_site_stays_as_it_is() -> None:
    assert own_path("/memory?agent=ana&id=..%2Fx") == "/memory?agent=ana&id=..%2Fx"


def test_an_address_leaves_out_what_is_empty() -> None:
    assert address("/", {"a": "", "b": None, "c": False, "offset": 0, "d": "x y&z", "e": ["1", "2"]}) == (
        "/?d=x+y%26z&e=1&e=2"
    )
    assert address("/log", {}) == "/log"


def test_what_cannot_be_seen_is_shown_by_its_number() -> None:
    assert revealed("a\u200bb\u202ec\x07") == "a⟨U+200B⟩b⟨U+202E⟩c⟨U+0007⟩"
    assert revealed("plain\r\ntext") == "plain\ntext"
    assert revealed("family 👨‍👩‍👧 and caf\u00e9") == "family 👨‍👩‍👧 and caf\u00e9"
    assert excerpt("one two three", 9) == "one two …"
    assert excerpt("W" * 30, 9) == "W" * 9 + " …"


def test_the_curve_of_a_memory_falls_and_rises_with_a_recall() -> None:
    """Given a memory that was recalled once, then its curve has a step there, on an axis whose time is logarithmic."""
    start = NOW - timedelta(days=10)
    memory = Memory(
        id="m", agent="ana", tier="workspace", lifetime="short_term", kind="fact", source="agent", content="x",
        importance=0.5, access_count=1, created_at=start, updated_at=start, accessed_at=NOW - timedelta(days=5),
    )  # fmt: skip
    event = RecallEvent(recall="r", query="q", at=NOW - timedelta(days=5), kind="memory", id="m", access_count=1)
    curve = curve_of(memory, [event], now=NOW, rates=RATES["standard"])
    points = [tuple(map(float, point.split(","))) for point in curve.points.split()]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    step = WIDTH * math.log1p(5 * 24) / math.log1p(10 * 24)
    assert curve.recalls == [pytest.approx(step, abs=0.1)]
    assert [name for _, name in curve.ages] == ["1 hour", "1 day"]
    assert points[-1][0] == WIDTH
    assert curve.now < curve.highest
    heights = [y for x, y in points if x < curve.recalls[0]]
    assert heights == sorted(heights)
    assert min(y for x, y in points if x >= curve.recalls[0]) < heights[-1]


def test_the_shares_of_a_result_add_up_to_one() -> None:
    """Given the scores of retrievers, then their shares are by weight, the largest first; others are left out."""
    scores = {"keyword": 1.0, "vector": 0.5, "date": 0.0}
    found = {name: RetrieverScore(rank=1, score=value, normalised=value) for name, value in scores.items()}
    result = RecallResult(id="m", kind="memory", text="x", created_at=NOW, explanation=Explanation(score=1.5, **found))
    shares = shares_of(result)
    assert [share.name for share in shares] == ["Its words", "Its meaning"]
    assert sum(share.share for share in shares) == pytest.approx(1)
    assert shares_of(RecallResult(id="m", kind="memory", text="x", created_at=NOW)) == []


def test_what_a_context_left_out_is_below_one_heading_for_each_reason() -> None:
    """Given two reasons in turn, then each is a heading once, with its items in their order."""
    items = [
        ServedItem(section="memory", kind="memory", id="a", left_out="says the same"),
        ServedItem(section="memory", kind="memory", id="b", left_out="not relevant enough"),
        ServedItem(section="memory", kind="memory", id="c", left_out="says the same"),
    ]
    found = [(heading, [item.id for item in part]) for heading, part in parts_of(items)]
    assert found == [("Left out: says the same", ["a", "c"]), ("Left out: not relevant enough", ["b"])]
