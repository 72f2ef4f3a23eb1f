"""What people are, can, do and want, in a few words: `I'm retired`, `I can't swim`, `my rent is 900 euros`.

The form of such short sentences does not tell lasting things from those of the moment (`I'm tired`), so the words that
may stand in them are listed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.instruction_words import LANGUAGE
from memory.memories.patterns.matching import (
    ADVERB,
    BLANKS,
    I_AM,
    IS,
    REST,
    Maker,
    PatternMatch,
    Rule,
    Statement,
    as_subject,
    cut,
    is_plain,
    rule,
    rules,
)
from memory.memories.patterns.told import in_third_person, with_s

# Only one of these holds at a time.
_MARITAL: Final = (
    r"(?:single|(?:happily |recently |newly )?married|(?:recently |newly )?divorced|widowed|a widow(?:er)?"
    r"|(?:recently )?engaged|(?:recently )?separated|in a (?:long-distance |committed )?relationship)"
)
# These replace a job.
_NO_JOB: Final = (
    r"(?:(?:semi-)?retired|a pensioner|unemployed|out of work|between jobs"
    r"|a stay-at-home (?:mum|mom|dad|parent|mother|father))"
)
_EMPLOYMENT: Final = (
    r"(?:self-employed|freelanc(?:e|ing)|on (?:maternity|paternity|parental|sick) leave"
    r"|an? (?:[a-z-]{1,20} ){0,3}student|an apprentice|an intern)"
)
_CHARACTER: Final = (
    r"(?:an (?:introvert|extrovert|only child|early riser|early bird|immigrant|expat|insomniac|orphan|organ donor)"
    r"|a (?:morning|night|cat|dog|beach|city|people|tea|coffee) person|a night owl|a (?:light|heavy|bad) sleeper"
    r"|a perfectionist|a homebody|a twin|a foodie|a bookworm|a (?:picky|fussy) eater|a (?:non-?|heavy )?smoker"
    r"|a single (?:mum|mom|dad|parent|mother|father)|a carer|a refugee|a veteran|a (?:grand)?(?:mother|father|parent)"
    r"|a (?:mum|mom|dad)|the (?:oldest|eldest|youngest|middle)(?: child)?(?: of (?:two|three|four|five|six|\d{1,2}))?"
    r"|bilingual|introverted|extroverted|gay|a lesbian|bisexual|transgender|non-?binary|asexual)"
)
_HEALTH: Final = (
    r"(?:(?:(?:\d{1,2} (?:weeks?|months?) )?pregnant(?: with (?:twins|triplets))?|deaf|hard of hearing|(?:legally"
    r"|partially) blind|(?:short|near|long"
    r"|far)-?sighted|dyslexic|autistic|epileptic|asthmatic|an(?:a)?emic|neurodivergent|in a wheelchair"
    r"|a wheelchair user|prone to [a-z]{3,20}|an? (?:recovering )?(?:alcoholic|addict)|(?:nine|eight|seven|six|five"
    r"|four|three|two|one|a|\d{1,2}) (?:years?|months?) sober|on (?:antidepressants|insulin|statins|blood thinners"
    r"|beta blockers|metformin|the pill|dialysis|(?:blood pressure|thyroid|heart) (?:medication|tablets"
    r"|pills))|(?:pre-?)?diabetic|(?:lactose|gluten)[ -]intolerant|c(?:o)?eliac|hypertensive"
    r"|colou?r-?blind)(?: in (?:my|one) (?:left |right )?(?:ears?|eyes?|legs?))?)"
)
_AIDS: Final = (
    r"(?:(?:an? )?(?:(?:electric|manual|power) )?(?:wheelchair|walking (?:stick|frame|aid)|mobility scooter|rollator"
    r"|white cane|cane|zimmer frame|guide dog|screen reader|stoma|pacemaker|cochlear implant|insulin pump"
    r"|cpap(?: machine)?|prosthetic (?:leg|arm)|hearing aids?)(?: (?:outside|outdoors|indoors|at home|at night"
    r"|most days|to get (?:a)?round|for (?:long|longer) (?:distances|walks|trips)))?)"
)
_MEDICINES: Final = (
    r"(?:ibuprofen|aspirin|paracetamol|antibiotics|codeine|morphine|nsaids|statins|cortisone|[a-z]{3,15}(?:cillin|mycin"
    r"|profen|prazole|statin|olol|sartan|formin|codone|azepam|caine))"
)
_OF_A_HOME: Final = (
    r"(?:car|bike|driving licen[cs]e|driver's licen[cs]e|licen[cs]e|oven|stove|microwave|freezer|dishwasher|washing"
    r" machine|dryer|blender|food processor|air fryer|garden|yard|balcony|garage|lift|bathtub|tv|television|smartphone"
    r"|passport|degree|computer|laptop|tablet|job|partner|bank account|pension|insurance|kids"
    r"|children|pets|siblings|brothers(?: or sisters)?|sisters|family here|heating|central heating"
    r"|air conditioning|credit card|printer)"
)
_PLACES: Final = (
    r"(?:house|flat|apartment|home|place|kitchen|garden|yard|balcony|bedroom|bathroom|living room|garage|office|studio"
    r"|car|bike|boat|van|village|street|building|neighbou?rhood|school|landlord)"
)
_FEAR: Final = r"(?:(?:very|really|quite|pretty|so|absolutely) )?(?:afraid|scared|terrified|frightened) of"
_SKILLS: Final = r"(?:swim|drive|cook|sing|dance|ski|skate|whistle|knit|sew|ride a (?:bike|bicycle|horse)|read music)"
_HABITS: Final = (
    r"(?:smoke|vape|drive|swim|cook|dance|want (?:more )?(?:kids|children)|drink(?: (?:alcohol|coffee|tea|caffeine|wine"
    r"|beer|milk))?|vote|gamble|travel|fly|eat out|watch (?:tv|television|the news)|wear (?:glasses|contacts|make-?up"
    r"|heels|ties|perfume|jewell?ery)|use social media|own a (?:tv|car|smartphone)|celebrate (?:christmas|birthdays"
    r"|halloween|easter))"
)
_MONEY: Final = (
    r"(?:(?:about|around|roughly|only|just|under|over|at most|up to) )?(?:(?:[$\u00a3\u20ac]|(?:usd|eur|gbp"
    r"|chf) )\d[\d.,]{0,12}(?<!\D)(?:k|m)?|\d[\d.,]{0,12}(?<!\D)(?:k|m| thousand| million)?(?: ?[\u20ac$\u00a3]"
    r"| (?:euros?|dollars?|pounds?|quid|francs|bucks|kronor|kroner|rupees|yen|usd|eur|gbp|chf))?)(?: (?:a|per|each"
    r"|every) (?:day|week|month|year|hour|night))?(?: (?:net|gross|before tax(?:es)?"
    r"|after tax(?:es)?))?(?![\d.,]{0,12}\d)"
)
_COSTS: Final = (
    r"(?:(?:monthly |weekly |annual |yearly |total |travel |food |holiday |wedding )?(?:rent|salary|budget|income"
    r"|mortgage|pension|wage|allowance|deposit|(?:[a-z]{2,20} )?(?:bill|tax)))(?: for (?:the |my |our "
    r"|this )?[a-z]{2,20}(?: [a-z]{2,20})?)?"
)
# What is measured again and again: the newest value holds.
_MEASURED: Final = (
    r"(?:(?:bmi|pulse|cholesterol|blood (?:pressure|sugar)|hba1c|vo2 ?max|gpa|elo"
    r"|handicap|credit score|body fat)|(?:(?:resting|maximum|max) )?heart rate"
    r"|(?:(?:chess|lichess|fide|elo|blitz|rapid|bullet|go|tennis|utr|tournament) )?rating"
    r"|(?:\d{1,3}(?:\.\d)? ?(?:k|km|miles?|m)|half[- ]marathon|marathon|mile|parkrun|deadlift|squat|bench(?: press)?) "
    r"(?:time|pb|pr|personal best|record|max))"
)
_MEASURE: Final = (
    r"(?:(?:about |around |roughly )?\d{1,4}(?:[.,:/]\d{1,3}){0,2}(?: ?(?:%|cm|m|kg|kilos?|lbs?|pounds|stone|feet"
    r"|foot|ft|inches|min(?:utes)?|hours|mins|bpm))?(?: \d{1,2}(?: inches)?)?(?: tall)?)"
)
_WEIGHT: Final = r"\d[\d.]{1,5} ?(?:kg|kilos?|lbs?|pounds|stone)"
_LENGTH: Final = r"\d[\d.,]{0,5} ?(?:cm|m|feet|foot|ft)(?: \d{1,2}(?: inches)?)?(?: tall)?"
_COUNTED: Final = r"(?:an?|one|two|three|four|five|six|seven|\d{1,2})"
_OF_A_FAMILY: Final = (
    rf"(?:twins|twin (?:boys|girls|sons|daughters)|{_COUNTED} (?:(?:young|small|little|old|older|grown-up|adult|teenage"
    rf"|rescue|adopted|black|white|ginger|grey) )?(?:{words.PETS}|goldfish|chicken|hen|son|daughter|kid|child|boy"
    rf"|girl|newborn|baby|toddler"
    rf"|brother|sister|grandchild|grandson"
    r"|granddaughter)(?:s|es|ren)?)(?: (?:and|,) "
    rf"{_COUNTED} (?:{words.PETS}|son|daughter|boy|girl|brother|sister)s?)?"
)
_AGE: Final = (
    r"(?:(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    r"|eighteen|nineteen|twenty|\d{1,3})(?: years? old| months? old)?)"
)
_RELATIVES: Final = (
    rf"(?:my|our) (?:{words.RELATIONS}|{words.PETS}|eldest|oldest|youngest|(?:grand)?(?:kids|children|parents)"
    rf"|in-laws|baby|twins)"
    r"(?:,? (?-i:[A-Z][a-z]{1,20}),?)?"
)
_WILL: Final = r"(?:goal|dream|aim|ambition|(?:new year's )?resolution|plan for (?:this|next) year)"
_AIMS: Final = (
    r"(?:lose (?:weight|\d)|gain (?:weight|muscle)|quit|give up|cut down|cut back|cut out|eat (?:less|more|healthier)"
    r"|drink (?:less|more)|save (?:up|money|for)|get (?:fit|fitter|in shape|pregnant|better at|into)|learn"
    r"|stop (?:smoking|drinking|eating)|sleep (?:more|better)|read more|write a (?:book|novel)|find a (?:job|flat"
    r"|house)|exercise more|spend less|reduce)"
)
_NAMES: Final = r"(?-i:[A-Z][a-z]{1,20}(?:, [A-Z][a-z]{1,20}){0,6}(?:,? (?:and|&) [A-Z][a-z]{1,20})?)"
_TIME_OF_DAY: Final = (
    r"(?:about |around )?(?:noon|midday|midnight|(?:[01]?\d|2[0-4])(?:[:.][0-5]\d)?(?: ?[ap]\.?m\b\.?)?)"
    r"(?: (?:every day|on weekdays|most days))?"
)
_RECURRING: Final = (
    r"(?:stand-?up|daily|scrum|sync|retro(?:spective)?|(?:weekly|team|staff|monday|morning) meeting|practice|training"
    r"|rehearsals?|choir|bedtime|nap(?: time)?|raid(?: night)?|game night|book club|(?:night|day|early|late) shift"
    r"|school run|pick-?up|drop-?off|mass|(?:yoga|dance|swimming|piano|music|english|pilates) (?:class|lesson)s?)"
)
_SHORT_DAY: Final = r"(?:mon|tue|tues|wed|wednes|thur?|thurs|fri|sat|satur|sun)(?:day)?s?"
_HOUR: Final = r"\d{1,2}(?:[:.]\d\d)?(?: ?[ap]m)?"
_OPENING_DAYS: Final = (
    rf"{_SHORT_DAY}(?: ?(?:-|to|and|&|or) ?{_SHORT_DAY})?(?:,? (?:from )?{_HOUR} ?(?:-|to|till|until) ?{_HOUR})?"
)
_DAY_OF_WEEK: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_DAYS: Final = r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days|weekends|mornings|evenings|nights|school holidays)"
_I_HAVE: Final = rf"(?:i|we)(?:{BLANKS}{ADVERB}have(?: got)?|'ve got){BLANKS}"
_OPEN: Final = rf"(?P<value>\S{REST})"
# The clause ends, or goes on with words such as `now` or `and`.
_END: Final = (
    r"(?=\s{0,3}(?:$|[,;.!()\u2013\u2014](?!\d)|-\s|\b(?:and|but|so|now|because|at the moment|right now|these days"
    r"|though|tho|btw|too|with (?:no|two|three|four|\d))\b))"
)
# Words about the moment, which are empty later on.
_OF_NOW: Final = re.compile(
    r"(?<=\s)(?:also|just|even|finally|actually|definitely|honestly|basically|still|mostly|really(?= (?:into"
    r"|speak)))\s",
    re.IGNORECASE,
)
# Words of a request: somebody who wants to learn `this` asks for help and names no goal of their life.
_OF_THE_MOMENT: Final = re.compile(
    r"\b(?:this|that|these|those|it|them|you|your|here|there|how|what|why|more about|find out)\b", re.IGNORECASE
)
_ENDS_OF_GOALS: Final = re.compile(
    r"\s{0,3}(?:[;:()\u2013\u2014]|,|\s-\s|\s(?:because|but|so|and i|which|since|as)\b)", re.IGNORECASE
)
_MAX_WORDS_OF_GOAL: Final = 20
_REGIMES: Final = (
    rf"(?:kosher|halal|keto|paleo|low[- ](?:carb|sugar|sodium|salt)|plant[- ]based|mediterranean|carnivore|fodmap"
    rf"|whole30|gluten[- ]free|dairy[- ]free|sugar[- ]free|intermittent fasting|{words.DIETS})"
)
# Whatever is asked, an agent should not propose what somebody does not eat: every context has it.
_NOT_EATEN: Final = re.compile(
    rf"User (?:(?:can't|cannot|can not|mustn't|is not allowed to) (?:have|eat|touch|tolerate|digest)\b"
    rf"|(?:avoids|tries to avoid|stays away from|steers clear of) (?:eating |drinking |all )?{words.FOODS}"
    rf"|is intolerant\b|(?:is|keeps|eats|follows)(?: (?:on|doing|following|eating))? (?:an? |the )?{_REGIMES})",
    re.IGNORECASE,
)


def _statement(
    match: PatternMatch, quote: str, subject: str | None, *, key: str | None, is_of_health: bool = False
) -> Statement:
    content = about_user(_OF_NOW.sub("", quote))
    is_limit = _NOT_EATEN.match(content) is not None
    return Statement(
        content=f"{content}.", kind="preference" if is_limit else "fact", quote=quote, confidence=0.9,
        importance=0.8 if is_of_health or is_limit else 0.6,
        subject=(subject or as_subject(re.sub(r"^User(?:'s)? ", "", content)))[:120], lifetime="long_term", key=key,
        value=match.whole if key is not None else None, tags=("health",) if is_of_health else (),
    )  # fmt: skip


def _whole_match(subject: str | None = None, *, key: str | None = None, is_of_health: bool = False) -> Maker:
    """Return a function that makes a statement of the whole match. Of one `subject`, one statement holds at a time."""

    def make(match: PatternMatch) -> Statement:
        return _statement(match, match.quote(match.whole), subject, key=key, is_of_health=is_of_health)

    return make


def _named_thing(match: PatternMatch) -> Statement | None:
    """Return a statement without what follows the matched things, if these are named in a few words."""
    if not is_plain(match.covered_value, max_words=6) or re.match(r"(?:the|this)\b", match.covered_value):
        return None
    return _statement(match, match.quote(), None, key=None)


def _health_of_person(match: PatternMatch) -> Statement | None:
    """Return a statement about the health of somebody who is called by name only."""
    name = match.regex_match["who"]
    if (
        name in words.NO_NAMES
        or name.lower() in words.REFERRING_STARTS
        or not is_plain(match.covered_value, max_words=7)
    ):
        return None
    if re.search(words.NO_ALLERGENS, match.value, re.IGNORECASE):
        return None
    statement = _statement(match, match.quote(), match.quote().lower(), key=None, is_of_health=True)
    return replace(statement, content=f"{match.quote()}.")


def _in_own_words(match: PatternMatch) -> Statement:
    """Return a statement in the user's own words."""
    quote = match.quote(match.whole)
    return replace(_statement(match, quote, quote.lower(), key=None), content=f'User said: "{quote}."')


