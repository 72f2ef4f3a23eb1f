"""Find secrets in texts: keys, tokens, passwords, card numbers.

A heuristic on the text alone. Where a statement names a secret ("my password is ...") it prefers to redact; where none
is named it prefers to keep: dates, ids, hashes and long names are not secrets. A message that answers a request for a
secret is one, whatever it looks like.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from memory import secret_forms as forms
from memory.secret_forms import Searched
from storage.memories.extraction import SourceMessage
from storage.pipeline.records import MessageRecord

# The fewest digits of an IBAN, in countries whose account numbers have letters.
_MIN_IBAN_DIGITS: Final = 8


class Secret(NamedTuple):
    """The position of a secret in a text, and its kind."""

    start: int
    end: int
    kind: str


def _is_card(value: str) -> bool:
    """Return whether a number is of a card network, and its check digit is right (ISO/IEC 7812-1, annex B)."""
    digits = "".join(filter(str.isdigit, value))
    doubled = [int(digit) * (1 + position % 2) for position, digit in enumerate(reversed(digits))]
    passes_luhn = sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0 and len(set(digits)) > 1
    return passes_luhn and forms.CARD_ISSUERS.fullmatch(digits) is not None


def _iban_length(text: str) -> int:
    """Return how many characters of a text are an IBAN with valid check digits (ISO 7064, MOD 97-10); 0 for none.

    A word in capitals after it may look like its last group, so shorter ends are tried, too.
    """
    if sum(map(str.isdigit, text)) < _MIN_IBAN_DIGITS:
        return 0
    ends = [position for position in range(15, len(text) + 1) if position == len(text) or not text[position].isalnum()]
    for end in reversed(ends):
        compact = "".join(filter(str.isalnum, text[:end]))
        if len(compact) >= 15 and int("".join(str(int(c, 36)) for c in compact[4:] + compact[:4])) % 97 == 1:
            return end
    return 0


REDACTED: Final = "[redacted]"

# Bits per character (Shannon) below which a text is repetitive: 24 random letters and digits have 4.2 on average.
_RANDOM_BITS: Final = 3.5
# Share of neighbouring characters of different kinds: 62 % in a random mix of lower case, upper case and digits, less
# than 40 % in names such as `AbstractFactoryBean2`.
_RANDOM_CHANGES: Final = 0.42
_MIN_DISTINCT_CHARACTERS: Final = 5

_PLACEHOLDER = re.compile(
    r"(?i)\A(?:[<\[{(%$*#•…].*|[a-z]{2,10}://.*|x{3,}|\.{3,}|-+|_+|your?[_-].*|my[_-](?:secret|password|token|key).*"
    r"|.*[_-]here|(?:\w+_)?(?:password|passwd|pwd|secret|token)(?:_[a-z_]+)?|none|null|nil|true|false|undefined"
    r"|str(?:ing)?|text|bytes|bool|int|any|optional|required|todo|tbd|n/a|redacted|example|placeholder)\Z"
)
# `get_password()`, `settings.password`, `os.environ[...]`: where a secret is stored, not the secret.
_CODE = re.compile(
    r"\A(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[(\[].*|(?:[a-z_]\w*\.)+[a-z_]\w*|[a-z]+(?:_[a-z]+)+|\d+/\d+|[A-Z][A-Z0-9]*_[A-Z0-9_]*)\Z"
)
_COUNTED = re.compile(r"(?i)\A\d{1,3}[-+]?(?:char|digit|letter|symbol|word|day|month|hour|minute|year|time|bit|factor)")
# After "the password is", these words describe the password. A password is rarely a participle either.
_DESCRIPTIONS: Final = (
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
# A passphrase contains few of these words; a sentence about a passphrase contains many.
_FUNCTION_WORDS: Final = "a an and are as at be by for from has have in is it my not of on or so that the to was with"
_MIN_PHRASE_WORDS: Final = 3
_MIN_WALLET_WORDS: Final = 11
# Wallet recovery phrases have twelve words or more (BIP 39), Diceware phrases six.
_MIN_WORDS_IN_A_SENTENCE: Final = 6
# Announcements are short; a longer text is about passwords.
_MAX_ANNOUNCEMENT: Final = 400
# One search of a window takes milliseconds; other threads get their turn in between.
_WINDOW_CHARACTERS: Final = 16_384
_OVERLAP_CHARACTERS: Final = 4_096
_NOT_A_PASSWORD = frozenset(_DESCRIPTIONS.split())
_NOT_IN_A_PHRASE = frozenset(_FUNCTION_WORDS.split())


def looks_secret(text: str) -> str | None:
    """Return the kind of a secret in a text ("API key", "password", "card number" ...), or None."""
    return next((found.kind for found in secrets_in(text)), None)


def redacted(text: str) -> str:
    """Return the text with each secret replaced by `[redacted]`; the words that name it stay."""
    pieces: list[str] = []
    end = 0
    for found in sorted(secrets_in(text)):
        if found.start >= end:
            pieces += [text[end : found.start], REDACTED]
        end = max(end, found.end)
    return "".join([*pieces, text[end:]])


def repeats_secret_of(text: str, source: str) -> bool:
    """Return whether a text repeats a secret of its source, in which other words may identify it as one."""
    return any(source[found.start : found.end] in text for found in secrets_in(source))


def asks_for_secret(text: str) -> bool:
    """Return whether a text asks for a secret, so that any answer counts as one: "What is the wifi password?"."""
    return any(next(Searched(part).find(forms.ASKED), None) for _, part in _windows(text))


def announces_secret(text: str) -> bool:
    """Return whether a text announces that a secret, or the rest of one, follows in the next message."""
    return len(text) <= _MAX_ANNOUNCEMENT and next(Searched(text).find(forms.ANNOUNCED), None) is not None


def secrets_in(text: str) -> Iterator[Secret]:
    """Yield everything that looks like a secret, of each part of a text the most certain kinds first.

    They may overlap, and be yielded twice. No call holds the interpreter for long, however long the text is: it is
    searched in windows, except for what is longer than one.
    """
    for found in forms.PRIVATE_KEY.finditer(text):
        yield Secret(*found.span(), "private key")
    for start, part in _windows(text):
        for secret in _in_window(Searched(part)):
            yield Secret(start + secret.start, start + secret.end, secret.kind)
    yield from _random_tokens(text)


def _windows(text: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a text, which overlap by more than the longest secret, and where each begins."""
    start = 0
    while len(text) - start > _WINDOW_CHARACTERS:
        yield start, text[start : start + _WINDOW_CHARACTERS]
        start += _WINDOW_CHARACTERS - _OVERLAP_CHARACTERS
    yield start, text[start:]


