"""Patterns for standing instructions: how a user wants the agent to act or answer from now on.

Precision comes first, because an agent follows what is found: one word too many in ordinary talk, in a quoted mail or
in a task would change every later answer. So a sentence counts only if it is addressed to the agent (a verb of its own,
its answers, `me`) and says that it lasts (`always`, `from now on`, `whenever I ...`, `I prefer ... answers`).
"""

from __future__ import annotations

import re
from typing import Final

from memory.memories.patterns import instruction_words as words
from memory.memories.patterns.facts import HOW_TO_ADDRESS
from memory.memories.patterns.instruction_sentences import REPORTED, OwnWords
from memory.memories.patterns.instruction_subjects import subject_of
from memory.memories.patterns.matching import first_match
from memory.memories.patterns.sentences import COVER, Sentence
from memory.memories.patterns.statement import Kind, Statement, Tier

MIN_WORDS: Final = 2
MAX_WORDS: Final = 50
MAX_CHARACTERS: Final = 300
# Told in every context, like flagged turns (`MIN_IMPORTANCE` of the context).
IMPORTANCE: Final = 0.8

_PLEASE: Final = r"(?:(?:please|pls|kindly|just|then|also|simply)\s*,?\s+)*"
_ASKED: Final = (
    r"(?:(?:can|could|would|will) you (?:please )?|would you mind |i(?:'d| would) like you to |i(?:'d| would) love"
    r" you to "
    r"|i (?:want|need|expect) you to |you (?:should|must|have to|need to|are to|ought to) |(?:make sure|be sure) "
    r"(?:that )?"
    r"(?:you |to )|let's )?"
)
_EVER: Final = r"(?:always|never|don't ever|do not ever|only ever)"
_NOT: Final = r"(?:don't|do not|never|not|avoid|no longer)"
_IMPERATIVE: Final = (
    rf"{_PLEASE}{_ASKED}{_PLEASE}(?:(?:always|never|only|don't(?: ever)?|do not|not)\s+)*{words.ANY_VERB}\b"
)
_YOUR_OUTPUT: Final = rf"\b(?:your|any|every|each|all(?: of)?(?: your)?|my)\s+(?:[\w-]+ ){{0,2}}?{words.OUTPUTS}\b"
_TO_AGENT: Final = (
    rf"(?:\b(?:for|to|with|from|at|asking|ask|telling|tell|consulting|remind|address|unless) (?:me|i|my)\b"
    rf"|\bmy\b|\bwithout (?:asking|telling|checking|my)\b|{_YOUR_OUTPUT}|\b(?:i|you) (?:say|ask|give me|write|send"
    rf" me)\b"
    rf"|\b{words.MANNER}(?!\w)|{COVER})"
)
_LATER: Final = rf"(?:,?\s+(?:{words.HORIZON}|please|any ?more|ever(?: again)?|at all|ok|okay|thanks|thank you))*[.!]*$"
_NOT_EVERYBODY: Final = (
    r"(?!(?:tell|ask|remind|show|send|give|call|email|message)"
    r" (?!me\b|us\b|a\b|an\b|the\b|all\b|any|price|temp)[a-z]+ (?:to|that)\b)"
)


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


