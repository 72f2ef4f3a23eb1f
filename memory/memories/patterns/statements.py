"""Find the statements in a message: facts, what users like and dislike, and what they ask to be remembered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from memory.memories.patterns import facts, traits
from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.instructions import find_instructions
from memory.memories.patterns.matching import (
    ADVERB,
    BLANKS,
    COVER,
    END,
    I_AM,
    VALUE,
    Anchored,
    Maker,
    PatternMatch,
    Rule,
    Sentence,
    Statement,
    as_subject,
    covered_text,
    first_match,
    is_name,
    is_plain,
    rule,
    rules,
    sentences_of,
)
from memory.memories.patterns.names import APPOSITION, NO_NAMES_TOLD, by_name_alone, is_of_somebody, with_relation
from memory.memories.patterns.told import find_told, in_third_person, whole, with_date
from reverie.memories.types import MemoryKind
from storage.recall.chunk_sources import CHANGED
from storage.recall.claims import MOVED_BY, with_apostrophes
from storage.recall.days import IRREGULAR_PAST, days_in, end_of
from storage.recall.dependence import changes_between
from storage.recall.turns import turns_of

_FIRST_PERSON = re.compile(r"\b(?:my|mine|me|myself|our|us|we|i)\b", re.IGNORECASE)
# A particular thing (`the colours`) rather than a kind of thing (`jazz`).
_SPECIFIC = re.compile(r"(?:the|this|a|an)\s|(?:having|being|knowing)\b|\d", re.IGNORECASE)
_NO_FAVOURITE = re.compile(r"\A(?:[a-z]\w{0,40}(?:ing|ed)\s|(?:in|on|at|up|from|with|a|like|for|by|closed|open)\b)")
_MIN_WORDS_OF_A_WAY: Final = 6
# These refer to what stands before them in the same sentence.
_RELATIVE = re.compile(r"(?<=s) that\b(?= [a-z]{2,20}\b)|(?<=for|and|ith) (?:its|their)\b")
_OF_NOW = re.compile(r"\s(?:now|nowadays|these days|instead)(?=\s{0,3}(?:\Z|[,.;:!(]))|\Ai now(?=\s)", re.IGNORECASE)
_RATHER_THAN = re.compile(r"\s(?:over|rather than|instead of|to)\s")


def _preference(match: PatternMatch, verb: str, subject: str, *, importance: float = 0.5) -> Statement:
    quote = match.quote()
    # In the third person, `my` would refer to somebody else.
    content = f'User said: "{quote}."' if _FIRST_PERSON.search(match.value) else f"User {verb} {match.value}."
    return Statement(
        content=content, kind="preference", quote=quote, subject=f"{subject} {as_subject(match.value)}",
        confidence=0.85, importance=importance, tags=("preference",),
    )  # fmt: skip


def _is_lasting(value: str) -> bool:
    return is_plain(value) and not _SPECIFIC.match(value)


def _liked(verb: str) -> Maker:
    """Return a function that makes a preference from a match; the verb may have a place for the match's `key`."""

    def make(match: PatternMatch) -> Statement | None:
        written = verb.format(key=match.key) if "{" in verb else verb
        return _preference(match, written, "likes") if _is_lasting(match.covered_value) else None

    return make


def _prefers(match: PatternMatch) -> Statement | None:
    value = _OF_NOW.split(whole(match.regex_match["value"]))[0].rstrip(" .,!*_")
    # Of `to pay in cash`, the words after `to` are checked like the name of a thing.
    object_text = _RELATIVE.sub("", re.sub(r"^to (?:be )?(?=[a-z]{1,40}\s)", "", value))
    if not is_plain(object_text, max_words=36) or re.match(r"(?:the|a|an)\b", object_text, re.IGNORECASE):
        return None
    start = match.regex_match.start("value")
    value = match.clause.words(start, start + len(value))
    # A long preference says how things should be done, so every context has it.
    is_standing = len(value.split()) >= _MIN_WORDS_OF_A_WAY or "," in value
    # A preference that holds `now` replaces an earlier one: the claims of both tell which.
    content = f"User {'now ' if _OF_NOW.search(match.clause.text) else ''}prefers {in_third_person(value)}."
    statement = Statement(
        content=content, kind="preference", quote=match.quote(value), subject=f"prefers {as_subject(value)}"[:120],
        confidence=0.85, importance=0.8 if is_standing else 0.6, tags=("preference",),
        lifetime="long_term" if is_standing else "short_term",
    )  # fmt: skip
    sides = _RATHER_THAN.split(as_subject(value))
    # Tea over coffee and coffee over tea have the same subject.
    return (
        statement
        if len(sides) != 2
        else replace(statement, subject=f"prefers {' or '.join(sorted(map(as_subject, sides)))}")
    )


def _favourite(match: PatternMatch) -> Statement | None:
    thing = " ".join(match.regex_match["thing"].split())
    refers_back = bool(set(thing.lower().split()) & words.NO_FAVOURITES)
    if refers_back or not is_plain(match.covered_value, covered=True) or _NO_FAVOURITE.match(match.covered_value):
        return None
    favourite, verb = match.regex_match["favourite"].lower(), match.regex_match["verb"].strip().lower()
    content = f"User's {favourite} {thing} {verb} {match.value}."
    if _FIRST_PERSON.search(match.value):
        content = f'User said: "{match.quote()}."'
    label = "preferred" if favourite == "preferred" else "favourite"
    subject = f"{label} {thing.lower()}"
    return Statement(
        content=content, kind="preference", quote=match.quote(), subject=words.SYNONYMS.get(subject, subject),
        confidence=0.9, importance=0.6, tags=("preference",),
    )  # fmt: skip


