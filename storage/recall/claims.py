"""Reads the claims of plain sentences: values of attributes of a subject, which later sentences can replace.

"Kate lives in Porto" and "Kate moved to Faro" are about one attribute, and so are "the capital of X is Y" and "the
capital of X is Z". Only attributes that have one value at a time are read, by the form of the sentence: what something
definite is ("my desk is on floor 4"), where and with whom somebody lives or works, and what was done to something
("was born in", "is married to"). What somebody likes, has or does has many values at once, as have the times of things
and the versions in use: they are replaced only by a sentence that says so, such as "I don't go to the gym any more" and
"the meeting was moved to Friday".

A sentence that is read wrongly hides something that holds, so doubt means no claim: questions, conditions, other
negations and quotations make none, nor do sentences about `he`, `she` or `they`, pasted text, or text to be worked on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from storage.recall.days import MONTHS, WEEKDAYS
from storage.recall.words import hash_of


def words_in(text: str) -> frozenset[str]:
    """Return the words of a text, which blanks separate."""
    return frozenset(text.split())


# Longer sentences say more than one thing.
_MAX_WORDS: Final = 30
_MAX_VALUE_WORDS: Final = 12
_MAX_NAME_WORDS: Final = 4
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^\s\w]*[A-Z0-9])|\n+")
# Code, quoted lines, and text after words that lead to another person's text: "summarise this: I moved to London".
PASTED = re.compile(
    r"```.*?(?:```|\Z)|^ {0,3}>[^\n]*|(?:^|(?<=[.!?\n]))[^:.!?\n]{0,60}\b(?:this|these|following|below|text|translate"
    r"|summari[sz]e|proofread|wrote|writes|says|said|reads|fwd|forwarded|from|subject)\b[^:.!?\n]{0,60}:\s.*"
    r"|\b(?:following|below|text)\b[^\n]{0,60}\n.*",
    re.IGNORECASE | re.DOTALL | re.MULTILINE,
)
# A memory's quotation of its speaker, who may leave out apostrophes.
_SAID = re.compile(r"\AUser said: \"(?P<said>[^\"]{1,500})\"\.?\Z")
_SAID_BY_NAME = re.compile(r"\A(?!User\b)\w[\w .'-]{0,63} said: \"(?P<said>[^\"]{1,500})\"\.?\Z")
_LEFT_OUT = re.compile(
    r"(?i)\b(?:i(?=(?:m|ve)\b)|s?he(?=s\b)|(?:do|does|did|ca|wo|is|are|was|were|have|has|could|would|should)n(?=t\b)"
    r"|\b(?:my|his|her) name(?=s\s(?!are\b|and\b)\w))"
)
_NUMBERED = re.compile(r"\A\s*(?:\d+[.)]|[-*\u2022])\s+")
_WORD = re.compile(r"[\w][\w'\u2019&./-]*")
_QUESTION = re.compile(r"\?\s{0,3}\Z")
# Words of sentences that are no plain statements.
_DOUBT = re.compile(
    r"[?\"\u201c\u201d]|\b(?:if|would|could|should|might|may|wish|unless|whether|maybe|perhaps|probably|suppose|imagine"
    r"|not|never|no longer|nor|neither|used to|almost|hope|hopes|want|wants|let's|please)\b|n['\u2019]t\b"
)
_BE: Final = words_in("is was are were am be became becomes remains 's \u2019s")
_PREPOSITIONS: Final = words_in("in at to by with of for from on as under near")
# Verbs of states of which a person has one at a time, by their stems, with the attribute that they state.
_STATES: Final = {
    "live": "live", "lives": "live", "lived": "live", "reside": "live", "resides": "live", "moved": "live",
    "relocated": "live", "work": "work", "works": "work", "worked": "work", "joined": "work", "study": "study",
    "studies": "study", "plays": "play", "play": "play", "played": "play", "speaks": "speak", "speak": "speak",
    "spoke": "speak", "belongs": "belong", "starts": "start", "ends": "end", "opens": "open", "closes": "close",
    "meets": "meet", "costs": "cost", "drive": "drive", "drives": "drive",
}  # fmt: skip
_MOVES: Final = frozenset({"moved", "relocated"})
_MOVED_WHERE: Final = frozenset({"back", "over", "away"})
TOOLS: Final = (
    r"(?:linux|windows|mac(?:os)?|vim|neovim|emacs|python|rust|go|java|kotlin|typescript|javascript|react|vue|git"
    r"|github|gitlab|docker|kubernetes|aws|azure|gcp|firefox|chrome|android|ios|iphone|slack|teams|notion|vs code"
    r"|postgres\w{0,40}|mysql|sqlite|mongo(?:db)?|redis|kafka|ubuntu|debian|fedora|ruff|black|flake8|pylint|mypy|pyright"
    r"|pytest|uv|poetry|pip|conda|npm|pnpm|yarn|bun|deno|eslint|prettier|biome|vite|webpack|jest|vitest|django|flask"
    r"|fastapi|celery|svelte|angular|next\.?js|tailwind|terraform|ansible|nginx|jira|linear|graphql|grpc)\b"
)
# "Moved to" is also used of tools and chapters, not only of towns.
NO_PLACES: Final = rf"(?:{TOOLS}|(?:chapter|part|section|phase|level|plan|stage|step|version)\b)"
_NO_PLACE = re.compile(NO_PLACES, re.IGNORECASE)
# "A flat in Porto", not "weekly releases in May".
_DWELLING_IN = re.compile(rf"(?:[\w-]{{1,20}} ){{1,4}}in (?!(?i:{MONTHS}|{WEEKDAYS})\b)[A-Z]")
# Verbs only after `I` or a plural subject; otherwise nouns: "good work on", "files on drive".
_OF_SEVERAL: Final = frozenset({"live", "reside", "work", "study", "play", "speak", "drive"})
_LOOSE: Final = words_in(
    "now currently just recently today still actually already also has have had been i've the a an finally"
)
_PRONOUNS: Final = words_in(
    "he she it they this that there these those you who what which his her their its your everything something "
    "nothing everyone here"
)
_RELATIVE: Final = frozenset({"that", "where", "who", "which", "whose", "when"})
# Moods that look like passives, as in "interested in". A new mood does not end an earlier one.
_MOODS: Final = words_in(
    "interested excited determined worried scared used supposed tired inspired obsessed pleased concerned surprised "
    "involved prepared expected needed"
)
_DEGREES: Final = frozenset({"so", "too", "very", "more", "less", "beyond", "what", "like"})
_OWN_STATES: Final = frozenset({"married", "engaged", "born", "based", "located", "named", "called", "employed"})
_ABBREVIATED: Final = frozenset({"i'll", "i'd", "we'll", "we'd"})
# The speaker, who may speak for others too.
_SPEAKER: Final = {
    "i'm": ["i", "am"], "we're": ["i", "am"], "i've": ["i", "have"], "we've": ["i", "have"], "we": ["i"], "our": ["my"],
    "user": ["i"], "user's": ["my"],
}  # fmt: skip
# Memories say "Ana is" where she said "I am": both are read in the first person.
_FIRST_PERSON: Final = {"is": "am", "has": "have", "does": "do", "goes": "go"}
# Things of which there is one: "the city of Lisbon" says what Lisbon is, and there is no other.
_CLASSES: Final = words_in(
    "city town village country continent state province region position role sport language religion field rank office"
)
_ONE_OF: Final = frozenset({"citizen", "resident", "native", "student", "employee"})
_OWN: Final = frozenset({"i", "my"})
_WITH_OBJECT: Final = frozenset({"drive", "drives"})
_PAST_STATES: Final = frozenset({"lived", "worked", "played", "spoke"})
_HAVE: Final = frozenset({"have", "has"})
_OWNERS: Final = words_in("my our his her their your")
# A kind of place instead of a name: "a flat", but not "a flat in Porto".
_SOME = re.compile(
    r"(?!.{1,80} in )(?:an?|my|our|his|her|their|your|this|that|the (?:city|town|village|country\w{0,4}|cent(?:re|er)"
    r"|middle|suburbs|same|outskirts|mountains|woods|basement|attic))(?: |\Z)"
)
# Times and circumstances after "in" and "at".
_NO_PLACE_OR_NAME = re.compile(
    r"(?:(?:the |my |our )?(?:nights?|days?|weekends?|mornings?|evenings?|afternoons?|home|lunch|dinner|moment|time"
    r"|past|future|office|library|summer|winter|spring|autumn|fall)|least|once|first|all)\b"
)
# Roles of which a person has one at a time: another name for the role replaces the earlier one.
_ROLES: Final = words_in(
    "boss manager supervisor wife husband girlfriend boyfriend fianc\u00e9 fianc\u00e9e partner landlord landlady "
    "dentist mother father hometown"
)
_PEOPLE: Final = _ROLES | words_in(
    "sister brother mom mum dad son daughter child kid baby friend aunt uncle cousin niece nephew grandma grandpa "
    "grandmother grandfather colleague neighbour neighbor roommate flatmate doctor teacher coach therapist client "
    "team family"
)
_NUMBERS: Final = words_in("one two three four five six seven eight nine ten eleven twelve")
_BECAME = re.compile(
    r"\b(?:(?:has been|have been|was|were|got)\s)?(?:raised|increased|lowered|reduced|cut|changed|renamed|updated)"
    r"\sto\b"
    r"|\b(?:went|gone) (?:up|down) to\b|\b(?:has |just )?turned(?= \d)",
    re.IGNORECASE,
)
# Another tool, not another town.
_REPLACED_TOOL = re.compile(r"(?P<tool>\suse\s.{2,60}?\s)moved to\b", re.IGNORECASE)
_NEW_JOB = re.compile(
    r"\A(?P<who>\s{0,3}(?:i|we|user|i['\u2019]ve|(?:my|our|user's)(?: [\w-]{2,20}){1,2}|(?-i:[A-Z])\w{1,20})\s)"
    r"(?:(?:just|recently|finally)\s)?"
    r"(?:started (?:working|(?:a|my) new job)|(?:have|has|got) a new job)\s(?:at|with)\b"
    r"|\A(?P<whom>\s{0,3}(?:i|we|user|i['\u2019]ve)\s)started at(?=\s(?-i:[A-Z]))",
    re.IGNORECASE,
)
_SWITCH = re.compile(
    r"\A\s{0,3}(?:i|we|i['\u2019]ve|we['\u2019]ve)\s(?:(?:\w{1,20}\s)?(?:switched|moved|migrated|changed)"
    r"\s(?:[\w']{1,20}\s){0,3}?from\s(?P<old>[\w' .+#-]{1,40}?)\sto\s"
    r"|(?:\w{1,20}\s)?(?:use|have|drive|take)\s.{1,40}?\sinstead of\s"
    r"(?P<older>[\w' .+#-]{1,40}?)(?:\snow)?[.!]?\s{0,3}\Z)",
    re.IGNORECASE,
)
# What may stand behind a thing, so that it is no part of a name: "my car" in "I lost my car insurance" is none.
BY_ITSELF: Final = (
    r"(?=\W{0,3}\Z|[,.;:!?]|\s[(\u2013-]|\s(?:and|but|so|at|from|for|with|in|on|to|under|behind|inside|near|by|now"
    r"|today|yesterday|tonight|last|this|again|back|called|named|who|after|before|while|when|because|two|three|a|lol)\b)"
)
# Things that people lose and find again.
VALUABLES: Final = rf"(?:passport|wallet|purse|phone|keys|ring|car|bike|bag|laptop|glasses|licen[cs]e|id){BY_ITSELF}"
_LOST = re.compile(
    r"\A\s{0,3}(?:(?P<own>i|we|user)|(?P<who>\w{1,20}))(?:['\u2019]ve|\s(?:have|has))?\s(?:\w{1,12}\s)?"
    rf"(?P<state>lost|found)\s(?:my|our|their|his|her)\s(?P<thing>{VALUABLES})\b",
    re.IGNORECASE,
)
_NO_MORE = re.compile(r"\A\s{0,3}(?:i|we|user) (?:have|has) no (?P<thing>\w{1,30}) any ?more\b", re.IGNORECASE)
# A person lives with somebody or alone, not both.
_COMPANY = re.compile(
    r"\A\s{0,3}(?:i|user|i['\u2019](?:ve|m))\s(?:\w{1,12}\s)?(?:(?:live|lives|living) (?P<alone>alone\b|on my own\b)"
    r"|(?:(?:live|lives|living)|moved (?:back )?in) with\b)",
    re.IGNORECASE,
)
_NEW = re.compile(
    r"\A\s{0,3}(?:i|we)(?:['\u2019]ve)?\s(?:have|got|bought|have got)\sa new (?P<what>\w{1,30}(?: \w{1,30})?),"
    r" (?P<value>[^,]{2,60}?)[.!]?\s{0,3}\Z",
    re.IGNORECASE,
)

# Where a sentence goes on about the speaker, with or without `I`.
_AS_SPEAKER = re.compile(
    r"\A\s{0,3}(?:i|we|user|i['\u2019]m|we['\u2019]re|i['\u2019]ve|we['\u2019]ve)\s", re.IGNORECASE
)
_OF_SPEAKER = re.compile(r"\A\s{0,3}(?:i|we|my|our|user)\b", re.IGNORECASE)
_NEXT_OF_SPEAKER = re.compile(r"[,;]?\s(?:and|so|but)\s(?=(?:i|we)\b)|[,;]\s(?=(?:i|we|my|our)\b)", re.IGNORECASE)
LEAD_IN = re.compile(
    r"\A\s{0,3}(?:(?:turns out|actually|well|and|but|oh|ok|okay|yeah|so|hey|btw|by the way|update|fyi"
    r"|just so you know|in fact|unfortunately|sadly|good news|bad news)[,:]?\s(?:that\s)?){1,3}",
    re.IGNORECASE,
)
_NEXT_WITHOUT_SUBJECT = re.compile(
    rf"{_NEXT_OF_SPEAKER.pattern}"
    r"|,?\s(?:and|so|but)\s(?=(?:now\s)?(?:drive|live|work|use|eat|go|play|study|own)\b)",
    re.IGNORECASE,
)
# Phrases like "not any more", with the verb if it is a part of the phrase.
_ENDED = re.compile(
    r"\A(?:(?P<be>am|are) (?:not|no longer)\b|(?P<have>have) no\b|(?:do not|don't|no longer|can't|cannot)\b"
    r"|(?P<given_up>stopped|quit|gave up|have stopped|have quit|have given up)\b(?=\s\w{1,20}ing\b))\s"
)
_NOW = re.compile(r"\bnow\b", re.IGNORECASE)
_ANY_MORE = re.compile(r"\b(?:any ?more|no longer|after all)\b", re.IGNORECASE)
_CONDITION = re.compile(
    r"[?\"\u201c\u201d]|\b(?:if|unless|whether|maybe|perhaps|wish|would|could|might)\b", re.IGNORECASE
)
_OFTEN: Final = _LOOSE - words_in("the a an have had") | words_in(
    "usually always often mostly only really normally regularly"
)
_BEFORE_HEADS: Final = _PREPOSITIONS | _LOOSE | words_in("my our his her their some any two three no new")
_THOUGHT: Final = words_in(
    "think know want need feel hope guess mean see love like hate wish say tell will would could should might may can "
    "must do did don't get got"
)
_PAST = re.compile(
    r"\A(?:\w{2,20}ed|was|were|had|went|got|made|took|came|saw|bought|found|lost|met|won|ran|ate|gave)\Z"
)
_TIME: Final = (
    rf"(?:{WEEKDAYS}\b|tomorrow\b|noon\b|midnight\b|next \w{{1,10}}|{MONTHS}(?:\s\d{{1,2}}(?:st|nd|rd|th)?)?"
    rf"|\d{{1,2}}(?::\d\d)?(?:st|nd|rd|th)?(?:\s?[ap]m|\so'clock)?(?:\s(?:of\s)?{MONTHS}(?=\W|\Z))?)"
)
_MOVED: Final = r"(?:moved|changed|postponed|rescheduled|pushed|shifted|delayed|extended|brought)"
# A memory adds the date in brackets: "on Friday (6 November 2026)".
_AT_A_TIME: Final = (
    rf"(?:(?:on|at|by|for)\s)?(?:the\s)?(?P<time>{_TIME}[\w:., ]{{0,30}}?)(?P<now>\snow)?"
    r"(?:\s\([^()]{4,40}\))?(?:,\s[^?]{1,100})?[.!]?\s{0,3}\Z"
)
_APPOINTMENT = re.compile(
    r"\A\s{0,3}(?P<the>(?:our|the|my|user's)\s)?(?P<subject>[a-z][\w' -]{2,60}?)\s(?:(?(the)(?:is(?:\s(?P<is_now>now))?"
    r"(?:\s(?:scheduled|booked|set|planned)(?=\s(?:for|on)\s))?|starts|begins|leaves)|(?!))"
    rf"|(?P<moved>(?:(?:has been|was|is|has|got|had to be)\s)?{_MOVED}(?:\s(?:back|forward|out|up))?\sto))"
    rf"\s{_AT_A_TIME}",
    re.IGNORECASE,
)
_OWN_APPOINTMENT = re.compile(
    r"\A\s{0,3}(?:i|we|user)(?:(?:'ve got|\s(?:have|has)(?: got)?)\san?\s(?P<subject>[a-z][\w' -]{2,40}?)"
    rf"|\s(?P<starts>starts?)(?:\s(?:work|there|(?:my|their|the)(?:\snew)?\sjob))?)\s(?=on\s|at\s){_AT_A_TIME}",
    re.IGNORECASE,
)
# The end of the attribute of an event.
_TAKES_PLACE: Final = " takes place"
# "They've moved my start to the 8th": that my start was moved.
MOVED_BY = re.compile(
    r"\A\s{0,3}(?:(?:i|we|they|he|she|my|the|our)\s?\w{0,20}|(?-i:[A-Z])\w{1,20})(?:'ve|\shave|\shas|'s)?"
    rf"\s(?:just\s)?(?P<moved>{_MOVED})\s(?:back\s)?(?:my|our|the)\s(?P<thing>[a-z][\w' -]{{2,40}}?)"
    rf"(?:\sfrom\s[^,;]{{2,30}}?)?\s(?:(?:back|forward|out|up)\s)?to\s(?=(?:the\s)?{_TIME}(?:\W|\Z))",
    re.IGNORECASE,
)
# "My start date" and "my first day" are when I start.
_STARTS = re.compile(
    r"\A(?:start(?:ing)? (?:date|day)|first day(?: (?:at|of) (?:the |my |their )?(?:new )?(?:work|job))?)\Z"
)
# What was moved or is now at another time, without saying what: "moved to June 7", "it's now at 9:30". Only words of
# times may follow: "moved to 12 Elm Street" and "it's now at 30 degrees" are about something else.
_TIMES_ALONE: Final = (
    r"(?:\S{1,20}(?:\s(?:\d\S{0,8}|(?:on|at|in|of|the|next|this|now|instead|noon|sharp|[ap]\.?m|o'clock|morning|afternoon"
    rf"|evening|night|{MONTHS}|{WEEKDAYS})\b\.?)){{0,7}}\s?(?:\(|,\s|[.!]?\s{{0,3}}\Z))"
)
MOVED_ALONE = re.compile(
    r"\A\s{0,3}(?:(?:ok(?:ay)?|update|fyi|heads up|sorry|btw|oh|so|actually|guys|all)[\s,:!-]{1,3}){0,2}"
    r"(?:(?:it|that)(?:'s| is| was| got| has)\s|they(?:'ve| have)? )?(?:been |just |now )?"
    rf"(?:{_MOVED}(?:\sit)?(?:\s(?:back|forward|out|up))?\sto|now\s(?:at|on))\s(?={_AT_A_TIME})(?={_TIMES_ALONE})",
    re.IGNORECASE,
)
_PREFERRED = re.compile(
    r"\A\s{0,3}(?:i|we|user)\s(?P<now>now\s)?prefers?\s"
    r"(?P<what>(?:(?!(?:to|than|over|and|or|not|with|of)\b)[\w'-]{2,20}\s){1,2}?)"
    r"(?P<thing>[\w-]{3,20})(?P<later>\s(?:now|nowadays|these days|instead))?[.!]?\s{0,3}\Z",
    re.IGNORECASE,
)
_VERSION = re.compile(
    r"\A\s{0,3}(?:(?:i|we|i['\u2019]m|we['\u2019]re)\s|(?:my|our)\s\w{1,20}\s(?=runs?\b|uses\b)|(?=upgraded\b))"
    r"(?:\w{1,20}\s)?(?:(?P<updated>upgraded|updated|migrated|moved|switched|downgraded)"
    r"\s(?:[\w']{1,20}\s){0,4}?to|uses?|using|on|runs?(?: on)?|running)"
    r"\s(?P<name>[A-Za-z][A-Za-z.+#]{0,20})\s(?P<version>v?\d{1,5}(?:\.\d{1,5}){0,4})\b",
    re.IGNORECASE,
)
# The person spoken to: "my friend, this is great". "My dentist, Dr Lee, is" is about the dentist, but rare.
_ADDRESSED = re.compile(r"\A\s{0,3}my \w{1,20}, ", re.IGNORECASE)


def with_apostrophes(text: str) -> str:
    """Return a text with plain apostrophes, also where they were left out: "i dont" becomes "i don't"."""
    return _LEFT_OUT.sub(r"\g<0>'", text.replace("\u2019", "'"))


def said_in(text: str) -> str:
    """Return the quoted words of a memory that is nothing but a quotation, and any other text as it is."""
    quoted = _SAID.match(text)
    return quoted["said"] if quoted is not None else text


def as_said(text: str) -> str:
    """Return a text in the words of its speaker, with all apostrophes."""
    return _TITLE.sub(r"\1", with_apostrophes(said_in(text)))


# The point after a title ends no sentence; that after a street, as in "I live on Elm St. My desk is on floor 3", does.
_TITLE = re.compile(
    r"\b(Dr|Mr|Mrs|Ms|Prof|St)\.(?=\s(?!(?:I|My|Our|The|A|We|It|He|She|They|His|Her|Their|You|Your|This|That|And|But"
    r"|So|There|Now)\b)[A-Z])"
)
# "My manager's name is", "my manager is called" and "my new manager is" are about one attribute.
_NAMED = re.compile(
    r"\A(?P<whose>\s{0,3}(?:my|our|user's)\s[\w-]{2,20}(?:\s[\w-]{2,20})?)"
    r"(?:'s name is|\sis (?:called|named))\s",
    re.IGNORECASE,
)
# Things of which people have several: another name belongs to another one, unless it is the new one.
_ONE_OF_MANY = re.compile(
    r"\A\s{0,3}(?:my|our|user's)\s(?:(?!new)\w{1,10}\s)?(?:friend|cousin|aunt|uncle|niece|nephew|colleague|neighbou?r|client|dog|cat|puppy"
    r"|kitten|horse|rabbit)(?:'s name)?\sis\s(?!now\b)",
    re.IGNORECASE,
)
_ONE_OF_ITS_KIND = re.compile(
    r"\A(?P<whose>\s{0,3}(?:my|our|user's|[A-Z]\w{0,20}(?: [A-Z]\w{0,20})?'s)\s)"
    r"(?:(?P<past>original|temporary|initial|former|previous)\s|(?:new|current|primary)\s)?"
    r"(?P<thing>(?:[\w-]{2,20}\s){1,3}?)(?:in (?:19|20)\d\d\s)?(?=(?:is|was)\b)",
    re.IGNORECASE,
)


class Claim(NamedTuple):
    """An attribute of a subject, and its value, both normalised. With `is_own`, it is about the speaker.

    An empty `value` says that the attribute has none any more. A claim that `adds` a value replaces no other. With
    `of_one`, it is about an event of one speaker among several ("my interview"), not about one that they share.
    """

    attribute: str
    value: str
    is_own: bool
    adds: bool = False
    of_one: bool = False


@lru_cache(maxsize=4_096)
def claims_of(text: str) -> tuple[Claim, ...]:
    """Return the claims of a text.

    Of the quoted words of a person other than the user, only those about something that several people share.
    """
    quoted = _SAID_BY_NAME.match(text)
    if quoted is None:
        return _claims_of(text)
    return tuple(claim for claim in _claims_of(quoted["said"]) if not (claim.is_own or claim.of_one))


def _claims_of(text: str) -> tuple[Claim, ...]:
    found = []
    for written in _SENTENCE.split(PASTED.sub(" ", as_said(text))):
        if not _QUESTION.search(written):
            sentence = _NEW_JOB.sub(r"\g<who>\g<whom>joined", LEAD_IN.sub("", _NUMBERED.sub("", written)))
            sentence = _REPLACED_TOOL.sub(r"\g<tool>switched to", sentence)
            sentence = MOVED_BY.sub(r"my \g<thing> was \g<moved> to ", sentence)
            for clause in _clauses(
                _BECAME.sub("is", sentence) if " to " in sentence or " turned " in sentence else sentence
            ):
                readers = (
                    (
                        _claim,
                        _new_role,
                        _habit,
                        _lost_thing,
                        _lost_or_found,
                        _lives_with,
                        _switch,
                        _version,
                        _appointment,
                        _preferred,
                    )
                    if _AS_SPEAKER.match(clause)
                    else (_claim, _appointment, _version, _lost_or_found)
                )
                kind = _ONE_OF_ITS_KIND.match(clause)
                plain = _NAMED.sub(r"\g<whose> is ", _ONE_OF_ITS_KIND.sub(r"\g<whose>\g<thing>", clause))
                made = [claim for read in readers if (claim := read(plain)) is not None]
                is_one_more = _ONE_OF_MANY.match(clause) or (kind is not None and kind["past"])
                found += [claim._replace(adds=True) for claim in made] if is_one_more else made
    return tuple(found)


def replaces(newer: Claim, older: Claim) -> bool:
    """Return whether a claim gives another claim's attribute a different value, or says that it has none any more."""
    if newer.attribute != older.attribute or newer.value == older.value or newer.adds:
        return False
    if not newer.value:
        return True
    # "Lisbon" and "Lisbon, Portugal" are one value, more or less exact.
    short, long = sorted((newer.value.split(), older.value.split()), key=len)
    return long[: len(short)] != short and long[-len(short) :] != short


