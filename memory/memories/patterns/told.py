"""Finds statements about people's lives by the form of the sentence: what they did, have, are and plan.

A sentence counts if it is about the speaker (`I`, `my sister`), states something in a form of which the tense can be
seen, and can be understood by itself: a pronoun or a `that` which refers to something said before it rules it out. The
subjects are not listed: closed classes of words (pronouns, auxiliaries, irregular verbs, verbs of thought) say what
form a sentence has.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.matching import COVER, Anchored, Sentence, Statement, as_subject
from reverie.clock import from_micros
from reverie.memories.types import MemoryKind
from storage.recall.claims import BY_ITSELF, VALUABLES
from storage.recall.days import FOR_WHICH, IRREGULAR_PAST, Days, begins_then, days_in, end_of_day
from storage.recall.turns import turns_of

_MIN_WORDS: Final = 3
_MAX_WORDS: Final = 36
_ADVERB: Final = (
    r"(?:also|just|finally|already|still|now|even|only|often|always|both|once|never|ever|first|sometimes|then"
    r"|[a-z]{2,20}l(?:y{1,2}|ey))"
)
_ADVERBS: Final = rf"(?:{_ADVERB}\s{{1,3}}){{0,3}}(?!{_ADVERB}\b)"
_PAST: Final = (
    r"(?:(?!need|unneed|seed|feed|speed|exceed|succeed\b)[a-z]{2,20}ed"
    rf"|(?:over|mis|under|re)?(?:{'|'.join(IRREGULAR_PAST)}))"
)
_PARTICIPLE: Final = (
    r"(?:been|become|begun|broken|chosen|come|done|drawn|drunk|driven|eaten|fallen|flown|forgotten|given|gone|grown"
    rf"|known|ridden|run|seen|shown|sung|spoken|stolen|swum|taken|thrown|torn|woken|worn|written|gotten|{_PAST})"
)
# Verbs of thought and talk say nothing about a life; trying, needing and looking for something do not last.
_OF_THOUGHT: Final = (
    r"(?:think|thought|know|knew|guess(?:ed)?|hope[ds]?|feel|felt|mean|meant|see|saw|understood|understand|agreed?"
    r"|believed?|wish(?:ed)?|need(?:ed)?|want(?:ed)?|wonder(?:ed)?|suppose[d]?|bet|said|say|told|tell|heard|hear"
    r"|ask(?:ed)?|mentioned|mention|noticed|notice|realized|realised|realize|realise|remember(?:ed)?|forgot|forget"
    r"|figured?|tried|try|look(?:ed)?|seem(?:ed)?|appreciated?|enjoy(?:ed)?|loved?|liked?|hated?|imagined?|considered"
    r"|consider|assumed?|expect(?:ed)?|decided|decide|got|get|can|could|will|would|should|must|may|might|do|did|does"
    r"|don't|didn't|cannot|can't|won't|couldn't|wouldn't|shouldn't|(?:do|did|ca|wo|does|could|would|should)nt"
    r"|reckon(?:ed)?|doubt(?:ed)?|care[ds]?|promised?|swear|swore|thank(?:ed)?|missed|miss|admire[ds]?|admit"
    r"|apologi[sz]e|respond|reply|rec+om+end|suggest|read|put|let|call|called|meant|created?|added|add|changed?"
    r"|updated?|copied|installed|noted|wanna|gotta|just|really|am|was|were|have|had)"
)
_NO_LIFE: Final = (
    r"(?:trying|looking|waiting|thinking|wondering|considering|going|hoping|feeling|getting|having|being|sure|asking|talking"
    r"|saying|referring|struggling|planning|wanting|guessing|assuming|doing|leaning|seeing|dying|meaning|keeping"
    r"|enjoying|loving|figuring|needing|hearing|finding|missing|noticing|dealing|putting|giving|asking|running into"
    r"|starting to|aiming|debating|deciding)"
)
_DOING_NOW: Final = rf"(?!{_NO_LIFE}\b)[a-z]{{2,20}}ing"
# Verbs of what people do for months or years. Other verbs, as in `I'm pasting the script`, are about this moment.
_OCCUPATION: Final = (
    r"(?:work|study|train|teach|tutor|coach|mentor|volunteer|writ|build|develop|design|run|manag|lead|rais|renovat"
    r"|remodel|restor|prepar|sav|recover|expand|launch|open|start|mov|relocat|liv|rent|stay|dat|appl|interview|search"
    r"|research|collect|grow|attend|tak|practi[cs]|rehears|perform|organi[sz]|host|film|record|publish|translat"
    r"|transition|track|follow|experiment|blog|paint|knit|carry|turn|juggl|pursu|speciali[sz]|major|retir|switch|car"
    r"|foster|adopt|sell|learn|train|compos|direct|produc|invest|play|us|own|speak|driv|rid|belong|represent"
    r"|breed|sing|danc|cook|bak|sew|garden|hik|climb|swim|cycl|jog|meditat|commut|travel|support|avoid|struggl|wear"
    r"|drink|smok|earn|ow|shar|mak|lov|serv|tend|listen|read|watch|decorat|redecorat|buy|advertis|perfect|incorporat)"
)
# After these verbs one word says enough: "I play the cello", "I work nights".
_WAYS = """
plays wears rides cycles collects sings teaches coaches studies drives manages commutes volunteers works lives owns
breeds rents mains tutors knits paints skis surfs climbs bakes practises practices
"""
_WAYS_OF_LIFE: Final = frozenset(_WAYS.split())
# These verbs say nothing by themselves. The verbs below say enough with words for how often: "I run every morning".
_OF_ANYTHING: Final = frozenset(("goes", "does", "meets", "sees", "calls"))
_DAILY = "runs reads cooks swims walks hikes jogs sleeps fasts skips meditates prays"
_HABITS: Final = _OF_ANYTHING | frozenset(_DAILY.split())
# In the simple present, these verbs are about a game or a story: `I give the wizard a coin`.
_NARRATED: Final = (
    r"(?:give|hand|throw|nod|smile|stare|turn|enter|leave|reach|pull|push|grab|point|refuse|shine|choose|attack|cast"
    r"|pick|approach|walk|step|stand|sit|jump|open|close|move|head|continue|start|begin|drop|raise|shoot|hit|touch"
    r"|search|follow|examine|inspect|equip|click|paste|upload|submit|enter|select|type)"
)
# Words for how often, how long or since when somebody does something: then it is more than a matter of the moment.
_REPEATED: Final = re.compile(
    r"\b(?:always|never|usually|often|sometimes|regularly|daily|weekly|monthly|yearly|every|each|(?:a|per) (?:day|week"
    r"|month|year|night)|on (?:mon|tues|wednes|thurs|fri|satur|sun)day(?:s| (?:morning|afternoon|evening|night)s)"
    r"|most (?:days|nights|mornings|evenings|weekends|weeks)|since|for (?:\w{1,12} ){0,3}(?:days|weeks|months|years"
    r"|a (?:week|month|year|decade))|lately|recently|these days|nowadays|for (?:work|fun|a living)|in my (?:free"
    r"|spare) time)\b",
    re.IGNORECASE,
)
# `I've settled on the budget`: only somebody who followed the conversation knows which budget.
_KNOWN_TO_BOTH: Final = re.compile(
    r"\s(?:(?:(?!learning)\w{2,12}ing|up|out|on|through|over|with|into|for|down|off|to)\s){0,3}"
    r"the\s(?!\w{1,20} (?:of|at|in|from)\b)[a-z0-9]"
)
_WEEKLY: Final = re.compile(
    r"\bon (?:mon|tues|wednes|thurs|fri|satur|sun)day (?:morning|afternoon|evening|night)s\b", re.I
)
_DOING: Final = Anchored(
    r"(?:been\s)?(?:(?:just|really|also|even|mostly|only)\s){0,2}(?P<verb>[a-z]{2,20}ing\b(?:\s(?:out|off|down|back"
    r"|over))?)"
)
_OBJECTLESS: Final = re.compile(
    r"\b(?:playing|using|doing|watching|making|taking|having|wearing|collecting|following|trying)\s(?:for|since"
    r"|lately)\b"
)
_SECOND_VERB: Final = re.compile(
    r"\s(?:and|or)\s(?:also |then |always |usually |often ){0,2}(?:try|go|do|use|like|want|have|keep|make|take|get|need"
    r"|work|live|love|play|read|write|eat|drink|run|watch|teach|study|move|come|give|see|find|help|buy|cook|spend)\b",
    re.IGNORECASE,
)
# Words that do not tell what was done: a sentence without other words is worthless later on.
_EMPTY: Final = (
    r"(?:the|and|for|our|out|was|had|got|has|not|but|all|any|new|big|way|one|off|too|back|great|good|well|hard|busy"
    r"|fine|amazing|awesome|nice|fun|happy|excited|bored|tired|stressed|inspired|huge|usual|blast|lately|recently|today"
    r"|really|pretty|very|much|many|wonderful|project|details?|stuff|things|work|working|something|with|from|into|about"
    r"|their|them|been|have|just|some|over|around|lots|mix|fan|bunch|couple|progress|world|life|days?|difference|share"
    r"|start|started|time|times|year|years|week|weeks|month|months|ages|forever|also|always|actually|currently|city"
    r"|town|area|country|yesterday|last|next|two|three|four|five|six|ten|under|every|positive|forward|ahead|pushing"
    r"|moving|looking|facing|faced|challenges?|hurdles|kinds|true|self|living|dreams?|ambitions|chasing|learning|ton"
    r"|tons|crossing|fingers|confession|growing|little|skeptical|sceptical|weighing|options|using|app|browsing|online"
    r"|local|staying|stayed?|focused|focusing|motivated|memory|memories|moments?|this|definitely|tomorrow|tonight"
    r"|weekend|morning|night|evening|afternoon|passion|passionate|proud|grateful|thankful|lucky|different|various|news"
    r"|issue"
    r"|techniques?|catch-up|frenzy|roll|crazy|diverse|least|limited|ready|funny)"
)

_SUBJECT: Final = r"(?P<subject>i)"
_RELATIVE: Final = (
    rf"(?P<subject>(?:(?:my|our) (?P<who>{words.RELATIONS}|{words.PETS}|kids|twins|children|grandkids|grandchildren"
    r"|parents|in-laws|family|grandparents)"
    r"|the (?:kids|children|boys|girls|twins|dog|cat|baby|cleaner|nanny|babysitter|landlord|landlady))"
    r"(?: [A-Z][a-z]{1,20})?"
    rf"(?:'s (?:{words.RELATIONS}|{words.PETS}))?)"
)
_REST: Final = r"(?P<rest>\s\S.{0,400})"
_DID: Final = Anchored(
    rf"{_SUBJECT}\s{{1,3}}{_ADVERBS}(?!{_OF_THOUGHT}\b)(?P<verb>gave up|grew up (?:on|by|near|with|without|speaking"
    rf"|in(?=\s(?-i:[A-Z])))|{_PAST})\b{_REST}"
)
_WAS: Final = Anchored(
    rf"{_SUBJECT}\s{{1,3}}{_ADVERBS}(?P<verb>was (?:in|at|born(?! yesterday)|raised|brought up"
    rf"|adopted)|did(?= my (?:phd|degree|masters?|master's|bachelor's|mba|training|apprenticeship|residency)\b)|had"
    rf"|got(?! to\b))\b{_REST}"
)
_ARRANGED: Final = re.compile(
    rf"\b(?:signed up|registered|enrolled|booked|reserved|(?:got|bought) (?:\w{{1,12}} )?tickets)\b.{{1,80}}"
    rf"\bin {words.MONTHS}(?! \d)",
    re.IGNORECASE,
)
# The day behind these is that of what was booked: "I booked a table for 8 on Saturday".
_BOOKED: Final = re.compile(
    r"\b(?:booked|reserved|arranged)\b.{1,60}\bfor (?:\d|two|three|four|five|six|lunch|dinner|breakfast|brunch)",
    re.IGNORECASE,
)
# Words about birth and origins: such facts stay true.
_ORIGIN: Final = re.compile(r"\b(?:was (?:born|raised|brought up|adopted)|grew up|did my)\b", re.IGNORECASE)
_VEHICLE: Final = r"(?:car|van|truck|motorbike|motorcycle|camper|scooter|boat)"
# Events that are worth keeping even without a day.
_MILESTONE: Final = re.compile(
    r"\Ai (?:(?:just|finally|recently|sadly|also|actually) ){0,2}(?:(?:found|lost) (?:my|their)"
    rf" {VALUABLES}|got an? (?!hot )(?:[\w-]{{2,20}} )?(?:{words.PETS}|{_VEHICLE}){BY_ITSELF}"
    rf"|got into (?!old )(?:[\w-]{{2,20}} ){{0,2}}(?:school|college|uni\w{{0,7}}){BY_ITSELF}"
    r"|went (?:vegan|vegetarian|sober|freelance|part[- ]time|back to (?:school|uni\w{0,7}|college))(?! for\b)"
    r"|signed up for (?:an?|the) [\w-]{2,20}|(?:accepted|turned down) (?:the|an?) (?:job|offer)|finished (?:my|their)"
    r" (?:thesis|dissertation|degree|phd|course|training|apprenticeship|book|novel|chemo\w{0,8}|studies)"
    r"|got (?:promoted|married|divorced|engaged|laid off"
    rf"|fired|accepted|the (?:job|promotion|role|position|visa|flat|apartment|house|scholarship){BY_ITSELF}"
    r"|an? (?:new )?(?:[\w-]{2,20} )?job)|(?:broke|split) up\b(?! the)|separated\Z"
    r"|quit (?:(?:my|their) job|\w{2,20}ing|\w{3,20}(?=\W?\Z))"
    r"|lost (?:my|their) job|sold (?:my|our|their|the(?= (?:car|house|flat|bike|boat|van)\b)) \w{2,20}"
    r"|(?:passed|failed) (?:my|their) [\w ]{0,30}(?:test|exams?|theory)|gave up \w{2,20}ing)\b",
    re.IGNORECASE,
)
_HAS_DONE: Final = Anchored(
    rf"{_SUBJECT}(?:'ve|\s{{1,3}}have)\s{{1,3}}{_ADVERBS}(?!(?:got|had|{_OF_THOUGHT})\b)(?P<verb>{_PARTICIPLE})\b"
    rf"(?:(?<=started)(?=\s\w{{2,20}}ing\s(?!to\b))|(?!\s{_ADVERBS}(?:so|into|able|there|{_EMPTY}|{_NO_LIFE})\b)){_REST}"
)
# Without a day, a sentence with `had` or `was in` needs a year.
# With these verbs one word says enough: "has started learning the oboe".
_BEGUN: Final = Anchored(r"user (?:has )?(?:(?:just|recently) )?(?:started|quit) \w{2,20}ing\b")
# What stands before the speaker's deed in a content: "User ", "User said: "my wife and I ".
_TELLER: Final = re.compile(r"\AUser said: \"(?:we|.{2,40} and (?:i|me|\w{2,20})) |\AUser ", re.IGNORECASE)
_IN_A_YEAR: Final = re.compile(r"\b(?:in|since|from) (?:19|20)\d\d\b")
_IS: Final = Anchored(
    rf"{_SUBJECT}(?P<verb>'m|\s{{1,3}}am)\s{{1,3}}(?!(?:officially|literally|basically|practically|virtually)\b)"
    rf"{_ADVERBS}(?=an?\s(?!{_EMPTY}\b|bit\b|lil|big)"
    rf"|{_DOING_NOW}\b)(?P<rest>\S.{{0,400}})"
)
_HAS: Final = Anchored(
    rf"{_SUBJECT}\s{{1,3}}{_ADVERBS}(?P<verb>have|own)\b(?=\s(?:an?|two|three|four|five|six|\d{{1,2}})\s)"
    r"(?!\s\w+ (?:[a-z]+ )?(?:pic|photo|picture|tab|window|error|bug|option)s?\b|\s(?:(?!regular|weekly|monthly"
    r"|daily)\w+ ){1,3}(?:meeting|appointment|call"
    rf"|exam|interview|flight|deadline|shift|lesson|class|date)s?\b){_REST}"
)
# What recurs or is usual, after `I'm`: "I'm off on Mondays", "I'm usually asleep by ten".
_REGULARLY: Final = Anchored(
    rf"{_SUBJECT}(?P<verb>'m|\s{{1,3}}am)(?=\s(?:usually|normally|generally|.{{1,60}}(?:on (?:(?:mon|tues|wednes|thurs"
    r"|fri|satur|sun)day|weekday|weekend)s|at weekends|every (?:other |second )?(?:[a-z]{3,6}day|week|weekend"
    rf"|month|night|morning|summer|winter))\b))(?!\s(?:{_NO_LIFE}|not|excited|happy|glad|so)\b){_REST}"
)
_DAY_AND_MONTH: Final = re.compile(r"\bon \d{1,2}[/.]\d{1,2}\b")
_HAS_SOMEBODY: Final = re.compile(
    rf"User has (?:an?|two|three|four|five|six|\d) (?:{words.PETS}|{_VEHICLE}|piano|guitar|violin|cello"
    r"|employee|flatmate|son|daughter|brother|sister"
    r"|kid|child|grandchild|grandson|granddaughter|niece|nephew)(?:s|ies|ren)?\."
    r"|User's (?:\S{1,30} ){1,3}lives? with them\."
)
# In these places people live in a manner of speaking.
_NOT_AT_HOME: Final = (
    r"(?:for\b|under (?:a|my) rock\b|on (?:mars|the moon)\b|in (?:the (?:gym|office|lab|library|past|moment)|fear|hope"
    r"|peace|denial)\b)"
)
_DOES: Final = Anchored(
    rf"{_SUBJECT}\s{{1,3}}{_ADVERBS}(?!play the (?:victim|fool|part|role|game|hero|villain|devil|field"
    rf"|system)\b)(?!{_OF_THOUGHT}\b|{_PAST}\b|own\b|are\b|live {_NOT_AT_HOME}|.{{1,40}} in my sleep\b"
    rf"|[a-z]{{1,12}}(?:ept|ought|aught|oke|rew)\b)(?P<verb>[a-z]{{3,20}})\b{_REST}"
)
# With words that say how often: "I go to church on Sundays", "I run every morning", "I usually have lunch at noon".
_HABIT: Final = Anchored(
    rf"{_SUBJECT}\s{{1,3}}(?:(?P<often>usually|always|normally|generally|often|regularly|only|mostly|mainly)\s)?"
    rf"(?P<verb>go|do|run|read|meet|see|call|visit|eat|cook|skip|fast|sleep|(?(often)have|have(?= (?:breakfast|brunch"
    rf"|lunch|dinner|coffee|therapy|practice|training|lessons?|class)\b)))\b{_REST}"
)
_PLANS: Final = Anchored(
    rf"{_SUBJECT}(?P<verb>(?:'m|\s{{1,3}}am)\s{{1,3}}{_ADVERBS}(?:going to|gonna|planning (?:to|on|a|an)|(?:going"
    rf"|having|getting|(?:doing|giving)(?=\s(?:the|an?)\s(?:(?-i:[A-Z])|.{{2,40}}\son\s))"
    rf"|seeing(?=\s(?:dr|my|the|an?)\b)|{_DOING_NOW})(?! ready))"
    rf"|(?:'ll|\s{{1,3}}will)\s{{1,3}}{_ADVERBS}(?:be )?(?!let|keep|look|be\b)[a-z]{{2,20}}"
    rf"|\s{{1,3}}{_ADVERBS}(?:plan|have) (?:to|on|a|an|my)|(?:'ve|\s{{1,3}}have)\s(?:got (?:to|an?)"
    rf"|(?:decided|arranged|planned|signed up|enrolled|registered) (?:to|for)))\b{_REST}"
)
# With a day in the future these are plans, too: "I'm on call next week", "I start on Monday", "my last day is 3 May".
_WILL_DO: Final = Anchored(
    rf"{_SUBJECT}\s{{1,3}}{_ADVERBS}(?!(?!see\s(?:dr|my|the|an?)\b){_OF_THOUGHT}\b|{_PAST}\b|own\b|are\b)(?P<verb>[a-z]{{2,20}})\b{_REST}"
)
_WILL_BE: Final = Anchored(
    rf"{_SUBJECT}(?P<verb>'m|\s{{1,3}}am)(?=\s(?:on|in|at|off|away|back|out|free|busy)\b){_REST}"
)
_OF_THING: Final = Anchored(
    r"(?P<subject>(?:(?:my|our) [a-z]|the (?:[\w-]{2,20} ){0,2}?(?:wedding|funeral|baby|party|move|operation|surgery"
    r"|exam|interview|christening|graduation|concert|holiday|trip|flight|train|deadline|meeting|appointment|movers|shop"
    r"|store|school|course|lease|physio|haircut|test|scan|check-?up|viewing|mri|x-?ray|vaccination|dinner|lunch|rehearsal"
    r"|class|lesson|gig|shift|thesis)\b)"
    r"[\w' -]{0,60}?)\s(?P<verb>is|are|comes?(?= on\b)"
    r"|takes place|starts|begins|ends|opens|closes|leaves|arrives|expires|runs out"
    rf"|(?:was |is |has been |got )?(?:moved|postponed|rescheduled|pushed|delayed)(?: back| forward)? to)\b{_REST}"
)
_IS_HOLIDAY: Final = re.compile(r"\b(?:on (?:holidays?|vacation|annual leave)|off|away)(?= from\b)", re.IGNORECASE)
_HOLIDAY: Final = timedelta(days=30)
_YEARLY: Final = re.compile(r"\b(?:birthday|anniversary)(?=\s(?:is|falls))", re.IGNORECASE)
_GOT: Final = re.compile(
    r"\A(i|we)(?:'ve|\shave)\sgot\s(?=(?:an?(?! (?:bunch|lot|mix|pretty|packed|few|bit))|two|three|four|five|six"
    r"|\d{1,2})\s)",
    re.IGNORECASE,
)
# `We` and its verb, which `_AS_ONE` turns into the forms after `I`.
_ME_TOO: Final = rf"(?:(?:my|our) (?:{words.RELATIONS})(?: (?-i:[A-Z])[a-z]{{1,20}})?|(?-i:[A-Z])[a-z]{{1,20}})"
_WE: Final = Anchored(
    rf"(?:we|(?:{_ME_TOO}|[a-z]{{2,12}}) and (?:i|me)|me (?:and|n|&) (?:{_ME_TOO}"
    r"|(?!the\b)[a-z]{2,12}(?=\s(?:are|have|broke|split|got|moved|went|just)\b)))"
    r"(?P<verb>'re|'ve|'ll|\s(?:are|were))?(?=\s)"
)
_WE_ARE: Final = Anchored(
    r"i(?:'m| am) (?:both |now )?(?:moving (?:in|to)|renovating|building|expecting|adopting|fostering|saving|raising)\b"
)
_AS_ONE: Final = {"'re": "'m", " are": " am", " were": " was"}
_OF_RELATIVE: Final = Anchored(
    rf"{_RELATIVE}\s{{1,3}}{_ADVERBS}(?!(?:thinks?|says?|said|called|rang|phoned|texted|emailed|messaged|knows?|wants?|told|tells?|asks?|asked|thought|would|could"
    rf"|can|will|may|might|should)\b)(?P<verb>(?:is|are)(?=\s(?:an?|in|at|from|on|named|called|allergic|married|vegan|vegetarian"
    rf"|\d{{1,2}}(?! (?:minutes|hours|days)\b)|getting|{_DOING_NOW})\b)|(?!is|was|has been|motivates|inspires|supports"
    rf"|means)[a-z]{{2,20}}s|{_PAST}|have|live|work|love|go|start|turn|come|arrive)\b{_REST}"
)
_OF_THE_MIND: Final = (
    r"(?:want|need|think|feel|know|care|remember|see|hear|believe|understand|wish|mind|worry|matter|trust|wait|stand"
    r"|take it|bear|cope|do)"
)
# Something that no longer holds: the new memory supersedes the memory that said that it holds.
_ENDS: Final = Anchored(
    rf"{_SUBJECT}(?:(?P<be>'m|\s{{1,3}}am)\s(?P<no_longer_be>no longer|not)|(?P<have>\s{{1,3}}have) no"
    rf"|\s{{1,3}}(?P<do>don't|do not|can't|cannot)|\s{{1,3}}(?P<no_longer>no longer))\s(?!{_OF_THE_MIND}\b)"
    r"(?P<rest>\S.{2,120}?)(?P<any_more>\s(?:any ?(?:more|longer)|after all))?"
    r"(?(any_more)(?=,|\Z|\s(?:just|only)\b)|\Z)"
)
_DOES_NOT: Final = {"don't": "does not", "do not": "does not", "can't": "cannot", "cannot": "cannot"}
# Where another thought begins: the rest of the sentence does not belong to the first thought.
_NEXT: Final = re.compile(
    r"\s{0,3}(?:[;()\u2013\u2014\u2026]|:(?!\d)|\s-{1,2}\s|,?\s(?:and|but|so|because|cuz|since|as|though|although|while"
    r"|which|who|where|plus|yet|or|when|whenever|if)\s(?:i|i'm|i've|i'd|i'll|it|it's|its|that|that's|this|they|he|she"
    r"|we|we're|we've|you|there|what|my|now|then|the|was|is|are|were|had|am|have|can|could|not|just|so|really"
    r"|[a-z]{2,20}ed|her|his|their|our|how|am|feel|felt|think|want|need|hope|plan|look|would|will|makes?|made|gives?"
    r"|gave|loved?|got|always|never)\b|,\s(?:i|it|it's|that|that's|this|they|he|she|we|you|there|what|which|where|who"
    r"|same|too|but|so|though|right|especially|like|loved|hated|enjoyed|because|thanks|since|hoping|trying|making|let|not|don't)\b"
    r"|,\s(?-i:[A-Z])[a-z]{1,20}\s(?:is|has|will|starts|comes|lives|works)\b"
    r"|,\s(?:(?:the|my|our)\s)?(?:[a-z]{2,15}\s){1,2}(?:is|are|was|were|has|have|had|will|wants?)\b"
    rf"|,\s{words.ILLNESSES}\b"
    rf"|\s(?:which|cos|because|since(?! (?:\d|{words.MONTHS}(?:\W|\Z)"
    r"|(?:(?:primary |high |middle )?school|college|uni|university|childhood|birth)\b))"
    r"|even though|although|whereas|so that|hoping|btw"
    r"|too|as well|if|when(?! [a-z]{2,20}ing\b)|whenever(?! [a-z]{2,20}ing\b)|unless|now$|these days|at the moment"
    r"|right now|either|tho(?:ugh)?|anyway|so|but|lol|lmao)\b)",
    re.IGNORECASE,
)
_CONDITION: Final = Anchored(
    r"[\s,]{0,3}(?:if|when(?! [a-z]{2,20}ing\b)|whenever|unless|until|except|but (?:only|not))\b"
)
_REFERS: Final = re.compile(
    r"\b(?:it|its|it's|that|that's|this(?! (?:week|weekend|month|year|morning|afternoon|evening|past|coming|summer"
    r"|winter|spring|fall|autumn|mon|tues|wednes|thurs|fri|satur|sun))|these|those|they|they're|them|their|he|she|him"
    r"|his|her|hers|you|your|you're|yours|u(?!-)|ur|there|here|one|ones|some|something|anything|everything|stuff|things?"
    r"|such|other|another|same"
    r"|both(?! (?:ears|eyes|hands|arms|legs|knees|hips|feet)\b)"
    r"|like|too|so|if|unless|whether|wish|would|could|should|might|maybe|(?:almost"
    r"|nearly)(?! (?:every|each|all|always|daily|weekly|a|\d))"
    r"|(?<!\d )(?<!in )(?<!of )(?<!last )(?<!next )(?<!this )(?<!since )(?<!until )may(?! \d)|perhaps|probably|not sure"
    r"|how|what|why|we|we're|else|(?<!ing )again|most(?! (?:days|nights|mornings|evenings|weekends|weeks))"
    r"|more(?! than \d)|better|ideas?|while|supposed|about to|able|used to|feels?|lots?|bit|kind of|sort of|together"
    r"|mine|theirs|way|sounds?|hear|few|guess|enough|following|below|above|when|(?<!more )than|dream"
    r"|until(?! (?:the (?:end|\d)|new year|christmas|easter|next|\d|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    rf"|{words.MONTHS}\s\d))"
    r"|someone|everyone|anyone|people|ones?|(?<!-)time|ever|moment|though|question|questions|help|sentence|prompt|text"
    r"|code|function|error|answer|file)\b|[\[\]{}=<>#*|_\\]",
    re.IGNORECASE,
)
_POSSESSIVE: Final = re.compile(r"\s(?:his|her|their)\s(?=[a-z])", re.IGNORECASE)
_RELATIVE_BEGINS: Final = Anchored(rf"{_RELATIVE}\s")
_VAGUE_OBJECT: Final = re.compile(r"\s(?:(?:\w{2,12}ing\s)?the|to|up|out|off|back|over)\b", re.IGNORECASE)
_LEADING_TIME: Final = re.compile(
    r"(?P<time>(?:yesterday|last night|last \w{3,10}|this \w{3,10}|next \w{3,10}|tomorrow|tonight|today|on \w{3,6}days?"
    r"|every (?:\w{3,6}day|day|morning|evening|night|week|weekend|month|year|summer|winter)"
    r"|\w{1,6} (?:days|weeks|months|years) ago))(?:,\s?|\s)(?=(?:i|i'm|i've|my|we|we're|we've)\b)",
    re.IGNORECASE,
)
_FIRST_PERSON: Final = re.compile(
    r"\b(?:i'm|i am|i was|i've|i have|i'd|i'll|i|me|myself|mine|my|us|our|ours)\b", re.IGNORECASE
)
_THIRD: Final = {
    "i'm": "they're", "i am": "they are", "i was": "they were", "i've": "they've", "i have": "they have",
    "i'd": "they'd",
    "i'll": "they'll", "i": "they", "me": "them", "myself": "themselves", "mine": "theirs", "my": "their",
    "us": "them", "our": "their", "ours": "theirs",
}  # fmt: skip
_INCOMPLETE: Final = re.compile(
    r"\b(?:to|of|in|at|on|for|with|and|or|a|an|the|my|from|about|into|by|as|very|really|also|just|been|being|is"
    r"|are|was|were|own)$|\bown (?:from|at|in|on|with|for)\b",
    re.IGNORECASE,
)


def find_told(sentence: Sentence, at: int) -> Statement | None:
    """Return what a sentence of a message sent `at` tells about the speaker's life; None if it has another form."""
    we = _WE.match(sentence.text)
    lead = _LEADING_TIME.match(sentence.text)
    text = whole(sentence.text, lead.end() if lead is not None else we.end() if we is not None else 0)
    number, length = len(text.split()), len(text)
    ended = None if COVER in text else _no_longer_true(text)
    if ended is not None:
        return replace(ended, quote=sentence.words(0, length))
    if COVER in text or not _MIN_WORDS <= number <= _MAX_WORDS or _INCOMPLETE.search(text):
        return None
    if lead is not None:
        text = f"{text[lead.end() :]} {lead['time'][0].lower()}{lead['time'][1:]}"
        we = _WE.match(text)
    # In "my brother sold his house", the words say whose house it is.
    own_words = _POSSESSIVE.sub(" ", text) if _RELATIVE_BEGINS.match(text) else text
    if _REFERS.search(text[we.end() :] if we is not None else own_words):
        return None
    if we is not None:
        found = _with_we(text, we, at)
    else:
        found = _plan(text, at) or _event(text, at) or _state(_GOT.sub(r"\1 have ", text), at)
        found = found or _relative(text, at) or _happened(text, at)
    if found is None or not _says_enough(found.content):
        return None
    return replace(found, quote=sentence.words(0, length))


