"""Templates, static files, times in words, and headers that let a browser run only the scripts of the page itself.

Everything that was stored is text: Jinja escapes it, the policy lets no inline script or style work, and characters
that cannot be seen, or that change the order of others, are shown by their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from blake3 import blake3
from markupsafe import Markup, escape
from starlette.responses import Response

from retrieval.ranking.parsing import searched_words
from reverie import __version__
from reverie.counts import counted, counts_text
from reverie.inert import revealed
from reverie.memories.types import changed_text
from storage.recall.words import hash_of, is_function_word, words_of

if TYPE_CHECKING:
    from jinja2 import Environment
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

    from reverie.sessions.types import Session

_WORD: Final = re.compile(r"(\w+)")
# A task at the beginning of a list's item, open or done, and how it is shown: "- [ ] milk", "- [x] tea".
_TASK: Final = re.compile(r"\[([ xX])\](?=\s)")
_BOXES: Final = {" ": "\N{BALLOT BOX}", "x": "\N{BALLOT BOX WITH CHECK}"}
# Characters without which a text has no Markdown that needs to be taken out.
_MARKS: Final = re.compile(r"[*_`#\[|>~-]")

_MINUTE: Final = 60
# Units of time, in seconds, with their names.
UNITS: Final = ((604_800, "week"), (86_400, "day"), (3_600, "hour"), (_MINUTE, "minute"), (1, "second"))
# For times further away than this, a date is clearer than a number of days.
_LONGEST_SPAN: Final = 28 * 86_400
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def zone_of(name: str) -> tzinfo:
    """Return the time zone of this name, as a browser gives it; UTC if there is none."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):  # no name of a zone, or none that this machine knows
        return UTC


def in_words(moment: datetime, *, now: datetime, zone: tzinfo = UTC) -> str:
    """Return a time as seen from now: "just now", "5 minutes ago", "in 3 days", "12 May 2025"."""
    seconds = (now - moment).total_seconds()
    distance = abs(seconds)
    if distance < _MINUTE:
        return "just now" if seconds >= 0 else "in a moment"
    if distance >= _LONGEST_SPAN:
        return date_text(moment, zone)
    # Whole days are those of the calendar, as in the headings of lists.
    days = abs((now.astimezone(zone).date() - moment.astimezone(zone).date()).days)
    text = _span(max(1, days) * 86_400 if distance >= 86_400 else distance)
    return f"{text} ago" if seconds > 0 else f"in {text}"


def exact(moment: datetime, zone: tzinfo = UTC) -> str:
    """Return a time to the second: "12 May 2025, 09:30:00 UTC"."""
    return f"{date_text(moment, zone)}, {moment.astimezone(zone):%H:%M:%S %Z}"


def weekday(moment: datetime, zone: tzinfo = UTC) -> str:
    """Return a time to the minute, with its day: "Tuesday, 12 May 2025, 09:30 UTC"."""
    local = moment.astimezone(zone)
    return f"{_DAYS[local.weekday()]}, {date_text(moment, zone)}, {local:%H:%M %Z}"


def date_text(moment: datetime, zone: tzinfo = UTC) -> str:
    """Return a date: "12 May 2025"."""
    moment = moment.astimezone(zone)
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


def day_heading(moment: datetime, *, now: datetime, zone: tzinfo = UTC) -> str:
    """Return the heading of a time in a list: "Today", "Yesterday", "Tuesday, 12 May 2025"; after a week "May 2025"."""
    moment = moment.astimezone(zone)
    day, today = moment.date(), now.astimezone(zone).date()
    if day == today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    if day > today - timedelta(days=7):
        return f"{_DAYS[day.weekday()]}, {date_text(moment, zone)}"
    return f"{moment:%B %Y}"


def duration(seconds: float) -> str:
    """Return a length of time: "0.4 seconds", "12 seconds", "3 hours"."""
    return f"{seconds:.1f} seconds" if seconds < 10 else _span(seconds)


def _span(seconds: float) -> str:
    unit, name = next(((unit, name) for unit, name in UNITS if seconds >= unit), UNITS[-1])
    return counted(int(seconds // unit), name)


def outcome(counts: Mapping[str, Any]) -> str:
    """Return what a run of a job did, by its counts: "20 looked at, 3 pruned in 4.2 seconds"."""
    numbers = {name: number for name, number in counts.items() if isinstance(number, int) and name != "newest_at"}
    seconds = counts.get("seconds", 0)
    return (counts_text(numbers) or "nothing to do") + (f" in {duration(seconds)}" if seconds >= 1 else "")


_FOLDER: Final = Path(__file__).parent
STATIC_PATH: Final = "/page-assets"
PAGE_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",  # for browsers that do not know frame-ancestors
    # The browser tells the address of a page to this server only.
    "Referrer-Policy": "same-origin",
}
# Their addresses contain a hash of their content.
_STATIC_HEADERS: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}


def html(body: str, *, status: int = 200) -> Response:
    """Return a page or a part of one."""
    return Response(body, status_code=status, media_type="text/html", headers=PAGE_HEADERS)


