"""Plot the month as SVG: lifetimes, tiers, relevance, access, what the jobs did, and recall before and after."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.story.census import Day, Standing, count_in_words

INK: Final = "#1f2937"
FAINT: Final = "#9ca3af"
_GRID: Final = "#e5e7eb"
_FONT: Final = "font-family=\"system-ui, -apple-system, 'Segoe UI', sans-serif\""

Point = tuple[float, float]


@dataclass(slots=True)
class Panel:
    """One chart: its place in the plot (pixels) and the values at its edges. `log` refers to the vertical axis."""

    left: float
    top: float
    width: float
    height: float
    x_from: float
    x_to: float
    y_from: float
    y_to: float
    log: bool = False
    parts: list[str] = field(default_factory=list)

    def x(self, value: float) -> float:
        """Return the x coordinate of a value."""
        return self.left + self.width * (value - self.x_from) / (self.x_to - self.x_from)

    def y(self, value: float) -> float:
        """Return the y coordinate of a value; values outside the panel are placed on its edge."""
        scale: Callable[[float], float] = math.log10 if self.log else float
        low, high = scale(self.y_from), scale(self.y_to)
        share = (scale(max(value, self.y_from)) - low) / (high - low)
        return self.top + self.height * (1 - min(share, 1.0))

    def title(self, text: str, note: str = "") -> None:
        """Draw title and subtitle above the panel."""
        self.parts.append(label(self.left, self.top - 22, text, size=14, weight=600))
        if note:
            self.parts.append(label(self.left, self.top - 7, note, size=11, colour=FAINT))

    def axes(self, x_ticks: Sequence[float], y_ticks: Sequence[float], *, y_name: Callable[[float], str]) -> None:
        """Draw grid lines with their values."""
        right = self.left + self.width
        for tick in y_ticks:
            y = self.y(tick)
            self.parts.append(line([(self.left, y), (right, y)], colour=_GRID, width=1))
            self.parts.append(label(self.left - 6, y + 4, y_name(tick), size=11, colour=FAINT, anchor="end"))
        for tick in x_ticks:
            bottom = self.top + self.height + 16
            self.parts.append(label(self.x(tick), bottom, f"{tick:g}", size=11, colour=FAINT, anchor="middle"))

    def area(self, lower: Sequence[Point], upper: Sequence[Point], colour: str) -> None:
        """Draw the area between two lines over the same places."""
        outline = [*upper, *reversed(lower)]
        points = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in outline)
        self.parts.append(f'<polygon points="{points}" fill="{colour}" fill-opacity="0.85"/>')

    def curve(self, points: Sequence[Point], colour: str, *, width: float = 1.5, opacity: float = 1.0) -> None:
        """Draw a line through values."""
        placed = [(self.x(x), self.y(y)) for x, y in points]
        self.parts.append(line(placed, colour=colour, width=width, opacity=opacity))

    def threshold(self, value: float, text: str, colour: str) -> None:
        """Draw a labelled threshold."""
        y = self.y(value)
        self.parts.append(line([(self.left, y), (self.left + self.width, y)], colour=colour, width=1, dashed=True))
        self.parts.append(label(self.left + self.width, y - 4, text, size=11, colour=colour, anchor="end"))

    def bars(self, stacks: Sequence[tuple[float, Sequence[tuple[float, str]]]], *, share: float = 0.7) -> None:
        """Draw a stack of bars at each place: heights from the bottom up, with their colours."""
        wide = share * self.width / max(self.x_to - self.x_from, 1.0)
        for place, stack in stacks:
            base = 0.0
            for height, colour in stack:
                top, bottom = self.y(base + height), self.y(base)
                if height > 0:
                    self.parts.append(
                        f'<rect x="{self.x(place) - wide / 2:.1f}" y="{top:.1f}" width="{wide:.1f}"'
                        f' height="{bottom - top:.1f}" fill="{colour}"/>'
                    )
                base += height

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        """Draw a legend of the colours just above the panel."""
        place = self.left + self.width
        for text, colour in reversed(entries):
            place -= 7.0 * len(text)
            self.parts.append(label(place, self.top - 22, text, size=11))
            place -= 16
            self.parts.append(f'<rect x="{place:.1f}" y="{self.top - 31:.1f}" width="10" height="10" fill="{colour}"/>')
            place -= 12


def label(
    x: float, y: float, text: str, *, size: int, colour: str = INK, anchor: str = "start", weight: int = 400
) -> str:
    """Return a text element; `anchor` is start, middle or end."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
        f' font-weight="{weight}">{escape(text)}</text>'
    )


def line(points: Sequence[Point], *, colour: str, width: float, opacity: float = 1.0, dashed: bool = False) -> str:
    """Return a line through places in the plot."""
    placed = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<polyline points="{placed}" fill="none" stroke="{colour}" stroke-width="{width}"'
        f' stroke-opacity="{opacity}" stroke-linejoin="round"{dash}/>'
    )