def whole(text: str, start: int = 0) -> str:
    """Return a sentence up to the point after `start` where another thought begins; empty if it is a condition."""
    end = _NEXT.search(text, start)
    if end is not None and _CONDITION.match(text[end.start() :]):
        return ""
    return (text[: end.start()] if end else text).rstrip(" \t,.;:!-~")


def _says_enough(content: str) -> bool:
    """Return whether a content is specific: it has a name, a number, a pet, or two words with their own meaning."""
    if _HAS_SOMEBODY.fullmatch(content) or _MILESTONE.search(_TELLER.sub("I ", content)):
        return True
    verb, predicate = content.rstrip(".").split(maxsplit=2)[1:]
    meaning = [
        word for word in re.findall(r"[\w'-]{3,}|[A-Z]{2}", predicate) if not re.fullmatch(_EMPTY, word, re.IGNORECASE)
    ]
    if (meaning or predicate == "to work") and (verb in _WAYS_OF_LIFE or _ORIGIN.search(content)):
        return True
    if meaning and _BEGUN.match(content):
        return True
    if verb in _HABITS and (meaning or verb not in _OF_ANYTHING) and _REPEATED.search(predicate):
        return True
    meaning = [word for word in meaning if not word.isdigit()] or meaning[1:]
    return len(meaning) > 1 or (len(meaning) == 1 and bool(re.search(r"(?:\s|\A)[A-Z0-9]", predicate)))