class Rendering:
    """Renders the templates. They are compiled when they are first used, and kept."""

    def render(self, template: str, view: Mapping[str, Any]) -> str:
        """Return a template filled in. A name that the view does not have is an error."""
        return self._environment.get_template(template).render(view)

    @cached_property
    def _environment(self) -> Environment:
        # Imported with the first page: a server that only agents use does not need it.
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        environment = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.globals |= {"static": static_address, "counted": counted, "version": __version__}
        environment.filters |= {"shown": revealed, "excerpt": excerpt, "plain": plain, "duration": duration}
        environment.filters |= {
            "exact": exact,
            "date": date_text,
            "weekday": weekday,
            "marked": marked,
            "formatted": formatted,
            "outcome": outcome,
        }
        environment.globals |= {"in_words": in_words, "day_heading": day_heading, "changed_text": changed_text}
        environment.globals |= {"people_of": people_of}
        return environment


def people_of(session: Session) -> list[str]:
    """Return who takes part in a conversation: its user, unless a speaker has that name, and the speakers."""
    names = {name.casefold() for name in session.speakers}
    user = session.user
    return [*([user] if user and user.casefold() not in names else []), *session.speakers]


def address(path: str, parameters: Mapping[str, Any]) -> str:
    """Return a path with its query string, without parameters that are empty or 0; a list gives several.

    Ids are parameters because a path cannot hold all of them: browsers take ".." for the folder above, also encoded.
    A conversation around a message opens at this message.
    """
    given = {name: _text(value) for name, value in parameters.items() if value not in (None, "", False, (), [])}
    query = urlencode(given, doseq=True, errors="replace")
    return (f"{path}?{query}" if query else path) + ("#source" if parameters.get("around") else "")


def excerpt(text: str, characters: int = 280) -> str:
    """Return the beginning of a text, cut at a word, as it is shown."""
    text = revealed(text)
    if len(text) <= characters:
        return text
    cut = text[:characters]
    return f"{cut.rsplit(None, 1)[0] if ' ' in cut else cut} …"


def marked(text: str, query: str) -> Markup:
    """Return a text with the words marked that a search by words finds."""
    words = searched_words(query)
    # A word of grammar is in every result. It is marked only if nothing else was searched.
    wanted = set(map(hash_of, [word for word in words if not is_function_word(word)] or words))
    return Markup("").join(
        Markup("<mark>{}</mark>").format(part)
        if place % 2 and not wanted.isdisjoint(map(hash_of, words_of(part)))
        else escape(part)
        for place, part in enumerate(_WORD.split(text))  # every second one is a word
    )


def formatted(text: str) -> Markup:
    """Return a text in Markdown as HTML; HTML in it, images, and links to scripts stay text."""
    return Markup(_markdown().render(revealed(text)))  # noqa: S704 - it escapes what is not Markdown


def plain(text: str) -> str:
    """Return a text in Markdown without its marks, for a row of a list."""
    if not _MARKS.search(text):
        return text
    parts = [_words_of(token) for token in _markdown().parse(text)]
    return " ".join(filter(None, parts)) or text


def _words_of(token: Token) -> str:
    if token.type == "list_item_open":
        return f"{token.info}{token.markup}" if token.info else ""  # the number of an item
    if token.children is None:
        return token.content
    return "".join(" " if one.type.endswith("break") else one.content for one in token.children)


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table").disable(["image", "entity"])
    # A heading in a stored text must not become a heading of the page.
    markdown.add_render_rule("heading_open", lambda *_: "<p><strong>")
    markdown.add_render_rule("heading_close", lambda *_: "</strong></p>")
    for cell in ("th_open", "td_open"):
        markdown.add_render_rule(cell, _aligned)
    # Before the words of a paragraph are parsed: "[x]" may also be the name of a link.
    markdown.core.ruler.before("inline", "tasks", _draw_boxes)
    return markdown


def _draw_boxes(state: StateCore) -> None:
    """Replace the marks of a task by a box: a character, because nobody can tick what was stored."""
    for item, _, words in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if item.type == "list_item_open" and (task := _TASK.match(words.content)):
            words.content = f"{_BOXES[task[1].lower()]}{words.content[task.end() :]}"


def _aligned(renderer: RendererHTML, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    """Render a cell with its alignment as a class: the policy of the page allows no style in an element."""
    style = str(tokens[index].attrs.pop("style", ""))
    if style:
        tokens[index].attrSet("class", style.rpartition(":")[2])
    return renderer.renderToken(tokens, index, options, env)


def static_file(name: str) -> Response | None:
    """Return a static file; None if there is none of this name."""
    files = _static_files()
    if name not in files:
        return None
    return Response(files[name], media_type=_TYPES[Path(name).suffix], headers=_STATIC_HEADERS)


@cache
def static_address(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    return f"{STATIC_PATH}/{name}?v={blake3(_static_files()[name]).hexdigest(length=8)}"


@cache
def _static_files() -> dict[str, bytes]:
    folder = _FOLDER / "static"
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in _TYPES}


def _text(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_text(item) for item in value]
    if value is True:
        return "yes"
    return value.isoformat() if isinstance(value, datetime) else value