def _usual_time(match: PatternMatch) -> Statement:
    """Return when the user usually does something; of each thing one time holds."""
    return _statement(match, match.quote(match.whole), f"{match.key} when", key=None)


def _of_relative(match: PatternMatch) -> Statement:
    """Return how tall or heavy a relative is; of each relative one value holds."""
    kind = "height" if "tall" in match.whole else "weight"
    return _statement(match, match.quote(match.whole), f"{as_subject(match.regex_match['who'])}'s {kind}", key=None)


def _meeting_time(match: PatternMatch) -> Statement:
    """Return when something recurring takes place, in the user's own words."""
    return replace(_in_own_words(match), subject=f"{match.key} when")


def _told_event(match: PatternMatch) -> Statement:
    """Return an event in the user's own words."""
    return replace(_in_own_words(match), kind="event", lifetime="short_term")


def _amount(match: PatternMatch) -> Statement:
    return _statement(match, match.quote(match.whole), match.key, key=match.key)


def _goal(match: PatternMatch) -> Statement | None:
    value = _ENDS_OF_GOALS.split(match.regex_match["value"])[0].rstrip(" .!")
    if not 0 < len(value.split()) <= _MAX_WORDS_OF_GOAL or _OF_THE_MOMENT.search(value):
        return None
    start = match.regex_match.start("value")
    return _statement(match, match.quote(match.clause.words(start, start + len(value))), None, key=None)


