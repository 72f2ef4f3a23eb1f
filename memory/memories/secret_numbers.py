"""Find secret numbers: of cards, bank accounts and identity documents, by their format or the words around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from memory.memories import secret_forms as forms
from memory.memories.secret_hints import Searched

# The fewest digits of an IBAN, in countries whose account numbers have letters.
_MIN_IBAN_DIGITS: Final = 8


class Secret(NamedTuple):
    """The position of a secret in a text, and its kind."""

    start: int
    end: int
    kind: str


def numbers(text: Searched) -> Iterator[Secret]:
    """Yield the numbers of cards, bank accounts, identity documents and social security in a text."""
    for found in text.find(forms.CARD):
        digits = "".join(filter(str.isdigit, found.group()))
        if forms.CARD_ISSUERS.fullmatch(digits) and _passes_luhn(digits):
            yield Secret(*found.span(), "card number")
    for found in text.find(forms.IBAN):
        length = _iban_length(found.group())
        if length:
            yield Secret(found.start(), found.start() + length, "IBAN")
    for found in text.find(forms.IDENTITY):
        yield Secret(*found.span("number"), "identity number")
    for found in text.find(forms.SOCIAL_SECURITY):
        yield Secret(*found.span("after" if found["after"] else "before"), "social security number")


def _passes_luhn(digits: str) -> bool:
    """Return whether the check digit of a card number is right (ISO/IEC 7812-1, annex B)."""
    doubled = [int(digit) * (1 + position % 2) for position, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0 and len(set(digits)) > 1


def _iban_length(text: str) -> int:
    """Return how many characters of a text are an IBAN with valid check digits (ISO 7064, MOD 97-10); 0 for none.

    A word in capitals after it may look like its last group, so shorter ends are tried, too.
    """
    if sum(map(str.isdigit, text)) < _MIN_IBAN_DIGITS:
        return 0
    ends = [position for position in range(15, len(text) + 1) if position == len(text) or not text[position].isalnum()]
    for end in reversed(ends):
        compact = "".join(filter(str.isalnum, text[:end]))
        if len(compact) >= 15 and int("".join(str(int(c, 36)) for c in compact[4:] + compact[:4])) % 97 == 1:
            return end
    return 0