def picture(width: int, height: int, *, title: str, panels: Sequence[Panel], more: Sequence[str] = ()) -> str:
    """Return the whole plot as an SVG document, with a background of its own so that it is readable on any page."""
    parts = [part for panel in panels for part in panel.parts]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" {_FONT} role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="12" fill="#ffffff"/>',
            *parts,
            *more,
            "</svg>\n",
        ]
    )


def round_top(value: float) -> float:
    """Return a round number at or above a value, for the top of an axis."""
    if value <= 0:
        return 1.0
    magnitude = 10.0 ** math.floor(math.log10(value))
    return next(step * magnitude for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * magnitude >= value)


_WIDTH: Final = 980
_TABLE_TOP: Final = 962
# Height of a row of the table.
_ROW: Final = 22
_LEFT: Final = 64
_HALF: Final = 390
_SECOND: Final = 540
_WHOLE: Final = _SECOND + _HALF - _LEFT

_LIFETIMES: Final = {"long_term": "#4f46e5", "short_term": "#a5b4fc", "conversation": "#d1d5db"}
_TIERS: Final = {"workspace": "#0f766e", "channel": "#5eead4", "account": "#f59e0b", "conversation": "#d1d5db"}
# Actions of the curation log; all others count as "other".
ACTIONS: Final = {
    "extract": "#38bdf8", "supersede": "#94a3b8", "merge": "#a78bfa", "promote": "#4f46e5", "dream": "#16a34a",
    "prune": "#ef4444", "expire": "#f97316", "cap": "#b45309", "summarise": "#eab308", "close": "#d1d5db",
    "clear": "#f9a8d4",
}  # fmt: skip
_OTHER: Final = "#64748b"
_MOST_LINES: Final = 150
_TRACKED: Final = 4
_TRACK_COLOURS: Final = ("#dc2626", "#16a34a", "#d97706", "#2563eb")


def draw(days: Sequence[Day], *, promote_at: float, prune_at: float, figures: Sequence[tuple[str, str, str]]) -> str:
    """The picture as SVG; `figures` are rows of a name, the figure before and the figure after."""
    last, count = len(days), count_in_words(days)
    title = f"{count.capitalize()} days of an agent's memory"
    panels = [
        _shares(days, _panel(_LEFT, 90, _HALF, 170, last, _most(days)), "Memories by lifetime", _LIFETIMES,
                lambda one: one.lifetime),
        _shares(days, _panel(_SECOND, 90, _HALF, 170, last, _most(days)), "Memories by tier", _TIERS,
                lambda one: one.tier),
        _relevance(days, last, promote_at, prune_at),
        _access(days, last),
        _work(days, last),
    ]  # fmt: skip
    heading = [
        label(_LEFT, 34, title, size=20, weight=700),
        *_table(figures, count, top=_TABLE_TOP),
    ]
    height = _TABLE_TOP + _ROW * (len(figures) + 2)
    return picture(_WIDTH, height, title=title, panels=panels, more=heading)


def _panel(left: float, top: float, width: float, height: float, last: int, most: float) -> Panel:
    panel = Panel(left, top, width, height, 0, last, 0, round_top(most))
    steps = [panel.y_to * share for share in (0, 0.5, 1)]
    panel.axes(range(0, last + 1, 5), steps, y_name=lambda value: f"{value:,.0f}")
    return panel


def _most(days: Sequence[Day]) -> float:
    return max((len(day.standing) for day in days), default=1)


def _shares(
    days: Sequence[Day], panel: Panel, title: str, colours: Mapping[str, str], kind_of: Callable[[Standing], str]
) -> Panel:
    """Plot the number of memories, stacked by an attribute."""
    panel.title(title, "memories at the end of each day")
    floor: list[Point] = [(0.0, 0.0), *((day.number, 0.0) for day in days)]
    for kind, colour in colours.items():
        counts = [0, *(sum(kind_of(one) == kind for one in day.standing) for day in days)]
        top = [(place, height + count) for (place, height), count in zip(floor, counts, strict=True)]
        if any(counts):
            panel.area(floor, top, colour)
        floor = top
    present = {kind_of(one) for day in days for one in day.standing}
    _legend_below(panel, [(kind.replace("_", " "), colour) for kind, colour in colours.items() if kind in present])
    return panel


