"""What people tell of their lives, by the form of the sentence: what they did, have, are and plan.

A sentence counts if it is about the speaker (`I`, `my sister`), states something in a form of which the tense can be
seen, and can be understood by itself: a pronoun or a `that` which refers to something said before it rules it out.
There is no list of what can be told: closed classes of words (pronouns, auxiliaries, irregular verbs, verbs of thought)
say what form a sentence has.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.dates import Days, days_in, end_of_day
from memory.memories.patterns.matching import COVER, Kind, Sentence, Statement, as_subject, starting

_MIN_WORDS: Final = 4
_MAX_WORDS: Final = 36
_ADVERB: Final = (
    r"(?:also|just|finally|already|still|now|even|only|often|always|both|once|never|ever|first|sometimes|then"
    r"|[a-z]{2,20}l[ey]{1,3})"
)
_ADVERBS: Final = rf"(?:{_ADVERB}\s{{1,3}}){{0,3}}(?!{_ADVERB}\b)"
_IRREGULAR: Final = """
was were became began broke brought built bought caught chose came did drew drank drove ate fell felt fought found flew
forgot gave went grew had heard hid hit held hurt kept knew led left lost made met paid put quit read rode ran saw sold
sent set shot showed sang sat slept spoke spent stood stole swam swept took taught threw understood woke wore won wrote
lent cut bent dug fed sewed cleaned ordered learnt got
"""
_PAST: Final = rf"(?:(?!need|unneed|seed|feed|speed|exceed|succeed\b)[a-z]{{2,20}}ed|{'|'.join(_IRREGULAR.split())})"
_PARTICIPLE: Final = (
    r"(?:been|become|begun|broken|chosen|come|done|drawn|drunk|driven|eaten|fallen|flown|forgotten|given|gone|grown"
    rf"|known|ridden|run|seen|shown|sung|spoken|stolen|swum|taken|thrown|woken|worn|written|gotten|{_PAST})"
)
# Verbs of thought and talk say nothing of a life; of what one tries, needs and looks for nothing lasts.
_OF_THOUGHT: Final = (
    r"(?:think|thought|know|knew|guess(?:ed)?|hope[ds]?|feel|felt|mean|meant|see|saw|understood|understand|agreed?"
    r"|believed?|wish(?:ed)?|need(?:ed)?|want(?:ed)?|wonder(?:ed)?|suppose[d]?|bet|said|say|told|tell|heard"
    r"|hear|ask(?:ed)?"
    r"|mentioned|mention|noticed|notice|realized|realised|realize|realise|remember(?:ed)?|forgot|forget|figured?|tried"
    r"|try|look(?:ed)?|seem(?:ed)?|appreciated?|enjoy(?:ed)?|loved?|liked?|hated?|imagined?|considered|consider"
    r"|assumed?|expect(?:ed)?|decided|decide|got|get|can|could|will|would|should|must|may|might|do|did|does"
    r"|don't|didn't"
    r"|doubt(?:ed)?|care[ds]?|promised?|swear|swore|thank(?:ed)?|missed|miss|admire[ds]?|admit|apologi[sz]e|respond|reply"
    r"|rec+om+end|suggest|read|put|let|call|called"
    r"|meant|created?|added|add|changed?|updated?|copied|installed|noted|wanna|gotta|just|really|am|was|were|have|had)"
)
_NO_LIFE: Final = (
    r"(?:trying|looking|thinking|wondering|considering|going|hoping|feeling|getting|having|being|sure|asking|talking"
    r"|saying|referring|struggling|planning|wanting|guessing|assuming|doing|leaning|seeing|dying|meaning"
    r"|keeping|enjoying|loving|figuring"
    r"|needing|hearing|finding|missing|noticing|dealing|putting|giving|asking|running into|starting to|aiming"
    r"|debating|deciding)"
)
_DOING_NOW: Final = rf"(?!{_NO_LIFE}\b)[a-z]{{2,20}}ing"
# Words that say nothing of what was done: without others, a sentence is worth nothing later on.
_EMPTY: Final = (
    r"(?:the|and|for|our|out|was|had|got|has|not|but|all|any|new|big|way|one|off|too|back|great|good|well|hard"
    r"|busy|fine|amazing|awesome|nice|fun|happy|excited|bored|tired|stressed|inspired|huge|usual|blast"
    r"|lately|recently|today|really|pretty|very|much|many|wonderful|project|details?|stuff|things|work|working"
    r"|something|with"
    r"|from|into|about|their|them|been|have|just|some|over|around|lots|mix|fan|bunch|couple|progress|world|life"
    r"|days?|difference"
    r"|share|start|started|time|times|year|years|week|weeks|month|months|ages|forever|also|always|actually"
    r"|currently|yesterday|last|next|two|three|four|five|six|ten|under|every|positive|forward|ahead|pushing|moving|looking"
    r"|facing|faced|challenges?|hurdles|kinds|true|self|living|dreams?|ambitions|chasing|learning|ton|tons|crossing"
    r"|fingers|confession|growing|little|skeptical|sceptical|weighing|options|using|app|browsing|online|local|staying|stayed?|focused|focusing|motivated|memory|memories|moments?"
    r"|this|definitely|tomorrow|tonight|weekend|morning|night|evening|afternoon|passion|passionate|proud"
    r"|grateful|thankful|lucky)"
)

_SUBJECT: Final = r"(?P<subject>i)"
_RELATIVE: Final = (
    rf"(?P<subject>my (?P<who>{words.RELATIONS}|{words.PETS}|kids|children|parents|family"
    rf"|grandparents)(?: [A-Z][a-z]{{1,20}})?)"
)
_REST: Final = r"(?P<rest>\s\S.{0,400})"
_DID: Final = starting(rf"{_SUBJECT}\s{{1,3}}{_ADVERBS}(?!{_OF_THOUGHT}\b)(?P<verb>{_PAST})\b{_REST}")
_WAS: Final = starting(rf"{_SUBJECT}\s{{1,3}}{_ADVERBS}(?P<verb>was (?:in|at)|had|got(?! to\b))\b{_REST}")
_HAS_DONE: Final = starting(
    rf"{_SUBJECT}(?:'ve|\s{{1,3}}have)\s{{1,3}}{_ADVERBS}(?!(?:got|had|{_OF_THOUGHT})\b)(?P<verb>{_PARTICIPLE})\b"
    rf"(?!\s{_ADVERBS}(?:so|into|able|there|{_EMPTY}|{_NO_LIFE})\b){_REST}"
)
_IS: Final = starting(
    rf"{_SUBJECT}(?P<verb>'m|\s{{1,3}}am)\s{{1,3}}{_ADVERBS}"
    rf"(?=an?\s(?!{_EMPTY}\b|bit\b|lil|big)|{_DOING_NOW}\b)(?P<rest>\S.{{0,400}})"
)
_HAS: Final = starting(
    rf"{_SUBJECT}\s{{1,3}}{_ADVERBS}(?P<verb>have|own)\b(?=\s(?:an?|two|three|four|five|six|\d{{1,2}})\s)"
    rf"(?!\s\w+ (?:pic|photo|picture)s?\b){_REST}"
)
_DOES: Final = starting(
    rf"{_SUBJECT}\s{{1,3}}{_ADVERBS}(?!{_OF_THOUGHT}\b|{_PAST}\b|own\b|are\b|[a-z]{{1,12}}(?:ept|ought|aught|oke"
    rf"|rew)\b)(?P<verb>[a-z]{{3,20}})\b{_REST}"
)
_PLANS: Final = starting(
    rf"{_SUBJECT}(?P<verb>(?:'m|\s{{1,3}}am)\s{{1,3}}{_ADVERBS}(?:going to|planning (?:to|on|a|an)|(?:going"
    rf"|having|getting|{_DOING_NOW})(?! ready))"
    rf"|(?:'ll|\s{{1,3}}will)\s{{1,3}}{_ADVERBS}(?:be )?(?!let|keep|look|be\b)[a-z]{{2,20}}"
    rf"|\s{{1,3}}{_ADVERBS}(?:plan|have) (?:to|on|a|an))\b{_REST}"
)
_OF_RELATIVE: Final = starting(
    rf"{_RELATIVE}\s{{1,3}}{_ADVERBS}(?!(?:thinks?|says?|said|knows?|wants?|told|tells?|asks?|asked|thought"
    rf"|would|could|can|will|may"
    rf"|might|should)\b)(?P<verb>(?:is|are)(?=\s(?:an?|in|at|from|on|named|called|allergic|married|\d{{1,2}}"
    rf"|getting|{_DOING_NOW})\b)"
    rf"|(?!is|was|has been|motivates|inspires|supports|means)[a-z]{{2,20}}s|{_PAST}|have|live|work|love)\b{_REST}"
)
_OF_THE_MIND: Final = r"(?:want|need|think|feel|know|care|remember|see|hear|believe|understand|wish)"
# What holds no more: a newer memory says so, and supersedes the one that said that it does.
_ENDS: Final = starting(
    rf"{_SUBJECT}(?:(?P<be>'m|\s{{1,3}}am)\s(?P<no_longer_be>no longer|not)|(?P<have>\s{{1,3}}have) no"
    rf"|\s{{1,3}}(?P<do>don't|do not)|\s{{1,3}}(?P<no_longer>no longer))\s(?!{_OF_THE_MIND}\b)"
    r"(?P<rest>\S.{2,120}?)(?P<any_more>\sany ?more)?\Z"
)
# Where another thought begins: what follows says no more of the first.
_NEXT: Final = re.compile(
    r"\s{0,3}(?:[;()\u2013\u2014\u2026]|:(?!\d)|\s-{1,2}\s|,?\s(?:and|but|so|because|cuz|since|as|though|although"
    r"|while|which|who|where|plus|yet"
    r"|or|when|whenever|if)\s(?:i|i'm|i've|i'd|i'll|it|it's|its|that|that's|this|they|he|she|we|we're|we've|you"
    r"|there|what|my|now|then|the|was|is|are|were|had|am|have|can|could|not|just|"
    r"so|really|[a-z]{2,20}ed|her|his|their|our|how|"
    r"am|feel|felt|think|want|need|hope|plan|look|would|will|makes?|made|gives?|gave|loved?|got|always|never)\b"
    r"|,\s(?:i|it|it's|that|that's|this|they|he|she|we|you|there|what|which|where|who|too|but|so|though|right"
    r"|especially|like|because|thanks|since|hoping|trying|making|let|not)\b"
    r"|\s(?:which|because|since|even though|although|whereas|so that|hoping|btw|too|as well|if"
    r"|when(?! [a-z]{2,20}ing\b)|whenever(?! [a-z]{2,20}ing\b)|unless|now$|these days|either|though|anyway|so|but)\b)",
    re.IGNORECASE,
)
_CONDITION: Final = starting(
    r"[\s,]{0,3}(?:if|when(?! [a-z]{2,20}ing\b)|whenever|unless|until|except|but (?:only|not))\b"
)
_REFERS: Final = re.compile(
    r"\b(?:it|its|it's|that|that's|this(?! (?:week|weekend|month|year|morning|afternoon|evening|past|coming"
    r"|summer|winter|spring|fall|autumn|mon|tues|wednes|thurs|fri|satur|sun))"
    r"|these|those|they|they're|them|their|he|she|him|his|her|hers|you|your|you're|yours|u|ur|there|here|one"
    r"|ones|some|something|anything"
    r"|everything|stuff|things?|such|other|another|same|both|like|too|so|if|unless|whether|wish|would|could"
    r"|should|might|may(?! \d)|maybe|perhaps|probably"
    r"|not sure|how|what|why|we|we're|us|our|ours|else|more|again|most|more|better|ideas?|while|supposed"
    r"|about to|able|used to|feel|feels|lot|lots|bit|kind of"
    r"|sort of|together|mine|theirs|way|sounds?|hear|few|guess|enough|following|below|above|when|until|than|dream"
    r"|someone|everyone|anyone|people|ones?|time|ever|moment|though"
    r"|question|questions|help|sentence|prompt|text|code|function|error|answer|file)\b|[\[\]{}=<>#*|_\\]",
    re.IGNORECASE,
)
_VAGUE_OBJECT: Final = re.compile(r"\s(?:the|to|up|out|off|back)\b", re.IGNORECASE)
_LEADING_TIME: Final = re.compile(
    r"(?P<time>(?:yesterday|last night|last \w{3,10}|this \w{3,10}|next \w{3,10}|tomorrow|tonight|today"
    r"|on \w{3,6}day|\w{1,6} (?:days|weeks|months|years) ago))"
    r"(?:,\s?|\s)(?=(?:i|i'm|i've|my)\b)",
    re.IGNORECASE,
)
_FIRST_PERSON: Final = re.compile(r"\b(?:i'm|i am|i was|i've|i have|i'd|i'll|i|me|myself|mine|my)\b", re.IGNORECASE)
_THIRD: Final = {
    "i'm": "they're", "i am": "they are", "i was": "they were", "i've": "they've", "i have": "they have",
    "i'd": "they'd",
    "i'll": "they'll", "i": "they", "me": "them", "myself": "themselves", "mine": "theirs", "my": "their",
}  # fmt: skip
_INCOMPLETE: Final = re.compile(
    r"\b(?:to|of|in|at|on|for|with|and|or|a|an|the|my|from|about|into|by|as|very|really|also|just|been|being|is"
    r"|are|was|were)$",
    re.IGNORECASE,
)


def find_told(sentence: Sentence, at: int) -> Statement | None:
    """Return what a sentence, of a message sent `at`, tells of the speaker's life; None if it has another form."""
    text = whole(sentence.text)
    number, length = len(text.split()), len(text)
    ended = None if COVER in text else _ended(text)
    if ended is not None:
        return replace(ended, quote=sentence.words(0, length))
    if COVER in text or not _MIN_WORDS <= number <= _MAX_WORDS or _REFERS.search(text) or _INCOMPLETE.search(text):
        return None
    lead = _LEADING_TIME.match(text)
    if lead is not None:
        text = f"{text[lead.end() :]} {lead['time'][0].lower()}{lead['time'][1:]}"
    found = _plan(text, at) or _event(text, at) or _state(text, at) or _relative(text, at)
    if found is None or not _says_enough(found.content):
        return None
    return replace(found, quote=sentence.words(0, length))