def head_of(words: Sequence[str]) -> str | None:
    """Return the main word of a value: "acme" of "at acme", and "gym" of "to the gym"."""
    return next((word for word in words if word not in _BEFORE_HEADS), None)


def _clauses(sentence: str) -> list[str]:
    """Return the clauses of a sentence, each with its subject: "I sold it and drive a Tesla now" has two."""
    if not _AS_SPEAKER.match(sentence):
        return _NEXT_OF_SPEAKER.split(sentence)
    first, *others = _NEXT_WITHOUT_SUBJECT.split(sentence)
    return [first, *(other if _OF_SPEAKER.match(other) else f"I {other}" for other in others)]


def _habit(clause: str) -> Claim | None:
    """Return the claim that the speaker does, has or is something, has given it up, or has a number of it now."""
    words = _spoken(clause)
    if not 3 <= len(words) <= _MAX_WORDS or words[0] != "i" or _CONDITION.search(clause):
        return None
    words = [word for word in words[1:] if word not in _OFTEN]
    ended = _ENDED.match(" ".join(words))
    is_plain = "allergic" in words or (ended is None) == (_ANY_MORE.search(clause) is None)
    if not is_plain and (ended is None or ended["given_up"] is None):
        return None
    rest = words if ended is None else words[len(ended[0].split()) :]
    verb = (ended["be"] or ended["have"] if ended is not None else None) or rest.pop(0)
    verb = "be" if verb in _BE else verb
    if verb == "be" and len(rest) > 1 and rest[0].endswith("ing"):
        verb = rest.pop(0)
    if rest[:2] == ["allergic", "to"]:  # what to
        verb, rest = "allergic", rest[2:]
    head = head_of(rest)
    if head is None or verb in _THOUGHT or (ended is None and _PAST.match(verb)):
        return None
    attribute, value = f"i {hash_of(verb)} {hash_of(head)}", "" if ended else " ".join(rest)
    if rest[0] in _NUMBERS:
        return Claim(f"{attribute} number", value, is_own=True, adds=_NOW.search(clause) is None)
    return Claim(attribute, value, is_own=True, adds=ended is None)