def _no_longer_true(text: str) -> Statement | None:
    found = _ENDS.match(text)
    if found is None or _REFERS.search(found["rest"]) or _INCOMPLETE.search(found["rest"]):
        return None
    no_longer = found["no_longer"] or found["no_longer_be"] == "no longer"
    if bool(no_longer) == bool(found["any_more"]):
        return None
    rest = in_third_person(found["rest"])
    if found["no_longer"]:
        verb, blank, others = rest.partition(" ")
        rest = f"{with_s(verb)}{blank}{others}"
    begins = "is" if found["be"] else "has no" if found["have"] else _DOES_NOT.get(found["do"] or "", "no longer")
    if found["be"]:
        begins = f"is {found['no_longer_be']}"
    return _statement(text, f"User {begins} {rest}{found['any_more'] or ''}", "fact", None)


def _with_we(text: str, we: re.Match[str], at: int) -> Statement | None:
    """Return a statement with `we`, in the speaker's own words: what they have, do as a habit, or do on a day."""
    verb = (we["verb"] or "").lower()
    as_one = f"I{_AS_ONE.get(verb, verb)}{text[we.end() :]}"
    as_one = _GOT.sub(r"\1 have ", as_one)
    is_state = (
        _WE_ARE.match(as_one) or _HAS.match(as_one) or _REGULARLY.match(as_one) or (not verb and _REPEATED.search(text))
    )
    held = _state(as_one, at) if is_state else None
    if held is not None:
        return replace(held, content=f'User said: "{text}."', quote=text)
    plan = _plan(as_one, at)
    found = plan or _event(as_one, at)
    days = days_in(text, at, is_past=plan is None) if found is not None else None
    if found is None or (days is None and not _MILESTONE.search(as_one)):
        return None
    content = f'User said: "{with_date(text, days, text) if days is not None else text}."'
    return replace(found, content=content, quote=text)