def _in_window(text: Searched) -> Iterator[Secret]:
    yield from _by_rules(_KEYS, text)
    yield from _passwords(text)
    yield from _phrases(text)
    yield from (Secret(*found.span("code"), "PIN or code") for found in text.find(forms.CODE) if _is_code(found))
    yield from _by_rules(_CODES, text)
    yield from _assignments(text)
    yield from _by_rules(_VALUES_AND_NUMBERS, text)
    yield from _ibans(text)
    yield from _by_rules(_IDENTITIES, text)


def _by_rules(rules: Sequence[_Rule], text: Searched) -> Iterator[Secret]:
    for rule in rules:
        for found in text.find(rule.form):
            if rule.accepts(found[rule.group] or ""):
                yield Secret(*found.span(rule.group), rule.kind)


def _passwords(text: Searched) -> Iterator[Secret]:
    for pattern in (
        forms.PASSWORD,
        forms.PASSWORD_USED,
        forms.PASSWORD_LAST,
        forms.PASSWORD_NEXT_TO_NAME,
        forms.LOGGED_IN_WITH,
        forms.LOGIN_PAIR,
    ):
        for found in text.find(pattern):
            named = found.groupdict()
            quoted = named.get("quoted")
            value = quoted or found["bare"].rstrip(".,;:!?)]}")
            start = found.start("quoted" if quoted else "bare")
            states = _allows_plain_word(named.get("states") or "", text.text[start + len(value) :][:2])
            if _is_password(value, quoted=bool(quoted), word_is_enough=states):
                yield Secret(start, start + len(value), "password")