def _lost_thing(clause: str) -> Claim | None:
    """Return the claim that something which the speaker no longer has does not have its name any more."""
    found = _NO_MORE.match(clause)
    return found and Claim(f"my {found['thing'].casefold()} be name", "", is_own=True)


def _lost_or_found(clause: str) -> Claim | None:
    """Return the claim that somebody has lost a thing or found it again."""
    found = _LOST.match(clause)
    if found is None or _CONDITION.search(clause):
        return None
    who = "my" if found["own"] else found["who"].casefold()
    return Claim(f"{who} {found['thing'].casefold()} is lost", found["state"].casefold(), is_own=bool(found["own"]))


def _lives_with(clause: str) -> Claim | None:
    """Return the claim that the speaker no longer lives alone, or no longer with somebody."""
    found = _COMPANY.match(clause)
    if found is None or _DOUBT.search(clause):
        return None
    attribute = "i live with" if found["alone"] else f"i {hash_of('live')} {hash_of('alone')}"
    return Claim(attribute, "", is_own=True)


def _switch(clause: str) -> Claim | None:
    """Return the claim that the speaker no longer uses one thing, since another has replaced it."""
    found = _SWITCH.match(clause)
    if found is None or _CONDITION.search(clause):
        return None
    old = head_of(_spoken(found["old"] or found["older"]))
    return None if old is None else Claim(f"i {hash_of('use')} {hash_of(old)}", "", is_own=True)


