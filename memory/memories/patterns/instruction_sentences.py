"""The sentences of standing instructions: whether a message is one and nothing else, its subject, what it takes back.

People who paste, forward or quote a text put something before, after or around it. So an instruction holds only if the
message begins with it and has nothing else. The message must be plain English on one line, without the characters of
labels, lists, mails, logs, code and markup, and without invisible characters.

Two instructions with the same subject cannot both be in force, the newer one holds. `Always use tabs` and `never use
tabs` have one subject, as have `answer in English` and `answer in German`. Two instructions about the same thing in
other words have two subjects. Contexts have both, with their dates, so that an agent knows which is newer.

The instruction that a user takes back is found by its words among those in force: see `takes_back`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from memory.memories.patterns import instruction_words as words
from memory.memories.patterns.matching import (
    ABBREVIATED_END,
    COVER,
    JOKE,
    LAUGHTER,
    MAX_MESSAGE_CHARACTERS,
    MAX_SENTENCE_CHARACTERS,
    REST,
    Anchored,
    Sentence,
    Statement,
    covered_text,
    with_plain_apostrophes,
)

MAX_CHARACTERS: Final = 120

_PREFIX: Final = "instruction: "
_CONDITION = re.compile(
    r"(?:\b(?:when|whenever|if|every time|each time|any ?time|while|unless)\b|\b(?:for|in) (?:my|all my|every"
    r"|each)\b)[^,]{0,400}",
    re.IGNORECASE,
)
# Subjects of which only one choice can hold at a time, each with the words for its choices.
_ANSWERS: Final = r"\b(?:answers|replies|responses|explanations)\b"
_LENGTH: Final = r"\b(?:short|brief|concise|long|detailed|lengthy|thorough|verbose)(?:er)?\b"
_SPOKEN_IN: Final = (
    r"\b(?:answer|respond|reply|speak|talk|chat|communicate|write to me|switch|back to|continue|answers|replies)\b"
)
_CHOICES: Final = (
    (
        "language of code",
        rf"\b(?:code|examples?|scripts?|functions?|program\w{{0,40}})\b{REST}\bin {words.CODE_LANGUAGE}"
        rf"(?!\w)",
    ),
    ("language", rf"{_SPOKEN_IN}{REST}\b{words.LANGUAGE}\b"),
    ("spelling", r"\b(?:british|american|uk|us|australian|canadian) (?:english|spelling)\b"),
    ("indentation", r"\b(?:tabs|spaces)\b"),
    ("units", r"\b(?:metric|imperial)\b"),
    ("temperatures", r"\b(?:celsius|fahrenheit)\b"),
    ("time format", r"\b(?:24-hour|12-hour|am/pm)\b"),
    ("currency", r"\bin (?:euros|dollars|pounds|yen|francs|rupees)\b"),
    (
        "address",
        r"\b(?:address|treat|speak to|talk to) me (?:in)?formally\b"
        r"|\b(?:in)?formal (?:you|language|tone|du|sie)\b",
    ),
    (
        "length",
        rf"{_LENGTH}{REST}{_ANSWERS}|{_ANSWERS}{REST}{_LENGTH}"
        rf"|{_ANSWERS}{REST}\b(?:under|at most|no more than|within)\b{REST}\b(?:words|sentences|lines|paragraphs?)\b",
    ),
    ("pronouns", r"\bpronouns\b|\b(?:they/them|she/her|he/him)\b"),
)
# Anchored to the beginning: a search from each position would read the rest of the text each time.
_COMPILED: Final = tuple((name, Anchored(rf"{REST}?(?:{pattern})")) for name, pattern in _CHOICES)
# Words for how often or how politely, and numbers: `three options` and `five options` are one subject.
_IGNORED_WORDS: Final = """
always never don't do not ever please only just also from now on going forward in the future i you your want wants would
like to should must have need can could a an the any all every each of at more no stop quit longer anymore again that it
be is are am my me user make sure kindly with for one two three four five six seven eight nine ten eleven twelve noon am
pm o'clock avoid without prefer i'd skip use using us uses add adding answer answers reply replies response responses
message messages give giving
"""
_IGNORED: Final = frozenset(_IGNORED_WORDS.split())
_WORD = re.compile(r"[^\W_][\w'+#/-]{0,40}")
_TIME = re.compile(rf"\b{words.AT_A_TIME}", re.IGNORECASE)


def subject_of(text: str) -> str:
    """Return the subject of an instruction: what it is about, without words for whether, how often or how much."""
    condition = _CONDITION.search(text)
    scope = _key(condition[0]) if condition is not None else ""
    rest = text.replace(condition[0], " ") if condition is not None else text
    for name, pattern in _COMPILED:
        if pattern.match(rest):
            return _subject(name, scope)
    return _subject(_key(rest), scope)


def words_of_instruction(text: str) -> frozenset[str]:
    """Return the words that say what an instruction is about, without their endings."""
    return frozenset(_key(text).split())


def _subject(name: str, scope: str) -> str:
    return f"{_PREFIX}{name}{f' ({scope})' if scope else ''}"[:MAX_CHARACTERS]


def _key(text: str) -> str:
    """Return the stems of the words that matter, in order; of a time of day only its preposition."""
    plain = _TIME.sub(lambda found: f" {found[0].split()[0]} ", text)
    found = (_stem(word) for word in _WORD.findall(plain.lower()) if word not in _IGNORED and not word[0].isdigit())
    return " ".join(dict.fromkeys(found))


def _stem(word: str) -> str:
    """Return a word without the endings of plurals and gerunds: `using emojis` is about `use emoji`."""
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 2 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word


# Few people give longer instructions at once; the longest seen had three sentences.
_MAX_ALONE_CHARACTERS: Final = 300
# People end messages with these.
SMILEYS: Final = "\U0001f642\U0001f60a\U0001f64f\U0001f44d\U0001f600\u2764\ufe0f"
# Words, and the punctuation of a sentence. A colon may stand only within a time, a hyphen only within a word.
_PLAIN = re.compile(
    rf"(?:[A-Za-z0-9\u00c0-\u024f\u1e00-\u1eff{COVER} ,!?%&+/$\u20ac\u00a3\u00b0_]|(?<=\w)#|(?<!\.)\.(?=[\s\d]|\Z|\w\.)"
    r"|(?<=\d):(?=\d)|(?<=\w)-(?=\w)|(?<= )--?(?=[a-z])|'(?=[\w ])){1,300}"
)
# Words that are quoted within a sentence: `never use the word "delve"`.
_QUOTED = re.compile(r"(?<=\S )(?:\"[^\"\n]{1,60}\"|\u201c[^\u201c\u201d\n]{1,60}\u201d|`[^`\n]{1,60}`)")
# Said by or about somebody else, or in jest.
REPORTED = re.compile(
    r"\b(?:said|says|saying|told|tells|telling (?:him|her|them|us)|asked|asks|wants (?:me|us|him|her|them)|wrote|writes"
    r"|claims (?:that|to)|claimed|thinks|thought|believe[sd]|reads|state[sd]|insist(?:s|ed)|warn(?:s|ed)|advise[sd]"
    r"|suggest(?:s|ed) (?:that|it|this)|recommends|explains|mentions|replied|shout(?:s|ed)|whisper(?:s|ed)"
    r"|quoth|sang|sings|according to|motto|proverb|(?:they|people|folks) say|used to say|sayings?|lyrics?"
    r"|quoted?(?! (?:a|an|the|my|any)\b)"
    r"|wouldn't it|i wish|i guess|as if|in the words of)\b",
    re.IGNORECASE,
)
# Words of attempts to override what others have told the agent.
_OVERRIDE = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass|drop)\b[^.!?\n]{0,40}\b(?:instructions?|prompts?|rules|everything"
    r"|guidelines|restrictions|above|training)\b|\bsystem (?:prompt|message)\b|\byou (?:are|must|will) now\b"
    r"|\bjailbreak|\bdeveloper mode\b|\bunrestricted\b|\b(?:without|no) (?:any )?(?:restrictions|filters?|limits"
    r"|censorship)\b|\b(?:never|don't|not) refuse\b|(?-i:\bDAN\b)"
    r"|^\s{0,3}(?:system|assistant|developer)\s{0,3}:|<\|?/?(?:system|im_start|inst)",
    re.IGNORECASE | re.MULTILINE,
)
_ASKS: Final = frozenset("?\uff1f\u061f")
_REQUESTED = Anchored(
    r"(?:please )?(?:(?:can|could|would|will) you (?:please |kindly )?(?:(?:always|never|stop|call me|address me|refer"
    rf" to me|from now on|keep your|use)\b|(?!(?:explain|tell|show|help|think|see|imagine|be)\b)(?!.{{0,160}}\b(?:what"
    rf"|how|why|who|where|that)\b)(?=.{{1,160}}\b(?:{words.MANNER}|{words.STYLE}|{words.OUTPUTS})(?!\w)).{{2,160}}"
    rf"\b{words.HORIZON}\s{{0,3}}$)|would you mind\b)",
)
_COURTESY = Anchored(r"(?:please|thanks|thank you|thx|cheers)(?: (?:a lot|so much|very much|in advance))?\s{0,3}$")
# The reason for an instruction, which lasts as long: "keep lists short, I read them on my phone".
_REASON: Final = (
    r"(?:(?:i|we)(?:'m|'re|'ve got| am| are| have| can't| cannot| don't| do not| get| read| hate| find| struggle)"
    r"|my (?:eyes|eyesight|english|phone|screen|hearing|brain|memory) (?:is|are|get|gets|can't))\b"
    r"(?!.{0,200}\b(?:today|tonight|tomorrow|now|this|that|you|him|her|deadline|meeting|need)\b)"
)
# After a comma an instruction may continue with one of these words, but not with a name or a `says my boss`.
_GOES_ON = Anchored(
    rf"(?:(?:please|pls|and|but|or|nor|even|not|never|always|ever|only|just|so|then|if|when|whenever|unless|because"
    rf"|since|ok|okay|thanks|thank you|no|with|without|(?:in|for) (?:all|every|each|my)|especially|including|instead"
    rf"|rather|don't|do not|too|also|at least|at most|would you|could you|can you|make sure|{words.HORIZON}"
    rf"|{words.ANY_VERB}|{_REASON}|i(?:'d| would)? (?:never |always )?(?:want|need|expect|prefer|like) (?:you|your|all)"
    rf"|(?:all |your |my |every ){{0,3}}{words.OUTPUT})\b"
    r"|[a-z-]{1,30}(?: [a-z-]{1,30})?(?:, [a-z-]{1,30}(?: [a-z-]{1,30})?){0,8},? (?:and|or) [a-z-]{1,30}\b)"
)
# Phrases said to people, in talk and in songs.
_BETWEEN_PEOPLE = re.compile(
    r"\b(?:keep (?:(?:it |this )?up|on|going|me|us|being|smiling|shining|doing)\b|(?:never|don't ever) stop|let (?:me"
    r"|us|it|her|him) (?:go|down|be|in|fall|out)\b|stop (?:being you|believing|loving|smiling)|ask me (?:to (?:stay"
    r"|leave|go|dance)|why)\b|(?:love|leave|miss|forgive|hold|kiss|trust|marry|remember) me\b|(?:write|speak|talk"
    r"|lie) to me (?:like that )?again|stop calling me$|call me shirley|say no to me|heart\b|kiss\b|tell me (?:lies"
    r"|goodbye|the odds|you)\b|(?:my|the|our) (?:car|bike|stuff|charger|clothes|keys|room|couch)\b|(?:come|coming"
    r"|stay) (?:over|home|here)\b|call(?:ing)? me (?:a |an )?(?:liar|crazy|fat|ugly|stupid|that|names)\b"
    r"|want you to call me again)",
    re.IGNORECASE,
)
# `Translate it, and never ...`: what follows is about the text to be worked on.
_WORKS_ON_TEXT = Anchored(
    r"(?:please |just |can you |could you ){0,3}(?:translate|proofread|summari[sz]e|explain|quote|repeat|read|review"
    r"|print|convert|format|write|draft|say|send|text|email|mail|post|publish|tell|edit|describe)\b"
    r"[^,]{0,400}\b(?:always|never|don't|do not|from now on,? \w)"
)
_WORK = re.compile(
    r"\b(?:re-?writ|re-?phras|paraphras|translat|proof-?read|summari[sz]|transcrib|e-?mail|letter|newsletter)\w{0,20}",
    re.IGNORECASE,
)
# Another person's letter: its first lines.
_LETTER = re.compile(r"^[ \t]{0,9}(?:(?:from|to|subject|sent|date|cc|re|fwd):|dear\s\S)", re.IGNORECASE | re.MULTILINE)
_COMMA = re.compile(r",(?!\d)\s{0,3}")
_MAX_STARTS: Final = 3
_START = re.compile(r"[,:;\u2013\u2014>|*#-]\s{0,3}|^(?:and|so|but|btw|also|oh|okay?|actually) ", re.IGNORECASE)


def is_plain(message: str) -> bool:
    """Return whether a message is one line of plain English, without signs that it was pasted, labelled or quoted."""
    text = _quotes_covered(message)
    return (
        len(text) <= _MAX_ALONE_CHARACTERS
        and _PLAIN.fullmatch(text) is not None
        and unicodedata.is_normalized("NFC", message)
        and not (JOKE.search(text) or LAUGHTER.search(text))
    )


def is_override(message: str) -> bool:
    """Return whether a message tries to override what others have told the agent."""
    return _OVERRIDE.search(message) is not None


def sentences_alone(message: str) -> list[Sentence]:
    """Return the sentences of a plain message, without words of thanks; none if one of them is a mere question."""
    found = [one for one in _sentences(_quotes_covered(message), message) if not _COURTESY.match(one[0].text)]
    if any(_ASKS & set(mark) and not _REQUESTED.match(sentence.text) for sentence, mark in found):
        return []
    return [sentence for sentence, _ in found]


def is_whole(sentence: Sentence) -> bool:
    """Return whether a sentence consists of the instruction with which it begins: no task, no other person's words."""
    return (
        not REPORTED.search(sentence.text)
        and not _WORKS_ON_TEXT.match(sentence.text)
        and not _BETWEEN_PEOPLE.search(sentence.text)
        and all(_GOES_ON.match(sentence.text[comma.end() :]) for comma in _COMMA.finditer(sentence.text))
    )