def _favourite_first(match: PatternMatch) -> Statement | None:
    """Return the statement of a sentence that begins with the favourite: "green is my favourite colour"."""
    statement = _favourite(match)
    quote = match.clause.words(*match.regex_match.span())
    is_quoted = statement is not None and statement.content.startswith("User said")
    return statement and replace(
        statement, quote=quote, content=f'User said: "{quote}."' if is_quoted else statement.content
    )


def _does_not_eat(match: PatternMatch) -> Statement | None:
    if not is_plain(match.covered_value, max_words=5) or _SPECIFIC.match(match.covered_value):
        return None
    is_own = match.clause.text[:1].lower() == "i"
    verb = "can't" if match.regex_match["cannot"] else "doesn't"
    content = f"User {verb} {match.key} {match.value}." if is_own else f'User said: "{match.quote()}."'
    return Statement(
        content=content, kind="preference", quote=match.quote(),
        subject=f"{match.key}s {as_subject(match.value)}", confidence=0.9, importance=0.8, lifetime="long_term",
        tags=("diet",),
    )  # fmt: skip


_FAVOURITE: Final = (
    r"my (?:(?:all[- ]time|absolute|personal|current)\s{1,3})?(?P<favourite>favou?rite|preferred|go-to)s?"
    r"\s{1,3}(?P<thing>\w[\w'-]{0,40}(?:\s\w[\w'-]{0,40}){0,3}?)(?P<verb> is| are)(?: now)?\s{1,3}"
)
_BIG: Final = r"an?\s{1,3}(?:(?:big|huge|massive|great|total|long-?time)\s{1,3})?"
_NOT: Final = r"(?:don't|do not)"
_PREFERENCES: Final[tuple[Rule, ...]] = (
    rule(f"{_FAVOURITE}{VALUE}", _favourite),
    rule(
        r"(?P<value>(?!(?:what|which|who|it|that|this|he|she|they)\b)[a-z][\w'-]{0,20}(?: [\w'-]{1,20}){0,3})"
        r"(?P<verb> is| are)(?: now| still)? my (?:(?:new|all[- ]time|absolute) )?(?P<favourite>favou?rite)s?"
        r" (?P<thing>[a-z]{2,20}(?: [a-z]{2,20})??)"
        r"(?=\s{0,3}(?:$|[,;.!(]|(?:now|these days|at the moment|and|but|because)\b))",
        _favourite_first,
    ),
    rule(rf"i {ADVERB}prefer{BLANKS}{VALUE}", _prefers),
    rule(rf"i {ADVERB}(?P<key>like|love|hate|dislike|adore|enjoy){BLANKS}{VALUE}", _liked("{key}s")),
    rule(rf"i {ADVERB}(?:can't|cannot|can not) stand{BLANKS}{VALUE}", _liked("can't stand")),
    rule(rf"i {ADVERB}{_NOT}{BLANKS}{ADVERB}(?P<key>like|enjoy){BLANKS}{VALUE}", _liked("doesn't {key}")),
    rule(
        rf"i(?:'d| would) {ADVERB}rather{BLANKS}(?!you\b|not\b)(?P<value>[a-z][\w' ]{{2,60}} than [\w' ]{{2,40}}){END}",
        _liked("would rather"),
    ),
    rule(rf"{I_AM}{ADVERB}not {ADVERB}into{BLANKS}{VALUE}", _liked("is not into")),
    rule(rf"{I_AM}{ADVERB}{_BIG}fan of{BLANKS}{VALUE}", _liked("is a fan of")),
    rule(rf"{I_AM}{ADVERB}not{BLANKS}{ADVERB}{_BIG}fan of{BLANKS}{VALUE}", _liked("is not a fan of")),
    *rules(
        _does_not_eat,
        rf"(?:i|we) {ADVERB}(?:{_NOT}|(?P<cannot>can't|cannot)){BLANKS}(?:ever{BLANKS})?(?P<key>eat"
        rf"|drink){BLANKS}(?!(?:btw|fyi|tho|though|so|but|and)\b){VALUE}",
        rf"(?:i|we) {ADVERB}never(?P<cannot>){BLANKS}(?P<key>eat|drink){BLANKS}{VALUE}",
    ),
)


_MAX_REQUEST_WORDS: Final = 40
_MIN_REQUEST_WORDS: Final = 2
# The minimum for a statement that is not about the user: a shorter one is usually a saying.
_MIN_WORDS_OF_ANYTHING: Final = 4

