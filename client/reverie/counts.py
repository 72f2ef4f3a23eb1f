"""Numbers with their nouns, as messages and commands show them: "1 memory", "3 memories"."""

from __future__ import annotations

from collections.abc import Mapping


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which is given in the singular; its last word gets the plural."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a noun."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("ch", "s", "sh", "x")) else f"{noun}s"


def counts_text(counts: Mapping[str, int | float]) -> str:
    """Return counts under names in the plural as text, without those that are 0: "1 page freed, 2 pruned"."""
    parts = (f"{number:,} {_singular_name(name) if number == 1 else name}" for name, number in counts.items() if number)
    return ", ".join(part.replace("_", " ") for part in parts)


def _singular_name(name: str) -> str:
    """Return the name of a count with its nouns in the singular, except what follows "of" and "few"."""
    words = name.split("_")
    return "_".join(
        word if before in ("of", "few") else _singular(word) for before, word in zip(["", *words], words, strict=False)
    )


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(("ches", "sses", "shes", "xes")):
        return word[:-2]
    return word if word.endswith(("ss", "us", "is")) else word.removesuffix("s")