def _new_role(clause: str) -> Claim | None:
    """Return the claim in "we have a new landlord, Mrs Silva": the speaker's landlord is Mrs Silva."""
    found = _NEW.match(clause)
    return None if found is None else _claim(f"My {found['what']} is {found['value']}")


def _appointment(clause: str) -> Claim | None:
    """Return the claim that says when something takes place; a new time replaces the earlier one."""
    found = _APPOINTMENT.match(clause) or _OWN_APPOINTMENT.match(clause)
    if found is None or _CONDITION.search(clause):
        return None
    parts = found.groupdict()
    subject = _STARTS.sub("start", " ".join((found["subject"] or "start").casefold().split()))
    is_change = parts.get("moved") or parts.get("is_now") or found["now"]
    is_of_one = "starts" in parts or (parts["the"] or "").casefold().strip() in ("my", "user's")
    return Claim(
        f"{subject}{_TAKES_PLACE}", found["time"].casefold(), is_own=False, adds=not is_change, of_one=is_of_one
    )


def events_in(text: str) -> list[str]:
    """Return the events of which a text says when they take place: "wedding" of "the wedding is on 3 May"."""
    return [one.attribute.removesuffix(_TAKES_PLACE) for one in claims_of(text) if one.attribute.endswith(_TAKES_PLACE)]