def _allows_plain_word(connector: str, after: str) -> bool:
    """Return whether a plain word may be the password: "password: tom", but not "password: leave it empty"."""
    if connector.strip().endswith("with"):  # "... starts with capitals" describes it
        return False
    continues = len(after) > 1 and after[0] == " "
    return bool(connector) and not (connector.strip() == ":" and connector.endswith(" ") and continues)


def _is_password(value: str, *, quoted: bool, word_is_enough: bool) -> bool:
    if len(value) < 3 or _PLACEHOLDER.match(value) or _CODE.match(value) or _COUNTED.match(value):
        return False
    if quoted:
        return True
    if value.replace("-", "").replace("'", "").replace("\u2019", "").isalpha():
        word = value.lower()
        return word_is_enough and word not in _NOT_A_PASSWORD and not _PARTICIPLE.match(word)
    return len(value) > 3


def _phrases(text: Searched) -> Iterator[Secret]:
    for found in text.find(forms.PASSPHRASE):
        words = list(re.finditer(r"\S+", found["words"]))
        alone = [_stripped(word.group()) for word in words]
        ends = next((position for position, word in enumerate(alone) if word in _NOT_IN_A_PHRASE), len(words))
        # If text follows ("... for the wallet"), it may be a sentence about a phrase: only a longer one is a secret.
        if found["weak"]:
            min_words = _MIN_WALLET_WORDS
        else:
            min_words = _MIN_PHRASE_WORDS if ends == len(words) else _MIN_WORDS_IN_A_SENTENCE
        if ends >= min_words and all(word.replace("-", "").isalpha() for word in alone[:ends]):
            start = found.start("words")
            yield Secret(start, start + words[ends - 1].end(), "passphrase")


def _stripped(word: str) -> str:
    return word.lower().strip(",\"'`\u201c\u201d")


def _is_code(found: re.Match[str]) -> bool:
    min_digits = 3 if found.group()[:2].lower() == "cv" else 4
    if any(map(str.isalpha, found["code"])):
        min_digits = 2
    return sum(map(str.isdigit, found["code"])) >= min_digits


def _assignments(text: Searched) -> Iterator[Secret]:
    for found in text.find(forms.ASSIGNMENT):
        value = found["value"].rstrip(".,;:!?)]}")
        if len(value) > 7 and _is_mixed(value) and not _PLACEHOLDER.match(value) and not _CODE.match(value):
            yield Secret(found.start("value"), found.start("value") + len(value), "secret value")


def _ibans(text: Searched) -> Iterator[Secret]:
    for found in text.find(forms.IBAN):
        length = _iban_length(found.group())
        if length:
            yield Secret(found.start(), found.start() + length, "IBAN")


def _random_tokens(text: str) -> Iterator[Secret]:
    """Yield long tokens that mix lower case, upper case and digits as if at random."""
    if not any(_is_random(found.group()) for found in forms.TOKEN.finditer(text)):
        return
    rest = forms.HARMLESS.sub(lambda found: " " * len(found.group()), text)
    for found in forms.TOKEN.finditer(rest):
        if _is_random(found.group()):
            yield Secret(*found.span(), "high-entropy token")


def _is_random(token: str) -> bool:
    classes = {_class_of(character) for character in token}
    return (
        {"lower", "upper", "digit"} <= classes
        and _kind_change_share(token) >= _RANDOM_CHANGES
        and _entropy_bits(token) >= _RANDOM_BITS
    )


