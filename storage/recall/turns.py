"""Finds texts that say in free words that something changed, and the thing: "got rid of the car", "the trip is off".

Such a sentence gives no attribute a new value, so it replaces nothing, but it is shown with earlier statements about
the thing. Five forms are recognised: something was done to a thing ("the talk was moved to the 26th"), somebody ended
something ("I gave up the choir"), something is not true after all, there is a new thing of its kind, or something is
true now. It touches older texts that name the same thing, except those about a single past action. Doubt means that
nothing changed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from storage.recall.claims import BY_ITSELF, LEAD_IN, MOVED_BY, PASTED, as_said, words_in
from storage.recall.days import IRREGULAR_PAST, MONTHS, SENTENCE, WEEKDAYS
from storage.recall.words import STOP_WORDS, hash_of, words_of

_MAX_WORDS: Final = 30
_CLAUSE = re.compile(
    r"(?<=[.!?;])\s+|\n+|,\s|\s-\s|\s\(|\s(?:and|but|so|because)\s(?=(?:i|we|he|she|my|our|the|now)\b)", re.IGNORECASE
)
# Words of questions, doubts, conditions, feelings and requests.
_NO_STATEMENT = re.compile(
    r"[?\"\u201c\u201d]|\b(?:if|would|could|should|might|(?<!\d )(?<!in )may(?=\s[a-z])|maybe|perhaps|probably|wish"
    r"|hope|unless|whether|imagine|suppose|almost|nearly|used to|let's|please|think|thinking|you|your|you're|feels?"
    r"|feeling|sounds?|once(?! (?:an?|every|per|daily|weekly|monthly)\b))\b"
    r"|\A\W{0,3}(?:show|give|tell|make|use|send|list|explain|write|create|stop|draft|generate|thanks?|wow)\b",
    re.IGNORECASE,
)
_WORD: Final = r"\w[\w'&/-]{0,30}"
_NEXT: Final = (
    r"(?:to|for|because|since|as|after|before|when|in|on|at|and|or|but|so|with|last|this|yesterday|today|now|finally"
    r"|instead|from|until|by|of|though|then)\b"
)
_OBJECT: Final = (
    rf"(?P<the>(?:the|my|our|all|his|her|their)\s)?(?!(?:an?|some|any|lots|two|three|it|them|one)\b)"
    rf"(?P<thing>{_WORD}(?:\s(?!{_NEXT}){_WORD}){{0,4}})"
)
_TO_A_TIME: Final = rf"(?:to|until|till|by)\s(?:the\s)?(?=\d|next\b|tomorrow|later|noon|{WEEKDAYS}|{MONTHS}(?:\W|\Z))"
_DONE: Final = (
    r"(?:cancel{1,2}ed|called off|postponed|rescheduled|put (?:off|back)|pushed(?: back)?|delayed|extended|stolen|sold"
    r"|shortened|brought forward|moved(?=\s(?:back|forward|up|to|from|on|by)\b)|scrapped|discontinued"
    r"|abandoned|withdrawn|closed(?: down)?(?!\s(?:on|at|every|from|for)\b)|transferred to|handed (?:over )?to"
    r"|taken over by|replaced by|(?:increased|raised|reduced|lowered|upgraded) to)"
)
# The thing before these words was given up, put off or handed over.
_OF_THING = re.compile(
    r"\A(?!(?:i|we|it|that|this|these|those|everything|he|she|they|you|there)\b)"
    rf"(?:(?:the|my|our|his|her|their)\s)?(?P<thing>{_WORD}(?:\s{_WORD}){{0,6}}?)"
    rf"(?:(?:'s|\s(?:is|was|are|were|has|have|had|got))(?:\s(?:been|being|now|just|finally|all)){{0,3}}\s(?:{_DONE}"
    r"|off\Z|over\Z|gone\Z|dead\Z|finished\Z|completed\Z|leaving\b|moving out\b"
    r"|(?:now|currently)\s\w{2,20}(?:ed|n)\sby\b)"
    r"|\s(?:(?:has|have|just|finally)\s){0,2}(?:fell through|fallen through|died|passed away|moved out|cleared up"
    r"|came off|come off|healed|retired\Z|(?:had to be|was|were|been) put (?:to sleep|down)|got (?:divorced|better)"
    r"|went (?:up|down) to|expired|closed (?:down|for good)|(?:now\s)?belongs to|cancel{1,2}ed\Z|postponed\Z"
    rf"|(?:moved|extended|rescheduled|postponed|delayed|put back|pushed back|slips|slipped)\s{_TO_A_TIME}))",
    re.IGNORECASE,
)
_WHO: Final = (
    r"(?:(?:i|we|user|she|he|they|(?:my|user's) \w{1,20}|the doctor"
    r"|(?:dr\.? )?(?-i:[A-Z])\w{1,20})(?:'ve|'m|'re|'s|\s(?:have|has|had|am|is|was))?\s)?"
    r"(?:(?:just|finally|also|already|recently|now|sadly|got|had to)\s){0,2}"
)
_ENDED: Final = (
    r"(?:sold|traded(?: in)?(?= (?:the|my|our))|cancel{1,2}ed|called off|moved out of|gave away|given away"
    r"|swapped|replaced|turned down"
    r"|rejected (?:from|by)|uninstalled|taking over|took over|taken over|(?:left|lost)(?= (?:my|our|(?-i:[A-Z])))"
    r"|lost(?= the baby\b)|left(?= the (?:band|choir|team|club|group|company|firm|board|church)\b)"
    r"|dropped(?= (?:the|my|our) [\w ]{0,30}(?:course|class|project|plan|idea)\b)"
    r"|leaving(?= (?:my|our|(?-i:[A-Z])).{2,40} (?:in|at the end of|after|for good)\b)"
    r"|changed(?= (?:my|our)\s(?!mind|view|life|perspective|opinion|outlook)))"
)
# After these verbs a single word names the thing; after others only "the choir", "my job" or a name does.
_ENDED_PLAINLY: Final = (
    r"(?:quit|gave up|given up|recovered from|got over|g[oe]t(?:ten)? rid of|dropped out of|drop out of"
    r"|(?<=i )came off(?! (?:my|the) (?:bike|horse|road|phone|pitch|plane)\b)|renamed|resigned from|retired from"
    r"|outgr[eo]wn?|ditched"
    r"|(?:broke|broken|split) up with|divorced|unsubscribed from|pulled out of|done with|stopped"
    r"(?! (?:by|at|in|for|to|on|off|over|short|the|an?|me|him|her|them|us|it|working)\b)"
    r"|(?:switched|moved|migrated|changed)(?:\s\w{1,20}){0,3}? from|handed (?:over|in)"
    r"|(?:upped|raised|increased|lowered|reduced|cut|halved|doubled)(?= [\w ]{2,30} (?:to|by) \d)"
    r"|no more(?=\s\w{2,20}(?:\s\w{2,20})?\s(?:though|for (?:me|us)|since)\b)"
    r"|(?:i'm|am|been|went|gone) off(?!\s(?:to|work|school|sick|today|tomorrow|on|for|the|this|next|my|now)\b))"
)
_ENDS = re.compile(
    rf"\A{_WHO}(?P<plainly>{_ENDED_PLAINLY})?(?(plainly)|{_ENDED})\s(?:from\s)?{_OBJECT}(?P<rest>.{{0,60}})",
    re.IGNORECASE,
)
_I_AM: Final = r"\A(?:i'm|i am|we're|we are|user is)\s(?:still\s|currently\s)?"
_I: Final = r"\A(?:i|we|user)(?:'ve|'m|\s(?:have|has|am|is))?\s(?:(?:just|finally|recently|also|now|been)\s){0,2}"
# States of life that some events end without naming them: of each what says it, and what ends it.
_STATES: Final = tuple(
    (frozenset({hash_of(name)}), re.compile(said, re.IGNORECASE), re.compile(ended, re.IGNORECASE))
    for name, said, ended in (
        (
            "partner",
            r"\b(?:my|our|user's|(?:have|has|got) an?)\s(?:\w{1,12}\s)?(?:girlfriend|boyfriend|gf|bf|partner"
            r"|fianc\u00e9e?|husband|wife|spouse)\b(?!'s (?!name\b))"
            r"|\b(?:i'm|i am|we're|we are|user is)\s(?:\w{1,12}\s)?(?:married|engaged|dating)\b",
            r"\A(?:i|i'm|we|we're|user|(?:\w{1,20} ){1,2}and i)(?:'ve|\shave|\shas)?\s(?:(?:broke|broken|split) up\Z"
            r"|(?:(?:got|are|am|is|just|finally|now|filed for|finali[sz]ed|getting)\s){0,2}(?:divorced?|separated)\b)"
            r"|\Amy (?:girlfriend|boyfriend|partner|fianc\u00e9e?|husband|wife) (?:broke up with me|left me\Z)",
        ),
        (
            "engaged",
            rf"{_I_AM}engaged\b",
            r"\A(?:i|we|user|(?:\w{1,20} ){1,2}and i)(?:'re|\sare)?\s(?:just |finally )?(?:got )?married\b",
        ),
        (
            "home",
            r"\A(?:my|our|user's) (?:flat|apartment|house|address|place) is (?:in|at|on|\d)|\A(?:i"
            r"|user) lives? (?:at|on) ",
            rf"{_I}moved (?:in)?to (?:an?|the|our|my) (?:new )?(?:flat|house|apartment|place)\b",
        ),
        (
            "pay",
            r"\A(?:i|user) (?:earns?|makes?) \D{0,12}\d|\A(?:my|user's) (?:salary|pay|income) is\b",
            rf"{_I}(?:got|had|took) an? (?:big |small |pay )?(?:raise|rise|pay cut)\b",
        ),
        (
            "single",
            rf"{_I_AM}single\b",
            rf"{_I}(?:got|have|has|found) an? (?:new )?(?:girlfriend|boyfriend|partner)\b"
            rf"|{_I_AM}(?:now )?(?:seeing (?:someone|somebody)|in a relationship|dating)\b"
            rf"|{_I}(?:got (?:engaged|married)\b|(?:engaged|married|dating)(?: now)?\W{{0,3}}\Z)",
        ),
        (
            "pregnant",
            rf"(?:{_I_AM}|\A(?:my|user's) (?:wife|girlfriend|partner|fianc\u00e9e)(?:'s| is)\s)"
            r"(?:\w{1,12} (?:weeks?|months?) )?(?:pregnant|expecting)\b",
            rf"\A(?:the|our|my) (?:baby|twins|son|daughter|little one) .{{0,20}}\b(?:born|arrived|is here)\b"
            rf"|{_I}(?:gave birth|had (?:the|our|a|my) (?:baby|miscarriage)|miscarried|lost the baby)\b",
        ),
        (
            "job",
            r"\A(?:i|user) works? (?:(?:part|full)[ -]time )?(?:at|for|as|in)\b|\A(?:my|user's) (?:job|employer) is\b",
            rf"{_I}(?:(?:got|was|were) )?(?:laid off|fired(?! up)|made redundant|let go(?! of)|retired)\b"
            rf"|{_I}(?:(?:quit|lost) (?:my|their) job|got (?:an?|the)(?: new)? (?:job|position) (?:at|with|as))\b",
        ),
        (
            "household",
            r"\A(?:i|user) lives? with\b",
            rf"{_I}moved out\b(?! of)|{_I}(?:got|have|found) (?:my|their) own (?:place|flat|apartment)\b",
        ),
        (
            "diet",
            rf"{_I_AM}(?:an? )?(?:vegetarian|vegan|pescatarian)\b|\A(?:i|user) (?:don't|doesn't"
            rf"|never) eats? (?:any )?(?:meat|fish)\b",
            rf"{_I}(?:started )?(?:eat(?:ing)?|having) (?:meat|fish|chicken|bacon|dairy|cheese"
            rf"|eggs)\b.{{0,20}}\b(?:again"
            rf"|now)\b",
        ),
        (
            "sober",
            rf"\A(?:i|user) (?:don't|doesn't|never) drinks?(?: alcohol)?(?: any ?more)?\W{{0,3}}\Z|{_I_AM}(?:sober"
            rf"|teetotal)\b",
            rf"{_I}(?:started )?drink(?:ing)?(?: alcohol| wine| beer)? again\b",
        ),
        ("age", rf"{_I_AM}\d{{1,3}}(?: years old)?\W{{0,3}}\Z", rf"{_I}turned \d{{1,3}}\b"),
    )
)
_AGAINST = re.compile(
    r"\bno longer\b|\bafter all\Z|(?:n't|\b(?:not|never|cannot))\b.{1,60}"
    r"\b(?:anymore|any more\Z|any longer\Z|any more (?=on|at|since)\b)",
    re.IGNORECASE,
)
_NEW = re.compile(
    rf"\A(?:(?:my|our|the)\snew\s(?P<thing>{_WORD})\s(?:is|are|will be)\b"
    rf"|(?=(?:i|we|user)\b){_WHO}(?:got|bought|have|has|found|hired|adopted|ordered)\sa(?:nother)?\s(?:new|different)\s(?P<got>{_WORD})(?=\Z|,|\s{_NEXT}))",
    re.IGNORECASE,
)
# "I got a car" touches "I don't have a car".
_ACQUIRED = re.compile(
    rf"\A(?=(?:i|we|user)\b){_WHO}(?:got|bought|adopted|found)\san?\s(?P<thing>car|van|bike|motorbike|dog|puppy|cat"
    rf"|kitten|house|flat|apartment|tv|laptop|phone|job|piano){BY_ITSELF}",
    re.IGNORECASE,
)
# Something is true now, or done instead: "Olga now works on Atlas", "I start on the 16th instead", "I switched to tea".
_NOW = re.compile(
    r"\A(?:(?i:i|we|user)(?=\s(?!(?:am|are|is|was|were|will|needs?|have|has|had|can|want|got|do|think|feel|see|know|understand)\b)\w)"
    r"|(?!My|Our|The|This|It|That|From|For)[A-Z]\w{1,20}(?:\s[A-Z]\w{0,20})?"
    r"(?=\s(?:now|currently|is|has|was|[a-z]{2,20}(?:s|ed))\b))"
    r"(?:\s\w{1,20}){0,3}?\s(?:(?:now|currently)\s\w|(?:switched|migrated|changed)\s(?:.{2,40}\s)?to\s\w"
    r"|(?:switched|moved|migrated|changed)\s.{0,40}\bback to\s\w|.{2,60}(?<!right)(?<!for)\s(?:now|instead)\Z)"
)
# Not "for a month now" and "right now".
_AT_OTHER_TIMES = re.compile(
    r"\A(?!.{0,200}\b(?:for|since|been|had|right now)\b)(?:.{3,200}\s(?:now|instead"
    r"|from now on)(?:,? not [\w' ]{2,30})?\Z"
    r"|(?:from now on|now),?\s(?=(?:i|we|my|our|the)\b))",
    re.IGNORECASE,
)
# "I'm" and "it is" alone are no frame.
_SHORT_FRAME: Final = 3
_NOW_ALONE = re.compile(r"\b(?:(?:from )?now(?: on)?|instead)\b(?:,? not [\w' ]{2,30}\Z)?", re.IGNORECASE)
_WHOSE = re.compile(r"\A\W{0,3}(?:(?:i|we|user)(?:'s|'m|\sam|\sis|\sare)?|my|our|the)\s", re.IGNORECASE)
_TIMES = re.compile(
    rf"\b(?:(?:on|at|every|each|from|to|until|till|around|about|by|in)\s){{0,2}}(?:the\s)?(?:(?:{WEEKDAYS}|{MONTHS})s?\b"
    r"|\d{1,2}(?!\d)(?:[:.]\d\d)?(?:st|nd|rd|th)?\s?(?:am\b|pm\b|o'clock\b|mg\b|hours\b|minutes\b)?|noon\b|midnight\b"
    r"|(?:once|twice|(?:three|four|five|\d) times)\b(?:\s(?:an?|per|every))?|(?:day|week|month|morning|evening|night"
    r"|afternoon|weekend|weekday)s?\b)",
    re.IGNORECASE,
)
# What ailed somebody no longer does: "my blood pressure is fine again", "my aunt Rosa is out of hospital".
_RECOVERED = re.compile(
    r"\A(?:my|our|the|his|her)\s(?P<thing>blood pressure|knee|ankle|back|arm|leg|foot|wrist|shoulder|neck|hand|finger"
    r"|toe|hip|eye|ear|tooth|throat|stomach|cold|flu|fever|cough)\s(?:is|are)\s(?:now\s)?"
    r"(?:(?:fine|ok|okay|well|good) again|much better|healed)\Z"
    r"|\A(?:(?:my|our|user's)\s|(?=(?:dad|mum|mom|grandma|grandpa|granny|nan)\b))(?P<who>[a-z]{2,20})"
    r"(?:\s(?-i:[A-Z])\w{1,20})?(?:'s|\s(?:is|was|got|came))\s"
    r"(?:now\s|finally\s|back\s|home\s)?(?:out of|from)\s(?:the\s)?hospital\b",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"n't\b|\b(?:not|no|never|refuse[sd]?|stopped|quit|gave up|off)\b", re.IGNORECASE)
_SORRY = re.compile(r"\b(sorry|oops|correction|no|wait|actually),\s", re.IGNORECASE)
_CORRECTS = re.compile(
    rf"\A(?:(?:sorry|oops|correction|no|wait|actually)[\s,:-]{{1,3}}){{1,2}}(?:i mean[t]?\s)?not\s(?P<thing>{_WORD})\Z",
    re.IGNORECASE,
)
_NOT_THEN = re.compile(
    r"\A(?:(?P<thing>.{2,40}?)\s(?:is|are)\s.{1,40}\snot\s(?:on\s|at\s)?(?:the\s)?\d"
    r"|(?=(?:my|our|the)\s)(?P<named>.{2,40}?\s(?:is|are|[a-z]{2,20}s)\s).{1,40}\snot\s(?P<old>[\w' -]{2,30})\Z)",
    re.IGNORECASE,
)
# "It is in Faro, not Lisbon" is one clause.
_NOT_THAT = re.compile(r",(?= not [\w' -]{2,30}(?:[.!]|\Z))")
_ADVERB = re.compile(r"\b[a-z]{2,20}ly\b")
_BEHIND = re.compile(r"\s(?:after|because|since|for|due to|btw|as of)\b.{0,200}")
# A single past action does not change later, unless it began a state (these verbs): "I joined the choir".
_BEGAN: Final = (
    r"(?:joined|started|moved|got|bought|adopted|booked|planned|signed|hired|switched|migrated|registered|used|asked"
    r"|accepted|subscribed|enrolled|applied|rented|leased|found|took|made|set|decided|agreed|promised|stored|lived|worked"
    r"|chose|settled|opted)"
)
_SINGLE_ACTION = re.compile(
    r"\A\W{0,3}(?:i|we|user|(?-i:[A-Z])\w{1,20}(?: and i)?)\s(?:(?:\w{2,20}ly|just)\s)?"
    rf"(?!{_BEGAN}\b)(?:\w{{2,20}}ed|{'|'.join(IRREGULAR_PAST)})\b",
    re.IGNORECASE,
)
_EMPTY: Final = words_in(
    "user new old now currently anymore longer again started switched moved back finally sold bought guy thing "
    "things stuff everything something nothing work working job jobs home life one two three four five six first "
    "second trip date plan plans appointment event re ve don didn doesn isn aren wasn weren won couldn shouldn hasn "
    "haven person people way use used using"
)
# Words before a person's things; `s` is the rest of "user's".
_OWNERS: Final = frozenset({"my", "our", "s"})


class Turn(NamedTuple):
    """A change of a thing: the hashes of the words that name it, and how many of them an older text must have.

    `now` touches texts with only some of the words, `began` texts that refused it, `new` the speaker's own thing,
    `state` texts that say a state of life, and `times` texts that differ in their times alone.
    """

    named: frozenset[int]
    least: int
    kind: Literal["ended", "now", "began", "new", "state", "times"] = "ended"


@lru_cache(maxsize=4_096)
def turns_of(text: str) -> tuple[Turn, ...]:
    """Return the changes that a text states."""
    clauses = _CLAUSE.split(_NOT_THAT.sub("", _SORRY.sub(r"\g<1> ", PASTED.sub(" ", as_said(text)))))
    found = (_turn(LEAD_IN.sub("", clause.strip(" ,.;:!-"))) for clause in clauses if len(clause.split()) <= _MAX_WORDS)
    return tuple(turn for turn in found if turn is not None)


def touches(turn: Turn, text: str) -> bool:
    """Return whether an older text is about the thing that changed."""
    shared = [turn.named & one.get(turn.kind, one["named"]) for one in _sentences(text)]
    return any(len(one) >= turn.least and not (turn.kind == "now" and one == turn.named) for one in shared)


@lru_cache(maxsize=4_096)
def _sentences(text: str) -> tuple[dict[str, frozenset[int]], ...]:
    """Return for each statement, by kind of change, the words by which a change can touch it."""
    statements = [
        one
        for one in SENTENCE.split(PASTED.sub(" ", as_said(text)))
        if not (_NO_STATEMENT.search(one) or _SINGLE_ACTION.match(one))
    ]
    return tuple(_words_by_kind(one) for one in statements)


def _words_by_kind(sentence: str) -> dict[str, frozenset[int]]:
    words = words_of(sentence)
    named = frozenset(map(hash_of, words))
    own = (word for place, word in enumerate(words) if _OWNERS.intersection(words[max(0, place - 2) : place]))
    return {
        "named": named,
        "began": named if _REFUSED.search(sentence) else frozenset(),
        "new": frozenset(map(hash_of, own)),
        "times": frozenset(_without_times(sentence)),
        "state": frozenset[int]().union(*(name for name, said, _ in _STATES if said.search(sentence))),
    }


def _turn(clause: str) -> Turn | None:
    if _NO_STATEMENT.search(clause):
        return None
    states = frozenset[int]().union(*(name for name, _, ended in _STATES if ended.search(clause)))
    if states:
        return Turn(states, 1, "state")
    if found := _RECOVERED.match(clause):
        return _named(found["thing"] or f"{found['who']} hospital")
    if found := _CORRECTS.match(clause):
        return _named(found["thing"])
    if found := _NOT_THEN.match(clause):
        return _named(found["thing"] or found["named"] + found["old"])
    if found := _ENDS.match(clause):
        thing = found["thing"]
        is_named = found["plainly"] or found["the"] or thing[0].isupper()
        # "Quit the job at Acme" is about Acme.
        turn = _named(found["rest"] if thing == "job" else thing, least=1 if is_named else 2)
        return turn and turn._replace(named=turn.named | {hash_of("drive")}) if thing == "car" else turn
    if found := _OF_THING.match(MOVED_BY.sub(r"my \g<thing> was \g<moved> to ", clause)):
        return _named(found["thing"])
    if found := _NEW.match(clause):
        turn = _named(found["thing"] or found["got"])
        return turn and turn._replace(kind="new")
    if _AGAINST.search(clause):
        return _named(clause)
    if found := _ACQUIRED.match(clause):
        turn = _named(found["thing"])
        return turn and turn._replace(kind="began")
    if re.search(r"\bstarted \w{2,20}ing\b", clause, re.IGNORECASE):
        turn = _named(_BEHIND.sub("", clause))
        return turn and turn._replace(kind="began")
    if _AT_OTHER_TIMES.search(clause) and (frame := _without_times(clause)):
        return Turn(frozenset(frame), 1, "times")
    turn = _named(_BEHIND.sub("", clause), least=2, with_numbers=True) if _NOW.search(clause) else None
    return turn and turn._replace(kind="now")


def _without_times(sentence: str) -> list[int]:
    """Return the hash of a sentence without its times, and without whose it is; empty if it has no times.

    "The cleaner comes on Fridays now" differs from "User's cleaner comes on Wednesdays" in its times alone.
    """
    written = _NOW_ALONE.sub(" ", _WHOSE.sub("", sentence))
    rest = words_of(_TIMES.sub(" ", written))
    return [hash_of(" ".join(rest))] if len(" ".join(rest)) > _SHORT_FRAME and _TIMES.search(written) else []


def _named(text: str, *, least: int = 1, with_numbers: bool = False) -> Turn | None:
    found = words_of(_ADVERB.sub("", text))
    words = {word for word in found if len(word) > 1 and (with_numbers or not word.isdigit())}
    named = frozenset(hash_of(word) for word in words - _EMPTY if not {word, word.removesuffix("s")} & STOP_WORDS)
    if len(named) < least:
        return None
    return Turn(named, max(min(2, len(named)), (len(named) + 1) // 2))
