"""Patterns for standing instructions: how a user wants the agent to act or answer from now on.

Precision comes first, because an agent follows these instructions: one word too many in ordinary talk, in a quoted mail
or in a task would change every later answer. So a sentence counts only if it is addressed to the agent (by an agent's
verb, its answers or `me`) and says that it lasts (`always`, `from now on`, `whenever I ...`, `I prefer ... answers`). A
message that names a manner of answering and no task, such as `Be brief.`, is an instruction, too.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from memory.memories.patterns import instruction_words as words
from memory.memories.patterns.facts import HOW_TO_ADDRESS
from memory.memories.patterns.instruction_sentences import (
    SMILEYS,
    is_override,
    is_plain,
    is_whole,
    parts_of,
    sentences_alone,
    subject_of,
    taken_back,
    without_reason,
)
from memory.memories.patterns.matching import (
    BLANKS,
    COVER,
    REST,
    Anchored,
    Sentence,
    Statement,
    first_match,
)
from reverie.memories.types import MemoryKind, Tier
from storage.recall.claims import with_apostrophes

_ADJECTIVE: Final = (
    r"(?:short|shorter|brief|concise|long|longer|detailed|direct|plain|simple|clear|thorough|formal|informal|casual"
    r"|honest|straight|quick|crisp|terse|structured|practical|technical|friendly|in-depth|one-line|step-by-step|very"
    r"|more|less|and|my|your)"
)


def _forms(*patterns: str) -> tuple[Anchored, ...]:
    """Return patterns whose whole match is what the user wants, unless they have a group `rest` of their own."""
    return tuple(Anchored(one if "(?P<rest>" in one else f"(?P<rest>{one})") for one in patterns)


_WISHED: Final = (
    rf"(?:\b{words.ANY_VERB}\b|\b(?:me|to the point)\b|\b(?:{words.MANNER}|{words.STYLE}|{words.OUTPUT})(?!\w))"
)
WISHES: Final = _forms(
    rf"i(?:'d| would)? (?:\w{{1,40}} )?prefer (?:it )?(?:if|that|when|for) you\b(?={REST}{_WISHED}).{{0,400}}",
    rf"i(?:'d| would) (?:rather|sooner) you\b(?={REST}{_WISHED}).{{0,400}}",
    rf"i(?:'d| would)? (?:always |really |much |strongly |generally ){{0,5}}(?:prefer (?:{_ADJECTIVE}(?:, "
    r"| and | )){0,5}|(?:like|want|love) (?!(?:my |your ){1,2}(?:answ|repl|resp|expl|summ|code))"
    rf"(?:{_ADJECTIVE}(?:, | and | )){{1,5}})(?:answers|replies|responses"
    rf"|explanations|summaries|code examples)\b"
    r"(?! (?:to|from(?! now on)|of|on|about)\b).{0,400}",
    r"(?:i(?:'d| would) (?:really )?(?:appreciate|love|like|prefer) it|it(?:'d| would) be (?:really |so )?(?:great"
    r"|nice|good|helpful|lovely|better)) if you (?:could |would )?(?:always|never|didn't|did not|don't|wouldn't"
    rf"|stopped [a-z]{{2,20}}ing)\b(?={REST}\b(?:{words.MANNER}|{words.STYLE}|{words.OUTPUTS})(?!\w)).{{0,400}}",
    rf"i (?:always |really )?(?:want|like|prefer|need|expect) (?:all )?(?:of )?(?:your|my) (?!code"
    rf"|feedback){words.OUTPUTS} (?:to be |in |short|brief|concise|long|detailed|formal|informal|simple|plain"
    rf"|with|without|as )\w{{0,40}}{REST}",
    rf"i (?:always |really ){{0,5}}(?:prefer|want|like|expect|need) {REST}\b(?:in|with|for|under) (?:all "
    rf"|each |every |any )?(?:of )?your (?:{words.OUTPUTS}|claims|answers?)\b{REST}",
    rf"i (?:don't|do not|never|no longer|really don't) (?:want|need|like|care for) {REST}\b(?:in|with"
    rf"|before|after|at the end of) (?:your|any of your|each of your) {words.OUTPUT}\b{REST}",
    r"i (?:don't|do not|really don't) (?:like|want|need) (?:such )?(?:long|lengthy|verbose|short|wordy"
    r"|vague) (?:answers|replies|responses|explanations)\b.{0,400}",
    r"i (?:don't like|do not like|hate|can't stand|dislike) it when you (?:start|begin|end|use|call"
    r"|apologi[sz]e|add|repeat|answer|reply|write|sugarcoat|say|give)\b.{0,400}",
    r"i (?:don't|do not) want you to (?:ever )?(?:call me|use|add|apologi[sz]e|suggest|recommend"
    r"|remind|send|delete|change|touch)\b.{0,400}",
    r"i(?:'d| would) (?:like|love) (?:for )?you to (?:address me|call me|speak|talk to me|treat me"
    r"|use|be more|be less)\b(?!.{0,400}\b(?:this|now)\b).{0,400}",
    rf"i (?:never|don't ever|do not ever) (?:want|need) (?:to see )?(?:the |an? |any |your )?"
    rf"(?:explanations?|{words.MANNER})\b{REST}",
    r"i prefer (?:code|examples|code examples) in (?!the\b|my\b|this\b|a\b)\w.{0,400}",
)


MIN_WORDS: Final = 2
MAX_WORDS: Final = 50
MAX_CHARACTERS: Final = 300
# So important that every context has them, like flagged turns (`MIN_IMPORTANCE` of the context).
IMPORTANCE: Final = 0.8
# How many instructions of one message can wait for a confirmation. A message with more is a document, which nobody
# would confirm line by line.
_MAX_UNCONFIRMED: Final = 3

_PLEASE: Final = r"(?:(?:please|pls|kindly|just|then|also|simply)(?:\s{0,3},)?\s{1,3}){0,5}"
_ASKED: Final = (
    r"(?:(?:can|could|would|will) you (?:please )?|would you mind |i(?:'d| would) like you to |i(?:'d"
    r"| would) love you to |i (?:want|need|expect) you to |you (?:should|must|have to|need to|are to|ought to) "
    r"|(?:make sure|be sure) (?:that )?(?:you |to )|let's )?"
)
_EVER: Final = r"(?:always|never|don't ever|do not ever|only ever)"
_NOT: Final = r"(?:don't|do not|never)"
_IMPERATIVE: Final = (
    rf"{_PLEASE}{_ASKED}{_PLEASE}(?:(?:always|never|only|don't(?: ever)?|do not|not){BLANKS}){{0,5}}{words.ANY_VERB}\b"
)
_YOUR_OUTPUT: Final = (
    rf"\b(?:your|any|every|each|all(?: of)?(?: your)?|my){BLANKS}(?:[\w-]{{1,40}} ){{0,2}}?{words.OUTPUTS}\b"
)
_TO_AGENT: Final = (
    rf"(?:\b(?:for|to|with|from|at|asking|ask|telling|tell|consulting|remind|address|unless) (?:me|i|my)\b|\bmy\b"
    rf"|\bwithout (?:asking|telling|checking|my)\b|{_YOUR_OUTPUT}|\b(?:i|you) (?:say|ask|give me|write|send me)\b"
    rf"|\b(?:{words.MANNER}|{words.CODING})(?!\w)|{COVER})"
)
_LATER: Final = (
    rf"(?:,?{BLANKS}(?:{words.HORIZON}|please|any ?more|ever(?: again)?|at all|ok"
    rf"|okay|thanks|thank you)){{0,5}}[.!]{{0,40}}$"
)
_NOT_EVERYBODY: Final = (
    r"(?!(?:tell|ask|remind|show|send|give|call|email|message)"
    r" (?!me\b|us\b|a\b|an\b|the\b|all\b|any|price|temp)[a-z]{1,40} (?:to|that)\b)"
)

_WHEN_I: Final = r"\b(?:when|whenever|every time|each time|any ?time|if) i(?:'m|'ve| am| have)? "
# Without a subject the user may tell a habit, and have left out `I`: `Never sleep well when I'm stressed.`
_WITHOUT_SUBJECT: Final = Anchored(rf"(?:(?:always|never|only)(?: ever)?|(?:don't|do not)(?={REST}{_WHEN_I})) [\w'-]+")
_ADDRESSES_AGENT: Final = re.compile(
    rf"\b(?:you|your|please)\b|(?<!for )\bme\b|\bmy (?:[a-z]{{2,20}} )?{words.ENTRUSTED}\b"
    rf"|\b(?:{words.MANNER}|{words.CODING}|{words.STYLE}|{words.OUTPUT})(?!\w)|{_WHEN_I}{words.SEEN}\b",
    re.IGNORECASE,
)
_SAYS: Final = Anchored(
    rf"(?:always|never|only)(?: ever)? (?:{words.CONTACT}\b(?={REST}{words.AT_A_TIME})"
    rf"|(?:suggest|recommend|mention)\b|[^,]{{1,200}} for me\b|(?!answer (?:my|the|any)\b){words.SPOKEN}\b"
    rf"(?!{REST}(?:{_WHEN_I}|\b(?:yourself|who you are)\b)))"
)


_SHAPE: Final = r"(?:(?:short|brief|long|plain)(?:er)?|concise|detailed|simpler?|honest|direct|structured)"
_SHORT_ANSWERS: Final = (
    rf"(?:(?:more|less|very) )?{_SHAPE}(?:(?:, | and | ){_SHAPE}){{0,2}} (?:answers|replies|responses|explanations)"
)
# Instructions that follow or precede `from now on`.
_FROM_NOW_ON: Final = _forms(
    rf"{_PLEASE}{words.HORIZON}(?:\s{{0,3}}[,:])?{BLANKS}(?P<rest>{_NOT_EVERYBODY}{_IMPERATIVE}{REST})",
    rf"{_PLEASE}{words.HORIZON}(?:\s{{0,3}}[,:])?{BLANKS}(?P<rest>no (?:more )?\w(?!.{{0,400}}\bfor me\b){REST})",
    rf"{_PLEASE}{words.HORIZON}(?:\s{{0,3}}[,:])?{BLANKS}(?P<rest>{words.OUTPUT}\b{REST}\b(?:should"
    rf"|must|in|at most|needs?)\b{REST})",
    rf"(?P<rest>{_NOT_EVERYBODY}{_IMPERATIVE}{REST}?),?{BLANKS}{words.HORIZON_LAST}(?:{BLANKS}"
    rf"(?:please|thanks))?[.!]{{0,40}}$",
    rf"(?P<rest>(?:all |your |my ){{0,5}}{words.OUTPUTS} (?:should|must|need to|have to)"
    rf" {REST}?),?{BLANKS}{words.HORIZON_LAST}[.!]{{0,40}}$",
    rf"(?P<rest>{_SHORT_ANSWERS}),?{BLANKS}{words.HORIZON_LAST}(?:,?{BLANKS}please)?[.!]{{0,40}}$",
)
_TWO_WISHES = Anchored(
    rf".{{2,200}}?\b(?P<horizon>{words.HORIZON_LAST}),? and "
    rf"(?P<second>(?:no|not|never|don't|do not|always|only)\b.{{2,200}})"
)
# A return to an earlier manner, which may have a reason behind it.
_RETURNS = Anchored(r".{0,80}\b(?:again|back to)\b")
# Any verb, if the sentence says when the user does something.
_VERB: Final = (
    r"(?!(?:i|you|he|she|it|we|they|my|your|his|her|our|their|the|an?|this|that|there|and|but|so|what|how|why|who|not"
    r"|no|had|was|were|been|happy|come|leave|love|miss|forgive|forget|remember|think|argue|wonder|knew|thought|liked|on"
    r"|in|at|up|down|out|off|over|under|with|about|for|from|to|of|by|as|too|very|so|ready|open|busy|late|early|seen"
    r"|heard|known|gone|done|felt|met|told|took|made|got|found"
    r"|again|forgot|understood|lost|kept|broke|wrote|ran|gave|ate|spent|taught|learnt"
    # `(I) don't want any surprises`
    r"|want|wanna|need|know|care|mind|see|feel|understand|seem|mean|expect|recall|suppose|get me wrong)\b)"
    r"(?![a-z]{2,18}ed\b|(?!bring|sing|ring|ping|string)[a-z]{2,18}ing\b)[a-z][a-z-]{1,20}\b"
)
_ALWAYS: Final = _forms(
    rf"{_PLEASE}{_ASKED}{_PLEASE}{_EVER} {words.SPOKEN}\b(?! (?:it|that|this)$){REST}",
    rf"{_PLEASE}{_ASKED}{_PLEASE}{_EVER} (?!leave me|be there|remember (?:that|how)){_VERB}"
    rf"(?={REST}{_TO_AGENT}){REST}",
    rf"{_PLEASE}{_ASKED}{_PLEASE}(?:{_EVER}|{_NOT}) {words.TIMED}\b(?={REST}\b{words.AT_A_TIME}){REST}",
    rf"{_ASKED}{_PLEASE}{_EVER} (?!leave me|change|be there|remember (?:that|how)){words.ANY_VERB}\b(?={REST}\b"
    rf"(?:me|my)\b){REST}",
    rf"please(?:\s{{0,3}},)?{BLANKS}{_EVER} (?!leave me|change|remember (?:that"
    rf"|how)){words.ANY_VERB}\b {REST}",
    rf"(?P<rest>{_EVER} (?!leave me|change){words.ANY_VERB}\b {REST}?),?{BLANKS}please$",
    rf"i (?:want|need|expect|would like|'d like) you to {_EVER} (?!be (?:there|around|mine)\b){words.ANY_VERB}\b{REST}",
    rf"you (?:should|must|have to|need to|are to) {_EVER} {words.ANY_VERB}\b(?={REST}{_TO_AGENT}){REST}",
    rf"(?:each|every) (?:morning|day|evening|night|week|month|\w{{1,40}}day),? {_PLEASE}"
    rf"{words.SPOKEN}\b{REST}",
)
_MAIN: Final = rf"\s{{0,3}}{_PLEASE}(?:(?:always|never|don't|do not|only|try to){BLANKS}){{0,5}}"
_WHENEVER: Final = _forms(
    rf"{_PLEASE}{_ASKED}(?:please )?(?:{_EVER}|{_NOT}|only) {_VERB}{REST}{_WHEN_I}"
    rf"(?:ever |also )?(?!was\b|were\b|got\b|had\b|did\b)[a-z]{{2,20}}\b{REST}",
    rf"{_WHEN_I}[^,]{{2,200}},\s{{0,3}}{_PLEASE}(?:{_EVER}|{_NOT}|only) {_VERB}{REST}",
    rf"(?:when|whenever|if|every time|each time|any ?time) i(?:'m)?"
    rf" {words.SEEN}\b[^,]{{0,400}},{_MAIN}{words.ANY_VERB}\b{REST}",
    rf"(?:whenever|every time|each time) you (?!need|want|like|feel|have|get|think|see|are"
    rf"|can|go|come|leave|visit|find|wish|know)[a-z]{{2,20}} [^,]{{1,200}},{_MAIN}{words.ANY_VERB}\b{REST}",
    r"when you (?:open|make|create|write|push|merge|add|change|review|rename) (?:an? |the )?(?:new )?(?:pr|pull request"
    r"|commit|branch|test|release|migration|function|script|issue|ticket|module|class)s?\b[^,]{0,60}"
    rf", {_PLEASE}(?:{_EVER}|{_NOT}) {words.ANY_VERB}\b{REST}",
    rf"(?:whenever|every time|each time) i [^,]{{1,400}},{_MAIN}{words.ANY_VERB}\b(?={REST}{_TO_AGENT}"
    rf"|{REST}\bme\b|{REST}\bcode\b){REST}",
    r"(?:when|whenever|every time|each time|if) you(?:'re)? (?:answer|reply|respond|recommend|suggest|book"
    r"|schedule|draft|explain|summari[sz]e|cite|refer to|quote|translate|give me|send me|show me|help me|talk to me"
    r"|write to me|plan my|(?:write|use|create|generate|make|review)\b[^,]{0,400}\b(?:me|my|code|functions?"
    r"|scripts?|sql"
    rf"|tests?|commits?))\b[^,]{{0,400}},{_MAIN}{words.ANY_VERB}\b{REST}",
    rf"(?:when|whenever) (?=[^,]{{0,400}}{_TO_AGENT}|{REST}\b(?:always|never)\b)(?:answering|replying"
    rf"|responding|recommending|suggesting|booking|scheduling|drafting|explaining|summari[sz]ing|writing|coding"
    rf"|planning|reviewing)\b[^,]{{0,400}},{_MAIN}{words.ANY_VERB}\b{REST}",
    r"(?:(?:if|when|whenever) (?:you(?:'re| are) (?:not sure|unsure|uncertain|in doubt)|you aren't sure"
    r"|you (?:don't|do not) know|you can't|you cannot|in doubt|unsure|(?:something|anything)(?:'s| is)"
    r" (?:unclear|ambiguous))[^,]{0,400}),"
    rf"{_MAIN}(?:say|admit|tell me|ask(?={BLANKS}(?:me|first|before|instead|for)|[.!]{{0,40}}$))\b{REST}",
    rf"{_PLEASE}{words.ANY_VERB}\b{REST}\b(?:when|whenever|every time|each time|any ?time|if) i"
    r" (?:ask|send|paste|mention|request|share|post|upload|say|type)\b.{0,400}",
    rf"{_PLEASE}{words.ANY_VERB}\b{REST}\b(?:when|whenever|every time) you (?:explain|answer|reply|respond"
    rf"|write"
    r"|talk|speak|give|recommend|suggest)\b.{0,400}\b(?:me|my|your|questions?)\b.{0,400}",
)
_STOP: Final = _forms(
    rf"{_PLEASE}{_ASKED}(?:please )?(?:stop|quit) {words.STOPPED}\b{REST}",
    rf"{_PLEASE}{_ASKED}(?:please )?(?:stop|quit) (?:(?:using|adding|saying|starting|ending|putting"
    rf"|writing|including)\b(?={REST}{_TO_AGENT})|{words.STOPPED_WITH_OBJECT}\b(?={REST}\b(?:every|so many"
    rf"|all the time|always|any ?more)\b)){REST}",
    rf"{_PLEASE}(?:don't|do not) (?:ever )?(?!tell any){words.ANY_VERB}\b{REST}(?:\bwithout (?:asking"
    rf"|telling|checking with"
    rf"|consulting) me\b|\bwithout my (?:ok|okay|approval|permission|consent|say-so)\b|\bunless i\b|{_YOUR_OUTPUT}"
    r"|\b(?:any ?more|ever|ever again)[.!]{0,40}$|\bwith me[.!]{0,40}$).{0,400}",
    rf"{_PLEASE}(?:don't|do not) (?:ever )?call me (?:sir|ma'am|miss|mr|mrs|dude|buddy|boss|honey|"
    rf"(?-i:[A-Z]\w{{1,40}}))\b{REST}",
    rf"{_PLEASE}(?:don't|do not) (?:make (?:things|stuff|facts) up|make up (?:things|facts|sources)"
    rf"|guess|sugarcoat|apologi[sz]e)\b{REST}",
    rf"{_PLEASE}no (?:more )?(?:[\w-]{{1,40}} )?{words.MANNER}(?:{BLANKS}in{BLANKS}"
    rf"{_YOUR_OUTPUT})?{_LATER}",
    rf"{_PLEASE}no (?:more )?(?:meetings?|calls?|appointments?|reminders?|messages?|notifications?)"
    rf" {words.AT_A_TIME}{REST}",
)
_YOURS: Final = _forms(
    rf"{_PLEASE}{_ASKED}(?:keep|make|write|format) (?:all )?(?:of )?your (?:[\w-]{{1,40}}"
    rf" ){{0,2}}?{words.OUTPUTS}\b{REST}",
    rf"{_PLEASE}(?:format|keep|write|give me) all (?:of )?(?:your |my |the )?{words.OUTPUTS}\b{REST}",
    rf"your (?:[\w-]{{1,40}} )?{words.OUTPUTS} (?:should|must|need to|have to|ought to) (?!{words.OF_NOW}){REST}",
    rf"(?:all|any|every|each)(?: the)? (?:[\w-]{{1,40}} )?{words.OUTPUT} (?:that )?you (?:write|give|make"
    rf"|send|produce|create)\b{REST}"
    r"\b(?:should|must|needs? to|has to|have to)\b.{0,400}",
    r"(?!(?:the|this|that) (?:function|script|list)\b)"
    rf"(?:all |every |each )?(?:[\w-]{{1,40}} )?(?:code(?: examples)?|{words.OUTPUT}) (?:should|must) "
    rf"(?:always|never)\b{REST}",
    rf"(?:for|in|with|on) (?:all |any )?(?:(?:of )?my [\w' -]{{2,30}}, {_PLEASE}(?:always|never) "
    rf"|(?:(?:of )?my (?:[\w'-]{{1,20}} ){{0,2}}?{words.ENTRUSTED}|python|sql|rust|typescript),{_MAIN}"
    rf"|{words.OUTPUTS},?{_MAIN}){words.ANY_VERB}\b{REST}",
    rf"{_PLEASE}(?:ask|check with|confirm with|consult|warn|tell) me (?:first )?before (?:you |any "
    rf"|every |making |doing |\w{{1,40}}ing )(?!leave|go\b){REST}",
    rf"when in doubt,?{_MAIN}(?:ask|say|tell|check)\b{REST}",
    rf"{_PLEASE}(?:make sure|be sure)(?: that)? (?:you |to )(?:always )?{words.ANY_VERB}\b{REST}"
    rf"\b{words.AT_EACH_STEP}{REST}",
    rf"{_PLEASE}(?:ask|check|confirm)(?: with me| me)?(?: first)? {words.BEFORE_STEPS}{REST}",
    rf"{words.NAMES_AND_TEXTS} (?:should|must|need to|have to) (?:always |never )?(?:be|use|have|follow|start|end|say)"
    rf"\b{REST}",
    rf"(?P<rest>{_PLEASE}no (?:more )?{words.MANNER} in (?:(?:your|any|the|my) )?{words.OF_CODE}){_LATER}",
    rf"{_PLEASE}{_NOT} (?:use|mock|add|put|write|include|leave|hard-?code|catch|mention) [^,]{{2,60}}"
    rf" in {words.OF_CODE}{_LATER}",
    rf"{_PLEASE}use (?:they/them|she/her|he/him|[a-z]{{1,40}}/[a-z]{{1,40}})(?: pronouns)? for me\b{REST}",
    rf"{_PLEASE}don't use {words.MANNER}[^,]{{0,400}} (?:with|to|for) me\b{REST}",
)
_INSTEAD: Final = r"(?:,? (?:not|instead of|rather than|over) [a-z][\w.+#-]{1,20}(?: [a-z]{2,20})?)"
# Instructions only if the message says nothing else: beside a task, they are about the task.
_MANNERS: Final = _forms(
    rf"(?P<rest>{_PLEASE}{_ASKED}(?:please )?(?:answer|respond|reply|speak|talk|chat|communicate|write)(?: (?:(?:to"
    rf"|with) )?me)?(?: only)?(?: in)? {words.LANGUAGE}(?: only| to me| with me)?(?:,? (?:even (?:if|when|though)"
    rf"|no matter) .{{2,60}})?){_LATER}",
    rf"(?:you (?:can|may) )?(?P<rest>{_PLEASE}(?:let's |let us )?(?:(?:switch|go|change) back to|switch to|back to"
    rf"|continue in|speak|talk in|chat in) {words.LANGUAGE}(?: with me)?)(?: again)?{_LATER}",
    rf"(?:you (?:can|may) )?(?P<rest>{_PLEASE}(?:(?:answer|respond|reply|speak|talk|write)(?: (?:to|with) me)?(?: in)?"
    rf" {words.LANGUAGE}|(?:give|write)(?: me)? {_ADJECTIVE} (?:answers|replies|explanations))) again{_LATER}",
    rf"(?P<rest>{_PLEASE}{_ASKED}(?:please )?(?:(?:don't|do not|avoid|skip) (?:ever )?(?:us(?:e|ing) |add(?:ing)? "
    rf"|includ(?:e|ing) )?(?:any |the |so many |too many )?{words.STYLE}"
    rf"|use (?:{words.UNITS}|{words.PLAINNESS}){_INSTEAD}?"
    r"|cite (?:your |all (?:your )?)?sources|(?:write|give)(?: me)? (?:shorter|longer|simpler) (?:answers|replies)"
    rf"|be (?:{words.BEARING}(?: and |, )){{0,2}}{words.BEARING}(?: with me)?)){_LATER}",
    rf"(?P<rest>{_SHORT_ANSWERS}),?{BLANKS}please[.!]{{0,40}}$",
    rf"(?P<rest>{_PLEASE}use (?:{words.MANNER}|{words.CODING}) everywhere){_LATER}",
    r"assume i(?:'m| am) (?:an? )?(?:beginner|expert|new to|experienced|familiar with)\b"
    r"(?!.{0,99}\b(?:that|and)\b).{0,99}",
    r"assume (?:that )?i (?:already )?(?:know|understand) (?!the\b|that\b|how\b|what\b|my\b|this\b|it\b)"
    r"(?!.{0,60}\band\b)[^,]{2,60}",
    # These are about the agent's answers only if they stand alone: to people one says them with a name or a reason.
    rf"(?P<rest>{_PLEASE}(?:keep it (?:{words.BEARING}|short|simple|professional|light|casual)"
    rf"|be (?:always )?(?:[a-z]{{3,20}} and )?[a-z]{{3,20}} with me"
    rf"|use (?:{words.MANNER}{_INSTEAD}?|{words.CODING}{_INSTEAD})|(?:don't"
    rf"|do not) (?:ever )?(?:repeat|rephrase|restate|paraphrase|echo|summari[sz]e|answer|correct|interrupt"
    rf"|translate|censor) my (?:own )?(?:[a-z]{{2,20}}s|question|grammar|spelling|english|code|writing))){_LATER}",
    *(f"{_PLEASE}{_ASKED}{_PLEASE}{pattern}" for pattern in words.WAYS_TO_ANSWER),
    rf"i (?:don't|do not|never|no longer) (?:want|like) to {words.TALK_OF}",
)
_ASKED_FIRST: Final = Anchored(rf"(?:{_PLEASE}{words.HORIZON}(?:\s{{0,3}}[,:])?{BLANKS})?{_PLEASE}{_ASKED}")
_CALLED: Final = Anchored(
    rf"{_PLEASE}{_ASKED}(?:please )?(?:address|refer to) me as (?P<rest>(?:dr\.? |prof\.? |mr\.? |ms\.? |mrs\.? )?"
    rf"(?-i:[A-Z])[\w'.-]{{0,40}}"
    r"(?: (?-i:[A-Z])[\w'.-]{0,40}){0,3})"
)
_REMEMBER = Anchored(
    rf"(?:{_PLEASE}(?:always )?(?:remember|keep in mind|bear in mind|note|take note|don't forget|do not forget)(?:"
    rf" please)?(?:{BLANKS}that\b|\s{{0,3}}[:,]|(?={BLANKS}(?:to|i)\b))"
    r"|for (?:future|your) reference\s{0,3}[,:]|for the (?:future|record)\s{0,3}[,:]|(?:a )?(?:new|one|another|house"
    r"|general|standing|quick|small) (?:rule|thing|request|note|preference|reminder)(?: from now on)?\s{0,3}[,:]"
    r"|(?:rule|reminder|note|instruction|preference)\s{0,3}:)\s{0,3}(?:to\s{1,3})?(?P<rest>\S.{0,400})"
)
# A line of a text that was pasted, not typed.
_INDENTED: Final = re.compile(r"[\r\n]{0,9}(?:\t| {2}|[\xa0\u2000-\u200a\u3000])")
# Where an instruction applies, said before the instruction itself.
_SCOPE = Anchored(
    rf"(?:{words.HORIZON},?{BLANKS})?(?:in|for|across) (?:all|every|each)(?: of)?(?: my)? (?:projects?|workspaces?"
    rf"|chats?|conversations?),{BLANKS}"
)
# After these, any imperative is meant to last.
_LASTING = Anchored(r"(?:.{0,400}\brule\b|for future)[^:,]{0,400}[:,]")
_ANY_IMPERATIVE = Anchored(rf"(?P<rest>(?:{_IMPERATIVE}|no (?:more )?{words.MANNER}\b){REST})")
_INSTRUCTIONS: Final = (*_MANNERS, *_FROM_NOW_ON, *_ALWAYS, *_WHENEVER, *_STOP, *_YOURS)
_KINDS: Final[tuple[tuple[MemoryKind, tuple[Anchored, ...]], ...]] = (
    ("instruction", _INSTRUCTIONS),
    ("preference", WISHES),
)
_OF_THIS_TASK = re.compile(
    r"\b(?:in|for|of|on|to) (?:this|the|that) (?:(?!future)\w{1,40} )?(?:one|case|caption|letter|essay|story|poem|task"
    r"|exercise|script|game|scene|song|article|mail|e-?mail|post|question|message|section|paragraph|chapter|document"
    r"|problem|app|website|program|form|page|screen|dialog)\b"
    r"|\bthis (?:function|method|class|file|module|loop|query|component|endpoint|variable|script|branch)\b"
    r"|\b(?:right|just|for) now\b|\bthis time\b|\bimmediately\b|\btonight\b"
    r"|(?<!from )(?<!starting )(?<!as of )\btoday\b(?!')"
    r"|(?<!from )(?<!starting )(?<!as of )\bnow$",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"^(?:(?:please|pls|kindly|also|just)(?:\s{0,3},)?\s{1,3}){1,5}|,?\s{1,3}(?:please"
    r"|pls|thanks|thank you)$",
    re.IGNORECASE,
)
_VAGUE = Anchored(r"(?:please )?(?:always|never|don't|do not) (?:\w{1,40} )?(?:it|that|this|them)[.!]{0,40}$")
_EVERYWHERE = re.compile(
    r"\b(?:everywhere|(?:in|across|for) (?:all|every|each)(?: of)?(?: my| the)? (?:projects?|workspaces?|chats?"
    r"|conversations?))\b",
    re.IGNORECASE,
)


def find_instructions(message: str) -> list[Statement]:
    """Return how the user wants the agent to act from now on, in order; each content once.

    Instructions hold at once if the message has nothing else. In any other message they wait for a confirmation.
    """
    if is_override(message):
        return []
    sentences = _own_sentences(message)
    held = {found.content: found for _, found in sentences if found is not None} if _is_nothing_else(sentences) else {}
    return list(held.values()) or _unconfirmed(message)


def find_revocations(message: str) -> list[Statement]:
    """Return the instructions that a message revokes, in force or not; none if it says anything else."""
    sentences = _own_sentences(with_apostrophes(message))
    if not _is_nothing_else(sentences):
        return []
    return [revoked for sentence, found in sentences if found is None and (revoked := taken_back(sentence)) is not None]


def _own_sentences(message: str) -> list[tuple[Sentence, Statement | None]]:
    """Return the sentences of a plain message, each with the instruction that it states."""
    text = message.strip(" \t\r\n" + SMILEYS)
    if _INDENTED.match(message) or not is_plain(text) or is_override(text):
        return []
    sentences = [part for one in sentences_alone(text) for part in _asked_apart(one)]
    return [(one, _in_sentence(one, is_alone=True)) for one in sentences]


def _asked_apart(sentence: Sentence) -> list[Sentence]:
    """Return the two parts of "use tabs from now on, and no comments", each of which can be taken back by itself."""
    found = _TWO_WISHES.match(sentence.text)
    if found is None:
        return [sentence]
    (start, end), second = found.span("horizon"), found.start("second")
    horizon, rest = sentence.original[start:end], sentence.original[second:]
    return [
        Sentence(sentence.text[:end], sentence.original[:end]),
        Sentence(f"{horizon} {sentence.text[second:]}", f"{horizon} {rest}"),
    ]


def _is_nothing_else(sentences: list[tuple[Sentence, Statement | None]]) -> bool:
    return all(found is not None or taken_back(sentence) is not None for sentence, found in sentences)


def _unconfirmed(message: str) -> list[Statement]:
    found = (_in_sentence(part, is_alone=False) for part in parts_of(message))
    # The user's name is also a fact, but only once it is confirmed.
    distinct = {one.content: replace(one, unconfirmed=True, key=None, value=None) for one in found if one is not None}
    return list(distinct.values())[:_MAX_UNCONFIRMED]


def _in_sentence(sentence: Sentence, *, is_alone: bool) -> Statement | None:
    scope = _SCOPE.match(sentence.text)
    if scope is not None:
        sentence = _part(sentence, scope.end())
    wrapped = _REMEMBER.match(sentence.text)
    body = _part(sentence, wrapped.start("rest")) if wrapped is not None else sentence
    lasts = wrapped is not None and _LASTING.match(sentence.text) is not None
    statement = _match(body, sentence.original, is_alone=is_alone, lasts=lasts)
    if statement is None and is_alone and _RETURNS.match(body.text) and (first := without_reason(body)) is not None:
        body = sentence = first
        statement = _match(body, sentence.original, is_alone=is_alone, lasts=lasts)
    if statement is None or _OF_THIS_TASK.search(sentence.text) or (is_alone and not is_whole(sentence)):
        return None
    return statement


def _match(body: Sentence, quote: str, *, is_alone: bool, lasts: bool) -> Statement | None:
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
        for pattern in patterns if is_alone else patterns[len(_MANNERS) :] if kind == "instruction" else patterns:
            found = pattern.match(body.text)
            if found is not None:
                return None if _may_be_habit(body.text) else _statement(kind, body.words(*found.span("rest")), quote)
    return None


def _may_be_habit(text: str) -> bool:
    """Return whether a sentence without a subject may tell what the user does, instead of what the agent shall do."""
    begins = _WITHOUT_SUBJECT.match(text)
    return begins is not None and not (_SAYS.match(text) or _ADDRESSES_AGENT.search(text, begins.end()))


def _statement(kind: MemoryKind, rest: str, quote: str) -> Statement | None:
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