_ABOUT_ME: Final = r"(?=(?:\s{0,3},)?\s{1,3}(?:i|my|we|our|i'm)\b)"
_POLITELY: Final = r"(?:(?:please|can you|could you|would you|you should|i want you to)\s{1,3}){0,2}"
# These words ask to remember anything; `note that` and the like may be about the current task.
_REMEMBER_ANYTHING = Anchored(
    rf"{_POLITELY}(?:remember(?:{BLANKS}that|\s{{0,3}}:)|(?:don't|do not|never) forget(?:{BLANKS}that|\s{{0,3}}:)"
    r"|for (?:future|your) reference\s{0,3}[,:])\s{0,3}"
    r"(?P<rest>(?:(?:the|a|an|there|on|in|at)\s|(?-i:[A-Z])).{0,400})",
)
# Words about the current task: with these the user does not ask for a lasting memory.
_THE_TASK_AT_HAND = re.compile(
    r"\b(?:the (?:\w{1,40} )?(?:question|answer|task|essay|text|story|code|function"
    r"|exercise|graph|draft|document|paragraph"
    r"|sentence|triangle|equation|output|input|data|user|reader|audience|goal|plot|earth|sun|customer)|x|y|n)\b",
    re.IGNORECASE,
)
# `Remember that night`: a noun follows, not a clause that states something.
_THAT_ONE: Final = (
    r"(?!(?:time|day|night|evening|morning|weekend|summer|winter|spring|year|trip|scene|movie|film|song|moment|feeling"
    r"|conversation|story|guy|girl|man|woman|place|one|thing|part|episode|book|game|party|photo|picture|old|crazy)\b)"
)
_REMEMBER = Anchored(
    rf"{_POLITELY}(?:(?:always{BLANKS})?remember(?:{BLANKS}that{BLANKS}{_THAT_ONE}|\s{{0,3}}:|{_ABOUT_ME})|(?:don't"
    rf"|do not|never) forget(?:{BLANKS}that|\s{{0,3}}:|{_ABOUT_ME})"
    r"|keep in mind(?:\s{1,3}that|\s{0,3}:)|make a note(?:\s{1,3}that|\s{1,3}of this\s{0,3}:"
    r"|\s{0,3}:)|take note(?:\s{1,3}that|\s{0,3}:)"
    r"|note(?:\s{1,3}that|\s{0,3}:)|for the record\s{0,3}[,:]|for (?:future|your) reference\s{0,3}[,:])"
    r"\s{0,3},?\s{0,3}(?P<rest>\S.{0,400})",
)
_FROM_DATE = Anchored(
    rf"(?P<rest>(?:starting|beginning|as of|from){BLANKS}(?:{words.DATE}|{words.MONTHS}"
    rf"|next (?:week|month|year|{words.WEEKDAYS})|{words.WEEKDAYS})(?:{BLANKS}on(?:wards?)?)?\s{{0,3}},?"
    r"\s{1,3}(?:i|my|we|our|i'm|i'll|we'll)\b.{0,400})",
)
_REMIND = Anchored(
    rf"{_POLITELY}(?:remind me|don't let me forget){BLANKS}"
    r"(?P<rest>(?:(?:on|in|at|by|this|next|every|tomorrow|tonight|today)\b[\w :]{0,30}?\s)?(?:to"
    r"|that|about)\s{1,3}\S.{0,400})",
)
_OWN = re.compile(r"\b(?:i|i'm|i've|i'll|i'd|my|me|mine|we|we're|we've|we'll|our|us)\b", re.IGNORECASE)
_VAGUE = Anchored(r"^(?:it|this|these|those|that|they|he|she|you|your|there|what|all|everything|nothing|if|when)\b")
_YOU = re.compile(r"\b(?:you|your|you're|yourself|u)\b", re.IGNORECASE)
_SECRET = re.compile(
    r"\b(?:pass(?:word|code|phrase|wd)|pin|cvv|cvc|secret|token|api[ -]?key|private key|ssn|social security|card number"
    r"|iban|credentials?)\b",
    re.IGNORECASE,
)


def to_remember(sentence: Sentence) -> Sentence | None:
    """Return what a sentence asks to be remembered; None if it does not ask that."""
    found = _REMEMBER.match(sentence.text)
    if found is None:
        return None
    start, end = found.span("rest")
    return Sentence(sentence.text[start:end], sentence.words(start, end))


def match_request(sentence: Sentence, at: int) -> Statement | None:
    """Return the request with which a sentence begins, or None. `at` is the time of the message (microseconds)."""
    if _SECRET.search(sentence.text):
        return None
    for patterns, make in _REQUESTS:
        for pattern in patterns:
            found = pattern.match(sentence.text)
            text = _request_text(sentence, found) if found is not None else None
            statement = make(text, sentence.original, at) if text is not None else None
            if statement is not None:
                return statement
    return None


def _request_text(sentence: Sentence, found: re.Match[str]) -> str | None:
    """Return the text of a request as it was written; None if it cannot be understood by itself."""
    text = sentence.words(*found.span("rest")).strip(" \t,.;:!*_")
    is_whole = COVER not in found["rest"] and text.count("(") == text.count(")")
    return text if is_whole and _MIN_REQUEST_WORDS <= len(text.split()) <= _MAX_REQUEST_WORDS else None


def _remembered(text: str, quote: str, _at: int) -> Statement | None:
    if not _OWN.search(text) or _VAGUE.match(text) or _YOU.search(text):
        return None
    return _requested(f"User asked to remember: {_lower_first(text)}.", "fact", quote, importance=0.8)


def _remembered_anything(text: str, quote: str, _at: int) -> Statement | None:
    is_short = len(text.split()) < _MIN_WORDS_OF_ANYTHING
    if is_short or _VAGUE.match(text) or _YOU.search(text) or _THE_TASK_AT_HAND.search(text):
        return None
    return _requested(f"User asked to remember: {_lower_first(text)}.", "fact", quote, importance=0.8)


