"""Word lists of the patterns: possessions, relations, jobs and names of users."""

from __future__ import annotations

import re
from typing import Final

from storage.recall import claims, days

RELATIONS: Final = (
    r"(?:(?:older|younger|elder|eldest|oldest|youngest|big|little|twin|baby|best|step|half)[ -])?"
    r"(?:wife|husband|spouse|partner|girlfriend|boyfriend|gf|bf|hubby|fianc[e\u00e9]e?|mother|mom|mum|mam|father|dad|sister|brother"
    r"|son|daughter|grand(?:mother|ma|father|pa|dad|son|daughter|child)|granny|grandad|gran|nan|god(?:son|daughter|mother"
    r"|father)|step(?:mother|mum|mom|father|dad|sister|brother|son|daughter)|(?:mother|father|sister|brother|son"
    r"|daughter)-in-law|aunt|uncle|niece|nephew|cousin|friend|boss|manager|roommate|housemate|flatmate|therapist|doctor"
    r"|dentist|coach|teacher|supervisor|mentor|landlord|landlady|kid|child|mate|colleague|co-?worker|neighbou?r|assistant"
    r"|accountant|lawyer|carer|nanny|babysitter|childminder|vet|physio|trainer|tutor|midwife|hairdresser|editor|agent"
    r"|ex(?:-(?:wife|husband|boyfriend|girlfriend|partner))?)"
)
PETS: Final = (
    r"(?:dog|puppy|cat|kitten|horse|pony|parrot|rabbit|bunny|hamster|guinea pig|turtle|tortoise|snake|lizard|ferret"
    r"|beagle|labrador|poodle|terrier|collie|spaniel|retriever|greyhound|whippet|husky|corgi|dachshund|pug|bulldog"
    r"|tabby|budgie|gerbil)"
)
PROFESSIONS: Final = (
    r"(?:(?:[a-z]{1,40}[ -]){0,3}?(?:nurse|teacher|doctor|physician|surgeon|dentist|lawyer|attorney|engineer|developer"
    r"|programmer|architect|accountant|electrician|plumber|carpenter|mechanic|chef|baker|barista|pharmacist|scientist"
    r"|biologist|chemist|physicist|psychologist|therapist|counsell?or|librarian|journalist|photographer|musician"
    r"|translator|pilot|firefighter|paramedic|veterinarian|economist|researcher|designer|social worker|data analyst"
    r"|product manager|project manager|marketing manager|consultant|professor|farmer|bus driver|truck driver"
    r"|taxi driver|police officer|software tester|system administrator|sysadmin|freelancer|(?:radio|carto"
    r"|choreo)grapher|[a-z]{2,20}(?:ologist|smith|ician|iatrist)|midwife|physiotherapist|osteopath|dietitian|carer"
    r"|care worker|solicitor|barrister|paralegal|judge|civil servant|soldier|diplomat|estate agent|travel agent"
    r"|tour guide|receptionist|secretary|bookkeeper|auditor|actuary|banker|analyst|copywriter|writer|author|novelist"
    r"|editor|actor|actress|singer|dancer|composer|sculptor|painter|illustrator|animator|cook|waiter|waitress|bartender"
    r"|butcher|florist|gardener|tailor|hairdresser|barber|cleaner|caretaker|builder|bricklayer|roofer|welder|machinist"
    r"|surveyor|statistician|lecturer|headteacher|tutor|childminder|nanny|shopkeeper|cashier|postman|courier"
    r"|lorry driver|train driver|flight attendant|forester|beekeeper|fisherman|data scientist|sales assistant"
    r"|shop assistant|teaching assistant))"
)
# What somebody may be offered to eat and drink.
DIETS: Final = (
    r"(?:vegan|vegetarian|veggie|pescatarian|(?:lactose|gluten)[ -](?:intolerant|free)|c(?:o)?eliac|teetotal(?:l?er)?)"
)
CONDITIONS: Final = rf"(?:{DIETS}|diabetic|left-handed|colou?r[- ]?blind)"
# Lasting ones only: a cold is not worth knowing for years.
ILLNESSES: Final = (
    r"(?:(?:type (?:1|2|one|two) )?diabetes|asthma|epilepsy|migraines|(?:rheumatoid )?arthritis|c(?:o)?eliac disease"
    r"|crohn's(?: disease)?|colitis|hypertension|(?:high|low) blood pressure|high cholesterol|adhd|autism|dyslexia"
    r"|bipolar disorder|ptsd|ocd|endometriosis|fibromyalgia|multiple sclerosis|parkinson's(?: disease)?|psoriasis"
    r"|eczema|lupus|gout|glaucoma|tinnitus|insomnia|sleep apno?ea|ibs|hay fever|a pacemaker"
    r"|a heart (?:condition|murmur)|a (?:bad|weak|dodgy|sensitive) (?:back|knee|hip|heart|shoulder|ankle|neck|wrist"
    r"|stomach)|bad (?:knees|hips)|flat feet|sensitive skin)"
)
NATIONALITY: Final = (
    r"(?:half[ -])?(?:afghan|albanian|algerian|american|argentin(?:e|ian)|armenian|australian|austrian|bangladeshi"
    r"|belgian|bolivian|bosnian|brazilian|british|bulgarian|canadian|chilean|chinese|colombian|croatian|cuban|czech"
    r"|danish|dutch|ecuadorian|egyptian|english|eritrean|estonian|ethiopian|filipin[oa]|finnish|french|georgian|german"
    r"|ghanaian|greek|guatemalan|hungarian|icelandic|indian|indonesian|iranian|iraqi|irish|israeli|italian|ivorian"
    r"|jamaican|japanese|jordanian|kenyan|korean|kurdish|latvian|lebanese|lithuanian|malaysian|maltese|mexican"
    r"|moldovan|mongolian|moroccan|nepali|nigerian|norwegian|pakistani|palestinian|peruvian|polish|portuguese|romanian"
    r"|russian|scottish|senegalese|serbian|singaporean|slovak|slovenian|somali|south african|south korean|spanish"
    r"|sri lankan|sudanese|swedish|swiss|syrian|taiwanese|tanzanian|thai|tunisian|turkish|ugandan|ukrainian"
    r"|uruguayan|venezuelan|vietnamese|welsh|zambian|zimbabwean)"
)
RELIGION: Final = (
    r"(?:(?:an? )?(?:(?:practising|practicing|orthodox|devout) )?(?:muslim|jewish|catholic|protestant"
    r"|buddhist|hindu|sikh|mormon|quaker|atheist|agnostic)|an? (?:practising |devout )?(?-i:Christian)|religious)"
)
DWELLINGS: Final = (
    r"(?:house|flat|apartment|bungalow|cottage|farm|farmhouse|studio|caravan|houseboat|terrace|condo|dorm)\b"
)
INDUSTRIES: Final = (
    r"(?:finance|marketing|advertising|tech|IT|healthcare|education|sales|retail|hospitality|construction|insurance"
    r"|logistics|HR|human resources|publishing|real estate|banking|consulting|software|journalism|law|medicine)"
)
MONTHS: Final = days.MONTHS
WEEKDAYS: Final = days.WEEKDAYS
DATE: Final = (
    rf"(?:(?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {MONTHS}(?:,? \d{{4}})?"
    rf"|{MONTHS} (?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?"
    r"|\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}(?:[./]\d{2,4})?)"
)
# Things of which a user has one, with the form of their values.
ATTRIBUTES_OF_NAMES: Final = r"(?:(?:full|first|last|middle|maiden|sur|nick|user|preferred)[ -]?)?name|surname|nickname"
ATTRIBUTES: Final = (
    r"native language|first language|mother tongue|nationality|blood type|star sign|zodiac sign|time ?zone"
    r"|hometown|home town|employer|github (?:handle|username|user name)|shoe size|(?:licen[cs]e|number) plate"
    r"|dominant hand|job title|hobby"
    r"|post ?code|zip code"
)
# Two names of one thing: a statement with either supersedes one with the other.
SYNONYMS: Final = {
    "timezone": "time zone", "home town": "hometown", "birth date": "birthday", "date of birth": "birthday",
    "mom's name": "mother's name", "mum's name": "mother's name", "dad's name": "father's name",
    "gf's name": "girlfriend's name", "bf's name": "boyfriend's name", "hubby's name": "husband's name",
    "gf's birthday": "girlfriend's birthday", "bf's birthday": "boyfriend's birthday", "bday": "birthday",
    "first language": "native language", "mother tongue": "native language", "favourite color": "favourite colour",
    "number": "phone number", "mobile number": "phone number", "cell number": "phone number",
    "telephone number": "phone number", "wedding anniversary": "anniversary",
}  # fmt: skip
# A user may have several of these: a second name belongs to a second one and does not correct the first.
_NOT_UNIQUE: Final = (
    "friend cousin aunt uncle niece nephew sister brother son daughter roommate flatmate teacher doctor coach mentor"
    " grandmother grandma grandfather grandpa therapist kid colleague coworker neighbour neighbor ex"
)
NOT_UNIQUE: Final = frozenset(_NOT_UNIQUE.split())
ALWAYS_NAMED: Final = frozenset({"hometown", "home town", "employer", "nationality"})
NAMED_THINGS: Final = r"(?:company|business|shop|boat|band|team|school|university|village|town)"
OWNED_THINGS: Final = (
    r"(?:car|bike|bicycle|motorbike|laptop|computer|phone|camera|guitar|piano|printer|e-?reader"
    r"|gpu|cpu|monitor|keyboard|van|truck|camper|scooter|motorcycle|boat|watch|tablet|tv|router|oven|boiler|fridge"
    r"|mixer|sewing machine|violin)"
)
_CAPITALISED: Final = r"[A-Z\u00c0-\u00de][\w'.-]{0,40}"
_IN_ADDRESS: Final = r"[A-Z0-9\u00c0-\u00de][\w'.-]{0,40}"
STREET: Final = (
    rf"(?:\d{{1,20}}\w?\s{{1,3}}{_CAPITALISED}(?:\s{_CAPITALISED}){{0,3}}|(?:{_CAPITALISED}\s){{1,4}}\d{{1,20}}\w?)"
    rf"(?:,\s{{0,3}}{_IN_ADDRESS}(?:\s{_IN_ADDRESS}){{0,3}}){{0,3}}"
)
# Who has "a nut allergy" is allergic to nuts.
COUNTED_ALLERGENS: Final = re.compile(
    r"\b(?:(?:pea|wal|hazel|chest|coco)?nut|almond|cashew|egg|prawn|shrimp|mushroom|kiwi|banana|avocado|cat|dog|horse"
    r"|bee|wasp|sting|mite|dye|sulphite|sulfite)\Z",
    re.IGNORECASE,
)
# What people must not eat, or are made ill by.
FOODS: Final = (
    r"(?:(?:(?:cow'?s |dairy )?milk|gluten|dairy|lactose|wheat|(?:raw )?eggs?|(?:tree |pea)?nuts?|soya?|shellfish"
    r"|seafood"
    r"|prawns?|shrimps?|fish|sesame|mustard|celery|caffeine|coffee|alcohol|wine|sugar|salt|meat|red meat|pork|beef"
    r"|chicken"
    r"|onions?|garlic|tomatoes|strawberries|kiwis?|bananas?|avocados?|mushrooms?|chocolate|spicy food|cheese|yeast"
    r"|citrus|grapefruit)(?:,? (?:or|and) (?=\w))?){1,3}"
)
# "Allergies" that are jokes.
NO_ALLERGENS: Final = (
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|mornings?|people|work(?:ing|outs?)?|meetings?|nonsense"
    r"|stupid\w{0,40}|bull\w{0,40}|small talk|love|drama|exercise|school|homework|fun|code|bugs in|boredom|lies"
    r"|responsibilit\w{1,40}|change|criticism|commitment|money|losing|failure|kind of)\b"
)
NO_ALLERGY_TO: Final = r"(?:strange|weird|new|nasty|terrible|horrible|slight|little|food|skin|seasonal|severe|known)\b"
TOOLS: Final = claims.TOOLS
NO_PLACES: Final = rf"\A{claims.NO_PLACES}"
_NO_FAVOURITES = """
part parts thing things one ones moment moments bit aspect aspects memory memories scene scenes line lines quote quotes
feature features section time times chapter example piece pieces place day episode ever so character characters pic
photo photos picture reason takeaway tip trick by far way
"""
_REFERRING_STARTS = """
it its it's that that's this these those they them they're he him his she her hers you your you're yours yourself u ur
ya y'all we us our ours one ones there here what how when why who whom whose whether if to not no none nothing anything
everything something all both each either neither such so too very probably maybe perhaps likely possibly definitely
certainly usually always often sometimes never ever still just only even also currently now then actually really going
gonna being been be is are was were am has have had do does did will would can could should might may must about because
more most less least another other others many much some any every few several same i i'm i've i'd i'll me mine myself
"""
_NO_NAMES = """
Later Back Maybe When If Anytime Asap ASAP Tomorrow Today Tonight Now Soon Crazy Old Monday Tuesday Wednesday Thursday
Friday Saturday Sunday January February March April June July August September October November December Not Also Just
Still God Captain Sir Boss Nobody Somebody Someone Everybody Everyone Anybody Anyone Dogs Cats Horses Rabbits Babies
Toddlers Kids Children People Vegans
"""
_MEANINGLESS_ALONE = """
watching doing having using making eating going getting being trying wearing seeing taking buying giving playing better
best well much alone together first second earlier later same different new old big small things stuff people good nice
great working looking talking
"""
_INCOMPLETE_ENDINGS = """
a an the of to in on at by for from with and or but as than like my is are about into over after before i you really
very so such more most being having getting
"""
_NO_LONE_NAMES = """
unknown important hidden secret private long short weird common rare unique confidential
"""
_LOWER_CASE_STARTS = """
my the a an our we to that about please always never use from starting beginning as do don't keep call when whenever
every if only in on at for answer write speak give be add put make
"""

# `Favourite part` refers to something mentioned before: it is not a lasting favourite.
NO_FAVOURITES: Final = frozenset(_NO_FAVOURITES.split())
# First words that refer to something mentioned before, or start another clause.
REFERRING_STARTS: Final = frozenset(_REFERRING_STARTS.split())
# Capitalised words that are not names.
NO_NAMES: Final = frozenset(_NO_NAMES.split())
# Lower-case words that are not names: `my name is important`.
NO_LONE_NAMES: Final = frozenset(_NO_LONE_NAMES.split())
# Words that mean nothing as the only thing that a user likes.
MEANINGLESS_ALONE: Final = frozenset(_MEANINGLESS_ALONE.split())
# No noun phrase ends with these: it was cut too early.
INCOMPLETE_ENDINGS: Final = frozenset(_INCOMPLETE_ENDINGS.split())
# First words that are written in lower case within a sentence.
LOWER_CASE_STARTS: Final = frozenset(_LOWER_CASE_STARTS.split())
