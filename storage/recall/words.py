"""Turns text into the words that the keyword retriever counts, in the same way for stored texts and for queries.

A word is folded (case, accents), stemmed (Porter2) and stored as a 32-bit hash: of 100,000 different words about two
share one. Chinese, Japanese and Korean, which put no spaces between words, are split into pairs of characters.

Stop words are words of the calendar, of grammar and of small talk, which say nothing about the topic of a text. The
share of texts in another script or language is estimated from a sample of a store's chunks. It counts texts, not
letters: a Chinese text has a third of the letters of its translation.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from threading import local
from typing import TYPE_CHECKING, Final, NamedTuple

import Stemmer

from storage.engines import Connection
from storage.rows import execute

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Longer words are cut: a query may be one word of 100,000 characters.
_MAX_WORD: Final = 64
# Combining marks kept on one character, as in Unicode's "stream-safe text format" (UAX #15); no language needs as
# many. Normalising sorts them in quadratic time: 600,000 on one letter took 240 s.
_MAX_MARKS: Final = 30
_CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_RUN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+", re.UNICODE)
_WITHOUT_SPACES = re.compile(f"[{_CJK}]")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_NO_LETTERS = re.compile(rf"[^\w\s\x00-\x7f]{{{_MAX_MARKS + 1},}}")
_thread = local()


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, folded but not stemmed; pairs of characters for scripts without spaces."""
    runs = _RUN.findall(_folded(text))
    if text.isascii():  # the text has no script without spaces
        return [run[:_MAX_WORD] for run in runs]
    return [word for run in runs for word in _split(run)]


def is_character_pair(word: str) -> bool:
    """Return whether a folded word is a pair of characters of a script without spaces."""
    return len(word) == 2 and _WITHOUT_SPACES.match(word) is not None


def with_few_marks(text: str) -> str:
    """Return the text without the combining marks beyond the first 30 on a character, so that it normalises quickly."""
    return text if text.isascii() else _NO_LETTERS.sub(_few_marks, text)


def hashes_of(text: str) -> NDArray[np.uint32]:
    """Return the hashes of a text's stemmed words, in order and with repeats."""
    import numpy as np

    return np.fromiter(map(hash_of, words_of(text)), dtype="<u4")


@lru_cache(maxsize=131_072)
def hash_of(word: str) -> int:
    """Return the hash of a folded word's stem."""
    stem: str = _stemmer().stemWord(word)
    return zlib.crc32(stem.encode())


def _stemmer() -> Stemmer.Stemmer:
    """Return this thread's stemmer: stemmers are not thread-safe."""
    found: Stemmer.Stemmer | None = getattr(_thread, "stemmer", None)
    if found is None:
        found = _thread.stemmer = Stemmer.Stemmer("english", 0)
    return found


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", with_few_marks(text).casefold()))
    return unicodedata.normalize("NFC", bare)


def _few_marks(run: re.Match[str]) -> str:
    kept: list[str] = []
    marks = 0
    for character in run.group():
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= _MAX_MARKS:
            kept.append(character)
    return "".join(kept)


def _split(run: str) -> Iterator[str]:
    if len(run) == 1 or run[0] < "\u3040" or not _WITHOUT_SPACES.match(run):
        yield run[:_MAX_WORD]
    else:
        yield from (run[position : position + 2] for position in range(len(run) - 1))


_CALENDAR: Final = """
monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun january
february march april may june july august september october november december jan feb mar apr jun jul aug sep sept
oct nov dec today tomorrow yesterday tonight morning afternoon evening night noon midnight second minute hour day
week weekend month year decade seconds minutes hours days weeks weekends months years utc gmt
"""
_GRAMMAR: Final = """
a about above after again against ago all almost along already also although always am among an and another any
anyone anything anyway are around as at away back be became because become been before behind being below between
both but by came can cannot come could did do does doing done down during each either else enough etc even ever
every everyone everything few for from further gave get gets getting give given gives go goes going gone got had has
have having he her here hers herself him himself his how however if in instead into is it its itself just keep kept
kind last later least less let like little long lot lots made make makes making many may maybe me might mine more
most much must my myself near need needs neither never next no nobody none nor not nothing now of off often on once
one ones only onto or other others our ours ourselves out over own per perhaps please put quite rather really said
same say saying says see seem seems seen shall she should since so some somebody someone something sometimes soon
still such sure take taken takes taking tell than that the their theirs them themselves then there these they thing
things this those though three through thus till time times to together told too took toward towards tried try two
under until up upon us use used uses using usually very via want wanted wants was way we well went were what
whatever when where whether which while who whole whom whose why will with within without would yes yet you your
yours yourself
"""
_SMALL_TALK: Final = """
actually basically definitely especially exactly absolutely probably literally totally hello hey hiya okay yeah yep
nope wow haha thanks thank welcome sorry good great nice cool awesome amazing bit feel feels felt think thinks
thought know knows knew known mean means meant look looks looking looked guess hope remember glad happy wonder
sounds sound able aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't let's mustn't shouldn't
wasn't weren't won't wouldn't i'm i've i'll i'd you're you've you'll he's she's it's we're we've we'll they're
they've they'll that's there's what's who's here's
"""
_OTHER_LANGUAGES: Final = """
aber als auch auf aus bei bin bis das dass dem den der des die dir doch ein eine einem einen einer eines für habe
haben hat hatte ich ihm ihn ihr ist kann mich mir mit nach nicht noch nur oder schon sein sich sie sind sondern über
und uns vom von war warum was wenn wie wir wird zum zur ahora como con cuando del donde ella ellos ese esta este
está están hay las los más muy para pero por porque que qué sin sobre son soy también tengo tiene una unos alors
avec ces cette comme dans des donc elle elles est être fait ils les leur mais même mes mon nous où par pas plus pour
qui sans ses son sont sur tes toi ton tout très une vos vous anche che chi della delle era gli hai hanno nel nella
non perché più sono suo una até com dos ela eles essa esse está isso mais mas não nas nos pela pelo quando são sua
também uma você
"""