def _dated_change(text: str, quote: str, _at: int) -> Statement | None:
    return _requested(f"User said: {_lower_first(text)}.", "event", quote, importance=0.6)


def _task(text: str, quote: str, at: int) -> Statement | None:
    end = end_of(text, at)
    is_own = _OWN.search(text) is not None
    # "Remind me about X" without a time asks for information on X; it is a task only if X is the user's own.
    if re.match(r"about\b", text, re.IGNORECASE) and not is_own and end is None:
        return None
    # In the third person, `my` would refer to somebody else.
    content = f'User asked: "Remind me {text}."' if is_own else f"User asked to be reminded {text}."
    return _requested(content, "task", quote, importance=0.7, expires_at=end)


def _requested(
    content: str, kind: MemoryKind, quote: str, *, importance: float, expires_at: int | None = None
) -> Statement:
    return Statement(
        content=content, kind=kind, quote=quote, subject=None, confidence=0.95, importance=importance,
        lifetime="short_term" if kind == "task" else "long_term", expires_at=expires_at,
    )  # fmt: skip


def _lower_first(text: str) -> str:
    """Return a text with a lower-case first letter, unless the first word is `I` or a name."""
    return text[:1].lower() + text[1:] if text.split()[0].lower() in words.LOWER_CASE_STARTS else text


_REQUESTS: Final = (
    ((_REMEMBER,), _remembered),
    ((_REMEMBER_ANYTHING,), _remembered_anything),
    ((_FROM_DATE,), _dated_change),
    ((_REMIND,), _task),
)