def _class_of(character: str) -> str:
    if character.islower():
        return "lower"
    if character.isupper():
        return "upper"
    return "digit" if character.isdigit() else "symbol"


def _kind_change_share(token: str) -> float:
    """Return the share of neighbouring letters and digits that are of different kinds."""
    kinds = [_class_of(character) for character in token]
    pairs = [(one, other) for one, other in pairwise(kinds) if "symbol" not in (one, other)]
    return sum(one != other for one, other in pairs) / len(pairs) if pairs else 0.0


def _is_mixed(value: str) -> bool:
    """Return whether a value has letters and digits, and more than a few distinct ones."""
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return has_both and len(set(value)) > _MIN_DISTINCT_CHARACTERS


def _entropy_bits(value: str) -> float:
    """Return the Shannon entropy of the characters, in bits per character."""
    counts = Counter(value).values()
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts)


class _Rule(NamedTuple):
    """A form in which a secret is found: its kind, the group that is the secret, and whether a value may be one."""

    form: re.Pattern[str]
    kind: str
    group: int | str = 0
    accepts: Callable[[str], bool] = bool


# In this order: of each part of a text the most certain kinds come first.
_KEYS: Final = (
    # Not `sk-xxxxxxxx` as in instructions.
    _Rule(forms.API_KEY, "API key", accepts=lambda value: len(set(value)) > 2 * _MIN_DISTINCT_CHARACTERS),
    _Rule(forms.SLACK_WEBHOOK, "webhook", 1),
    _Rule(forms.WEB_TOKEN, "JSON web token"),
    _Rule(forms.PASSWORD_HASH, "password hash"),
    _Rule(forms.AUTHORIZATION, "bearer token", 1, _is_mixed),
    _Rule(forms.CONNECTION, "connection string", 1, lambda value: value[0] not in "<[{$%*"),
    _Rule(
        forms.USER_OPTION,
        "password",
        1,
        lambda value: any(map(str.isalpha, value)) and not _PLACEHOLDER.match(value),
    ),
    _Rule(forms.SIGNED_URL, "signed URL", 1, _is_mixed),
)
_CODES: Final = (
    _Rule(forms.CODE_LAST, "PIN or code", "code"),
    _Rule(forms.SECURITY_ANSWER, "security answer", "answer"),
)
_VALUES_AND_NUMBERS: Final = (
    _Rule(
        forms.TOKEN_NEXT_TO_NAME,
        "secret value",
        1,
        lambda value: _is_mixed(value) and not forms.HARMLESS.match(value),
    ),
    _Rule(
        forms.CAPITALS,
        "secret value",
        1,
        lambda value: _is_mixed(value) and _entropy_bits(value) > _RANDOM_BITS - 0.5 and not _CODE.match(value),
    ),
    _Rule(forms.WALLET_KEY, "private key", "key"),
    _Rule(forms.CARD, "card number", accepts=_is_card),
)
_IDENTITIES: Final = (
    _Rule(forms.IDENTITY, "identity number", "number"),
    _Rule(forms.SOCIAL_SECURITY, "social security number", "after"),
    _Rule(forms.SOCIAL_SECURITY, "social security number", "before"),
)


_Message = TypeVar("_Message", MessageRecord, SourceMessage)


def redact_secret_answers(messages: Iterable[_Message], before: str) -> list[_Message]:
    """Return the messages in their order, those redacted that follow a request for a secret.

    Also redacts the next message of a speaker who announced a secret, or the second part of one. `before` is the text
    of the message just before the first.
    """
    result: list[_Message] = []
    announced_by = ""
    for message in messages:
        is_secret = asks_for_secret(before) or message.role == announced_by or (not result and announces_secret(before))
        result.append(replace(message, content=REDACTED) if is_secret else message)
        if announces_secret(message.content):
            announced_by = message.role
        elif message.role == announced_by:
            announced_by = ""
        before = message.content
    return result
