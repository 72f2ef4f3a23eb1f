"""Stop words: words of the calendar, of grammar and of small talk, which say nothing about the topic of a text."""

from __future__ import annotations

from typing import Final

_CALENDAR: Final = """
monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun january
february march april may june july august september october november december jan feb mar apr jun jul aug sep sept
oct nov dec today tomorrow yesterday tonight morning afternoon evening night noon midnight second minute hour day
week weekend month year decade seconds minutes hours days weeks weekends months years utc gmt
"""
_GRAMMAR: Final = """
a about above after again against ago all almost along already also although always am among an and another any
anyone anything anyway are around as at away back be became because become been before behind being below between
both but by came can cannot come could did do does doing done down during each either else enough etc even ever
every everyone everything few for from further gave get gets getting give given gives go goes going gone got had has
have having he her here hers herself him himself his how however if in instead into is it its itself just keep kept
kind last later least less let like little long lot lots made make makes making many may maybe me might mine more
most much must my myself near need needs neither never next no nobody none nor not nothing now of off often on once
one ones only onto or other others our ours ourselves out over own per perhaps please put quite rather really said
same say saying says see seem seems seen shall she should since so some somebody someone something sometimes soon
still such sure take taken takes taking tell than that the their theirs them themselves then there these they thing
things this those though three through thus till time times to together told too took toward towards tried try two
under until up upon us use used uses using usually very via want wanted wants was way we well went were what
whatever when where whether which while who whole whom whose why will with within without would yes yet you your
yours yourself
"""
_SMALL_TALK: Final = """
actually basically definitely especially exactly absolutely probably literally totally hello hey hiya okay yeah yep
nope wow haha thanks thank welcome sorry good great nice cool awesome amazing bit feel feels felt think thinks
thought know knows knew known mean means meant look looks looking looked guess hope remember glad happy wonder
sounds sound able aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't let's mustn't shouldn't
wasn't weren't won't wouldn't i'm i've i'll i'd you're you've you'll he's she's it's we're we've we'll they're
they've they'll that's there's what's who's here's
"""
_OTHER_LANGUAGES: Final = """
aber als auch auf aus bei bin bis das dass dem den der des die dir doch ein eine einem einen einer eines für habe
haben hat hatte ich ihm ihn ihr ist kann mich mir mit nach nicht noch nur oder schon sein sich sie sind sondern über
und uns vom von war warum was wenn wie wir wird zum zur ahora como con cuando del donde ella ellos ese esta este
está están hay las los más muy para pero por porque que qué sin sobre son soy también tengo tiene una unos alors
avec ces cette comme dans des donc elle elles est être fait ils les leur mais même mes mon nous où par pas plus pour
qui sans ses son sont sur tes toi ton tout très une vos vous anche che chi della delle era gli hai hanno nel nella
non perché più sono suo una até com dos ela eles essa esse está isso mais mas não nas nos pela pelo quando são sua
também uma você
"""

_ACKNOWLEDGEMENTS: Final = """
ok noted sure course fine alright understood perfect agreed done lovely excellent wonderful fantastic awful terrible
gladly anytime problem worries hear oh ah hm hmm mhm cheers bye goodbye certainly indeed true
m s re ve ll d t
"""

# Chinese particles, pronouns, question words, negations, adverbs and prepositions, simplified and traditional: a closed
# class, written down for this module. Chinese is stored as pairs of characters, and a pair with one of these is grammar
# or crosses the border of a word.
_CHINESE_GRAMMAR: Final = frozenset(
    "的了吗呢吧啊呀嘛么着们我你您他她它这那哪谁什怎是在有没不也都就还很和与跟把被给让从对为得地嗎麼著們這誰沒還與給讓從對為"
)

# Words of grammar alone.
FUNCTION_WORDS: Final = frozenset((_GRAMMAR + _OTHER_LANGUAGES).split())
# A message of only such words, as "OK, thanks" or "Of course", acknowledges another one and says nothing itself.
FILLER_WORDS: Final = frozenset((_GRAMMAR + _SMALL_TALK + _ACKNOWLEDGEMENTS).split())
STOP_WORDS: Final = frozenset((_CALENDAR + _GRAMMAR + _SMALL_TALK + _OTHER_LANGUAGES).split())


def is_function_word(word: str) -> bool:
    """Return whether a folded word, or a pair of Chinese characters, is of grammar alone, or nearly."""
    return word in FUNCTION_WORDS or not _CHINESE_GRAMMAR.isdisjoint(word)