# Words with which people lead into a statement.
_LEAD_IN = Anchored(
    r"(?:(?:so|well|also|ok(?:ay)?|hi|hey|hello|oh|and|but|btw|by the way|fyi|actually|anyway|plus|yes|yeah"
    r"|yep|yup|no(?! longer)|nope|nah|sure|right|thanks|thank you|great|cool|nice|awesome|personally|honestly|for me"
    r"|just so you know|before i forget|(?:quick |small )?update|in fact|as for me|(?:it )?turn(?:s|ed) out(?: that)?"
    r"|i mean|you know|good (?:morning|afternoon|evening)|hmm{1,10}|um{1,10}|wow|definitely|absolutely|totally"
    r"|lol|lmao|omg|like(?=,? (?:i|my)\b)"
    r"|ha(?:ha){1,10}|hiya|heads[ -]up|ngl|tbh|ofc|random but|quick one|(?:un)?fortunately|sadly|luckily|happily|alas"
    r"|it'?s me(?: again)?|furthermore|moreover|correction|(?:good|great|bad|sad|big) news(?: tho(?:ugh)?)?"
    r"|i(?:'m| am) (?:so |very )?(?:sorry|sad|happy|glad|pleased|delighted|proud) to (?:say|report|announce)(?: that)?"
    r"|i regret to say(?: that)?"
    r"|(?:i (?:just |recently )?found out|i was (?:just |recently )?told|(?:the|my) (?:doctor|gp|consultant"
    r"|specialist|nurse"
    r"|allergist) (?:says|said|told me|confirmed))(?: that)?"
    rf"(?=\s{{1,3}}i(?:'m| am| have|'ve got) (?:{words.ILLNESSES}|pregnant|allergic|an(?:a)?emic|(?:pre-?)?diabetic"
    rf"|c(?:o)?eliac"
    r"|(?:lactose|gluten)[ -]intolerant)\b))"
    r"(?: there)?(?:\s{0,3}[,!:\u2013\u2014-]{1,40})?\s{1,3}){1,5}",
)
# Sentences with these words are somebody else's, or about something unreal.
# What people add to what they tell.
_TAIL = re.compile(
    r",?\s(?:(?:please )?(?:keep|bear) (?:that|it) in mind\b.{0,60}|just so you know|fyi|just saying|can you believe it"
    r"|in case (?:that|it) (?:matters|helps)|(?:please )?remember that|actually|tbh|ngl|btw|tho(?:ugh)?|honestly"
    r"|(?:(?<=[,\d] )|(?<=\btoday ))(?:boys|guys|lads|folks|everyone|everybody|mate|bro|dude))\s{0,3}\Z",
    re.IGNORECASE,
)
_NOT_PLAIN = re.compile(
    r"\b(?:if|unless|whether|wish|would|wouldn't|could have|should have|might|maybe|perhaps|guess|suppose|once"
    r"|(?<!\bi )used to"
    r"|when(?! [a-z]{2,20}ing\b)|whenever(?! [a-z]{2,20}ing\b)|back then|dream(?:ed|t)?(?! is to)|said|says|saying"
    r"|tells?"
    r"|told|asks?|asked|claims?|claimed|wrote|writes"
    r"|according to|thinks?|thought|believes?|quote|character|narrator|protagonist|not sure|until)\b",
    re.IGNORECASE,
)
# Words after a statement that make it somebody else's: `I live in the shadows, said the ogre`.
_SPEECH_TAG_AFTER = re.compile(
    r"\b(?:said|says|whisper(?:ed|s)|shout(?:ed|s)|replie[ds]|crie[ds]|exclaim(?:ed|s)|sang|sings)\s{1,3}(?:the|my|a|an"
    r"|[A-Z])|^\s{0,3}in (?:a|my|an|another) (?:\w{1,40} )?life\b"
    r"|,\s{0,3}(?:he|she|they|it)\s{1,3}(?:said|says|whisper|shout|repl|cr(?:ied|ies)|exclaim|sang|sings)",
    re.IGNORECASE,
)
# After `and` the subject is left out: "I moved to Ghent and started at Imec".
_SECOND_VERB: Final = (
    r"(?:started(?! (?:looking|trying|thinking|feeling|getting|talking|wondering|noticing|seeing|to)\b)|joined|quit"
    r"|sold|bought|moved|passed|signed|adopted|hired)\b"
)
_CLAUSES = re.compile(
    r"(?:\s{0,3}[,;:\u2013\u2014]\s{0,3}(?:(?:and|but|so|plus|because|since|as)(?: now)?\s{1,3})?|\s{1,3}-{1,10}\s{1,3}"
    r"|\s{1,3}(?:and now|but now|and|but|so|because|since|why|how much|reasons?(?: why)?)\s{1,3})"
    r"(?=(?:i|i'm|i've|my|we're|call me|s?he|s?he's|(?:her|his) name|(?:last|first) day is)\b)"
    rf"|,?\s{{1,3}}and\s{{1,3}}(?={_SECOND_VERB})",
    re.IGNORECASE,
)
_TWO_PEOPLE = Anchored(
    rf"(?:(?:my|our) {words.RELATIONS}(?: [a-z]{{2,12}})?"
    r"|(?!(?:yes|no|ok|so|yeah|well|and|but|oh|also)\b)[a-z]{2,12}) and i\s?\Z"
)
_RELATIVE_OF_MINE: Final = (
    rf"(?P<who>(?:my|our) (?:{words.RELATIONS}|{words.PETS}|eldest|oldest|youngest|(?:grand)?(?:kid|child)))"
)
_WITHOUT_SUBJECT = Anchored(_SECOND_VERB)
_WITH_SUBJECT = Anchored(rf"(?P<subject>i|we|{_RELATIVE_OF_MINE}(?: (?-i:[A-Z][a-z]{{1,20}}))?)(?:'ve|'s)?\s")
_STATES: Final = rf"(?=(?:is|[a-z]{{2,20}}s|[a-z]{{2,20}}ed|{'|'.join(IRREGULAR_PAST)})\b)"
# Shortened beginnings of clauses about relatives: "Mum's 70", "my sister's got asthma", "my eldest, Maya, plays".
_SHORTENED: Final[tuple[tuple[Anchored | re.Pattern[str], str], ...]] = (
    (Anchored(r"(?=(?:last|first) day is\b)"), "my "),
    (MOVED_BY, r"my \g<thing> was \g<moved> to "),
    (
        Anchored(r"(?:someone|somebody|they|thieves) stole my (?P<thing>[a-z][\w-]{1,20}(?: bike)?)\b"),
        r"my \g<thing> was stolen",
    ),
    (
        Anchored(
            r"(?=(?:mum|mom|mam|dad|granny|gran|grandad|grandma|grandpa)(?:'s\s|\s"
            r"(?:is|has|was|lives|works|loves|likes|hates|can't|doesn't|went|had|got|died|fell|moved)\b))"
        ),
        "my ",
    ),
    (Anchored(rf"{_RELATIVE_OF_MINE},? (?P<name>(?-i:[A-Z][a-z]{{1,20}})), {_STATES}"), r"\g<who> \g<name> "),
    (
        Anchored(
            rf"(?P<subject>{_RELATIVE_OF_MINE}(?: (?-i:[A-Z][a-z]{{1,20}}))?)'s (?:(?P<has>got\s|(?=been\b))"
            r"|(?=(?:an?|in|on|at|from|not|now|always|still|due|allergic|married|engaged|divorced|pregnant|retired|scared|afraid"
            r"|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
            r"|terrified|obsessed|vegan|vegetarian|diabetic|c(?:o)?eliac|autistic|deaf|blind|\d{1,3}|turning|getting"
            r"|going|coming|having|studying|learning|expecting|(?:moving|starting|living|working|training|staying)"
            r"(?=\s(?:to|in|into|on|at|from|a|an|the|for|with|as|back|out|away)\b))\b(?!'s)))"
        ),
        r"\g<subject> ",
    ),
)
_APPOINTMENT: Final = (
    r"(?:physio|haircut|interview|exam|test|appointment|meeting|flight|surgery|operation|scan|check-?up|therapy|viewing"
    r"|mri|x-?ray|ultrasound|blood test|vaccination|dinner|lunch|rehearsal|class|lesson|concert|gig|party|wedding"
    r"|funeral|deadline|shift)"
)
_NO_SUBJECT: Final = (
    r"(?!(?:i|my|we|our|you|your|he|she|his|her|they|their|the|an?|this|that|any|some|no|not|when|what|how|is|was|for"
    r"|at|in|on|to|from|after|before|book|schedule|plan|set|get|find|make|see|have|had)\b)"
)
_HAS_A_VERB: Final = rf"(?:is|are|can|will|has|[a-z]{{2,20}}ed|{'|'.join(IRREGULAR_PAST)})"
_PROFESSION_ALONE: Final = (
    r"(?!(?:i|we|you|he|she|they|it|my|our|your|his|her|their|the|an?|any|no|not|always|never|only|as|for|from|like|is|was)"
    r"\b|[a-z]{1,20} (?:an?|my|our|his|her|their|the)\b)"
    rf"{words.PROFESSIONS} (?:at|on|in|for)"
    rf" (?:the|an?|(?-i:[A-Z]))(?!.{{0,400}}\b{_HAS_A_VERB}\b)"
)
_JUST: Final = r"(?:(?:just|finally|recently|officially|also) ){0,2}"
# What people leave out where a sentence begins: "dentist tomorrow at 9", "last shift is 8 May", "sold it on Friday".
_LEFT_OUT: Final = tuple(
    (Anchored(f"(?={pattern})"), words_left_out)
    for pattern, words_left_out in (
        (
            rf"{_NO_SUBJECT}(?:(?!had|has|got|needs|wants|missed|after|before)[a-z-]{{2,15}} ){{0,2}}"
            rf"(?:{_APPOINTMENT}|dentist|doctor|gp|optician|vet)"
            r"(?: (?:with|w|in|at|for|of) [\w' -]{1,30}?)? (?:on|from|tomorrow|tonight|today|next|this"
            r"|in (?:an?|\d\d?))\b"
            r"(?!.{0,400}\b(?:is|are|was|were|be|has|have|had|will|got|went|moved|cancelled|needs|wants|please)\b)",
            "I have my ",
        ),
        (
            r"(?:(?:last|first) day is|(?:rent|salary|deposit|mortgage|budget)(?: is|'s)(?= .?\d)"
            r"|(?:new )?(?:address|(?:phone )?number|e-?mail(?: address)?) is(?= [\w+ ]{1,60}[\d@])"
            r"|rent(?: is|'s) due"
            rf"|{words.RELATIONS} is (?:called|named)(?= (?-i:[A-Z])\w{{1,20}}(?:\s?[.,;!(]|\Z)))\s",
            "my ",
        ),
        # Whose party it is, such words do not tell.
        (
            rf"{_NO_SUBJECT}(?:[a-z-]{{2,15}} )?(?:{_APPOINTMENT}|thesis)(?: for (?:the|my) [\w ]{{2,30}}?)?"
            r" (?:is|(?:got |was )?(?:moved|postponed|pushed|rescheduled))\s",
            "the ",
        ),
        (
            rf"{_JUST}(?:(?:bought|sold|got|quit|started|finished|passed|failed|booked|joined|gave|lost|broke|signed"
            r"|adopted"
            r"|handed|went|met|saw|had|did|ran) (?:my|our|the|an?|two|three|in|up|for|back|notice)"
            rf"|(?:moved|went) to(?! (?:the )?(?:{words.DATE}|{words.WEEKDAYS}|next|\d))"
            r"|got (?:promoted|engaged|married|divorced|accepted|laid off|fired(?! up)|into)|grew up (?:in|on|near))\b",
            "I ",
        ),
        (r"been (?:\w{2,15}ly )?[a-z]{2,20}ing\b(?=.{0,80}\b(?:since|for|lately)\b)", "I've "),
        # Nothing else follows: "born in Paris, Sartre studied philosophy".
        (
            r"(?:(?:born (?:and raised )?|raised )in(?= (?-i:[A-Z]))|diagnosed with)\b(?!.{0,80}\bis\b)"
            r"(?=[^,]{2,60}(?:,? (?:but|and|raised|so)\b.{0,80})?\Z)",
            "I was ",
        ),
        (
            r"(?:allergic to|turning \d\d(?= (?:on|in (?:an?|\d|two|three)(?! scene)|next|this|soon|tomorrow"
            r"|today)\b|\W{0,3}\Z)"
            r"|not an? [a-z]{2,15} (?:person|fan|eater|drinker)\b|(?:vegan|vegetarian|(?:gluten|lactose)[ -](?:free"
            r"|intolerant)|diabetic|c(?:o)?eliac|colou?r[ -]?blind|left[ -]handed)"
            r"(?=,? (?:btw|fyi|since|for (?:an?|two|three|\d))\b))",
            "I'm ",
        ),
        (r"(?:(?:huge|big|massive|long-?time|lifelong) )?fan of\b", "I'm a "),
        (
            r"(?:can't|cannot) (?:eat|drink|stand)\b(?! (?:up|right|now|still|yet|today|anything|much|it|that"
            r"|this|from)\b)"
            r"|prefer (?=[^,]{2,40} (?:over|to|rather than) )",
            "I ",
        ),
        (
            r"(?:work (?:at|for)(?= (?:an? [\w' -]{2,40} (?:on|every|in|near|as|since)\b|(?-i:[A-Z])))"
            r"|live (?:in(?= (?-i:[A-Z]))|near|with (?:my|our)))\b",
            "I ",
        ),
        # With the day of it most deeds may begin so: "quit costco today", "went vegan in april". What went well was
        # something else, and who drove me crazy somebody else.
        (
            rf"{_JUST}(?:started (?:at(?! \d)|as|with(?! an?\b)|in)|quit|left(?! (?:me|us|on)\b)|joined|went(?! (?:well"
            r"|great|fine|badly|wrong|smoothly|crazy|viral|live|offline|dark|down|up|off|out|on|by)\b)|signed up|found"
            r"|lost(?! \d)|hired(?= (?:an?|my|our)\b)|got into|flew(?! (?:off|by)\b)|drove(?! (?:me|us)\b)"
            r"|came(?! (?:up|true|off)\b))"
            rf" (?=.{{0,60}}\b(?:today|yesterday|last (?:night|week|month|year|{words.WEEKDAYS})|ago|in {words.MONTHS})"
            r"(?:\W|\Z))",
            "I ",
        ),
        (
            r"(?:moving(?! on\b)|flying|leaving|starting(?! (?:on|from|in|next|this|tomorrow)\b)|graduating|travell?ing"
            r"|getting married)\b"
            rf"(?=.{{0,60}}(?:\b{words.DATE}|\btomorrow\b|\b(?:on|next) \w{{1,9}}|\bin {words.MONTHS})(?:\W|\Z))"
            rf"(?!.{{0,200}}\b{_HAS_A_VERB}\b)",
            "I'm ",
        ),
        (rf"{_NO_SUBJECT}[a-z]{{2,15}} came off\b", "my "),
        (r"(?:gonna|going to|planning to|off to) [a-z]|not [a-z]{2,20}ing .{1,80} any ?more\b", "I'm "),
        (r"(?:quit|started|stopped|gave up) [a-z]{2,20}ing\b", "I "),
        (rf"(?=[aeiou]){_PROFESSION_ALONE}", "I'm an "),
        (_PROFESSION_ALONE, "I'm a "),
    )
)
# "About the flat I told you of: it is", "so about my sister's wedding, they moved it".
_ABOUT = re.compile(
    r"(?:about|regarding|as for) (?P<thing>(?:my|our|the) [a-z][\w' -]{1,40}?)"
    r"(?:,? (?:that |which )?i (?:told|mentioned)[\w ]{0,20})?\s?[:,-]{1,2}\s"
    r"(?:(?:they|we)(?:'ve| have)? (?P<moved>moved|postponed) it(?= to\b)|(?:it|they)(?=\s|'s))",
    re.IGNORECASE,
)
_CORRECTING = re.compile(rf"\bcorrection\s?[:,-]|{_ABOUT.pattern}", re.IGNORECASE)
_CORRECTED = Anchored(
    r"(?:my|our|the) [a-z][\w' -]{2,60}?(?:'s| is| are| [a-z]{2,20}s) [^,;]{2,60}, not [^,;]{1,40}[.!]?\Z"
)
_RELATIVE_DAY = re.compile(r"(?:last|next|yesterday|this|is the|.{1,15}ago\Z)", re.IGNORECASE)
_REASON = re.compile(r"\b(?:because|since|why|how much|reasons?)\s{1,3}", re.IGNORECASE)
_RULES: Final = (*facts.RULES, *_PREFERENCES, *traits.RULES)