_NEW_WAY: Final = (
    r"(?:use|keep|adopt|go with|switch to|move to|migrate to|drop|stop|support|store|write|deploy|run|raise|lower|name"
    r"|rename|split|pin|host|ship|charge|offer)"
)
_PROJECT: Final = (
    r"(?:[a-z-]{2,20} ){0,2}?(?:database|branch|repo(?:sitory)?|package manager|build tool|formatter|linter"
    r"|test runner|coverage|server|cluster|bucket|namespace|endpoint|queue|framework|port|api|worker|backend|frontend"
    r"|docs|tests|config(?:uration)?|licen[cs]e|version|release day|supplier(?: for [a-z]{2,20})?|stack)"
)
# A name, a number, a path or a tool: "the default branch is develop-2", not "the server is slow".
_EXACT: Final = re.compile(rf"(?-i:\b[A-Z])|\d|\w[/_.]\w|\w-\d|\w-based\b|\b{words.TOOLS}", re.IGNORECASE)
_LIST: Final = re.compile(
    r"[A-Z][\w.+#-]{1,20}(?: \d[\d.]{0,8})?(?:, [A-Z][\w.+#-]{1,20}(?: \d[\d.]{0,8})?){0,6},? and [A-Z][\w.+#-]{1,20}"
)
_RATHER: Final = re.compile(r"\s(?:over|instead_of|rather than)\s")