def _preferred(clause: str) -> Claim | None:
    """Return the claim which kind of a thing the speaker prefers; with `now` it replaces another kind."""
    found = _PREFERRED.match(clause)
    if found is None:
        return None
    is_new = found["now"] or found["later"]
    return Claim(
        f"i prefer {found['thing'].casefold()}", found["what"].casefold().strip(), is_own=True, adds=not is_new
    )


def _version(clause: str) -> Claim | None:
    """Return the claim which version of something the speaker uses; an update replaces another version."""
    found = _VERSION.match(clause)
    if found is None or _CONDITION.search(clause):
        return None
    return Claim(f"i use {found['name'].casefold()}", found["version"], is_own=True, adds=found["updated"] is None)


def _spoken(clause: str) -> list[str]:
    words = [word.rstrip(".,;:!").casefold().replace("\u2019", "'") for word in _WORD.findall(clause)]
    if not words:
        return []
    spoken = [*_SPEAKER.get(words[0], words[:1]), *words[1:]]
    return [_FIRST_PERSON.get(word, word) for word in spoken[:3]] + spoken[3:] if words[0] == "user" else spoken


def _claim(sentence: str) -> Claim | None:
    written = [word.rstrip(".,;:!") for word in _WORD.findall(sentence)]
    if not 3 <= len(written) <= _MAX_WORDS:
        return None
    in_lower_case = sentence.islower()
    if not written[1][:1].isupper():  # otherwise the text may begin with a name: "Hope Solo", "Will Smith"
        sentence = sentence[:1].lower() + sentence[1:]
        written[0] = written[0][:1].lower() + written[0][1:]
    if _DOUBT.search(sentence) or _ADDRESSED.match(sentence):
        return None
    words = [word.casefold().replace("\u2019", "'") for word in written]
    if words[0] in _SPEAKER:
        written[:1] = _SPEAKER[words[0]]
        words[:1] = _SPEAKER[words[0]]
    if words[0].partition("'")[0] in _PRONOUNS or words[0] in _ABBREVIATED:
        return None
    # A verb with a capital is part of a name: "Xbox Live".
    places = [place for place in range(1, len(words) - 1) if written[place] == words[place]]
    verbs = [place for place in places if words[place] in _BE]
    if verbs and words[0] in ("the", "my") and _RELATIVE.intersection(words[: verbs[0]]):
        return _of_be(words[: verbs[-1]], words[verbs[-1] + 1 :])  # "the company that made it is Ford"
    for place in places:
        subject, rest = words[:place], words[place + 1 :]
        if words[place] in ("was", "were") and subject[0] in _OWN and rest[0] != "born":
            return None
        if words[place] in _BE:
            value = place + 1 + len(rest) - len(_skip(rest))
            return _of_be(subject, rest, is_name=value < len(written) and written[value][:1].isupper())
        if words[place] == "joined" and not written[place + 1][:1].isupper():  # such as a choir, not an employer
            return None
        if words[place] in _MOVES:
            rest = _skip(rest)
            return _moved(subject, rest, written[len(written) - len(rest) :], in_lower_case=in_lower_case)
        if words[place] in _STATES:
            return _of_state(subject, words[place], _skip(rest))
        if rest[0] in _PREPOSITIONS and (frame := _classifier(rest, 1)):  # "died in the city of"
            return _made([*subject, words[place], *rest[:frame]], rest[frame:], subject)
    return None