def _plan(text: str, at: int) -> Statement | None:
    found = _PLANS.match(text) or _WILL_BE.match(text) or _WILL_DO.match(text) or _OF_THING.match(text)
    days = days_in(text, at) if found else None
    if found is None or days is None or days.last < from_micros(at).date():
        return None
    if found.re != _PLANS.compiled and not _is_ahead(found, days, text, at):
        return None
    content = _about_user(found, text) if found.re != _OF_THING.compiled else text
    content = with_date(content, days, text)
    if found.re == _OF_THING.compiled:
        whose, thing = content.split(maxsplit=1)
        if whose.lower() == "the":
            plan = _statement(text, content, "event", None, expires_at=end_of_day(days.last))
            return replace(plan, content=f'User said: "{content}."')
        content = f"User's {in_third_person(thing)}"
    # What begins on that day holds from then on: "I'll be head nurse from December". A holiday ends, nobody says when.
    last = days.last + _HOLIDAY if (begins := begins_then(text, days)) and _IS_HOLIDAY.search(text) else days.last
    expires_at = None if begins and last == days.last else end_of_day(last)
    return _statement(text, content, "event", None, expires_at=expires_at)


def _is_ahead(found: re.Match[str], days: Days, text: str, at: int) -> bool:
    """Return whether a sentence in the present tense is about coming days and about nothing that recurs."""
    # "I'm in Denver now, moved in March" is about a past March.
    is_past = re.search(rf",.{{0,40}}\b{_PAST}\b", text[: days.start], re.IGNORECASE) is not None
    if is_past or days.last <= from_micros(at).date() or _REPEATED.search(text) or _YEARLY.search(text):
        return False
    if found.re == _WILL_DO.compiled:
        is_vague = _VAGUE_OBJECT.match(found["rest"]) is not None and not re.match(" (?:back )?to ", found["rest"])
        return days.first > from_micros(at).date() and not is_vague
    return not found["verb"].endswith(" to") or text[found.end("verb") : days.start].strip() in ("", "the")