def whole(text: str) -> str:
    """Return a sentence up to where another thought begins; empty if what follows is a condition of it."""
    end = _NEXT.search(text)
    if end is not None and _CONDITION.match(text[end.start() :]):
        return ""
    return (text[: end.start()] if end else text).rstrip(" \t,.;:!-~")


def _says_enough(content: str) -> bool:
    """Return whether a content names something: a name, a number, or two words that have a meaning of their own."""
    predicate = content.split(maxsplit=2)[-1]
    meaning = [word for word in re.findall(r"[\w'-]{3,}", predicate) if not re.fullmatch(_EMPTY, word, re.IGNORECASE)]
    return len(meaning) > 1 or (len(meaning) == 1 and bool(re.search(r"\s[A-Z0-9]", predicate)))


def _ended(text: str) -> Statement | None:
    found = _ENDS.match(text)
    if found is None or _REFERS.search(found["rest"]) or _INCOMPLETE.search(found["rest"]):
        return None
    if found["do"] and " " not in found["rest"]:  # `I don't care any more`
        return None
    no_longer = found["no_longer"] or found["no_longer_be"] == "no longer"
    if bool(no_longer) == bool(found["any_more"]):
        return None
    rest = in_third_person(found["rest"])
    if found["no_longer"]:
        verb, _, others = rest.partition(" ")
        rest = f"{'has' if verb == 'have' else _with_s(verb)} {others}"
    begins = "is" if found["be"] else "has no" if found["have"] else "does not" if found["do"] else "no longer"
    if found["be"]:
        begins = f"is {found['no_longer_be']}"
    return _statement(text, f"User {begins} {rest}{' any more' if found['any_more'] else ''}", "fact", None)