# What follows `from now on`, or precedes it.
_FROM_NOW_ON: Final = (
    _compiled(rf"{_PLEASE}{words.HORIZON}\s*[,:]?\s+(?P<rest>{_NOT_EVERYBODY}{_IMPERATIVE}.*)"),
    _compiled(rf"{_PLEASE}{words.HORIZON}\s*[,:]?\s+(?P<rest>no (?:more )?\w.*)"),
    _compiled(
        rf"{_PLEASE}{words.HORIZON}\s*[,:]?\s+(?P<rest>{words.OUTPUT}\b.*\b(?:should|must|in|at most|needs?)\b.*)"
    ),
    _compiled(rf"(?P<rest>{_NOT_EVERYBODY}{_IMPERATIVE}.*?),?\s+{words.HORIZON_LAST}(?:\s+(?:please|thanks))?[.!]*$"),
    _compiled(
        rf"(?P<rest>(?:all |your |my )*{words.OUTPUTS} (?:should|must|need to|have to)"
        rf" .*?),?\s+{words.HORIZON_LAST}[.!]*$"
    ),
)
_ALWAYS: Final = (
    _compiled(rf"(?P<rest>{_PLEASE}{_ASKED}{_PLEASE}{_EVER} {words.SPOKEN}\b(?! (?:it|that|this)$).*)"),
    _compiled(
        rf"(?P<rest>{_PLEASE}{_ASKED}{_PLEASE}{_EVER} (?!leave me|remember (?:that|how)){words.DONE}\b"
        rf"(?=.*{_TO_AGENT}).*)"
    ),
    _compiled(rf"(?P<rest>{_PLEASE}{_ASKED}{_PLEASE}(?:{_EVER}|{_NOT}) {words.TIMED}\b(?=.*\b{words.AT_A_TIME}).*)"),
    _compiled(
        rf"(?P<rest>{_ASKED}{_PLEASE}{_EVER} (?!leave me|change|remember (?:that|how)){words.ANY_VERB}\b(?=.*\b"
        rf"(?:me|my)\b).*)"
    ),
    _compiled(rf"(?P<rest>please\s*,?\s+{_EVER} (?!leave me|change|remember (?:that|how)){words.ANY_VERB}\b .*)"),
    _compiled(rf"(?P<rest>{_EVER} (?!leave me|change){words.ANY_VERB}\b .*?),?\s+please$"),
    _compiled(rf"(?P<rest>i (?:want|need|expect|would like|'d like) you to {_EVER} {words.ANY_VERB}\b.*)"),
    _compiled(rf"(?P<rest>you (?:should|must|have to|need to|are to) {_EVER} {words.ANY_VERB}\b(?=.*{_TO_AGENT}).*)"),
    _compiled(
        rf"(?P<rest>(?:each|every) (?:morning|day|evening|night|week|month|\w+day),? {_PLEASE}{words.SPOKEN}\b.*)"
    ),
)
_MAIN: Final = rf"\s*{_PLEASE}(?:(?:always|never|don't|do not|only|try to)\s+)*"
_WHENEVER: Final = (
    _compiled(
        rf"(?P<rest>(?:when|whenever|if|every time|each time|any ?time) i(?:'m)?"
        rf" {words.SEEN}\b[^,]*,{_MAIN}{words.ANY_VERB}\b.*)"
    ),
    _compiled(
        rf"(?P<rest>(?:whenever|every time|each time) i [^,]+,{_MAIN}{words.ANY_VERB}\b(?=.*{_TO_AGENT}|.*\bme\b"
        rf"|.*\bcode\b).*)"
    ),
    _compiled(
        r"(?P<rest>(?:when|whenever|every time|each time|if) you(?:'re)? (?:answer|reply|respond|recommend|suggest|book"
        r"|schedule|draft|explain|summari[sz]e|cite|refer to|quote|translate|give me|send me|show me|help me|talk to me"
        r"|write to me|plan my|(?:write|use|create|generate|make|review)\b[^,]*\b(?:me|my|code|functions?|scripts?|sql"
        rf"|tests?|commits?))\b[^,]*,{_MAIN}{words.ANY_VERB}\b.*)"
    ),
    _compiled(
        rf"(?P<rest>(?:when|whenever) (?=[^,]*{_TO_AGENT}|.*\b(?:always|never)\b)(?:answering|replying|responding"
        rf"|recommending|suggesting|booking|scheduling|drafting"
        rf"|explaining|summari[sz]ing|writing|coding|planning|reviewing)\b[^,]*,{_MAIN}{words.ANY_VERB}\b.*)"
    ),
    _compiled(
        r"(?P<rest>(?:(?:if|when|whenever) (?:you(?:'re| are) (?:not sure|unsure|uncertain|in doubt)|you aren't sure"
        r"|you (?:don't|do not) know|you can't|you cannot|in doubt|unsure|(?:something|anything)(?:'s| is)"
        r" (?:unclear|ambiguous))[^,]*),"
        rf"{_MAIN}(?:say|admit|tell me|ask(?=\s+(?:me|first|before|instead|for)|[.!]*$))\b.*)"
    ),
    _compiled(
        rf"(?P<rest>{_PLEASE}{words.ANY_VERB}\b.*\b(?:when|whenever|every time|each time|any ?time|if) i"
        r" (?:ask|send|paste|mention|request|share|post|upload|say|type)\b.*)"
    ),
    _compiled(
        rf"(?P<rest>{_PLEASE}{words.ANY_VERB}\b.*\b(?:when|whenever|every time) you (?:explain|answer|reply|respond"
        rf"|write"
        r"|talk|speak|give|recommend|suggest)\b.*\b(?:me|my|your|questions?)\b.*)"
    ),
)
_STOP: Final = (
    _compiled(rf"(?P<rest>{_PLEASE}{_ASKED}(?:please )?(?:stop|quit) {words.STOPPED}\b.*)"),
    _compiled(
        rf"(?P<rest>{_PLEASE}{_ASKED}(?:please )?(?:stop|quit) (?:(?:using|adding|saying|starting|ending|putting"
        rf"|writing|including)\b"
        rf"(?=.*{_TO_AGENT})|{words.STOPPED_WITH_OBJECT}\b(?=.*\b(?:every|so many|all the time|always|any ?more)\b)).*)"
    ),
    _compiled(
        rf"(?P<rest>{_PLEASE}(?:don't|do not) (?:ever )?(?!tell any){words.ANY_VERB}\b.*(?:\bwithout (?:asking"
        rf"|telling|checking with"
        rf"|consulting) me\b|\bwithout my (?:ok|okay|approval|permission|consent|say-so)\b|\bunless i\b|{_YOUR_OUTPUT}"
        r"|\b(?:any ?more|ever|ever again)[.!]*$|\bwith me[.!]*$).*)"
    ),
    _compiled(
        rf"(?P<rest>{_PLEASE}(?:don't|do not) (?:ever )?call me (?:sir|ma'am|miss|mr|mrs|dude|buddy|boss|honey|"
        rf"(?-i:[A-Z]\w+))\b.*)"
    ),
    _compiled(
        rf"(?P<rest>{_PLEASE}(?:don't|do not) (?:make (?:things|stuff|facts) up|make up (?:things|facts|sources)"
        rf"|guess|sugarcoat|apologi[sz]e)\b.*)"
    ),
    _compiled(rf"(?P<rest>{_PLEASE}no (?:more )?(?:[\w-]+ )?{words.MANNER}(?:\s+in\s+{_YOUR_OUTPUT})?{_LATER})"),
    _compiled(
        rf"(?P<rest>{_PLEASE}no (?:more )?(?:meetings?|calls?|appointments?|reminders?|messages?|notifications?)"
        rf" {words.AT_A_TIME}.*)"
    ),
)
_YOURS: Final = (
    _compiled(
        rf"(?P<rest>{_PLEASE}{_ASKED}(?:keep|make|write|format) (?:all )?(?:of )?your (?:[\w-]+"
        rf" ){{0,2}}?{words.OUTPUTS}\b.*)"
    ),
    _compiled(rf"(?P<rest>{_PLEASE}(?:format|keep|write|give me) all (?:of )?(?:your |my |the )?{words.OUTPUTS}\b.*)"),
    _compiled(rf"(?P<rest>your (?:[\w-]+ )?{words.OUTPUTS} (?:should|must|need to|have to|ought to)\b.*)"),
    _compiled(
        rf"(?P<rest>(?:all|any|every|each)(?: the)? (?:[\w-]+ )?{words.OUTPUT} (?:that )?you (?:write|give|make"
        rf"|send|produce|create)\b.*"
        r"\b(?:should|must|needs? to|has to|have to)\b.*)"
    ),
    _compiled(
        rf"(?P<rest>(?:all |every |each )?(?:[\w-]+ )?(?:code(?: examples)?|{words.OUTPUT}) (?:should|must) "
        rf"(?:always|never)\b.*)"
    ),
    _compiled(
        rf"(?P<rest>(?:for|in|with|on) (?:all |any )?(?:(?:of )?my [\w' -]{{2,30}}|{words.OUTPUTS}|python|sql|rust"
        rf"|typescript),"
        rf"{_MAIN}{words.ANY_VERB}\b.*)"
    ),
    _compiled(
        rf"(?P<rest>{_PLEASE}(?:ask|check with|confirm with|consult|warn|tell) me (?:first )?before (?:you |any "
        rf"|every |making |doing |\w+ing )(?!leave|go\b).*)"
    ),
    _compiled(rf"(?P<rest>when in doubt,?{_MAIN}(?:ask|say|tell|check)\b.*)"),
    _compiled(rf"(?P<rest>{_PLEASE}use (?:they/them|she/her|he/him|[a-z]+/[a-z]+)(?: pronouns)? for me\b.*)"),
    _compiled(rf"(?P<rest>{_PLEASE}don't use {words.MANNER}[^,]* (?:with|to|for) me\b.*)"),
)
_LANGUAGE: Final = (
    _compiled(
        rf"(?P<rest>{_PLEASE}{_ASKED}(?:please )?(?:answer|respond|reply|speak|talk|chat|communicate|write)(?: "
        rf"(?:to|with) me)?"
        rf"(?: only)?(?: in)? {words.LANGUAGE}(?: only| to me| with me)?){_LATER}"
    ),
    _compiled(
        rf"(?P<rest>{_PLEASE}(?:let's |let us )?(?:switch to|continue in|speak|talk in|chat in) {words.LANGUAGE}(?:"
        rf" with me)?){_LATER}"
    ),
)
_ASKED_FIRST: Final = _compiled(rf"(?:{_PLEASE}{words.HORIZON}\s*[,:]?\s+)?{_PLEASE}{_ASKED}")
_CALLED: Final = _compiled(
    rf"{_PLEASE}{_ASKED}(?:please )?(?:address|refer to) me as (?P<rest>(?:dr\.? |prof\.? |mr\.? |ms\.? |mrs\.? )?"
    rf"(?-i:[A-Z])[\w'.-]*"
    r"(?: (?-i:[A-Z])[\w'.-]*){0,3})"
)
_ADJECTIVE: Final = (
    r"(?:short|shorter|brief|concise|long|longer|detailed|direct|plain|simple|clear|thorough|formal|informal|casual"
    r"|honest|straight"
    r"|quick|crisp|terse|structured|practical|technical|friendly|in-depth|one-line|step-by-step|very|more|less|and"
    r"|my|your)"
)
_WISHES: Final = (
    _compiled(r"(?P<rest>i(?:'d| would)? (?:\w+ )?prefer (?:it )?(?:if|that|when|for) you\b.*)"),
    _compiled(r"(?P<rest>i(?:'d| would) (?:rather|sooner) you\b.*)"),
    _compiled(
        rf"(?P<rest>i(?:'d| would)? (?:always |really |much |strongly |generally )*(?:prefer (?:{_ADJECTIVE}(?:, |"
        rf" and | ))*|(?:like|want|love)"
        rf" (?:{_ADJECTIVE}(?:, | and | ))+)(?:answers|replies|responses|explanations|summaries|code examples)\b"
        r"(?! (?:to|from|of|on|about)\b).*)"
    ),
    _compiled(
        rf"(?P<rest>i (?:always |really )?(?:want|like|prefer|need|expect) (?:all )?(?:of )?(?:your|my) (?!code"
        rf"|feedback){words.OUTPUTS} (?:to be |in |short|brief|concise|long|detailed|formal|informal|simple|plain"
        rf"|with|without|as )\w*.*)"
    ),
    _compiled(
        rf"(?P<rest>i (?:always |really )*(?:prefer|want|like|expect|need) .*\b(?:in|with|for|under) (?:all |each "
        rf"|every |any )?(?:of )?your (?:{words.OUTPUTS}|claims|answers?)\b.*)"
    ),
    _compiled(
        rf"(?P<rest>i (?:don't|do not|never|no longer|really don't) (?:want|need|like|care for) .*\b(?:in|with"
        rf"|before|after|at the end of) "
        rf"(?:your|any of your|each of your) {words.OUTPUT}\b.*)"
    ),
    _compiled(
        r"(?P<rest>i (?:don't|do not|really don't) (?:like|want|need) (?:such )?(?:long|lengthy|verbose|short|wordy"
        r"|vague) (?:answers|replies|responses|explanations)\b.*)"
    ),
    _compiled(
        r"(?P<rest>i (?:don't like|do not like|hate|can't stand|dislike) it when you (?:start|begin|end|use|call"
        r"|apologi[sz]e|add|repeat|answer|reply|write|sugarcoat|say|give)\b.*)"
    ),
    _compiled(
        r"(?P<rest>i (?:don't|do not) want you to (?:ever )?(?:call me|use|add|apologi[sz]e|suggest|recommend"
        r"|remind|send|delete|change|touch)\b.*)"
    ),
    _compiled(
        r"(?P<rest>i(?:'d| would) (?:like|love) (?:for )?you to (?:address me|call me|speak|talk to me|treat me"
        r"|use|be more|be less)\b(?!.*\b(?:this|now)\b).*)"
    ),
    _compiled(
        rf"(?P<rest>i (?:never|don't ever|do not ever) (?:want|need) (?:to see )?(?:the |an? |any |your )?"
        rf"(?:explanations?|{words.MANNER})\b.*)"
    ),
    _compiled(r"(?P<rest>i prefer (?:code|examples|code examples) in \w.*)"),
)
_REMEMBER = _compiled(
    rf"(?:{_PLEASE}(?:always )?(?:remember|keep in mind|bear in mind|note|take note|don't forget|do not forget)(?:"
    rf" please)?(?:\s+that\b|\s*[:,]|(?=\s+(?:to|i)\b))"
    r"|for (?:future|your) reference\s*[,:]|for the (?:future|record)\s*[,:]|(?:a )?(?:new|one|another|house"
    r"|general|standing|quick|small)"
    r" (?:rule|thing|request|note|preference|reminder)(?: from now on)?\s*[,:]|(?:rule|reminder|note|instruction"
    r"|preference)\s*:)\s*(?:to\s+)?(?P<rest>\S.*)"
)
# After these, any imperative is meant to last.
_LASTING = _compiled(r"(?:.*\brule\b|for future)[^:,]*[:,]")
_ANY_IMPERATIVE = _compiled(rf"(?P<rest>(?:{_IMPERATIVE}|no (?:more )?{words.MANNER}\b).*)")
_INSTRUCTIONS: Final = (*_LANGUAGE, *_FROM_NOW_ON, *_ALWAYS, *_WHENEVER, *_STOP, *_YOURS)
_KINDS: Final[tuple[tuple[Kind, tuple[re.Pattern[str], ...]], ...]] = (
    ("instruction", _INSTRUCTIONS),
    ("preference", _WISHES),
)
_OF_THIS_TASK = _compiled(
    r"\b(?:in|for|of|on|to) (?:this|the|that) (?:(?!future)\w+ )?(?:one|case|caption|letter|essay|story|poem|task"
    r"|exercise|script|game"
    r"|scene|song|article|mail|e-?mail|post|question|message|section|paragraph|chapter|document|problem|app|website"
    r"|program)\b"
)
_POLITE = _compiled(r"^(?:(?:please|pls|kindly|also|just)\s*,?\s+)+|,?\s+(?:please|pls|thanks|thank you)$")
_VAGUE = _compiled(r"(?:please )?(?:always|never|don't|do not) (?:\w+ )?(?:it|that|this|them)[.!]*$")
_EVERYWHERE = _compiled(
    r"\b(?:everywhere|(?:in|across|for) (?:all|every|each)(?: of)?(?: my| the)? (?:projects?|workspaces?|chats?"
    r"|conversations?))\b"
)


