"""Finds texts that a person should read before they are relied on: about health, beliefs, money and the like.

It looks for English words that are seldom used for anything else. It recognises no other language, no paraphrase ("he
did not survive the winter"), and no amounts, which are in every shopping list. So it proves nothing.
"""

from __future__ import annotations

import re
from typing import Final

# The reason for a sensitive entry of the curation log that is about none of these subjects.
SEEN_BY_ALL: Final = "seen by all users"
# The order counts: a text of two kinds belongs to the first.
_WORDS: Final = {
    "credentials": (
        "passwords?|passcodes?|passphrases?|api keys?|access tokens?|secret keys?|private keys?|credentials"
        "|recovery codes?|security codes?|social security|ssn|passport numbers?|iban|login details"
    ),
    "health": (
        "allerg(?:y|ies|ic)|diagnos(?:is|ed)|illness(?:es)?|diseases?|cancer|tumou?rs?|chemo(?:therapy)?|diabet(?:es|ic)"
        "|insulin|asthma|epilep(?:sy|tic)|migraines?|hiv|co?eliac|lactose intoleran(?:t|ce)|pregnan(?:t|cy)|miscarriage"
        "|ivf|depress(?:ed|ion)|anxiety|panic attacks?|bipolar|autis(?:m|tic)|adhd|ptsd|dementia|therap(?:y|ists?)"
        "|psychiatrists?|medications?|prescri(?:bed|ptions?)|antidepressants?|painkillers?|surger(?:y|ies)"
        "|hospitali[sz]ed|blood pressure|cholesterol|symptoms?|injur(?:y|ies|ed)|disabilit(?:y|ies)|disabled"
        "|addict(?:ed|ion)|rehab|sober|overdose|epileptic|wheelchair|blood thinners|statins|dialysis|transplant"
        r"|\d{1,4} ?mg|arthritis|dyslexi[ac]|insomnia|alcoholic|suicid(?:e|al)|self-harm"
    ),
    "beliefs": (
        "church(?:es)?|mosque|synagogue|religio(?:n|us)|pray(?:s|ed|ing|ers?)?|bible|qur'?an|ramadan|christian|catholic"
        "|protestant|pentecostal|evangelical|mormon|muslim|islam(?:ic)?|jew(?:s|ish)?|hindu|buddhis(?:t|m)|sikh|atheist"
        "|agnostic|voted? (?:for|against)|trade union|union member"
    ),
    "sexuality": (
        "gay|lesbian|bisexual|asexual|queer|transgender|trans (?:man|woman)|non-?binary|sex(?: life|ual(?:ity)?)?"
        "|contracepti(?:on|ve)|came out to"
    ),
    "money": (
        "salar(?:y|ies)|wages?|income|mortgage|loans?|debts?|bankrupt(?:cy)?|credit (?:card|score)s?|bank accounts?"
        "|savings|overdraft|net worth|tax returns?|pension|alimony|inheritance|inherited"
    ),
}
_KINDS: Final = {kind: re.compile(rf"(?i)\b(?:{words})\b") for kind, words in _WORDS.items()}


def sensitive_kind(text: str) -> str | None:
    """Return the first kind of sensitive words in a text, such as "health"; None if it has none. Takes linear time."""
    return next((kind for kind, words in _KINDS.items() if words.search(text)), None)
