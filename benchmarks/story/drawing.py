"""Charts as SVG text: panels with axes, areas, lines and bars, small enough for a repository."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

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