def _event(text: str, at: int) -> Statement | None:
    found = _DID.match(text) or _WAS.match(text)
    days = days_in(text, at, is_past=_BOOKED.search(text) is None) if found else None
    is_origin = _ORIGIN.search(text) is not None
    is_known = (
        days is not None or is_origin or _IN_A_YEAR.search(text) is not None or _MILESTONE.search(text) is not None
    )
    if found is None or (not is_known and (found.re == _WAS.compiled or _VAGUE_OBJECT.match(found["rest"]))):
        return None
    is_ahead = days is not None and days.first > from_micros(at).date()
    if days is not None and is_ahead and not (FOR_WHICH.search(text[: days.start]) or _BOOKED.search(text)):
        return None
    content = _about_user(found, text)
    kind: MemoryKind = "fact" if is_origin else "event"
    # The date of a birth is not completed with the last year that had such a day. "I booked a trip in May" may be about
    # a trip or a booking in May.
    if days is not None and not (is_origin or _ARRANGED.search(text)):
        content = with_date(content, days, text)
    return _statement(text, content, kind, None)


def _happened(text: str, at: int) -> Statement | None:
    """Return what became of something of the speaker's on a day: "my cast came off yesterday"."""
    days = days_in(text, at, is_past=True) if text[:3].lower() == "my " else None
    if days is None or days.first > from_micros(at).date() or "delayed" in text or not turns_of(text):
        return None
    return _statement(text, f"User's {in_third_person(with_date(text[3:], days, text))}", "event", None)


