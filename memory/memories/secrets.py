"""Finds what nobody should be reminded of: keys, tokens, passwords, card numbers.

It is a guess from the text alone, and errs on the side of silence where a statement names a secret ("my password
is ..."), on the side of keeping where it does not: dates, ids, hashes and long names are no secrets.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from memory.memories import secret_forms as forms
from memory.memories.secret_numbers import Secret, numbers

REDACTED: Final = "[redacted]"

# Below this a text is repetitive (bits a character, Shannon): 24 random letters and digits have 4.2 on average.
_RANDOM_BITS: Final = 3.5
# Of neighbours in a random mixture of small letters, capitals and digits 62 % are of different kinds; in names such as
# `AbstractFactoryBean2` less than 40 %.
_RANDOM_CHANGES: Final = 0.42
_FEWEST_KINDS_OF_CHARACTER: Final = 5

_PLACEHOLDER = re.compile(
    r"(?i)\A(?:[<\[{(%$*#•…].*|[a-z]{2,10}://.*|x{3,}|\.{3,}|-+|_+|your?[_-].*|my[_-](?:secret|password|token|key).*"
    r"|.*[_-]here|(?:\w+_)?(?:password|passwd|pwd|secret|token)(?:_[a-z_]+)?|none|null|nil|true|false|undefined"
    r"|str(?:ing)?|text|bytes|bool|int|any|optional|required|todo|tbd|n/a|redacted|example|placeholder)\Z"
)
# `get_password()`, `settings.password`, `os.environ[...]`: the place of a secret and not the secret.
_CODE = re.compile(
    r"\A(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[(\[].*|(?:[a-z_]\w*\.)+[a-z_]\w*|[a-z]+(?:_[a-z]+)+|\d+/\d+|[A-Z][A-Z0-9]*_[A-Z0-9_]*)\Z"
)
_COUNTED = re.compile(r"(?i)\A\d{1,3}[-+]?(?:char|digit|letter|symbol|word|day|month|hour|minute|year|time|bit|factor)")
# After "the password is", these say something of the password. What people choose is seldom a participle either.
_SAID_OF_PASSWORDS: Final = (
    "a about again all almost already also always an and another any as asked at auto bad because been before"
    " behind being better between both broken but by can case chosen clear correct created current default different"
    " difficult done easy either empty enabled encrypted enough even every exactly expected expired expiring fine"
    " for forgotten found from generated given going gone good hard hashed here hidden important in incorrect"
    " insecure invalid it its just kept known leaked less like long longer lost made managed mandatory maybe missing"
    " more most much my needed neither never new no none not nothing now of off old on only optional or our out over"
    " part plain private protected public quite ready really required reset right safe same saved secret secure seen"
    " sensitive sent set shared short shown simple so some something somewhere stale still stolen stored strong"
    " stronger stuck such sufficient super taken temporary terrible that the their there this to too typed unchanged"
    " under unique unknown unsafe up updated used using valid very visible weak weaker what when where whether which"
    " why with without working written wrong yet you your"
)
_PARTICIPLE = re.compile(r"\A[a-z]{2,}(?:ed|ing|able|ible|ful|less|ly)\Z")
# A phrase that has one of these, or two, may be; a sentence about a phrase has them at every turn.
_FUNCTION_WORDS: Final = "a an and are as at be by for from has have in is it my not of on or so that the to was with"
_FEWEST_PHRASE_WORDS: Final = 3
_FEWEST_WALLET_WORDS: Final = 11
# Phrases that restore a wallet have twelve and more (BIP 39), those thrown by dice six (Diceware).
_FEWEST_WORDS_IN_A_SENTENCE: Final = 6
# Who says what comes next is brief; a longer text is about passwords.
_LONGEST_ANNOUNCEMENT: Final = 400
_NOT_A_PASSWORD = frozenset(_SAID_OF_PASSWORDS.split())
_NOT_IN_A_PHRASE = frozenset(_FUNCTION_WORDS.split())


def looks_secret(text: str) -> str | None:
    """The kind of a secret that a text holds ("API key", "password", "card number" ...), or None."""
    return next((found.kind for found in secrets_in(text)), None)


def redacted(text: str) -> str:
    """The text with each secret replaced by `[redacted]`: what says that there was one stays."""
    pieces: list[str] = []
    end = 0
    for found in sorted(secrets_in(text)):
        if found.start >= end:
            pieces += [text[end : found.start], REDACTED]
        end = max(end, found.end)
    return "".join([*pieces, text[end:]])


def holds_secret_of(text: str, said: str) -> bool:
    """Whether a text repeats a secret of what was said, where it may have stood with the words that give it away."""
    return any(said[found.start : found.end] in text for found in secrets_in(said))


def asks_for_secret(text: str) -> bool:
    """Whether the answer to a text is a secret, whatever it looks like: "What is the wifi password?"."""
    return forms.ASKED.search(text) is not None


def announces_secret(text: str) -> bool:
    """Whether somebody says that a secret, or the rest of one, comes with their next message."""
    return len(text) <= _LONGEST_ANNOUNCEMENT and forms.ANNOUNCED.search(text) is not None


def secrets_in(text: str) -> Iterator[Secret]:
    """All that looks like a secret, the surest kinds first; two of them may overlap."""
    yield from _whole(forms.PRIVATE_KEY, text, "private key")
    yield from _keys(text)
    yield from _whole(forms.PASSWORD_HASH, text, "password hash")
    yield from _authorizations(text)
    yield from _connections(text)
    yield from _passwords(text)
    yield from _phrases(text)
    yield from _codes(text)
    yield from _assignments(text)
    yield from (Secret(*found.span("key"), "private key") for found in forms.WALLET_KEY.finditer(text))
    yield from numbers(text)
    yield from _random_tokens(text)


def _whole(pattern: re.Pattern[str], text: str, kind: str) -> Iterator[Secret]:
    for found in pattern.finditer(text):
        yield Secret(*found.span(), kind)


def _keys(text: str) -> Iterator[Secret]:
    for found in forms.API_KEY.finditer(text):
        if len(set(found.group())) > 2 * _FEWEST_KINDS_OF_CHARACTER:  # `sk-xxxxxxxx` stands in instructions
            yield Secret(*found.span(), "API key")
    yield from (Secret(*found.span(1), "webhook") for found in forms.SLACK_WEBHOOK.finditer(text))
    yield from _whole(forms.WEB_TOKEN, text, "JSON web token")


def _authorizations(text: str) -> Iterator[Secret]:
    for found in forms.AUTHORIZATION.finditer(text):
        if _is_mixed(found.group(1)):
            yield Secret(*found.span(1), "bearer token")


def _connections(text: str) -> Iterator[Secret]:
    for found in forms.CONNECTION.finditer(text):
        if found.group(1)[0] not in "<[{$%*":
            yield Secret(*found.span(1), "connection string")
    for found in forms.USER_OPTION.finditer(text):
        if any(map(str.isalpha, found.group(1))) and not _PLACEHOLDER.match(found.group(1)):
            yield Secret(*found.span(1), "password")
    for found in forms.SIGNED_URL.finditer(text):
        if _is_mixed(found.group(1)):
            yield Secret(*found.span(1), "signed URL")


def _passwords(text: str) -> Iterator[Secret]:
    for pattern in (
        forms.PASSWORD,
        forms.PASSWORD_USED,
        forms.PASSWORD_LAST,
        forms.PASSWORD_BESIDE,
        forms.LOGGED_IN_WITH,
        forms.LOGIN_PAIR,
    ):
        for found in pattern.finditer(text):
            named = found.groupdict()
            quoted = named.get("quoted")
            value = quoted or found["bare"].rstrip(".,;:!?)]}")
            start = found.start("quoted" if quoted else "bare")
            states = _states(named.get("states") or "", text[start + len(value) :][:2])
            if _is_password(value, quoted=bool(quoted), word_will_do=states):
                yield Secret(start, start + len(value), "password")


def _states(connector: str, after: str) -> bool:
    """Whether a plain word behind this may be a password: "password: leave it empty" goes on, "password: tom" ends."""
    if connector.strip().endswith("with"):  # "... starts with capitals" says something of it
        return False
    goes_on = len(after) > 1 and after[0] == " "
    return bool(connector) and not (connector.strip() == ":" and connector.endswith(" ") and goes_on)


def _is_password(value: str, *, quoted: bool, word_will_do: bool) -> bool:
    if len(value) < 3 or _PLACEHOLDER.match(value) or _CODE.match(value) or _COUNTED.match(value):
        return False
    if quoted:
        return True
    if value.replace("-", "").replace("'", "").replace("\u2019", "").isalpha():
        word = value.lower()
        return word_will_do and word not in _NOT_A_PASSWORD and not _PARTICIPLE.match(word)
    return len(value) > 3


def _phrases(text: str) -> Iterator[Secret]:
    for found in forms.PASSPHRASE.finditer(text):
        words = list(re.finditer(r"\S+", found["words"]))
        alone = [_bare(word.group()) for word in words]
        ends = next((place for place, word in enumerate(alone) if word in _NOT_IN_A_PHRASE), len(words))
        # What goes on behind it ("... for the wallet") may as well be a sentence about a phrase: that is not so long.
        fewest = (
            _FEWEST_WALLET_WORDS
            if found["weak"]
            else _FEWEST_PHRASE_WORDS
            if ends == len(words)
            else _FEWEST_WORDS_IN_A_SENTENCE
        )
        if ends >= fewest and all(word.replace("-", "").isalpha() for word in alone[:ends]):
            start = found.start("words")
            yield Secret(start, start + words[ends - 1].end(), "passphrase")


def _bare(word: str) -> str:
    return word.lower().strip(",\"'`\u201c\u201d")


def _codes(text: str) -> Iterator[Secret]:
    yield from (Secret(*found.span("code"), "PIN or code") for found in forms.CODE.finditer(text) if _is_code(found))
    yield from (Secret(*found.span("code"), "PIN or code") for found in forms.CODE_LAST.finditer(text))
    yield from (Secret(*found.span("answer"), "security answer") for found in forms.SECURITY_ANSWER.finditer(text))


def _is_code(found: re.Match[str]) -> bool:
    fewest = 3 if found.group()[:2].lower() == "cv" else 4
    fewest = 2 if any(map(str.isalpha, found["code"])) else fewest
    return sum(map(str.isdigit, found["code"])) >= fewest


def _assignments(text: str) -> Iterator[Secret]:
    for found in forms.ASSIGNMENT.finditer(text):
        value = found["value"].rstrip(".,;:!?)]}")
        if len(value) > 7 and _is_mixed(value) and not _PLACEHOLDER.match(value) and not _CODE.match(value):
            yield Secret(found.start("value"), found.start("value") + len(value), "secret value")
    for found in forms.TOKEN_BESIDE.finditer(text):
        if _is_mixed(found.group(1)) and not forms.HARMLESS.match(found.group(1)):
            yield Secret(*found.span(1), "secret value")
    for found in forms.CAPITALS.finditer(text):
        if _is_mixed(found.group(1)) and _bits(found.group(1)) > _RANDOM_BITS - 0.5 and not _CODE.match(found.group(1)):
            yield Secret(*found.span(1), "secret value")


def _random_tokens(text: str) -> Iterator[Secret]:
    """Long tokens that mix small letters, capitals and digits as chance does."""
    rest = forms.HARMLESS.sub(lambda found: " " * len(found.group()), text)
    for found in forms.TOKEN.finditer(rest):
        token = found.group()
        classes = {_class_of(character) for character in token}
        if (
            {"lower", "upper", "digit"} <= classes
            and _changes(token) >= _RANDOM_CHANGES
            and _bits(token) >= _RANDOM_BITS
        ):
            yield Secret(*found.span(), "high-entropy token")


def _class_of(character: str) -> str:
    if character.islower():
        return "lower"
    if character.isupper():
        return "upper"
    return "digit" if character.isdigit() else "symbol"


def _changes(token: str) -> float:
    """The share of neighbouring letters and digits that are of different kinds."""
    kinds = [_class_of(character) for character in token]
    pairs = [(one, other) for one, other in pairwise(kinds) if "symbol" not in (one, other)]
    return sum(one != other for one, other in pairs) / len(pairs) if pairs else 0.0


def _is_mixed(value: str) -> bool:
    """Whether letters and digits are in it, and more than a few kinds of them."""
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return has_both and len(set(value)) > _FEWEST_KINDS_OF_CHARACTER


def _bits(value: str) -> float:
    """Shannon's entropy of the characters, in bits a character."""
    counts = Counter(value).values()
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