def _plan(text: str, at: int) -> Statement | None:
    found = _PLANS.match(text)
    days = days_in(text, at) if found else None
    if found is None or days is None or days.last < _today(at):
        return None
    return _statement(text, _dated(_third(found, text), days, text), "event", None, expires_at=end_of_day(days.last))


def _event(text: str, at: int) -> Statement | None:
    found = _DID.match(text) or _WAS.match(text)
    days = days_in(text, at, is_past=True) if found else None
    if found is None or (days is None and (found.re is _WAS or _VAGUE_OBJECT.match(found["rest"]))):
        return None
    if days is not None and days.first > _today(at):
        return None
    content = _third(found, text)
    return _statement(text, content if days is None else _dated(content, days, text), "event", None)


def _state(text: str, at: int) -> Statement | None:
    found = _HAS_DONE.match(text) or _IS.match(text) or _HAS.match(text) or _DOES.match(text)
    if found is None:
        return None
    days = days_in(text, at, is_past=True) if found.re is _HAS_DONE else None
    content = _third(found, text)
    if days is not None:
        return _statement(text, _dated(content, days, text), "event", None)
    if found.re is _DOES and " and " in text:  # the second verb would need its ending, too
        content = f'User said: "{text}."'
        return replace(_statement(text, content, "fact", as_subject(text)), content=content)
    return _statement(text, content, "fact", as_subject(content.removeprefix("User ")))