def _state(text: str, at: int) -> Statement | None:
    found = _HAS_DONE.match(text) or _IS.match(text) or _REGULARLY.match(text) or _HAS.match(text)
    found = found or _habit(text) or _DOES.match(text)
    if found is None or not _lasts(found, text):
        return None
    days = days_in(text, at, is_past=True) if not _WEEKLY.search(text) else None
    # What is true on one day does not last, even if the order of day and month is not known.
    if found.re != _HAS_DONE.compiled and (days is not None or _DAY_AND_MONTH.search(text)):
        return None
    content = _about_user(found, text)
    if days is not None and not text[: days.start].lower().endswith("since "):
        return _statement(text, with_date(content, days, text), "event", None)
    # In the third person, a second verb would need an `s`, too.
    if (found.re in (_DOES.compiled, _HABIT.compiled) and " and " in text) or (
        found.re in (_DOES.compiled, _HAS.compiled) and _SECOND_VERB.search(text)
    ):
        content = f'User said: "{text}."'
        return replace(_statement(text, content, "fact", as_subject(text)), content=content)
    return _statement(text, content, "fact", as_subject(content.removeprefix("User ")))


def _habit(text: str) -> re.Match[str] | None:
    found = _HABIT.match(text)
    return found if found is not None and (found["often"] or _REPEATED.search(text)) else None


