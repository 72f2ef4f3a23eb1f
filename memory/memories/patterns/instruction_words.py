"""Word lists of the patterns for standing instructions: what an agent does, and what it produces."""

from __future__ import annotations

from typing import Final

from memory.memories.patterns.matching import BLANKS

# Verbs of what an agent says or sends: with `always` or `never` they address the agent, whatever follows.
SPOKEN: Final = (
    r"(?:answer|respond|reply|address me|refer to me|call me|cite|recommend|suggest|mention|translate|summari[sz]e"
    r"|greet me|(?:give|tell|show|send|ask|remind|warn|notify|alert|ping|message|text|email|mail|inform|contact"
    r"|phone) me|(?:speak|talk|write|lie|explain \w{1,40}) to me|(?:speak|talk|check|confirm) with me|explain|respond"
    r"|sugarcoat|commit (?:with|your|the|in|after|before|directly|changes|only|small)|force-push|rebase|merge without"
    r"|apologi[sz]e|double-check|proofread|disturb me|wake me|interrupt me)"
)
# Verbs of what agents and people may be asked to do: something else must show that the agent is meant.
DONE: Final = (
    r"(?:use|write|keep|give|include|avoid|add|put|make|show|say|start|begin|end|provide|check|run|skip|omit|limit|list"
    r"|follow|round|sign|spell|test|commit|deploy|leave|share|delete|remove|modify|change|touch|edit|back up|push"
    r"|force-push|merge|rebase|order|buy|book|schedule|plan|call|phone|spend|install|name|comment|format|pick|choose"
    r"|create|generate|assume|convert|quote|number|sort|highlight|wait|confirm|ask|tell|send|message|text|email|mail"
    r"|ping|notify|remind|speak|talk|state|repeat|stop|let|post|publish|upload|download|open|close|move|rename|print"
    r"|return|wrap|document|validate|invite|cancel|reschedule|accept|decline|pay|be|prefer|guess|invent|scale|draft"
    r"|treat|describe|wrap|define|hyphenate|capitali[sz]e|underline|quote|consider|refer|offer|point out|break|switch"
    r"|set|mark|label|attach|cc|set up|propose|compare|structure|separate|indent|drop|leave out|get|read|review|verify"
    r"|calculate|draw|track|log|save|record|flag|remember)"
)
ANY_VERB: Final = rf"(?:{SPOKEN}|{DONE})"
# The same verbs as gerunds, after `stop`.
STOPPED: Final = (
    r"(?:(?:calling|addressing|lecturing|correcting|patroni[sz]ing|interrupting) me|apologi[sz]ing|suggesting"
    r"|recommending|morali[sz]ing|flattering|making things up|being so|hedging)"
)
STOPPED_WITH_OBJECT: Final = (
    r"(?:using|adding|saying|starting|ending|putting|writing|including|giving|sending|making|reminding|telling|asking"
    r"|messaging|repeating|summari[sz]ing|translating|explaining)"
)
# What an agent produces for its user.
OUTPUT: Final = (
    r"(?:answers?|repl(?:y|ies)|responses?|explanations?|summar(?:y|ies)|outputs?|messages?|code(?: examples?)?"
    r"|examples?|plans?|lists?|texts?|e-?mails?|drafts?|reports?|suggestions?|recommendations?|recipes?|scripts?"
    r"|functions?|commit messages?|reviews?|translations?|feedback|calculations?|snippets?)"
)
# Only plural and mass nouns: `answer` may mean the next answer alone, `answers` means all of them.
OUTPUTS: Final = (
    r"(?:answers|replies|responses|explanations|summaries|outputs|messages|code(?: examples)?|examples|plans|lists"
    r"|texts|e-?mails|drafts|reports|suggestions|recommendations|recipes|scripts|functions|commit messages|reviews"
    r"|translations|feedback|calculations|snippets|tone|style|language)"
)
LANGUAGE: Final = (
    r"(?:(?:british |american |simple |plain |brazilian |european )?(?:english|german|french|spanish|italian|portuguese"
    r"|dutch|swedish|norwegian|danish|finnish|polish|czech|russian|ukrainian|greek|turkish|arabic|hebrew|hindi|chinese"
    r"|mandarin|cantonese|japanese|korean|vietnamese|thai|indonesian|hungarian|romanian|catalan|latin|swahili|persian))"
)
CODE_LANGUAGE: Final = (
    r"(?:python|rust|typescript|javascript|java|kotlin|swift|golang|go|ruby|c\+\+|c#|haskell|scala|php|sql|bash)"
)
# The manner of an agent's work: its form, its language, its code, its appointments.
MANNER: Final = (
    rf"(?:{LANGUAGE}|{CODE_LANGUAGE}|emojis?|bullet(?:s| points?| lists?)|markdown|headings?|headers|tables?|jargon"
    r"|slang|abbreviations?|acronyms?|exclamation marks?|capital letters|all caps|italics|bold|footnotes?|metric"
    r"|imperial|celsius|fahrenheit|units?|sources?|citations?|references|links?|examples?|docstrings?|comments?"
    r"|type(?:s| hints| annotations)|tabs|spaces|semicolons|snake_case|camelcase|unit tests?|tests?|linter|formatter"
    r"|code|functions?|variables?|classes|branch(?:es)?|main|master|production|database|files?|folders?|directory"
    r"|commits?|pull requests?|dependencies|libraries|summar(?:y|ies)|spelling|dates?|iso|24-hour|12-hour|decimals?"
    r"|currency|euros|dollars|disclaimers?|warnings|introductions?|conclusions?|pleasantries|small talk|filler|fluff"
    r"|flattery|compliments|apolog(?:y|ies)|steps?|options|paragraphs?|sentences?|step by step|alt text|formal|informal"
    r"|polite|brief|concise|honest|direct|blunt|precise|specific|formally|informally|sugarcoat\w{0,40}|first name"
    r"|full name|last name|the word|the phrase|the words|reasoning|assumptions|word count|pronouns|hashtags?)"
)
# Work on code, and programs that only somebody who works on it names: not `make`, `flask` or `teams`.
CODING: Final = (
    r"(?:npm|pnpm|npx|pip|conda|uv|pytest|unittest|jest|vitest|playwright|mypy|pyright|eslint|docker(?: compose)?|git"
    r"|podman|kubernetes|kubectl|terraform|ansible|github|gitlab|django|fastapi|sqlalchemy|pydantic|postgres(?:ql)?"
    r"|mysql|sqlite|mongodb|redis|kafka|nginx|graphql|grpc|tailwind|webpack|next\.?js|node\.?js|vim|neovim|vs code"
    r"|debugging|logging|migrations|stack traces?|endpoints?|rebasing|merging|committing)"
)
# What people who work on code keep to in all of it. Without an article it means all of them: not `in the tests`.
NAMES_AND_TEXTS: Final = (
    r"(?:commit messages?|branch names|pull requests|prs|(?:variable|function|file|test) names|docstrings"
    r"|(?:log|error) messages)"
)
OF_CODE: Final = rf"(?:{NAMES_AND_TEXTS}|commits|tests|code|comments|docs|migrations)"
# Steps that come again and again in such work.
_STEP: Final = r"(?:commit|push|merg|deploy|releas|refactor|rebas)"
_STEP_WITH_OBJECT: Final = r"(?:delet|remov|install|add|chang|edit|creat|renam|mov|upgrad|updat)"
_OBJECT: Final = (
    r"(?: (?:the|an?|any|new|existing|more)){0,2} (?:files?|folders?|dependenc(?:y|ies)|packages?|librar(?:y|ies)"
    r"|tables?|columns?|branch(?:es)?|migrations?|the database|code|apis?|endpoints?|features?|functions?)"
)
BEFORE_STEPS: Final = rf"before (?:(?:{_STEP}|committ)ing|{_STEP_WITH_OBJECT}ing(?:{_OBJECT}|(?=[.!]?\Z)))\b"
AT_EACH_STEP: Final = (
    rf"(?:(?:before|after|when(?:ever)?|every time|each time) (?:you )?(?:(?:{_STEP}|committ)(?:e|ing)?"
    rf"|{_STEP_WITH_OBJECT}(?:e|ing)?{_OBJECT})\b"
    rf"|(?:before|after) (?:each|every|any) (?:{_STEP}(?:e|ment)?|change|edit)\b(?! of\b))"
    r"(?!.{0,200}\bon (?:mon|tues|wednes|thurs|fri|satur|sun)day\b)"
)
# Things that people want in no answer, whatever it is about.
STYLE: Final = (
    r"(?:emojis?|jargon|slang|acronyms?|abbreviations|exclamation marks|all caps|hashtags?|disclaimers|pleasantries"
    r"|small talk|filler(?: words)?|fluff|flattery|compliments|apologies|bullet points|markdown)"
)
UNITS: Final = r"(?:(?:the )?(?:metric|imperial)(?: system| units)?|celsius|fahrenheit|(?:british|american) spelling)"
# These are often about a single answer (`Use bullet points for this one`): they count only as a whole message.
PLAINNESS: Final = r"(?:bullet points|(?:simple|simpler|plain|easy) (?:words|language|terms|english))"
# How an agent answers. `Be honest` and `be careful` are missing: people say them about one single thing.
BEARING: Final = (
    r"(?:(?:more |less |very )?(?:brief|concise|succinct|terse|direct|blunt|precise|polite|formal|informal|verbose"
    r"|wordy|to the point))"
)
HORIZON: Final = (
    r"(?:from (?:now|here|this point|today) on(?:wards?)?(?: out)?|from here on out|going forward|moving forward"
    r"|in (?:the )?future|henceforth|hereafter|starting (?:now|today|tomorrow)|as of (?:now|today)"
    r"|for (?:all|any|your|my)? ?future \w{1,40}|for the rest of (?:this|our|the) (?:chat|conversation|session)"
    r"|in (?:all|every|each|any)(?: one)?(?: of)?(?: your)?(?: future)? (?:answers?|replies|reply|responses?|messages?)"
    r"|every time you (?:answer|reply|respond|write to me)|at all times)"
)
# For the end of an instruction: in `keep moving forward`, these words are no horizon.
HORIZON_LAST: Final = HORIZON.replace("|moving forward", "")
_HOUR: Final = (
    r"(?:\d{1,2}(?:[:.]\d\d)?\s?(?:am|pm|a\.m\.|p\.m\.|o'clock|h)?|one|two|three|four|five|six|seven|eight|nine|ten"
    r"|eleven|twelve|noon|midday|midnight|lunch|breakfast|dinner|dark|work)"
)
_DAYS: Final = (
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|weekends?|weekdays|holidays|mornings|evenings|(?:my )?days? off"
    r"|the weekend)"
)
AT_A_TIME: Final = (
    rf"(?:(?:before|after|past|until|between|at|during|earlier than|later than){BLANKS}{_HOUR}\b"
    rf"|(?:on|during|over|at){BLANKS}(?:a |the |my )?{_DAYS}\b|at night\b|in the (?:morning|evening|night)s?\b)"
)
# Verbs of what an agent does at a time of day, such as calls and appointments.
TIMED: Final = (
    r"(?:call|phone|ring|dial|text|message|email|mail|ping|contact|disturb|notify|remind|wake|schedule|book|plan"
    r"|arrange|set up|put|write|deploy|push|release|merge|send)"
)
# Those with which a user tells an agent when not to be reached, or what to keep free.
CONTACT: Final = (
    r"(?:call|phone|ring|dial|text|message|email|mail|ping|contact|disturb|notify|schedule|deploy|release|merge)"
)
# What users hand over to an agent: `never share my address`, but not `never use my car`.
ENTRUSTED: Final = (
    r"(?:address|calendar|code|contacts|credit card|data|details|documents|drafts|essays|articles|posts|e-?mails?"
    r"|files?"
    r"|flights|ideas|inbox|information|location|messages|name|numbers?|passwords?|permission|approval|consent|photos"
    r"|pull requests?|prs?"
    r"|questions?|repo(?:sitory)?|reports|secrets?|slides|tests|texts?|time ?zone|tickets)"
)
# Verbs of what an agent sees a user do, which are conditions of instructions.
SEEN: Final = (
    r"(?:ask|say|send|paste|mention|request|write|type|share|post|upload|give|tell|show|forget|submit|want|need|order"
    r"|talk|greet|start a|begin a|open a|make a (?:typo|mistake)|use the word)"
)
_PRODUCED: Final = (
    r"(?:answers|replies|responses|explanations|summaries|recipes|suggestions|recommendations|examples|translations"
    r"|lists)"
)
_NOT_OF_THIS: Final = r"(?!(?:the|this|that|these|those|it|them|him|her|any of)\b)"
_TASTES: Final = (
    r"(?:recipes|dishes|meals|food|snacks|drinks|alcohol|seafood|fish|meat|pork|beef|dairy|gluten|nuts|books|films"
    r"|movies|music|songs|games|brands|products|medication|medicines?|supplements|diets)"
)
_UNITS_OF: Final = (
    r"(?:[$\u00a3\u20ac]|(?:us )?dollars|euros|pounds|celsius|fahrenheit|metric|imperial|grams|kilos|ounces|cups|ml"
    r"|(?:kilo)?met(?:re|er)s|km|miles|feet|the (?:24|12)-hour|24-hour|12-hour|iso|local time|utc|my (?:currency"
    r"|time ?zone))"
)
TALK_OF: Final = (
    r"(?:talk|speak|hear|be asked|be reminded) (?:about|of) (?:my [a-z]{2,20}(?: [a-z]{2,20}){0,3}"
    r"|(?-i:[A-Z])[a-z]{1,20}|(?:politics|religion|work|food|calories|death|diets|weight)(?: \w{1,20}){0,4})"
)
# What is said of answers that exist, not of how they shall be: `your code must be broken`.
OF_NOW: Final = r"be (?:here|there|on|at|ready|done|available|broken|wrong|fine|great|[a-z]{2,20}ing)\b"
# If the message says nothing else, only an assistant is told these. They follow `please` or `can you`.
WAYS_TO_ANSWER: Final = (
    rf"(?:keep|limit) (?:all )?(?:your )?{_PRODUCED} (?:under|below|to|within|short|brief|simple|at)\b.{{0,100}}",
    rf"(?:keep|leave) {_NOT_OF_THIS}[a-z][\w ,'-]{{1,60}} out of (?:(?:all|every|any) (?:my |your )?[a-z]{{3,20}}"
    rf"|(?:my|your) {_PRODUCED})",
    rf"(?:only|don't|do not) (?:suggest|recommend|propose|offer) (?:me )?(?:anything (?:with|containing|made of)\b"
    rf"|(?:[a-z-]{{2,20}} ){{0,2}}{_TASTES}\b|(?:[a-z]{{2,20}}[- ])?(?:free|friendly"
    rf"|accessible) [a-z]{{3,20}}).{{0,60}}",
    r"(?:don't|do not) (?:mention|bring up|comment on|ask (?:me )?about|remind me (?:of|about)"
    r"|talk (?:to me )?about) my\b.{0,60}",
    # `Answers` and `examples` need a `your` or `my`: pasted exams, forms and guidelines have such sentences, too.
    rf"(?:all )?(?:(?:your|my) {_PRODUCED}|recipes|suggestions|recommendations|summaries|translations) (?:should|must"
    r"|need to|have to) (?:all |always |never |not )?(?:be(?! (?:here|there|on|at|somewhere|ready|done|available|online"
    r"|enough|fine|ok|[a-z]{2,20}(?:ed|en|nt) (?:by|to|before|at|on|in|for|twice|once))\b)|have|contain|include|use"
    r"|avoid|fit)\b.{0,100}",
    rf"no [a-z][\w -]{{1,40}} in (?:my |your |any )?{_PRODUCED}",
    r"no (?:more )?(?:jokes|puns|spoilers|preambles?|lectures|morali[sz]ing|long answers|walls of text)",
    r"(?:address|talk to|speak to|treat) me (?:formally|informally|casually|like an? .{1,60}|as if .{1,60})",
    r"be (?:honest|blunt|direct|frank|strict|gentle|patient)(?: with me)?, even (?:if|when) .{1,60}",
    r"(?:don't|do not) (?:be|sound|write|answer|talk) (?:so |too )(?:formal|polite|wordy|verbose|nice|enthusiastic"
    r"|cheerful|technical|vague)(?:al)?(?:ly)?",
    r"(?:ask|check)(?: with me| me)?(?: first)? before (?:you )?(?:book|buy|order|send|delete|chang|pay|post|mak|assum)"
    r"(?:e|ing)?\b.{0,60}",
    r"(?:give|show|write|quote|list|state) (?:me )?(?:all )?(?:prices|temperatures|distances|weights|measurements|dates"
    rf"|times|amounts|sizes|quantities|costs) in {_UNITS_OF}\b.{{0,40}}",
    r"(?:only )?(?:one|two|three|a single) (?:suggestion|option|question|answer|step|idea|recommendation)s? at a time",
    r"(?:explain|describe) (?:things|everything) (?!to (?!me\b)).{1,60}",
    r"use my (?:first|full|last) name",
    r"use (?:short|simple|plain|easy|clear|big|large|everyday|british|american)[a-z ]{0,20} (?:paragraphs|sentences"
    r"|words|language|english|print|letters|spelling|terms)\b.{0,60}",
    r"(?:don't|do not|never) (?:write|give|send|show|suggest|list|use|ask)(?: me)? more than (?:\d{1,4}|[a-z]{2,8})"
    r" [a-z ]{2,40}(?: at a time| at once| per [a-z]{3,12}| in (?:one|a single) [a-z]{3,12})",
)