_ACKNOWLEDGEMENTS: Final = """
ok noted sure course fine alright understood perfect agreed done lovely excellent wonderful fantastic awful terrible
gladly anytime problem worries hear oh ah hm hmm mhm cheers bye goodbye certainly indeed true
m s re ve ll d t
"""

# Chinese particles, pronouns, question words, negations, adverbs and prepositions, simplified and traditional: a closed
# class, written down for this module. Chinese is stored as pairs of characters, and a pair with one of these is grammar
# or crosses the border of a word.
_CHINESE_GRAMMAR: Final = frozenset(
    "的了吗呢吧啊呀嘛么着们我你您他她它这那哪谁什怎是在有没不也都就还很和与跟把被给让从对为得地嗎麼著們這誰沒還與給讓從對為"
)

# Words that have only a grammatical function.
FUNCTION_WORDS: Final = frozenset((_GRAMMAR + _OTHER_LANGUAGES).split())
# A message of only such words, as "OK, thanks" or "Of course", acknowledges another one and says nothing itself.
FILLER_WORDS: Final = frozenset((_GRAMMAR + _SMALL_TALK + _ACKNOWLEDGEMENTS).split())
STOP_WORDS: Final = frozenset((_CALENDAR + _GRAMMAR + _SMALL_TALK + _OTHER_LANGUAGES).split())


def is_function_word(word: str) -> bool:
    """Return whether a folded word, or a pair of Chinese characters, has little but a grammatical function."""
    return word in FUNCTION_WORDS or not _CHINESE_GRAMMAR.isdisjoint(word)


# Evenly spaced by id: 0.4 ms for 64 chunks of 640 characters. The estimate is within 12 points, 19 times of 20.
_SAMPLED: Final = 64
_SAMPLE: Final = """
    WITH RECURSIVE
        span (low, high) AS (SELECT min(id), max(id) FROM chunks),
        place (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM place WHERE number + 1 < :sampled)
    SELECT text FROM chunks WHERE id IN (
        SELECT (SELECT min(id) FROM chunks WHERE id >= low + (high - low) * number / (:sampled - 1)) FROM place, span
    )
"""
# Latin ends with U+024F; U+1E00 to U+1EFF are Latin letters with marks, as in Vietnamese.
_LATIN_END: Final = 0x24F
_LETTERS = re.compile(r"[^\W\d_]+")
_ENGLISH_GRAMMAR: Final = frozenset(_GRAMMAR.split())
_ENGLISH_SHARE: Final = 0.25
_JUDGED_WORDS: Final = 8
# Among a few texts, one list and some slang are a quarter already: with fewer texts, only other scripts count.
_LEAST_JUDGED: Final = 20
_MORE_LATIN: Final = range(0x1E00, 0x1F00)


class Languages(NamedTuple):
    """Shares of the texts of a store, 0 to 1, estimated from a sample; 0 if none can be judged."""

    outside_latin: float = 0.0
    not_english: float = 0.0


NO_LANGUAGES: Final = Languages()


def languages_of(connection: Connection) -> Languages:
    """Return the shares of languages in the chunks of a store."""
    texts = [text for (text,) in execute(connection, _SAMPLE, sampled=_SAMPLED) if isinstance(text, str)]
    is_foreign = _is_not_english if len(texts) >= _LEAST_JUDGED else is_outside_latin
    return Languages(_share(map(is_outside_latin, texts)), _share(map(is_foreign, texts)))


def _share(judged: Iterable[bool | None]) -> float:
    known = [judge for judge in judged if judge is not None]
    return sum(known) / len(known) if known else 0.0


def _is_not_english(text: str) -> bool | None:
    """Return whether too few words of a text are those of English grammar; None for a short text in Latin script.

    This is true of 0.2 % of the turns in LoCoMo's development half, and of 1.3 % of the messages to assistants in
    LongMemEval's; some of these are code, lists, or in other languages.
    """
    words = _LETTERS.findall(text.lower())
    if len(words) < _JUDGED_WORDS:
        return True if is_outside_latin(text) else None
    return sum(word in _ENGLISH_GRAMMAR for word in words) < _ENGLISH_SHARE * len(words)


def is_outside_latin(text: str) -> bool | None:
    """Return whether more than half of a text's letters are not Latin; None for a text without letters."""
    if text.isascii():
        return False if any(map(str.isalpha, text)) else None
    letters = [ord(letter) for letter in text if letter.isalpha()]
    others = sum(code > _LATIN_END and code not in _MORE_LATIN for code in letters)
    return 2 * others > len(letters) if letters else None