def _of_be(subject: list[str], rest: list[str], *, is_name: bool = False) -> Claim | None:
    is_new, rest = "now" in rest, _skip(rest)
    if not rest:
        return None
    frame = _frame(rest) if subject[0] not in _OWN or rest[0] in _OWN_STATES else 0
    if not frame and len(rest) > 3 and rest[0] in ("a", "an") and rest[1] in _ONE_OF and rest[2] in _PREPOSITIONS:
        frame = 3
    if frame:
        # "Born in May" says nothing against "born in Cork".
        of_time = ["time"] if rest[frame - 1] == "in" and re.match(rf"{MONTHS}\b|\d", rest[frame]) else []
        return _made([*subject, "be", *rest[:frame], *of_time], rest[frame:], subject)
    if rest[0] == "my" and len(rest) > 1 and rest[1] in _ROLES and subject[0] not in _OWN:  # "Tom is my boss"
        return _made(["my", rest[1], "be", "name"], subject, rest)
    if _is_definite(subject):
        # The state of somebody's head or patience does not last.
        passes = rest[0].endswith(("ing", "ly")) or rest[0] in _DEGREES or rest[0] == "my"
        passes = passes or (rest[0] in ("in", "on") and len(rest) > 3)
        if subject[0] not in _OWN:
            return _made([*subject, "be"], rest, subject)
        sort = _sort_of(rest[0], is_name=is_name)
        if passes or (subject[-1] in _PEOPLE and sort not in ("name", "number")):
            return None
        return _made([*subject, "be", sort], rest, subject)
    if len(rest) >= 4 and rest[0] == "the" and "of" in rest[2:-1]:  # "Kate is the captain of the team"
        return _made([*rest, "be"], subject, rest)
    if subject[0] == "the" and len(subject) <= _MAX_NAME_WORDS:  # which of several the words do not say
        claim = _made([*subject, "be", _sort_of(rest[0], is_name=is_name)], rest, subject)
        return claim and claim._replace(adds=not is_new)
    return None