def parts_of(message: str) -> Iterator[Sentence]:
    """Yield the other places where an instruction may begin: each sentence, and the part after a lead-in."""
    if len(message) > MAX_MESSAGE_CHARACTERS or JOKE.search(message) or _LETTER.search(message):
        return
    covered = covered_text(message)
    # Behind a request to work on a text, another paragraph is that text.
    work = _WORK.search(covered)
    covered = covered if work is None else covered[: work.end()] + covered[work.end() :].partition("\n\n")[0]
    for sentence, mark in _sentences(covered, message):
        if _ASKS & set(mark) or REPORTED.search(sentence.text):
            continue
        starts = [0, *(found.end() for found in _START.finditer(sentence.text))][: _MAX_STARTS + 1]
        for start in starts:
            yield Sentence(sentence.text[start:], sentence.original[start:])


def _quotes_covered(message: str) -> str:
    return _QUOTED.sub(lambda found: COVER * len(found[0]), with_plain_apostrophes(message))


def _sentences(covered: str, message: str) -> Iterator[tuple[Sentence, str]]:
    """Yield each sentence that is not too long, with the mark that ends it."""
    start = 0
    for mark in [*ABBREVIATED_END.finditer(covered), None]:
        stop = mark.start() if mark else len(covered)
        text = covered[start:stop]
        indent = len(text) - len(text.lstrip())
        if text.strip(COVER + " \t") and len(text) <= MAX_SENTENCE_CHARACTERS:
            yield Sentence(text[indent:].rstrip(), message[start + indent : stop].rstrip()), mark[0] if mark else ""
        start = mark.end() if mark else stop