def find_statements(
    message: str, *, at: int, names: Mapping[str, str] = NO_NAMES_TOLD, before: str = ""
) -> list[Statement]:
    """Return the user's plain statements in a message sent `at` (microseconds), in order; each content once.

    `names` are those of people and pets that the user has named before, with the relation: `{"Duke": "dog"}`.
    `before` is the message that the user has sent just before: a pronoun may stand for whom it is about.
    """
    message = with_apostrophes(message)
    instructions = find_instructions(message)
    context = _Context(at, names, covered_text(before[-_NEAR:]), covered_text(message))
    candidates = [statement for sentence in sentences_of(message) for statement in _with_names(sentence, context)]
    # An instruction is found once: `I prefer short answers` is not a taste as well.
    statements = (one for one in candidates if not any(one.quote in found.quote for found in instructions))
    found = {statement.content: statement for statement in [*instructions, *statements]}
    lasting = [_as_change(one) for one in found.values() if not _is_replaced(one, found)]
    return sorted(lasting, key=lambda statement: message.find(statement.quote))


def _as_change(statement: Statement) -> Statement:
    """Return a statement with a subject by which recall finds it, if it makes an earlier statement doubtful."""
    is_change = statement.subject is None and changes_between("", statement.content)
    return replace(statement, subject=f"{CHANGED}{as_subject(statement.content)}"[:200]) if is_change else statement