def _sort_of(word: str, *, is_name: bool) -> str:
    """Return the sort of a value by its first word: a car may be red, a Golf and in the garage at the same time."""
    if word[0].isdigit() or word in _NUMBERS:
        return "number"
    if word in _PREPOSITIONS:
        return word
    return "a" if word in ("a", "an") else "name" if is_name else "other"


def _of_state(subject: list[str], verb: str, rest: list[str]) -> Claim | None:
    if verb in _OF_SEVERAL and subject[0] not in _OWN and "and" not in subject:
        return None
    # "I lived in Rome for a year", but not "I've lived in Rome since May".
    if verb in _PAST_STATES and subject[0] in _OWN and not _HAVE.intersection(subject):
        return None
    if verb in _WITH_OBJECT and rest and rest[0] not in _PREPOSITIONS:
        return _made([*subject, _STATES[verb]], rest, subject) if rest[0] not in _OWNERS else None
    if verb == "joined":
        return _made([*subject, "work", "at"], rest, subject)
    if not rest or rest[0] not in _PREPOSITIONS:
        frame = _classifier(rest, 0)
        if not frame:
            return None
        return _made([*subject, _STATES[verb], *rest[:frame]], rest[frame:], subject)
    if rest[0] == "as" and "at" in rest[2:-1]:  # "as a nurse at the clinic": another employer ends it
        rest = rest[rest.index("at") :]
    frame = _classifier(rest, 1)
    # "I live in a flat" and "I work at night" say nothing against Oslo and Acme.
    if not frame and (_NO_PLACE_OR_NAME.match(" ".join(rest[1:])) or (rest[0] == "with" and rest[1:2] == ["anxiety"])):
        return None
    is_some = not frame and rest[0] != "with" and _SOME.match(" ".join(rest[1:])) is not None
    kind = ["some"] if is_some else []
    return _made([*subject, _STATES[verb], *rest[: frame or 1], *kind], rest[frame or 1 :], subject)