def _relative(text: str, at: int) -> Statement | None:
    found = _OF_RELATIVE.match(text)
    if found is None:
        return None
    days = days_in(text, at, is_past=found["verb"] not in ("is", "are"))
    content = "User's " + in_third_person(text[len("my ") :])
    if days is not None:
        content = _dated(content, days, text)
    return _statement(text, content, "event" if days else "fact", None)


def _statement(
    quote: str, content: str, kind: Kind, subject: str | None, *, expires_at: int | None = None
) -> Statement:
    return Statement(
        content=_OF_THE_MOMENT.sub(r"\g<before> ", f"{content}."),
        kind=kind, quote=quote, subject=subject, confidence=0.8, importance=0.5,
        lifetime="long_term" if kind == "fact" else "short_term", expires_at=expires_at,
    )  # fmt: skip


def _today(at: int) -> date:
    return datetime.fromtimestamp(at / 1_000_000, UTC).date()


def _third(found: re.Match[str], text: str) -> str:
    """Return a sentence about `I` in the third person: `User has a dog`."""
    start = found.end("subject")
    rest = text[start:]
    lowered = rest.lower()
    for short, long in (("'m", " is"), ("'ve", " has"), ("'ll", " will"), (" am ", " is "), (" have ", " has ")):
        if lowered.startswith(short) or (short[0] == " " and short.strip() in lowered.split()[:3]):
            rest = long + rest[len(short) :] if short[0] == "'" else rest.replace(short, long, 1)
            return "User" + in_third_person(rest)
    if found.re is _DOES or found.re is _HAS or (found.re is _PLANS and found["verb"].split()[0].lower() == "plan"):
        verb = found["verb"].split()[-1 if found.re is not _PLANS else 0]
        at = found.start("verb") - start + found["verb"].index(verb)
        rest = rest[:at] + _with_s(verb) + rest[at + len(verb) :]
    return "User" + in_third_person(rest)


# Said of the moment, and wrong or empty later on.
_OF_THE_MOMENT: Final = re.compile(
    r"^(?P<before>User(?: has| is| was)?) (?:(?:also|just|even|finally|actually|definitely|honestly|basically) )+",
    re.IGNORECASE,
)


def _with_s(verb: str) -> str:
    if re.search(r"(?:s|sh|ch|x|z|o)$", verb):
        return verb + "es"
    return re.sub(r"(?<![aeiou])y$", "ie", verb) + "s"


def in_third_person(text: str) -> str:
    """Return words of the speaker about themselves as words about them, without touching `Tiger I`."""

    def third(found: re.Match[str]) -> str:
        is_number = found[0] == "I" and re.search(r"[A-Z][a-z]+ $", text[: found.start()])
        return found[0] if is_number else _THIRD[" ".join(found[0].lower().split())]

    return _FIRST_PERSON.sub(third, text)


def _dated(content: str, days: Days, text: str) -> str:
    """Return a content with the day behind the words that mean it, unless they are the day."""
    words_of_day = text[days.start : days.end]
    written = str(days)
    if written.lower() in words_of_day.lower() or words_of_day not in content:
        return content
    return content.replace(words_of_day, f"{words_of_day} ({written})", 1)