def _is_replaced(statement: Statement, found: Iterable[str]) -> bool:
    """Return whether another statement replaces one that ended: "I no longer live in Oslo, I live in Bergen"."""
    held = statement.content.replace(" no longer ", " ")
    others = (one for one in found if one != statement.content)
    return held != statement.content and any(one.split()[:3] == held.split()[:3] for one in others)


# How far back somebody is looked for whom a pronoun means.
_NEAR: Final = 600


class _Context(NamedTuple):
    """The circumstances of a message: when it was sent, known names, the message before it, and its own text."""

    at: int
    names: Mapping[str, str]
    before: str
    text: str

    def until(self, clause: str) -> str:
        """Return the text before a clause; it includes the message before only if this message mentions nobody."""
        end = max(self.text.find(clause), 0)
        own = self.text[max(end - _NEAR, 0) : end]
        return own if is_of_somebody(own) else f"{self.before}\n{own}"


def _in_sentence(sentence: Sentence, context: _Context) -> Iterator[Statement]:
    body = _after_lead_in(sentence)
    request = match_request(body, context.at)
    if request is not None:
        yield _as_statement(request, body) or request
        return
    if (means := facts.means(body)) is not None:
        yield means
        return
    correction = _correction(sentence, body)
    found = [correction] if correction is not None else list(_in_clauses(body, context))
    yield from found
    is_own = COVER not in body.text and not _NOT_PLAIN.search(body.text.replace("until", ""))
    if not found and is_own and turns_of(body.original):
        # Only the messages before say what this is about: it is kept only if that is known.
        yield Statement(
            content=f'User said: "{body.original.rstrip(" .!,")}."', kind="event",
            quote=body.original, subject=None, confidence=0.8, importance=0.5, only_changes=True,
        )  # fmt: skip