def _moved(subject: list[str], rest: list[str], written: list[str], *, in_lower_case: bool) -> Claim | None:
    """Return the claim that somebody lives in another place; people move to decaf and to a new team, too."""
    if rest[:1] and rest[0] in _MOVED_WHERE:
        rest, written = rest[1:], written[1:]
    if rest[:1] != ["to"] or len(rest) < 2:
        return None
    place = written[2:] if rest[1] == "the" else written[1:]
    is_time = subject[0] not in _OWN and re.match(_TIME, " ".join(rest[1:]))  # "the surgery moved to May"
    is_name = place[:1] and (place[0][0].isupper() or (in_lower_case and rest[1] not in _BEFORE_HEADS))
    is_name = is_name or _DWELLING_IN.match(" ".join(place)) is not None
    if is_time or not is_name or _NO_PLACE.match(" ".join(place)):
        return None
    return _made([*subject, "live", "in"], rest[1:], subject)


def _frame(rest: list[str]) -> int:
    """Return how many words after "is" belong to the attribute: "married to", "located in the city of"; 0 for none."""
    if (
        len(rest) > 2
        and rest[1] in _PREPOSITIONS
        and rest[0] not in _MOODS
        and re.search(r"(?:ed|en|orn|unded|own)\Z", rest[0])
    ):
        return _classifier(rest, 2) or 2
    return 0


def _classifier(rest: list[str], start: int) -> int:
    """Return where "the city of", "the position of" ends; 0 if there is none."""
    if rest[start : start + 1] == ["the"] and rest[start + 1 : start + 2] and rest[start + 1] in _CLASSES:
        return start + 3 if rest[start + 2 : start + 3] == ["of"] and len(rest) > start + 3 else 0
    return 0


def _is_definite(subject: list[str]) -> bool:
    """Return whether a subject is an attribute with one value: "the capital of France", "my sister's name"."""
    is_one = not subject[-1].endswith("s") or subject[-1].endswith("ss")
    if subject[0] == "my" and len(subject) > 1:
        return is_one
    if subject[0] == "the" and _RELATIVE.intersection(subject):
        return True
    if "of" in subject[1:-1]:
        head = subject[: subject.index("of")]
        return head[0] == "the" and not head[-1].endswith("s")
    return any(word.endswith("'s") for word in subject[:-1]) and is_one


def _skip(words: list[str]) -> list[str]:
    place = 0
    while place < len(words) and words[place] in _LOOSE - {"the", "a", "an"}:
        place += 1
    return words[place:]


def _made(attribute: list[str], value: list[str], subject: list[str]) -> Claim | None:
    key = [word for word in attribute if word not in _LOOSE]
    value_words = [word for word in value if word not in _LOOSE]
    if not value_words or len(value_words) > _MAX_VALUE_WORDS or len(key) < 2 or _PRONOUNS.intersection(subject[:1]):
        return None
    return Claim(" ".join(key), " ".join(value_words), subject[0] in _OWN)