def _relevance(days: Sequence[Day], last: int, promote_at: float, prune_at: float) -> Panel:
    """Plot each memory's relevance as a line, a few examples in colour."""
    panel = Panel(_LEFT, 362, _WHOLE, 200, 0, last, min(prune_at, 0.01) / 3, 5.0, log=True)
    ticks = [tick for tick in (0.01, 0.1, 1.0) if tick >= panel.y_from]
    panel.axes(range(0, last + 1, 5), ticks, y_name=lambda value: f"{value:g}")
    panel.title("Relevance", "importance x rate ^ hours x (1 + ln(1 + accesses)), one line per memory, logarithmic")
    tracks = _tracks(days)
    chosen = _chosen(tracks, days)
    every = max(1, len(tracks) // _MOST_LINES)
    for place, points in enumerate(tracks.values()):
        if place % every == 0 and len(points) > 1:
            panel.curve(points, FAINT, width=0.8, opacity=0.35)
    for (_, memory), colour in zip(chosen, _TRACK_COLOURS, strict=False):
        panel.curve(tracks[memory], colour, width=2.2)
    panel.legend([(name, colour) for (name, _), colour in zip(chosen, _TRACK_COLOURS, strict=False)])
    panel.threshold(promote_at, f"promoted above {promote_at:g}, when recalled often", "#4f46e5")
    panel.threshold(prune_at, f"pruned below {prune_at:g}", "#ef4444")
    return panel


def _tracks(days: Sequence[Day]) -> dict[str, list[Point]]:
    tracks: dict[str, list[Point]] = {}
    for day in days:
        for one in day.standing:
            tracks.setdefault(one.id, []).append((day.number, one.relevance))
    return tracks


def _chosen(tracks: Mapping[str, Sequence[Point]], days: Sequence[Day]) -> list[tuple[str, str]]:
    """Pick a few memories that show typical courses, by what happened to them and never by their text."""
    latest = {one.id: one for day in days for one in day.standing}
    end = {one.id for one in days[-1].standing} if days else set()
    long = [memory for memory in tracks if len(tracks[memory]) > len(days) // 2]
    rules: list[tuple[str, Callable[[str], object]]] = [
        ("recalled most", lambda memory: (latest[memory].access_count, memory)),
        ("never recalled", lambda memory: (-latest[memory].access_count, len(tracks[memory]), memory)),
        ("pruned", lambda memory: (memory not in end, len(tracks[memory]), memory)),
    ]
    chosen: list[tuple[str, str]] = []
    for name, rule in rules:
        left = [memory for memory in long if memory not in {found for _, found in chosen}]
        best = max(left, key=rule, default=None)  # type: ignore[arg-type]  # tuples of what can be compared
        if best is not None and (name != "pruned" or best not in end):
            chosen.append((name, best))
    return chosen[:_TRACKED]


def _access(days: Sequence[Day], last: int) -> Panel:
    """Plot the questions of each day and the memories that they found."""
    most = max((max(day.recalled, day.asked) for day in days), default=1)
    panel = _panel(_LEFT, 632, _HALF, 200, last + 1, most)
    panel.title("Access", "questions per day, and memories that they found")
    panel.bars([(day.number - 0.2, [(day.asked, "#cbd5e1")]) for day in days], share=0.35)
    panel.bars([(day.number + 0.2, [(day.recalled, "#0ea5e9")]) for day in days], share=0.35)
    panel.legend([("asked", "#cbd5e1"), ("memories found", "#0ea5e9")])
    return panel


def _work(days: Sequence[Day], last: int) -> Panel:
    """Plot what the jobs did, by day."""
    shown = {action for day in days for action in day.done}
    most = max((day.done.total() for day in days), default=1)
    panel = _panel(_SECOND, 632, _HALF, 200, last + 1, most)
    panel.title("What the jobs did", "entries of the curation log; each can be undone")
    known = {action: colour for action, colour in ACTIONS.items() if action in shown}
    panel.bars(
        [
            (
                day.number,
                [
                    *((day.done[action], colour) for action, colour in known.items()),
                    (sum(count for action, count in day.done.items() if action not in ACTIONS), _OTHER),
                ],
            )
            for day in days
        ]
    )
    entries = [*known.items(), *([("other", _OTHER)] if shown - set(ACTIONS) else [])]
    _legend_below(panel, entries)
    return panel


def _legend_below(panel: Panel, entries: Sequence[tuple[str, str]]) -> None:
    """Draw a legend of many entries in rows below the panel."""
    place, row = panel.left, panel.top + panel.height + 40
    for text, colour in entries:
        wide = 26 + 7.0 * len(text)
        if place + wide > panel.left + panel.width:
            place, row = panel.left, row + 18
        panel.parts.append(f'<rect x="{place:.1f}" y="{row - 9:.1f}" width="10" height="10" fill="{colour}"/>')
        panel.parts.append(label(place + 15, row, text, size=11))
        place += wide


def _table(rows: Sequence[tuple[str, str, str]], count: str, *, top: float) -> list[str]:
    """Draw a small table of recall before and after."""
    columns = (_LEFT, _SECOND, _SECOND + 200)
    parts = [
        label(columns[0], top, "Recall and context", size=14, weight=600),
        label(columns[1], top, "without jobs", size=12, colour=FAINT),
        label(columns[2], top, f"after {count} days of jobs", size=12, colour=FAINT),
    ]
    for place, row in enumerate(rows, start=1):
        y = top + _ROW * place
        parts += [label(x, y, text, size=13, colour=INK) for x, text in zip(columns, row, strict=True)]
    return parts