def _with_names(sentence: Sentence, context: _Context) -> Iterator[Statement]:
    """Yield the statements in a sentence, and the names in it that they do not tell: "my colleague Tom wrote it"."""
    found = list(_in_sentence(sentence, context))
    yield from found
    for named in APPOSITION.finditer(sentence.text):
        who, name = named["who"].lower(), named["names"]
        if is_name(name) and not any(name in one.content for one in found):
            is_pet = re.fullmatch(words.PETS, who) is not None
            yield facts.named(who, name, sentence.original[: named.end()], several=is_pet)


def _in_clauses(body: Sentence, context: _Context) -> Iterator[Statement]:
    end, subject = 0, ""
    for start in _clause_starts(body.text):
        written = Sentence(body.text[start:], body.original[start:])
        is_second = start > 0 and _WITHOUT_SUBJECT.match(written.text) is not None
        if is_second and subject:
            clause = Sentence(f"{subject} {written.text}", f"{subject} {written.original}")
        else:
            clause = with_relation(written, partial(context.until, written.text), context.names)
            begins = _WITH_SUBJECT.match(clause.text)
            subject = begins["subject"] if begins is not None else ""
        if start < end or (is_second and not subject):  # an earlier clause stated it, with the day for example
            continue
        clause = _in_full(clause, _SHORTENED if start else (*_LEFT_OUT, *_SHORTENED))
        statement = first_match(clause, _RULES)
        if statement is None and not _REASON.search(body.text, max(0, start - 10), start):
            statement = find_told(clause, context.at)
        if statement is None:
            continue
        statement = _with_days(statement, context.at)
        statement = replace(statement, content=by_name_alone(statement.content, context.names))
        if clause is not written:
            length = len(statement.quote) + len(written.text) - len(clause.text)
            statement = replace(statement, quote=written.original[:length])
        end = start + len(statement.quote)
        if not (_NOT_PLAIN.search(body.text, 0, end) or _SPEECH_TAG_AFTER.search(body.text[end:])):
            yield statement


def _with_days(statement: Statement, at: int) -> Statement:
    """Return a statement with the days that "last week" and the like in it mean."""
    days = days_in(statement.content, at, is_past="birthday" not in statement.content)
    if days is None or not _RELATIVE_DAY.match(statement.content[days.start : days.end]):
        return statement
    return replace(statement, content=with_date(statement.content, days, statement.content))


def _as_statement(request: Statement, body: Sentence) -> Statement | None:
    """Return the remembered text as a statement of its own kind, so that a newer one can supersede it."""
    rest = to_remember(body)
    if rest is None:
        return None
    statement = first_match(rest, _RULES)
    if statement is None or statement.quote != rest.original.rstrip(" .!") or _NOT_PLAIN.search(rest.text):
        return None
    return replace(
        statement, quote=request.quote, importance=max(statement.importance, request.importance), lifetime="long_term"
    )


def _after_lead_in(sentence: Sentence) -> Sentence:
    found = _LEAD_IN.match(sentence.text)
    start = found.end() if found else 0
    end = len(_TAIL.sub("", sentence.text))
    sentence = Sentence(sentence.text[:end], sentence.original[:end])
    about = _ABOUT.match(sentence.text, start)
    if about is None:
        return Sentence(sentence.text[start:], sentence.original[start:])
    begins = about["thing"] + (f" was {about['moved']}" if about["moved"] else "")
    return Sentence(begins + sentence.text[about.end() :], begins + sentence.original[about.end() :])


def _correction(sentence: Sentence, body: Sentence) -> Statement | None:
    """Return a statement that corrects what was said in an earlier conversation: "the flat is in Faro, not Lisbon"."""
    if COVER in body.text or not (_CORRECTED.match(body.text) and _CORRECTING.search(sentence.text)):
        return None
    return Statement(
        content=f'User said: "{body.original.rstrip(" .!,")}."', kind="fact", subject=None,
        quote=sentence.original, confidence=0.8, importance=0.5, lifetime="long_term",
    )  # fmt: skip


def _in_full(clause: Sentence, shortened: Sequence[tuple[Anchored | re.Pattern[str], str]]) -> Sentence:
    """Return a clause about a relative with the words that were left out or shortened at its beginning."""
    for pattern, full in shortened:
        found = pattern.match(clause.text)
        if found is not None:
            start = found.expand(full) + (("has " if found["has"] else "is ") if "has" in found.groupdict() else "")
            rest = (text[found.end() :] for text in (clause.text, clause.original))
            is_first = start[:1] == "I" or start in ("my ", "the ")
            clause = Sentence(*(start + (text[:1].lower() + text[1:] if is_first else text) for text in rest))
    return clause


def _clause_starts(text: str) -> list[int]:
    # "lena and i broke up" is one clause.
    return [0, *(found.end() for found in _CLAUSES.finditer(text) if not _TWO_PEOPLE.match(text[: found.end() + 2]))]
