"""Concept tags: what a text is about, in at most eight words taken from the text itself.

Compound tokens (`foo.bar`, `a-b`, `x/y`) come first, in their order, because they name something; then keywords by
weight. Deterministic: the tags depend on nothing but the text. Here is also what makes a text sensitive.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from storage.recall.words import STOP_WORDS, hash_of, with_few_marks

MAX_TAGS: Final = 8
MIN_CHARACTERS: Final = 3
# In Chinese, Japanese and Korean two characters are usually a word.
MIN_CHARACTERS_CJK: Final = 2
# A longer token is a hash, a key or an address and says nothing about the topic.
MAX_CHARACTERS: Final = 40
# Only the beginning is read: 20,000 characters take about 10 ms.
_READ_CHARACTERS: Final = 20_000
# A name within a sentence ("to Lisbon") weighs more than the words around it.
_NAME_FACTOR: Final = 1.5

_HAN: Final = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff"
_KATAKANA: Final = "\u30a1-\u30fa\u30fc-\u30fe"
_HANGUL: Final = "\uac00-\ud7af"
_CJK: Final = f"{_HAN}{_HANGUL}\u3040-\u30ff"
# Vowel signs and accents that are separate characters (Devanagari, Thai, Arabic, Hebrew) do not end a word.
_MARKS: Final = (
    "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0981-\u0983\u09bc-\u09cd"
    "\u0a01-\u0a03\u0a3c-\u0a4d\u0b01-\u0b03\u0b3c-\u0b4d\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c4d\u0cbc-\u0ccd"
    "\u0d3b-\u0d4d\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
)
_LETTER: Final = rf"[^\W_{_CJK}]"
_PART: Final = rf"{_LETTER}(?:{_LETTER}|[{_MARKS}])*"
_WORD: Final = rf"{_PART}(?:['\u2019]{_PART})*"
_TOKEN = re.compile(
    rf"(?P<compound>{_PART}(?:[._/-]{_PART})+)|(?P<word>{_WORD})|(?P<cjk>[{_HAN}]+|[{_KATAKANA}]+|[{_HANGUL}]+)"
)
_SCHEME = re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://(?:www\.)?", re.IGNORECASE)
_SENTENCE_START = re.compile(r"(?:\A|[.!?\n:;\u2026\"\u201c(\[*>-])\s{0,8}\Z")
# 7, 3rd, 10am, 42km: a number with or without its unit.
_NUMBER = re.compile(r"\d+(?:st|nd|rd|th|am|pm|h|hr|hrs|min|s|ms|k|m|mm|cm|km|kg|mg|g|l|ml|kb|mb|gb|tb|x|%)?")
_ENDS: Final = ("'s", "\u2019s", "'", "\u2019")

# Characters of Chinese grammar: between two of them are one or two words.
_HAN_GRAMMAR = re.compile(
    "[\u7684\u4e86\u662f\u5728\u6211\u4f60\u60a8\u4ed6\u5979\u5b83\u4eec\u5011\u8fd9\u9019\u90a3\u4e0d\u4e5f\u5c31"
    "\u90fd\u548c\u4e0e\u8207\u6709\u6ca1\u6c92\u5f88\u4f1a\u6703\u8bf4\u8aaa\u8981\u8ba9\u8b93\u628a\u88ab\u7ed9"
    "\u7d66\u5417\u55ce\u5462\u5427\u554a\u4e48\u9ebc\u4e2a\u500b]+"
)
_HAN_WORD_CHARACTERS: Final = 4


@dataclass(slots=True)
class _Keyword:
    """A word in all its forms: its first form (the tag) and position, its count, and whether it looks like a name."""

    tag: str
    position: int
    times: int = 0
    is_name: bool = False

    @property
    def weight(self) -> float:
        """Return a weight that grows with the logarithm of the count and with the length, and is higher for names."""
        length = 2 * len(self.tag) if _is_cjk(self.tag) else len(self.tag)
        return (1 + math.log(self.times)) * math.sqrt(min(length, 12)) * (_NAME_FACTOR if self.is_name else 1.0)


def concept_tags(text: str) -> tuple[str, ...]:
    """Return at most 8 tags of 3 to 40 characters (from 2 for CJK) for a text: compounds first, then by weight.

    Tags are lower-case NFKC, without numbers, dates and stop words. Empty for a text without any such word.
    """
    compounds: dict[str, None] = {}
    keywords: dict[int, _Keyword] = {}
    for position, (tag, is_compound, is_name) in enumerate(_candidates(_readable(text))):
        if is_compound:
            compounds[tag] = None
            continue
        keyword = keywords.setdefault(hash_of(tag), _Keyword(tag, position))
        keyword.times += 1
        keyword.is_name = keyword.is_name or is_name
    ranked = sorted(keywords.values(), key=lambda keyword: (-keyword.weight, keyword.position))
    return tuple(dict.fromkeys([*compounds, *(keyword.tag for keyword in ranked)]))[:MAX_TAGS]


def _readable(text: str) -> str:
    return _SCHEME.sub(" ", unicodedata.normalize("NFKC", with_few_marks(text[:_READ_CHARACTERS])))


def _candidates(text: str) -> Iterator[tuple[str, bool, bool]]:
    """Yield each token that may be a tag, whether it is a compound, and whether it looks like a name."""
    for found in _TOKEN.finditer(text):
        written = found.group()
        if found.lastgroup == "cjk":
            yield from ((word, False, False) for word in _cjk_words(written))
            continue
        # Lower case and NFKC are applied twice: for a few characters one undoes the other.
        lower = unicodedata.normalize("NFKC", written.lower())
        tag = lower if lower == lower.lower() else unicodedata.normalize("NFKC", lower.lower())
        if found.lastgroup == "compound":
            if _is_compound(tag):
                yield tag, True, False
            else:
                yield from ((part, False, False) for part in re.split(r"[._/-]", tag) if _is_word(part))
        elif _is_word(tag := _without_end(tag)):
            yield tag, False, _is_name(written, text[max(0, found.start() - 8) : found.start()])


def _without_end(word: str) -> str:
    if word in STOP_WORDS:
        return word
    return next((word.removesuffix(end) for end in _ENDS if word.endswith(end)), word)


def _is_word(word: str) -> bool:
    return (
        MIN_CHARACTERS <= len(word) <= MAX_CHARACTERS
        and word.replace("\u2019", "'") not in STOP_WORDS
        and not _is_number(word)
    )


def _is_compound(token: str) -> bool:
    """Return whether a token names something: not a date, a range, `and/or` or `e.g`."""
    parts = re.split(r"[._/-]", token)
    if not MIN_CHARACTERS <= len(token) <= MAX_CHARACTERS or all(_is_number(part) for part in parts):
        return False
    if "." in token and all(len(part) == 1 for part in parts):
        return False  # an abbreviation
    return not all(part in STOP_WORDS or _is_number(part) for part in parts)


def _is_number(word: str) -> bool:
    return _NUMBER.fullmatch(word) is not None or not any(character.isalpha() for character in word)


def _is_name(written: str, before: str) -> bool:
    """Return whether a word is capitalised although it does not start a sentence."""
    return written[0].isupper() and not written.isupper() and not _SENTENCE_START.search(before)


def _cjk_words(run: str) -> Iterator[str]:
    """Yield words of a script without blanks: short runs as they are, longer Chinese ones as pairs of characters."""
    if not re.match(f"[{_HAN}]", run):
        if MIN_CHARACTERS_CJK <= len(run) <= MAX_CHARACTERS:
            yield run
        return
    for part in _HAN_GRAMMAR.split(run):
        if MIN_CHARACTERS_CJK <= len(part) <= _HAN_WORD_CHARACTERS:
            yield part
        elif len(part) > _HAN_WORD_CHARACTERS:
            yield from (part[position : position + 2] for position in range(len(part) - 1))


def _is_cjk(tag: str) -> bool:
    return re.match(f"[{_CJK}]", tag) is not None


# --- sensitive texts ---
# A person should read these before they are relied on: about health, beliefs, money and the like. English words are
# looked for that are seldom used for anything else. No other language is recognised, no paraphrase ("he did not survive
# the winter"), and no amounts, which are in every shopping list. So this proves nothing.

# The reason for a sensitive entry of the curation log that is about none of these subjects.
SEEN_BY_ALL: Final = "seen by all users"
# The order counts: a text of two kinds belongs to the first.
_WORDS: Final = {
    "credentials": (
        "passwords?|passcodes?|passphrases?|api keys?|access tokens?|secret keys?|private keys?|credentials"
        "|recovery codes?|security codes?|social security|ssn|passport numbers?|iban|login details"
    ),
    "health": (
        "allerg(?:y|ies|ic)|diagnos(?:is|ed)|illness(?:es)?|diseases?|cancer|tumou?rs?|chemo(?:therapy)?|diabet(?:es|ic)"
        "|insulin|asthma|epilep(?:sy|tic)|migraines?|hiv|co?eliac|lactose intoleran(?:t|ce)|pregnan(?:t|cy)|miscarriage"
        "|ivf|depress(?:ed|ion)|anxiety|panic attacks?|bipolar|autis(?:m|tic)|adhd|ptsd|dementia|therap(?:y|ists?)"
        "|psychiatrists?|medications?|prescri(?:bed|ptions?)|antidepressants?|painkillers?|surger(?:y|ies)"
        "|hospitali[sz]ed|blood pressure|cholesterol|symptoms?|injur(?:y|ies|ed)|disabilit(?:y|ies)|disabled"
        "|addict(?:ed|ion)|rehab|sober|overdose|epileptic|wheelchair|blood thinners|statins|dialysis|transplant"
        r"|\d{1,4} ?mg|arthritis|dyslexi[ac]|insomnia|alcoholic|suicid(?:e|al)|self-harm"
    ),
    "beliefs": (
        "church(?:es)?|mosque|synagogue|religio(?:n|us)|pray(?:s|ed|ing|ers?)?|bible|qur'?an|ramadan|christian|catholic"
        "|protestant|pentecostal|evangelical|mormon|muslim|islam(?:ic)?|jew(?:s|ish)?|hindu|buddhis(?:t|m)|sikh|atheist"
        "|agnostic|voted? (?:for|against)|trade union|union member"
    ),
    "sexuality": (
        "gay|lesbian|bisexual|asexual|queer|transgender|trans (?:man|woman)|non-?binary|sex(?: life|ual(?:ity)?)?"
        "|contracepti(?:on|ve)|came out to"
    ),
    "money": (
        "salar(?:y|ies)|wages?|income|mortgage|loans?|debts?|bankrupt(?:cy)?|credit (?:card|score)s?|bank accounts?"
        "|savings|overdraft|net worth|tax returns?|pension|alimony|inheritance|inherited"
    ),
}
_KINDS: Final = {kind: re.compile(rf"(?i)\b(?:{words})\b") for kind, words in _WORDS.items()}


def sensitive_kind(text: str) -> str | None:
    """Return the first kind of sensitive words in a text, such as "health"; None if it has none. Takes linear time."""
    return next((kind for kind, words in _KINDS.items() if words.search(text)), None)