def find_instructions(message: str) -> list[Statement]:
    """Return how the user wants the agent to act from now on, in order; each content once."""
    words_of_user = OwnWords(message)
    found: dict[str, Statement] = {}
    for number, sentence in words_of_user.sentences():
        statement = _in_sentence(sentence, is_short=words_of_user.is_short)
        if statement is not None and words_of_user.is_addressed(number):
            found[statement.content] = statement
    return list(found.values())


def _in_sentence(sentence: Sentence, *, is_short: bool) -> Statement | None:
    wrapped = _REMEMBER.match(sentence.text)
    body = _part(sentence, wrapped.start("rest")) if wrapped is not None else sentence
    lasts = wrapped is not None and _LASTING.match(sentence.text) is not None
    for start in _clause_starts(body.text):
        if start and _CONDITION.match(body.text):
            break  # `When it rains, never ...` is an instruction as a whole or not at all
        statement = _match(_part(body, start), sentence.original, is_short=is_short, lasts=lasts and start == 0)
        if statement is not None:
            is_anothers = REPORTED.search(sentence.text) or _OF_THIS_TASK.search(sentence.text)
            return None if is_anothers else statement
    return None


def _match(body: Sentence, quote: str, *, is_short: bool, lasts: bool) -> Statement | None:
    asked = _ASKED_FIRST.match(body.text)
    address = first_match(_part(body, asked.end() if asked else 0), HOW_TO_ADDRESS)
    if address is not None:
        return address
    called = _CALLED.match(body.text)
    if called is not None:
        return _called(body.words(*called.span("rest")).strip(" .,!"), quote)
    if lasts and (found := _ANY_IMPERATIVE.match(body.text)) is not None:
        return _statement("instruction", body.words(*found.span("rest")), quote)
    for kind, patterns in _KINDS:
        # `Answer in English` behind a task is about the task.
        for pattern in patterns if is_short else patterns[len(_LANGUAGE) :] if kind == "instruction" else patterns:
            found = pattern.match(body.text)
            if found is not None:
                return _statement(kind, body.words(*found.span("rest")), quote)
    return None