def _decision(match: PatternMatch) -> Statement | None:
    """Return what was decided, in the user's own words, if it is named: "we decided to use uv instead of pip"."""
    start = match.regex_match.start("value")
    text = match.regex_match["value"].replace(" instead of ", " instead_of ")
    if not _EXACT.search(cut(text)):
        text = text.replace(", not ", " over ")
    listed = _LIST.match(text)
    value = listed[0] if listed is not None else cut(text)
    is_plainly = match.regex_match.groupdict().get("plainly") is not None
    if not is_plain(value, max_words=14) or not (is_plainly or _EXACT.search(value) or _RATHER.search(value)):
        return None
    if not is_plainly and re.match(r"(?:the|an?|this|\w{2,20}ing)\s", value):
        return None
    quote = match.clause.words(0, start + len(value))
    return replace(_statement(match, quote, as_subject(quote), key=None), content=f'User said: "{quote}."')


_HEAD: Final = re.compile(
    rf"\A(?:i|we)(?:(?P<am>'m| am|'re| are)|(?P<have>'ve got|'ve| have got| have(?=\s(?:never|been|gone)\b))|(?P<not>"
    rf" (?:don't|do not))|(?P<not_had> haven't)|(?P<same> (?:can't|cannot|can not|never(?= learn(?:ed|t)\b)"
    rf"|was|graduated|would|used))|(?P<like>'d)"
    rf"|(?= (?:never )?{ADVERB}(?P<verb>[a-z]{{2,20}})))(?=\s)",
    re.IGNORECASE,
)
_THIRD: Final = {"am": " is", "have": " has", "not": " doesn't", "not_had": " hasn't", "like": " would"}


def about_user(clause: str) -> str:
    """Return a clause in the first person as a clause about the user: `User can't swim`."""
    found = _HEAD.match(clause)
    if found is None:
        clause = re.sub(r"\A(?:my|our|the)\s", "", clause, flags=re.IGNORECASE)
        return "User's " + in_third_person(re.sub(r"'s(?= (?:now )?\W?\d)", " is", clause, count=1))
    if found["verb"]:
        start, end = found.span("verb")
        return f"User{clause[found.end() : start]}{with_s(found['verb'])}{in_third_person(clause[end:])}"
    kind = found.lastgroup or ""
    return "User" + _THIRD.get(kind, found[kind]) + in_third_person(clause[found.end() :])