def _lasts(found: re.Match[str], text: str) -> bool:
    """Return whether a sentence holds for longer than the conversation and names its object."""
    if _OBJECTLESS.search(text):
        return False
    if _REPEATED.search(text):
        return True
    if found.re in (_HAS.compiled, _HABIT.compiled):
        return True
    if found.re == _DOES.compiled:
        return re.match(rf"{_NARRATED}\Z", found["verb"], re.IGNORECASE) is None
    predicate = _predicate(found)
    if not predicate.startswith("been") and _KNOWN_TO_BOTH.match(" " + predicate.partition(" ")[2]):
        return False
    doing = _DOING.match(predicate)
    return doing is None or re.match(rf"{_OCCUPATION}[a-z]?ing\Z", doing["verb"], re.IGNORECASE) is not None


def _predicate(found: re.Match[str]) -> str:
    rest = found["rest"].strip()
    return rest if found.re == _IS.compiled else f"{found['verb']} {rest}"


def _relative(text: str, at: int) -> Statement | None:
    found = _OF_RELATIVE.match(text)
    if found is None:
        return None
    is_past = re.fullmatch(_PAST, found["verb"], re.IGNORECASE) is not None
    days = days_in(text, at, is_past=is_past)
    content = "User's " + in_third_person(text.split(maxsplit=1)[1])
    if days is not None:
        content = with_date(content, days, text)
    lasts = days is None or _ORIGIN.search(text) is not None
    is_ahead = not is_past and days is not None and days.last > from_micros(at).date()
    expires_at = end_of_day(days.last) if is_ahead and days is not None else None
    return _statement(text, content, "fact" if lasts else "event", None, expires_at=expires_at)