_MAX_REVOKED_WORDS: Final = 25
_MORE: Final = r"(?:any ?more|any longer|from now on|again)"
_WANT: Final = (
    r"(?:i|that i) (?:want(?:ed)?|asked for|asked|prefer(?:red)?|like[ds]?|need(?:ed)?|said|told you)(?: you)?(?: to)?"
)
_FORGET: Final = r"(?:please )?(?:forget|never mind|scrap|drop|cancel|undo|remove|disregard|ignore) (?:about )?"
_RULE: Final = r"(?:rule|instruction|preference|request|wish|thing)"
_TAKEN_BACK: Final = tuple(
    Anchored(pattern)
    for pattern in (
        # `I want` and `the rule` name an instruction of the user's own.
        rf"{_FORGET}(?:that )?{_WANT} (?P<rest>.{{1,400}})",
        rf"{_FORGET}(?:the|that|my) (?:\w{{1,40}} )?{_RULE} (?:about|to|on|that|for|with|of)"
        r"(?: you)?(?: should)? (?P<about>)(?P<rest>.{1,400})",
        rf"{_FORGET}(?:what i said about|(?:the|that|my) (?=.{{1,40}} {_RULE}$)) ?(?P<about>)(?P<rest>.{{1,400}}?)"
        rf"(?: {_RULE})?$",
        rf"you (?:no longer (?:need|have) to|can stop|may stop|(?:don't|do not|needn't) (?:need to |have to )?)"
        rf"(?P<rest>.{{1,400}}?)(?P<more> {_MORE})?$",
        r"you can (?P<allowed>)(?P<rest>.{1,400}?) (?P<more>again)$",
        rf"(?:please )?(?:stop|quit|no need to|there's no need to) (?P<rest>.{{1,400}}?)(?P<more> {_MORE})?$",
        rf"i (?:no longer (?:want|need|prefer|care for)|(?:don't|do not) (?:want|need) )(?: you to)? ?"
        rf"(?P<rest>.{{1,400}}?)"
        rf"(?P<more> {_MORE})?$",
    )
)
_OWN_WORDS: Final = Anchored(rf"{_FORGET}(?:what i said about\b|(?:the|that|my) [\w -]{{1,40}} {_RULE},)")
_GIVES_REASON: Final = Anchored(
    r"(?:(?:i|i'm|i've|i'll|we|we're|it|it's|its|they|they're|that's|this|too|because|since|as|so)\b"
    r"|[a-z][a-z ]{2,40} only\Z)"
)
# Marks words that name an instruction without saying whether it asks for something or forbids it.
_ABOUT: Final = "about: "
_FORBIDS: Final = re.compile(r"\b(?:never|don't|do not|not|no|stop|quit|avoid|without|skip|omit)\b", re.IGNORECASE)
_PLAINLY: Final = re.compile(r"(?:no longer|can stop|stop|quit|no need)\b", re.IGNORECASE)


