"""The fields that a form of the page sends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

from fastapi import Request

from reverie.errors import Rejected
from reverie.problems import UnsupportedType

# More than any form here has.
_MAX_FIELDS: Final = 64
# A memory has at most 64 KiB, of which each byte may be encoded by three; and a form may send its earlier text, too.
MAX_FORM_BYTES: Final = 1024 * 1024
_TYPE: Final = re.compile(r"application/x-www-form-urlencoded\s*(?:;|$)", re.IGNORECASE)


class Form:
    """The fields of a form. What a browser sends for a line end is a line feed here."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """Return a field; empty if it was not sent."""
        return self._fields.get(name, [""])[-1].replace("\r\n", "\n")

    def word(self, name: str) -> str | None:
        """Return a field without blanks around it; None if nothing was entered."""
        return self.text(name).strip() or None

    def is_checked(self, name: str) -> bool:
        """Return whether a box was checked."""
        return bool(self.text(name))

    def tags(self, name: str = "tags") -> list[str]:
        """Return tags that were entered with commas between them."""
        return [tag.strip() for tag in self.text(name).split(",") if tag.strip()]

    def number(self, name: str) -> float:
        """Return a field as a number. Raises `Rejected`."""
        try:
            return float(self.text(name))
        except ValueError:
            raise Rejected(f"{name} must be a number, not {self.text(name)[:40]!r}", field=name) from None


def decode_form(body: bytes) -> Form:
    """Return the fields of a body. Raises `Rejected`."""
    try:
        text = body.decode("ascii")
        fields = parse_qs(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError as error:
        raise Rejected(f"the form cannot be read ({error}): load the page again", field="body") from None
    return Form(fields)


def check_form_type(request: Request) -> None:
    """Raise `UnsupportedType` for a body that no form of the page sends."""
    if not _TYPE.match(request.headers.get("content-type", "").strip()):
        raise UnsupportedType("the body is not that of a form of this page", field="content-type")
