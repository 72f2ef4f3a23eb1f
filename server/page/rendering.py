"""Templates and static files, and the headers under which a browser runs nothing but the page's own scripts.

Everything that was stored is text: Jinja escapes it, the policy lets no inline script or style work, and characters
that cannot be seen, or that change the order of others, are shown by their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from blake3 import blake3
from fastapi import Response

from reverie import __version__
from reverie.counts import counted
from reverie.inert import revealed
from server.page.moments import date_text, day_heading, duration, exact, in_words

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER: Final = Path(__file__).parent
STATIC_PATH: Final = "/page-assets"
PAGE_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",  # for browsers that do not know frame-ancestors
    # The page says a path of the server to itself only.
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
        # Imported with the first page: a server of agents alone does without.
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
        environment.filters |= {"shown": revealed, "excerpt": excerpt, "duration": duration}
        environment.filters |= {"exact": exact, "date": date_text}
        environment.globals |= {"in_words": in_words, "day_heading": day_heading}
        return environment


def address(path: str, parameters: Mapping[str, Any]) -> str:
    """Return a path with its query string, without parameters that are empty or 0; a list gives several.

    Ids are parameters because a path cannot hold all of them: browsers take ".." for the folder above, also encoded.
    """
    given = {name: _text(value) for name, value in parameters.items() if value not in (None, "", False, (), [])}
    query = urlencode(given, doseq=True, errors="replace")
    return f"{path}?{query}" if query else path


def excerpt(text: str, characters: int = 280) -> str:
    """Return the beginning of a text, cut at a word, as it is shown."""
    text = revealed(text)
    if len(text) <= characters:
        return text
    cut = text[:characters]
    return f"{cut.rsplit(None, 1)[0] if ' ' in cut else cut} …"


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