RULES: Final[tuple[Rule, ...]] = (
    *rules(
        _decision,
        rf"(?:(?P<plainly>we)|i)(?:'ve| have)?{BLANKS}{ADVERB}(?:decided|agreed) (?:to {_NEW_WAY}|against){BLANKS}"
        rf"{_OPEN}",
        rf"we(?:'ve| have)?{BLANKS}{ADVERB}(?:chose|chosen|settled on|decided on|agreed on|opted for"
        rf"|standardi[sz]ed on|dropped support for|migrated to|went back to)"
        rf"{BLANKS}{_OPEN}",
        rf"(?:let'?s|let us|we(?:'re| are)) (?:(?:go|going|stick|sticking) with|use|using"
        rf"|adopt(?:ing)?){BLANKS}{_OPEN}",
        rf"we {ADVERB}(?:use|deploy (?:to|on|with)|build with|test with|host on|run on){BLANKS}{_OPEN}",
        rf"we(?:'re| are) on{BLANKS}(?P<value>(?:{words.TOOLS}|(?-i:[A-Z])[a-z+#]{{1,20}}) v?\d[\d.]{{0,8}}){_END}",
        rf"(?:i|we)(?:'ve| have)?{BLANKS}{ADVERB}(?:switched|changed) [a-z-]{{3,20}} from{BLANKS}{_OPEN}",
        rf"we(?:'ve| have)?{BLANKS}{ADVERB}(?:switched|changed|migrated|moved(?= from {words.TOOLS})) from"
        rf"{BLANKS}{_OPEN}",
        rf"we(?:'ve| have)?{BLANKS}{ADVERB}(?P<plainly>stopped|started){BLANKS}(?P<value>"
        rf"(?:making|selling|offering|accepting|using|supporting|taking|doing|charging){BLANKS}\S{REST})",
        rf"we {ADVERB}(?P<plainly>open|close|are open|are closed)(?: now)?{BLANKS}"
        rf"(?P<value>(?:at|from|until|on) \S{REST})",
        rf"we(?:'ve| have)? {ADVERB}(?P<plainly>renamed){BLANKS}(?P<value>[\w.-]{{2,30}} to [\w.-]{{2,30}}){_END}",
        rf"(?:our |the |(?=(?:tests|docs) live)){_PROJECT} (?:(?:is|are)(?: now)?|lives?(?= in)|runs?(?= on| in))"
        rf"{BLANKS}(?!called\b|named\b)"
        rf"(?:(?:at|in|on){BLANKS})?{_OPEN}",
    ),
    *rules(
        _health_of_person,
        rf"(?P<who>(?-i:[A-Z][a-z]{{1,20}}))(?:'s| is) {ADVERB}(?:severely )?allergic to{BLANKS}{_OPEN}",
        rf"(?P<who>(?-i:[A-Z][a-z]{{1,20}}))(?:'s| is) {ADVERB}(?P<value>an? (?:vegan|vegetarian|pescatarian)"
        rf"|(?:lactose|gluten)[ -]intolerant|diabetic|c(?:o)?eliac|teetotal){_END}",
        # A dish may be vegan, and have no eggs, but it eats nothing.
        rf"(?P<who>(?-i:[A-Z][a-z]{{1,20}})) (?P<value>(?:(?:can't|cannot|mustn't|is not allowed to) have"
        rf"|(?:can't|cannot|mustn't|doesn't|does not|is not allowed to) (?:eat|drink|touch|tolerate))"
        rf" (?:any )?{words.FOODS}|never (?:eats|drinks) {words.FOODS}"
        rf"|keeps (?:kosher|halal)){_END}",
        rf"(?P<who>(?-i:[A-Z][a-z]{{1,20}})) has"
        rf" (?P<value>an? (?!(?:slight|mild|bad|severe|serious|terrible|new|strange|weird)\b)[a-z]{{3,20}}"
        rf" allergy){_END}",
    ),
    *rules(
        _whole_match(),
        rf"(?:i|we) {ADVERB}live in(?P<value> an? (?:[a-z-]{{1,20}} ){{0,3}}{words.DWELLINGS}"
        rf"(?: (?:near|without|with|on|outside|by|in) [^,;.]{{1,60}})?){_END}",
        rf"my (?P<key>passport|visa|lease|(?:driving )?licen[cs]e|(?:\w{{1,20}} )?(?:contract|insurance|subscription"
        rf"|membership|warranty)) (?:expires|ends|runs out){BLANKS}(?P<value>in (?:{words.MONTHS} )?20\d\d){_END}",
    ),
    rule(
        rf"i {ADVERB}(?:take|get|catch) the (?P<value>(?:train|bus|tube|metro|tram|ferry|underground"
        rf"|subway) to (?:work|school|uni|university|the office)){_END}",
        _whole_match("goes to work by"),
    ),
    rule(rf"{I_AM}{ADVERB}on the (?P<value>(?:[a-z-]{{2,20}} ){{1,2}}team){_END}", _whole_match("team")),
    rule(
        rf"(?:{I_AM}{ADVERB}(?:doing|on|following|eating)|(?:i|we) {ADVERB}(?:keep|eat|follow)){BLANKS}"
        rf"(?:an? |the )?(?P<value>{_REGIMES}(?: diet)?)(?:{_END}|(?= since\b))",
        _whole_match("diet"),
    ),
    rule(rf"{I_AM}{ADVERB}(?:not )?(?P<value>{_MARITAL}){_END}", _whole_match("marital status")),
    rule(rf"{I_AM}{ADVERB}(?P<value>{_NO_JOB}){_END}", _whole_match("job", key="job")),
    rule(rf"{I_AM}{ADVERB}(?P<value>{_EMPLOYMENT}){_END}", _whole_match("employment")),
    rule(rf"{I_AM}{ADVERB}(?P<value>{words.NATIONALITY}){_END}", _whole_match("nationality")),
    rule(rf"{I_AM}{ADVERB}(?:not )?(?P<value>{words.RELIGION}){_END}", _whole_match("religion")),
    rule(rf"{I_AM}{ADVERB}(?:not )?(?P<value>{_CHARACTER}){_END}", _whole_match()),
    *rules(
        _whole_match(is_of_health=True),
        rf"i (?:can't|cannot|can not|(?:am|'m) not allowed to) (?:take|have){BLANKS}(?P<value>{_MEDICINES}"
        rf"(?: (?:or|and) {_MEDICINES})?){_END}",
        rf"(?:i|{_RELATIVES}) (?:can't|cannot|can not|mustn't|(?:am|is|are) not allowed(?: to have)?)"
        rf" (?:have|eat|do|touch|tolerate){BLANKS}(?:any )?(?P<value>{words.FOODS})"
        rf"(?!.{{0,40}}\b(?:right now|at the moment|now|today|tonight|this|until|before|anymore)\b){_END}",
        rf"(?:i|{_RELATIVES}) {ADVERB}(?:try to |tries to )?(?:avoids?|stays? away from|steers? clear of){BLANKS}"
        rf"(?:eating |drinking |all )?(?!nuts and bolts)(?P<value>{words.FOODS}){_END}",
        rf"(?:i|{_RELATIVES}) {ADVERB}(?:uses?|wears?|needs?|has|have){BLANKS}(?P<value>{_AIDS}){_END}",
        rf"{I_AM}{ADVERB}(?P<value>{_HEALTH}){_END}",
        rf"i {ADVERB}(?:get|suffer from|struggle with|live with){BLANKS}(?P<value>(?:really |very |easily )?(?:(?:sea"
        rf"|car|air|travel|motion)[ -]?sick(?:ness)?|(?:tired|cold|anxious|dizzy|overwhelmed"
        rf"|breathless) (?:very )?(?:quickly|easily|fast)|{words.ILLNESSES}|anxiety|depression|panic attacks|nosebleeds"
        rf"|headaches)(?: easily)?)(?:{_END}|(?= when\b| if\b))",
    ),
    rule(
        rf"(?:i|we) {ADVERB}(?:can't|cannot|don't|do not|never) (?:work|do|make|come in|train|open|teach)(?: on)?"
        rf" (?P<value>{_DAYS}(?: (?:and|or) {_DAYS})?){_END}",
        lambda match: _in_own_words(match) if match.clause.text[:2].lower() == "we" else _whole_match()(match),
    ),
    rule(
        rf"(?P<value>{words.FOODS} (?:makes? me (?:really |very |so |quite )?(?:sick|ill|bloated|throw up|vomit|itch)"
        rf"|gives? me (?:a rash|hives|cramps|migraines?|headaches?|heartburn|stomach aches?))){_END}",
        lambda match: replace(_in_own_words(match), importance=0.8, tags=("health",)),
    ),
    *rules(
        _told_event,
        r"my (?:girlfriend|boyfriend|husband|wife|partner|fianc[e\u00e9]e?) (?P<value>(?:just "
        r"|recently )?(?:broke up with me"
        rf"|left me|dumped me|proposed(?: to me)?)){_END}",
        r"we(?:'ve| have)? (?:just |finally |recently )?(?P<value>(?:bought|sold|closed on|moved into) (?:an?|the"
        r"|our|my)"
        rf" (?:[a-z]{{2,12}} )?(?:house|flat|apartment|home|condo|car|van|boat|farm"
        rf"|plot)(?: in (?-i:[A-Z])\w{{1,20}})?){_END}",
        rf"i (?P<value>(?:didn't|did not) get (?:the|my) (?:job|promotion|role|position|visa|loan|mortgage|flat"
        rf"|house)){_END}",
    ),
    rule(
        rf"(?:my|our) (?:kids|children|sons|daughters|brothers|sisters|siblings|twins|parents|cats|dogs) are"
        rf"(?: called| named)? (?P<value>(?=.{{1,80}} (?:and|&) ){_NAMES}){_END}",
        _whole_match(),
    ),
    rule(
        rf"i {ADVERB}(?P<key>run|jog|cycle|swim|train|work out|exercise|meditate|pray|study|practi[sc]e|shower"
        rf"|walk the dog)"
        rf" (?P<value>(?:in the (?:morning|evening|afternoon)s?|at night|at lunch(?:time)?|(?:before|after)"
        rf" (?:work|school|breakfast|lunch|dinner)))(?:{_END}|(?= now\b| these days\b))",
        _usual_time,
    ),
    rule(
        rf"(?:i {ADVERB}weigh|{I_AM}{ADVERB}(?:(?:back )?(?:down|up) to|(?:back )?at)){BLANKS}"
        rf"(?P<value>{_WEIGHT}){_END}",
        _whole_match("weight"),
    ),
    rule(rf"{I_AM}{ADVERB}(?P<value>{_LENGTH}){_END}", _whole_match("height")),
    *rules(
        _of_relative,
        rf"(?P<who>{_RELATIVES})(?:'s| is){BLANKS}{ADVERB}(?P<value>{_LENGTH}(?<= tall)){_END}",
        rf"(?P<who>{_RELATIVES}) {ADVERB}weighs{BLANKS}(?P<value>{_WEIGHT}){_END}",
    ),
    *rules(
        _amount,
        rf"(?:my|our) (?:current |new )?(?P<key>{_MEASURED}){IS}(?P<value>{_MEASURE})(?! (?:right now|at the moment)\b)"
        rf"{_END}",
        rf"my (?:current |new )?(?P<key>height|weight|waist){IS}(?P<value>(?:{_WEIGHT}|{_LENGTH}|\d\d ?inches)){_END}",
    ),
    rule(
        rf"(?:(?:the|our|my) )?(?P<key>(?:[a-z-]{{2,20}} ){{0,2}}?{_RECURRING})(?:'s| is| starts| begins)(?: now)?"
        rf"(?P<value> (?:(?:on |every )?{_DAY_OF_WEEK}s?,? )?at {_TIME_OF_DAY}(?: on {_DAY_OF_WEEK}s)?){_END}",
        _meeting_time,
    ),
    rule(
        rf"{I_AM}on{BLANKS}(?P<value>[$\u00a3\u20ac]?\d[\d.,]{{1,8}}k|(?=.{{1,30}}(?:year|month)){_MONEY}){_END}",
        _whole_match("salary"),
    ),
    *rules(
        _in_own_words,
        rf"we {ADVERB}(?P<value>(?:ship|release|deploy|meet|train|rehearse|travel) (?:every|each|once an?|twice an?)"
        rf" (?:two |three |four |other |second )?(?:[a-z]{{3,6}}day|days?|weeks?|months?|quarter|year)){_END}",
        # "We're closed Friday" may be about this Friday alone.
        rf"we(?:'re| are) {ADVERB}(?=.{{1,60}}(?:days\b|\d|-|&|\b(?:to|and|or|but)\b))"
        rf"(?P<value>(?:shut|closed|open) (?:on |from )?{_OPENING_DAYS}"
        rf"(?:(?: now)?,? (?:and|but) (?:shut|closed|open) (?:on |from )?{_OPENING_DAYS})?){_END}",
        rf"{LANGUAGE} is my (?P<value>(?:first|native|second|third) language){_END}",
        r"(?:we|me and [a-z]{2,12}|(?!you\b)[a-z]{2,12} and (?:i|me))(?:'re| are) (?P<value>getting"
        rf" (?:married|divorced)|having a baby|expecting(?: a baby)?){_END}",
        rf"we(?:'re| are) (?P<value>an? (?:family|household) of (?:two|three|four|five|six|seven|eight|\d{{1,2}})"
        rf"|(?:all |both )?{words.CONDITIONS}(?: at home)?|a couple|renting|married|divorced|engaged){_END}",
    ),
    *rules(
        _named_thing,
        rf"(?:my|our) (?:[a-z'-]{{2,20}} ){{0,2}}(?:thesis|dissertation|phd|doctorate|research|novel|book|memoir|blog"
        rf"|podcast|channel|newsletter|start-?up|talk) is (?:about|on){BLANKS}"
        rf"(?!(?:done|finished|ready|to|fire|hold|track|time|\w{{3,6}}day)\b){_OPEN}",
        rf"we(?: have|'ve got| have got) an?{BLANKS}(?P<value>(?:[a-z-]{{1,20}} ){{0,2}}{_OF_A_HOME}\b{REST})",
        rf"{I_AM}{ADVERB}doing my (?:bachelor|master|phd|doctoral)'?s? (?:thesis|dissertation)"
        rf" (?:on|about){BLANKS}{_OPEN}",
        rf"i used to{BLANKS}(?:be (?=an?{BLANKS}{words.PROFESSIONS}\b)|(?:work|live|study) (?:as|at|for|in|near|with) "
        rf"|(?:play|teach|own|drive|run) ){_OPEN}",
        rf"i was {ADVERB}diagnosed with{BLANKS}{_OPEN}",
        rf"{I_AM}{ADVERB}{_FEAR}{BLANKS}{_OPEN}",
        rf"{I_AM}{ADVERB}(?:the|an?) (?:new )?(?:[cC][etfpoi]o|vp|head|director|(?:co-?)?(?:owner|founder)|manager"
        rf"|chair|president"
        rf"|captain|treasurer|secretary|lead) (?:of|at|for){BLANKS}{_OPEN}",
        rf"{I_AM}{ADVERB}on (?:a|the) waiting list for{BLANKS}{_OPEN}",
        rf"i {ADVERB}graduated (?:in|from){BLANKS}{_OPEN}",
        rf"{I_AM}{ADVERB}(?:(?:really |very |quite |pretty )?(?:good|bad|terrible|hopeless) (?:at|with)"
        rf"|not allowed(?: to)?|(?:really |very )?into|obsessed with|intolerant (?:to|of)|(?-i:married to(?= [A-Z]))"
        rf"|fluent in){BLANKS}{_OPEN}",
        rf"i (?:can't|cannot|can not){BLANKS}(?:tolerate|digest|handle|stomach){BLANKS}{_OPEN}",
    ),
    *rules(
        _whole_match(),
        rf"i {ADVERB}(?:speak|know|understand){BLANKS}(?P<value>(?:a (?:bit|little) of "
        rf"|(?:[a-z]{{1,12}} ){{0,2}}){LANGUAGE}"
        rf"(?:(?:,| and|, and| but only) (?:[a-z]{{1,12}} ){{0,3}}{LANGUAGE}){{0,5}}"
        rf"(?: (?:fluently|natively|badly|well|at home|at work|with my [a-z]{{3,20}})){{0,2}}){_END}",
        rf"{I_AM}{ADVERB}on (?P<value>(?:an? )?(?:mac(?:os)?|windows(?: 1[01])?|linux|ubuntu|android|iphone)){_END}",
        rf"(?:my|our) (?:team|company|band|class|department) has (?P<value>(?:{_COUNTED}|\d{{1,4}}) (?:people"
        rf"|members|employees|players"
        rf"|engineers|developers)){_END}",
        rf"i {ADVERB}have (?P<value>[a-z]{{3,15}}(?: [a-z]{{3,15}})? (?:every|each) (?:other |second |third )?"
        rf"(?:day|week|month|(?:mon|tues|wednes|thurs|fri|satur|sun)day)){_END}",
        rf"i (?:can't|cannot|can not|never learn(?:ed|t) (?:how )?to){BLANKS}(?P<value>{_SKILLS}){_END}",
        rf"i {ADVERB}(?:don't|do not|never){BLANKS}(?P<value>{_HABITS}){_END}",
        rf"i(?:'ve| have) never{BLANKS}(?P<value>smoked|driven|flown|skied|voted|been married){_END}",
        rf"i (?:don't|do not) use{BLANKS}(?P<value>(?-i:[A-Z])[\w.]{{1,20}}(?: (?-i:[A-Z])[\w.]{{1,20}})?){_END}",
        rf"(?:i|we)(?:(?: have|'ve)(?: got)? no| (?:don't|do not) (?:have|own)(?: an?| any)?| haven't(?: got)?(?: an?"
        rf"| any)?){BLANKS}(?P<value>{_OF_A_HOME}){_END}",
        rf"{_I_HAVE}(?P<value>{_OF_A_FAMILY}(?::|,? called|,? named) {_NAMES}){_END}",
        rf"{_I_HAVE}(?P<value>{_OF_A_FAMILY})(?:{_END}|:)",
        rf"i {ADVERB}(?:usually )?(?:get up|wake up|go to (?:bed|sleep)|start work|finish work|leave for work|have"
        rf" (?:breakfast|lunch|dinner))(?P<value> (?:at|around|from|before|by|about)"
        rf" {_TIME_OF_DAY})(?=\s{{0,3}}(?:$|[,;.!()]))",
        rf"(?:i|we) {ADVERB}(?:earn|make|pay){BLANKS}(?=(?:about |around |roughly )?[\d.,]{{3}}"
        rf"|.{{1,40}}(?:[$\u00a3\u20ac]|euro|dollar|pound|quid"
        rf"|franc))(?P<value>{_MONEY}(?:(?<=day|ear|eek|nth|our)| (?:in|for) (?:rent|childcare|the mortgage|maintenance"
        rf"|the flat|it a month))){_END}",
    ),
    rule(rf"(?:my|our|the(?= (?:rent|mortgage)\b)) (?P<key>{_COSTS}){IS}(?P<value>{_MONEY}){_END}", _amount),
    *rules(
        _named_thing,
        rf"(?:my|our) (?:team|company|employer|firm|department|office|school|university) is (?:based"
        rf"|located) in{BLANKS}{_OPEN}",
        rf"(?:my|our) {_PLACES}(?: (?:has no|has an?|doesn't have|does not have|is (?:in(?= (?-i:[A-Z]))|near"
        rf"|by))){BLANKS}{_OPEN}",
        rf"{_RELATIVES}(?:'s| is| are){BLANKS}{_FEAR}{BLANKS}{_OPEN}",
        rf"{_RELATIVES} (?:doesn't|does not|can't|cannot){BLANKS}(?:eat|drink){BLANKS}{_OPEN}",
    ),
    *rules(
        _whole_match(),
        rf"{_RELATIVES}(?:'s| is| are){BLANKS}(?P<value>(?:an? )?(?:{words.CONDITIONS}|{_HEALTH}|{_MARITAL}|{_NO_JOB}"
        rf"|{_EMPLOYMENT}|{words.RELIGION}|{words.NATIONALITY}|{_AGE}(?:(?:, {_AGE}){{0,6}},? and {_AGE})?)){_END}",
        rf"{_RELATIVES} (?:has|have|suffers from){BLANKS}(?P<value>{words.ILLNESSES}|dementia"
        rf"|alzheimer's(?: disease)?|cancer|an? [a-z]{{3,20}}"
        rf" allergy){_END}",
    ),
    *rules(
        _goal,
        rf"my (?:(?:main|big|biggest|ultimate|personal) )?{_WILL} is to{BLANKS}{_OPEN}",
        rf"i(?: {ADVERB}want|'d (?:like|love)| would (?:like|love)) to (?=[^,]{{3,60}}\b(?:someday|one day)\b){_OPEN}",
        rf"i(?: {ADVERB}want|'d (?:like|love)| would (?:like|love)) to learn(?! (?:about|more|something|anything"
        rf"|the basics)){BLANKS}(?:how )?{_OPEN}",
        rf"{I_AM}{ADVERB}trying to{BLANKS}(?P<value>{_AIMS}\b{REST})",
    ),
)
