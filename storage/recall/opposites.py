"""Words that exclude each other, negate, or count: two texts that differ in one of them do not say the same."""

from __future__ import annotations

from typing import Final

# Each line is a scale; its sides are separated by |, and the words of a side mean the same.
_SCALES: Final = """
left | right
before | after | during
up | down
off
out
over | under
above | below
inside | outside
more most | less least fewer fewest
all every each always | some sometimes | many often | few seldom rarely | any
like likes liked love loves loved enjoy enjoys enjoyed | dislike dislikes disliked hate hates hated
start starts started begin begins began | stop stops stopped end ends ended quit quits | continue continues continued
enable enables enabled | disable disables disabled
allow allows allowed permit permits permitted | forbid forbids forbidden deny denies denied
accept accepts accepted approve approves approved | reject rejects rejected decline declines declined refuse refuses
buy buys bought | sell sells sold
open opens opened | close closes closed shut
win wins won | lose loses lost
increase increases increased | decrease decreases decreased reduce reduces reduced
add adds added | remove removes removed delete deletes deleted
include includes included | exclude excludes excluded
arrive arrives arrived | leave leaves depart departs departed
send sends sent | receive receives received
old older | new newer | young younger
big bigger large larger | small smaller little
high higher | low lower
long longer | short shorter brief
early earlier | late later
hot warm | cold cool
good better best | bad worse worst
fast faster quick | slow slower
same | different
true | false
public | private
cheap cheaper | expensive
easy easier | hard harder difficult
light | dark
full | empty
black | white | red | green | blue | yellow | orange | purple | brown | grey gray | pink
possible | impossible
able | unable
legal | illegal
safe | unsafe
correct | incorrect wrong
married | divorced | single
north | south | east | west
front | back
top | bottom
import | export
internal | external
minimum | maximum
morning mornings | noon | afternoon afternoons | evening evenings | night nights
today | tomorrow | yesterday | tonight
hourly | daily | weekly | monthly | yearly annually
minute minutes | hour hours | day days | week weeks | month months | year years
monday mondays | tuesday tuesdays | wednesday wednesdays | thursday thursdays | friday fridays | saturday saturdays
sunday sundays
january | february | march | april | june | july | august | september | october | november | december
spring | summer | autumn | winter
i me my mine myself | you your yours yourself | he him his himself | she her hers herself | we us our ours
they them their
mother mum mom | father dad | brother | sister | son | daughter | wife | husband | uncle | aunt
was were had did used | will would shall | may might could | must should
"""


def _sides() -> dict[str, str]:
    sides = [side.split() for scale in _SCALES.strip().splitlines() for side in scale.split("|")]
    return {word: side[0] for side in sides for word in side}


# The first word of its side, by word.
SIDES: Final = _sides()

_NEGATIONS: Final = (
    "not no never none nothing nobody nowhere neither nor without cannot hardly barely nicht kein keine keinen keiner"
    " nie niemals ohne ne pas jamais sans non nunca sin mai senza não nem sem 不 没 沒 无 無 非 未 别"
)
NEGATIONS: Final = frozenset(_NEGATIONS.split())

_ONES: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen twenty"
)
_ORDINALS: Final = "zeroth first second third fourth fifth sixth seventh eighth ninth tenth"
_OTHERS: Final = (
    "thirty forty fifty sixty seventy eighty ninety hundred thousand million billion once twice half quarter double"
    " triple dozen"
)

# Words that are numbers, and their digits if there is only one way to write them.
NUMBERS: Final = (
    {word: word for word in _OTHERS.split()}
    | {word: str(number) for number, word in enumerate(_ORDINALS.split())}
    | {word: str(number) for number, word in enumerate(_ONES.split())}
)