def _statement(kind: Kind, rest: str, quote: str) -> Statement | None:
    text = _POLITE.sub("", " ".join(rest.strip(" \t,.;:!*_").split()))
    if not MIN_WORDS <= len(text.split()) <= MAX_WORDS or len(text) > MAX_CHARACTERS or _VAGUE.match(text):
        return None
    if text.count("(") != text.count(")"):
        return None
    tier: Tier = "account" if says_everywhere(text) else "workspace"
    return Statement(
        content=f"{text[0].upper()}{text[1:]}.", kind=kind, quote=quote, subject=subject_of(text), confidence=0.95,
        importance=IMPORTANCE, lifetime="long_term", tier=tier,
    )  # fmt: skip


def _called(name: str, quote: str) -> Statement:
    return Statement(
        content=f"User wants to be called {name}.", kind="instruction", quote=quote, subject="called", confidence=0.95,
        importance=IMPORTANCE, lifetime="long_term", key="called", value=name,
    )  # fmt: skip


def says_everywhere(text: str) -> bool:
    """Return whether a text says that something applies to every project or conversation."""
    return _EVERYWHERE.search(text) is not None


def _part(sentence: Sentence, start: int) -> Sentence:
    return Sentence(sentence.text[start:], sentence.original[start:])


_CLAUSES = _compiled(
    r"[,;\u2013\u2014]\s*(?:(?:and|but|so|also|plus)\s+)*(?=(?:please\s+)?(?:always|never|from now on|going forward"
    r"|don't ever"
    r"|keep your|stop (?:using|calling)|i never want|i always want|i prefer|i'd prefer|call me|if you don't know"
    r"|when in doubt)\b)"
)


_CONDITION = _compiled(r"(?:when|whenever|if|while|as|since|because|although|before|after|until)\b")


def _clause_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in _CLAUSES.finditer(text))]