def taken_back(sentence: Sentence) -> Statement | None:
    """Return a statement that takes an instruction back; the caller looks up whether there is such an instruction."""
    quote, is_own = sentence.original, _OWN_WORDS.match(sentence.text) is not None
    if is_own or not is_whole(sentence):
        first = without_reason(sentence)
        if first is None or not (is_own or is_whole(first)):
            return None
        sentence = first
    elif _revoked(sentence.text) is None:
        sentence = Sentence(*(part.split(", ")[0] for part in (sentence.text, sentence.original)))
    if (rest := _revoked(sentence.text)) is None:
        return None
    text = " ".join(sentence.words(*rest.span("rest")).strip(" \t,.;:!*_").split())
    if COVER in rest["rest"] or not 0 < len(text.split()) <= _MAX_REVOKED_WORDS or not words_of_instruction(text):
        return None
    return Statement(
        content=f'User took back an instruction: "{quote.rstrip(" .!")}."',
        kind="event",
        quote=quote,
        subject=None,
        confidence=0.95,
        importance=0.5,
        takes_back=_prefix_of(rest) + text,
    )


def without_reason(sentence: Sentence) -> Sentence | None:
    """Return a sentence that ends something, up to its reason: "back to English please, it is easier"; None if none."""
    part, comma, reason = sentence.text.partition(", ")
    if not comma or REPORTED.search(reason) or _GIVES_REASON.match(reason) is None:
        return None
    return Sentence(part, sentence.original[: len(part)])


def takes_back(revoked: str, instruction: str) -> float:
    """Return how well the words of a revocation fit an instruction, from 0 (not at all) to 1.

    All words that matter must be among the instruction's: an additional word means another instruction. "No emojis any
    more" takes back `use emojis`; it does not take back `never use emojis`.
    """
    named = revoked.removeprefix(_ABOUT)
    words, of_instruction = words_of_instruction(named), words_of_instruction(instruction)
    if not words or not words <= of_instruction:
        return 0.0
    if named == revoked and bool(_FORBIDS.search(named)) != bool(_FORBIDS.search(instruction)):
        return 0.0
    return len(words) / len(of_instruction)


def _prefix_of(found: re.Match[str]) -> str:
    """Return the words that turn a match into the revoked instruction: "never " if the match allows something again."""
    groups = found.re.groupindex
    return _ABOUT if "about" in groups else "never " if "allowed" in groups else ""


def _revoked(text: str) -> re.Match[str] | None:
    for pattern in _TAKEN_BACK:
        found = pattern.match(text)
        if found is not None:
            named = "more" not in found.re.groupindex or found["more"] or _PLAINLY.search(text, 0, found.start("rest"))
            return found if named else None
    return None