def _statement(
    quote: str, content: str, kind: MemoryKind, subject: str | None, *, expires_at: int | None = None
) -> Statement:
    return Statement(
        content=_OF_THE_MOMENT.sub(r"\g<before> ", f"{content}.").replace(" gonna ", " going to "),
        kind=kind, quote=quote, subject=subject, confidence=0.8, importance=0.5,
        lifetime="long_term" if kind == "fact" else "short_term", expires_at=expires_at,
    )  # fmt: skip


def _about_user(found: re.Match[str], text: str) -> str:
    """Return a sentence about `I` in the third person: `User has a dog`."""
    start = found.end("subject")
    rest = text[start:]
    lowered = rest.lower()
    for short, long in (("'m", " is"), ("'ve", " has"), ("'ll", " will"), (" am ", " is "), (" have ", " has ")):
        if lowered.startswith(short) or (short[0] == " " and short.strip() in lowered.split()[:3]):
            rest = long + rest[len(short) :] if short[0] == "'" else rest.replace(short, long, 1)
            return "User" + in_third_person(rest)
    if found.re in (_DOES.compiled, _WILL_DO.compiled, _HAS.compiled, _HABIT.compiled) or (
        found.re == _PLANS.compiled and found["verb"].split()[0].lower() == "plan"
    ):
        verb = found["verb"].split()[0 if found.re == _PLANS.compiled else -1]
        at = found.start("verb") - start + found["verb"].index(verb)
        rest = rest[:at] + with_s(verb) + rest[at + len(verb) :]
    return "User" + in_third_person(rest)


# Words about the moment, which are wrong or empty later on.
_OF_THE_MOMENT: Final = re.compile(
    r"^(?P<before>User(?: has| is| was)?) (?:(?:also|just|even|finally|actually|definitely|honestly|basically) )+",
    re.IGNORECASE,
)


def with_s(verb: str) -> str:
    """Return a verb as it follows `User`: `speaks`, `tries`, `has`; auxiliaries stay as they are."""
    if verb.lower() == "have":
        return "has"
    if re.search(r"(?:s|sh|ch|x|z|o)$", verb):
        return verb + "es"
    return re.sub(r"(?<![aeiou])y$", "ie", verb) + "s"


def in_third_person(text: str) -> str:
    """Return the speaker's words with `I`, `my` and so on in the third person, but not the number in `Tiger I`."""

    def third(found: re.Match[str]) -> str:
        is_number = found[0] == "I" and re.search(r"[A-Z][a-z]+ $", text[: found.start()])
        return found[0] if is_number else _THIRD[" ".join(found[0].lower().split())]

    return _FIRST_PERSON.sub(third, text)


def with_date(content: str, days: Days, text: str) -> str:
    """Return a content with a date after the words for that day, unless these words are the date."""
    words_of_day = text[days.start : days.end]
    written = str(days)
    is_dated = written.lower() in words_of_day.lower() or f"{words_of_day} (" in content
    if is_dated or words_of_day not in content:
        return content
    return content.replace(words_of_day, f"{words_of_day} ({written})", 1)
