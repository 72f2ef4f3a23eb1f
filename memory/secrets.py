"""Find secrets in texts: keys, tokens, passwords, card numbers.

A heuristic on the text alone. If a text names a secret ("my password is ..."), doubtful values are redacted; otherwise
they are kept: dates, ids, hashes and long names are not secrets. An answer to a request for a secret is a secret,
whatever it looks like.

First come the regular expressions: the formats of well-known keys, and how people and files state a secret. Every
quantifier is bounded and none are nested, so that any text is searched in linear time. Each pattern takes up to 0.3 µs
for each character of ordinary prose, and several µs for text that was made to be slow. Most texts have none of the
words without which a pattern cannot match; looking for these words costs a thousandth of that.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from storage.memories.extraction import SourceMessage
from storage.pipeline.records import MessageRecord

# Prefixes as documented by their issuers; the rest is random, and too long to be mistaken for a word.
_KEY_FORMS: Final = (
    r"sk-(?:ant|proj|svcacct|admin|or-v1)-[\w-]{20,400}",  # Anthropic, OpenAI, OpenRouter
    r"sk-[A-Za-z0-9]{32,100}",  # older OpenAI, DeepSeek and others with the same format
    r"(?:gsk_|xai-|pplx-|r8_|nvapi-|fw_)[\w-]{30,200}",  # Groq, xAI, Perplexity, Replicate, NVIDIA, Fireworks
    r"hf_[A-Za-z0-9]{30,100}",  # Hugging Face
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}",  # AWS
    r"AIza[\w-]{35}|ya29\.[\w-]{20,500}|GOCSPX-[\w-]{20,60}",  # Google
    r"gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_\w{22,255}",  # GitHub
    r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|oas|agent)-[\w.-]{20,200}",  # GitLab
    r"xox[abceoprs]-[A-Za-z0-9-]{10,250}|xapp-[A-Za-z0-9-]{20,250}",  # Slack
    r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,250}|whsec_[\w+/=]{24,100}",  # Stripe
    r"npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,500}|dckr_pat_[\w-]{20,100}",  # npm, PyPI, Docker
    r"SK[0-9a-f]{32}|SG\.[\w-]{16,64}\.[\w-]{16,64}|key-[0-9a-z]{32}",  # Twilio, SendGrid, Mailgun
    r"do[oprt]_v1_[0-9a-f]{64}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}|dapi[0-9a-f]{32}",  # DigitalOcean, Shopify ...
    r"(?:lin_api_|ntn_|sbp_|figd_|glsa_|sntr[yu]s?_|pscale_tkn_|ATATT3|NRAK-|hvs\.|dp\.pt\.)[\w=.-]{24,400}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{50,60}|\d{8,10}:AA[\w-]{33}",  # age, Telegram bots
)
API_KEY = re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(_KEY_FORMS)})(?![A-Za-z0-9])")
SLACK_WEBHOOK = re.compile(r"hooks\.slack\.com/services/(\w{8,12}/\w{8,12}/\w{20,30})")
# Three parts if signed, five if encrypted; the first begins with the base64 of `{"`.
WEB_TOKEN = re.compile(r"(?<![\w-])eyJ[\w-]{8,4000}\.[\w-]{4,8000}\.[\w-]{8,4000}(?:\.[\w-]{1,8000}){0,2}")
AUTHORIZATION = re.compile(
    r"(?i)\b(?:bearer\s{1,3}|authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:basic|token|digest|apikey)\s{1,3})"
    r"([\w.~+/=-]{12,4000})"
)
PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:.*?-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|.*)",
    re.DOTALL,
)
PASSWORD_HASH = re.compile(r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}|\$(?:argon2(?:id|i|d)|scrypt|6|y)\$[\w$./,=+-]{20,300}")
# Scheme, user and password before the host; a port has no @ behind it.
CONNECTION = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s:/@\"']{0,100}:([^\s/@\"']{1,200})@(?=[^\s/])")
SIGNED_URL = re.compile(r"(?i)[?&](?:sig|signature|x-amz-signature|key|auth)=([\w%+/=.~-]{16,500})")
USER_OPTION = re.compile(
    r"(?:(?<!\S)(?:-u|--user)[ =][\"']?[^\s:\"']{1,100}:|\bsshpass -p[ ]?|\bmysql[^\n|;]{0,80}? -p)"
    r"[\"']?([^\s\"']{3,200})"
)

_NAMES_OF_PASSWORDS: Final = (
    r"(?:(?:password|passwd|passwort|kennwort|mot de passe|contrase[nñ]a|senha|wachtwoord|hasło|пароль|密码|密碼"
    r"|パスワード|비밀번호|lösenord|adgangskode|salasana|jelszó|şifre|heslo|parola d'ordine|clave (?:de acceso|secreta)"
    r"|(?:wlan|wi-?fi|netzwerk|network)[- ]?(?:schlüssel|key|code|pass))|(?<![^\W_])(?:pwd|pw|pass)(?![a-z]))"
)
_QUOTES: Final = "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb"
_OPTIONAL_QUOTE: Final = rf"[{_QUOTES}]?"
_WORD: Final = r"[\w'\u2019.@-]{1,40}[ \t]"
_IS: Final = (
    r"(?:[ \t]{1,3}(?:(?:will|should|must) be(?: set to)?|(?:is|are)(?: (?:now|set to|spelled|still))?|was|were"
    r"|lautet|ist|sind|est|sont|es|son|é|è|(?:starts?|begins?|ends?)(?: now)? with)(?!\w):?"
    r"|[ \t]{0,3}(?::=|=>|->|→|==?|:|是|为|為|は))[ \t]{0,3}"
)
# "... for the office wifi", between the name of a secret and its value.
_WHAT_FOR: Final = (
    rf"(?:[ \t](?:for|to|of|on|at|in|für|de|du|del|da)[ \t](?:{_WORD}){{0,5}}?[\w'\u2019.@-]{{1,40}}(?=[ \t:=]))?"
)
_VALUE: Final = rf"(?:[{_QUOTES}](?P<quoted>[^\n{_QUOTES}]{{3,200}})[{_QUOTES}]|(?P<bare>[^\s<{_QUOTES}]{{3,200}}))"
PASSWORD = re.compile(
    rf"(?i){_NAMES_OF_PASSWORDS}{_OPTIONAL_QUOTE}"
    rf"(?:{_WHAT_FOR}(?P<states>{_IS})|(?<!\Wpass)[ \t]to[ \t]|>(?=[^\s<>]{{3,200}}</)){_VALUE}"
)
PASSWORD_USED = re.compile(
    rf"(?i)\b(?:with|use|using|enter|type|try)[ \t](?:the[ \t]|my[ \t]|this[ \t])?{_NAMES_OF_PASSWORDS}[ \t]{_VALUE}"
)
# "password Zebra77": only if the value is neither a word nor the name of a technique.
PASSWORD_NEXT_TO_NAME = re.compile(
    r"(?i)\b(?:password|passwd|passwort|kennwort)[ \t](?:from[ \t])?"
    r"(?!(?:sha|md|oauth|saml|pbkdf|http|utf|aes|base|tls|bcrypt|argon|v)-?\d)"
    rf"(?P<bare>(?=[^\s]{{0,60}}\d)(?=[^\s]{{0,60}}[a-z])[^\s<{_QUOTES}]{{6,200}})"
)
# "hunter2 is my email password"
PASSWORD_LAST = re.compile(
    rf"(?i)(?<![^\s{_QUOTES}])(?P<bare>[^\s{_QUOTES}]{{4,200}}){_OPTIONAL_QUOTE}[ \t]"
    r"(?:(?:(?:(?:which|that|it)[ \t])?is|for)[ \t](?:my|our|the|his|her|their|your)"
    r"|as(?:[ \t](?:my|our|the|his|her|their|your|a))?)[ \t]"
    rf"(?:{_WORD}){{0,3}}(?:{_NAMES_OF_PASSWORDS}|pin\b)"
)
# "I log in with Zebra_77": a secret is used without being named. Names of services are no secrets.
LOGGED_IN_WITH = re.compile(
    r"(?i)\b(?:log(?:s|ged)?[ -]?(?:in|on)(?:to)?|sign(?:s|ed)?[ -]?in(?:to)?|gets?[ ](?:in|into|on|onto)"
    r"|unlock(?:s|ed)?)\b[^\n.;:!?]{0,40}?[ \t]with[ \t]"
    r"(?!(?:o?auth|microsoft|office|google|github|saml|web|fido|mfa|2fa|sso|u2f))"
    rf"(?P<bare>(?=[^\s]{{0,60}}\d)(?=[^\s]{{0,60}}[a-z])[^\s<{_QUOTES}@]{{8,200}})"
)
# "the login is admin / Zebra77"
LOGIN_PAIR = re.compile(
    rf"(?i)\b(?:log-?in|credentials?|creds|access data|zugangsdaten){_OPTIONAL_QUOTE}{_WHAT_FOR}{_IS}"
    rf"[\w.@+-]{{1,60}}[ \t]{{0,2}}[/:|,][ \t]{{0,2}}(?P<bare>(?=[^\s]{{0,60}}[\d\W])[^\s<{_QUOTES}]{{4,200}})"
)
PASSPHRASE = re.compile(
    rf"(?i)\b(?:pass[ ]?phrase|seed phrase|recovery phrase|mnemonic(?: phrase)?|(?P<weak>wallet|seed"
    rf"|(?:seed|recovery|secret|twelve|12|24) words)){_OPTIONAL_QUOTE}{_WHAT_FOR}{_IS}"
    r"(?P<words>[^\n.;:!?]{8,400})"
)
SECURITY_ANSWER = re.compile(
    rf"(?i)\b(?:security answer|answer to (?:my|the|our) (?:security|secret) question){_WHAT_FOR}{_IS}"
    r"(?P<answer>[^\n.;:!?]{2,80})"
)
WALLET_KEY = re.compile(r"(?i)\b(?:wallet|private|priv)\b[^\n]{0,30}?\b(?:0x)?(?P<key>[0-9a-f]{64})\b")
# Identity documents: their numbers allow impersonation.
IDENTITY = re.compile(
    r"(?i)\b(?:passport|(?:driver['\u2019]?s?|driving) licen[cs]e|tax(?:payer)? (?:id|number)|national id(?:entity)?"
    r"|identity card|id card|national insurance|social(?! security)|steuer-?(?:id|nummer)|personalausweis|reisepass"
    r"|dni|curp|cpf|aadhaar|pasaporte|passeport|medicare|health insurance|sort code|konto-?nummer"
    r"|(?:(?:bank )?account|routing)(?= (?:number|no\b)))(?:[ -](?:number|no\.?|nr\.?|id|nummer|code))?"
    rf"{_WHAT_FOR}{_IS}(?P<number>(?!\d{{4}}-\d\d-\d\d)[A-Z\d](?:[ .-]?[A-Z]{{0,3}}\d){{4,18}})(?!\w)"
)
_CODE_WORDS: Final = r"[a-z\d]{4,8}(?:-[a-z\d]{4,8}){1,7}"
CODE = re.compile(
    r"(?i)\b(?:pin(?:[- ]?(?:code|number))?|passcode|cv[vc]2?|security code|otp"
    r"|(?:door|alarm|gate|garage|safe|locker?|unlock|access|entry)[- ]code|combination(?: of the \w{1,20})?"
    rf"|(?:verification|one[- ]time|2fa|backup|recovery|otp|login)[- ]codes?"
    r"|code (?:secret|d['\u2019]acc[eè]s)|código (?:secreto|de acceso)|codice segreto|geheimzahl|(?:zugangs|tür)code)"
    rf"{_OPTIONAL_QUOTE}{_WHAT_FOR}{_IS}(?:(?:le|la|el|il|the|die|der)[ ])?"
    rf"{_OPTIONAL_QUOTE}(?P<code>{_CODE_WORDS}(?:(?:,|,? and)[ ]{_CODE_WORDS}){{0,15}}"
    r"|\d(?:[ -]?\d){2,11})(?![\w.,:/-]*\d)"
)
# "6627 is the gate code", "with 6627 as code"
CODE_LAST = re.compile(
    r"(?i)(?<![\w.,:/-])(?P<code>\d(?:[ -]?\d){3,11})(?!\w)[^\n.;:!?\d]{0,20}?[ ](?:is|as)[ ](?:(?:the|my|our|a)[ ])?"
    r"(?:(?:pin|door|alarm|gate|garage|safe|locker?|entry|access|security|verification|one[- ]time|login|unlock|card)"
    r"[- ])?(?:pin|otp|passcode|(?<=as )code|(?<=[rmeyknd][ -])code)\b"
)
# The rest of the secret follows in the next message.
ANNOUNCED = re.compile(
    rf"(?i)(?:{_NAMES_OF_PASSWORDS}|\bpin\b|passphrase|seed phrase|(?:api|secret|access)[ _-]?key|token)"
    r"[^\n.;]{0,60}?\b(?:next (?:message|line|one)|(?:the|its) rest|(?:first|second|other) (?:half|part)"
    r"|in (?:two|2) parts)\b"
    rf"|\b(?:first|second|other) (?:half|part) of (?:my |the |our )?(?:\w{{1,20}} )?{_NAMES_OF_PASSWORDS}"
)
# Requests for a secret; questions about secrets ("which password manager ...") do not reveal one.
ASKED = re.compile(
    r"(?i)\b(?:what(?:'s|\u2019s)?|which|(?:tell|give|send) (?:me|us)|share|please (?:enter|type|provide|confirm|send)"
    r"|i need (?=your))\b[^\n?.!]{0,60}?\b(?:password|passwd|passwort|kennwort|passphrase|passcode|(?:seed"
    r"|recovery) phrase|pin(?: code| number)?|cv[vc]2?|(?:api|secret|private|access|license)[ _-]?key|(?:api|access"
    r"|auth|bearer|bot)[ _-]?token|card number|iban|ssn|social security number|(?:door|alarm|gate|garage|safe|lock"
    r"|access|entry|security|verification|one[- ]time)[- ]code)\b(?! (?:manager|policy|rule|reset|generator|length"
    r"|limit|format|field|hint|hash|rotation|strength))"
)
# A name that ends like the name of a secret, then a value: in a file, a header, a query or a sentence.
ASSIGNMENT = re.compile(
    r"(?i)(?:api[_ -]?key|secret(?:[_ -]?(?:access[_ -]?)?key)?"
    r"|(?:access|account|private|signing|encryption|master|auth|license|subscription|client|service|session)[_ -]?key"
    rf"|token|credentials?|passphrase){_OPTIONAL_QUOTE}{_WHAT_FOR}{_IS}{_OPTIONAL_QUOTE}(?P<value>[^\s,;&<>{_QUOTES}]{{8,500}})"
)
TOKEN_NEXT_TO_NAME = re.compile(r"(?i)\b(?:token|api[_ -]?key|secret)[ \t]([\w.~+/=-]{16,500})")
# `STRIPE_KEY=...`: the name is not specific, so the value must look random.
CAPITALS = re.compile(
    r"(?<![A-Za-z0-9_])[A-Z][A-Z0-9_]{0,40}(?:KEY|PASS|PAT|AUTH|DSN|SALT|CREDS)[ ]?=[ ]?[\"']?([^\s\"',;&]{16,500})"
)

CARD = re.compile(
    r"(?<![\d+.,/_-])(?:\d{4}([ .\u00a0\u202f-]?)\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?"
    r"|\d{4}([ .\u00a0\u202f-]?)\d{6}\2\d{4,5}|\d{14,19})(?![\d_]|[.,/-]\d)"
)
# First digits and lengths assigned to card networks (ISO/IEC 7812): other numbers are not cards.
CARD_ISSUERS = re.compile(
    r"4(?:\d{15}|\d{18})|5[0-8]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720|20[0-4])\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|35(?:2[89]|[3-8]\d)\d{12}|6(?:011|4[4-9]\d|5\d\d)\d{12}(?:\d{3})?|62\d{14,17}|6[0-9]\d{14}"
)
IBAN = re.compile(
    r"(?i)(?<![A-Za-z0-9/_-])[A-Z]{2}\d{2}(?:[ \u00a0]?[A-Z0-9]{4}){2,7}(?:[ \u00a0]?[A-Z0-9]{1,3})?(?![A-Za-z0-9])"
)
SOCIAL_SECURITY = re.compile(
    r"(?i)\b(?:ssn|social security)\b.{0,40}?(?<!\d)(?P<after>(?!000|666|9)\d{3}([ -]?)(?!00)\d\d\2(?!0000)\d{4})(?!\d)"
    r"|(?<![\d-])(?P<before>(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4})(?![\d-]).{0,30}?\b(?:ssn|social security)\b"
)

# Long, random-looking strings that are known not to be secrets.
HARMLESS = re.compile(
    r"(?i)-----BEGIN (?:[A-Z0-9 ]{0,40}PUBLIC KEY(?: BLOCK)?"
    r"|CERTIFICATE)-----[\w+/=:;,.\s]{0,20000}-----END [A-Z0-9 ]{1,60}-----|\b(?:ssh-(?:rsa|ed25519|dss)"
    r"|ecdsa-[\w-]{1,40}) [A-Za-z0-9+/=]{20,2000}|\b[a-z][a-z0-9+.-]{1,20}://[^\s<>\"]{1,4000}"
    r"|\bdata:[\w/+.-]{1,80};base64,[A-Za-z0-9+/=]{1,100000}|\b(?:sha|md)\d{1,3}[-:][A-Za-z0-9+/=]{20,100}"
    r"|[\w.+-]{1,100}@[\w-]{1,100}\.[\w.-]{2,100}"
    r"|\bI[0-9a-f]{40}\b"  # Gerrit change ids
    # Ids: they name an object of a service and grant no access.
    r"|\b(?:msg|req|resp|run|call|toolu|asst|thread|file|chatcmpl|batch|conv|cus|pi|ch|sub|in|evt|price|prod|acct|txn|seti|pm|py"
    r"|trace|span|srv|usr|user|org|proj|ses|sess|item|doc|chunk|id)[_-](?!\w{1,60}_secret_)[\w-]{8,200}",
    re.DOTALL,
)
TOKEN = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,2000}={0,2}(?![A-Za-z0-9+/_-])")


_PASSWORD_HINTS: Final = (
    "passw", "kennwort", "mot de passe", "contrase", "senha", "wachtwoord", "hasło", "пароль", "密码", "密碼",
    "パスワード", "비밀번호", "lösenord", "adgangskode", "salasana", "jelszó", "şifre", "heslo", "parola d'ordine",
    "clave ", "wlan", "wifi", "wi-fi", "netzwerk", "network", "pwd", "pw", "pass",
)  # fmt: skip
_CODE_HINTS: Final = ("pin", "code", "código", "codice", "cvv", "cvc", "cv2", "otp", "combination", "geheimzahl")
_KEY_HINTS: Final = ("key", "secret", "token", "credential", "passphrase")
_IDENTITY_HINTS: Final = (
    "passport", "licen", "tax", "national", "card", "social", "steuer", "personalausweis", "reisepass", "dni", "curp",
    "cpf", "aadhaar", "pasaporte", "passeport", "medicare", "insurance", "sort code", "konto", "account", "routing",
)  # fmt: skip
# The words without which a pattern cannot match, in lower case and folded like `Searched._folded`.
_HINTS: Final[dict[re.Pattern[str], tuple[str, ...]]] = {
    SLACK_WEBHOOK: ("hooks.slack",),
    WEB_TOKEN: ("eyj",),
    AUTHORIZATION: ("bearer", "authorization"),
    PASSWORD_HASH: ("$",),
    CONNECTION: ("://",),
    SIGNED_URL: ("=",),
    USER_OPTION: ("-u", "sshpass", "mysql"),
    PASSWORD: _PASSWORD_HINTS,
    PASSWORD_USED: _PASSWORD_HINTS,
    PASSWORD_LAST: (*_PASSWORD_HINTS, "pin"),
    PASSWORD_NEXT_TO_NAME: ("passw", "kennwort"),
    LOGGED_IN_WITH: ("with",),
    LOGIN_PAIR: ("login", "log-in", "creds", "credential", "access data", "zugangsdaten"),
    PASSPHRASE: ("passphrase", "pass phrase", "seed", "recovery", "mnemonic", "wallet", "words"),
    SECURITY_ANSWER: ("answer",),
    CODE: _CODE_HINTS,
    CODE_LAST: ("pin", "otp", "code"),
    ASSIGNMENT: _KEY_HINTS,
    TOKEN_NEXT_TO_NAME: ("token", "api", "secret"),
    CAPITALS: ("=",),
    WALLET_KEY: ("wallet", "priv"),
    IDENTITY: _IDENTITY_HINTS,
    SOCIAL_SECURITY: ("ssn", "social security"),
    ANNOUNCED: (*_PASSWORD_HINTS, "pin", "phrase", *_KEY_HINTS),
    ASKED: (*_PASSWORD_HINTS, *_CODE_HINTS, *_KEY_HINTS, "phrase", "card number", "iban", "ssn", "social security"),
}


class Searched:
    """A text in which many patterns are searched for."""

    def __init__(self, text: str) -> None:
        self.text = text

    def find(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Return the matches of a pattern; without searching, none if its words do not occur."""
        hints = _HINTS.get(pattern)
        if hints is not None and not any(hint in self._folded for hint in hints):
            return iter(())
        return pattern.finditer(self.text)

    @cached_property
    def _folded(self) -> str:
        """The text as case-insensitive patterns see it: a dotless i is an i to them, and a long s an s."""
        if self.text.isascii():
            return self.text.lower()
        return self.text.casefold().replace("\u0131", "i").replace("i\u0307", "i")


# The minimum of digits in an IBAN: some countries' account numbers have letters.
_MIN_IBAN_DIGITS: Final = 8


class Secret(NamedTuple):
    """The position of a secret in a text, and its kind."""

    start: int
    end: int
    kind: str


def _is_card(value: str) -> bool:
    """Return whether a number belongs to a card network and has the right check digit (ISO/IEC 7812-1, annex B)."""
    digits = "".join(filter(str.isdigit, value))
    doubled = [int(digit) * (1 + position % 2) for position, digit in enumerate(reversed(digits))]
    passes_luhn = sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0 and len(set(digits)) > 1
    return passes_luhn and CARD_ISSUERS.fullmatch(digits) is not None


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
# After "the password is", these words describe the password, and so do most participles ("... is expired").
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
    """Return whether a text repeats a secret of its source, where other words may show that it is a secret."""
    return any(source[found.start : found.end] in text for found in secrets_in(source))


def asks_for_secret(text: str) -> bool:
    """Return whether a text asks for a secret, so that any answer counts as one: "What is the wifi password?"."""
    return any(next(Searched(part).find(ASKED), None) for _, part in _windows(text))


def announces_secret(text: str) -> bool:
    """Return whether a text announces that a secret, or the rest of one, follows in the next message."""
    return len(text) <= _MAX_ANNOUNCEMENT and next(Searched(text).find(ANNOUNCED), None) is not None


def secrets_in(text: str) -> Iterator[Secret]:
    """Yield everything in a text that looks like a secret: part by part, the most certain kinds first.

    Secrets may overlap, and one may be yielded twice. No call holds the interpreter for long, however long the text is:
    it is searched in windows, except for secrets that are longer than a window.
    """
    for found in PRIVATE_KEY.finditer(text):
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
    yield from (Secret(*found.span("code"), "PIN or code") for found in text.find(CODE) if _is_code(found))
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
        PASSWORD,
        PASSWORD_USED,
        PASSWORD_LAST,
        PASSWORD_NEXT_TO_NAME,
        LOGGED_IN_WITH,
        LOGIN_PAIR,
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
    if connector.strip().endswith("with"):  # "... starts with capitals" describes the password
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
    for found in text.find(PASSPHRASE):
        words = list(re.finditer(r"\S+", found["words"]))
        alone = [word.group().lower().strip(",\"'`\u201c\u201d") for word in words]
        ends = next((position for position, word in enumerate(alone) if word in _NOT_IN_A_PHRASE), len(words))
        # If text follows ("... for the wallet"), it may be a sentence about a phrase: only a longer one is a secret.
        if found["weak"]:
            min_words = _MIN_WALLET_WORDS
        else:
            min_words = _MIN_PHRASE_WORDS if ends == len(words) else _MIN_WORDS_IN_A_SENTENCE
        if ends >= min_words and all(word.replace("-", "").isalpha() for word in alone[:ends]):
            start = found.start("words")
            yield Secret(start, start + words[ends - 1].end(), "passphrase")


def _is_code(found: re.Match[str]) -> bool:
    min_digits = 3 if found.group()[:2].lower() == "cv" else 4
    if any(map(str.isalpha, found["code"])):
        min_digits = 2
    return sum(map(str.isdigit, found["code"])) >= min_digits


def _assignments(text: Searched) -> Iterator[Secret]:
    for found in text.find(ASSIGNMENT):
        value = found["value"].rstrip(".,;:!?)]}")
        if len(value) > 7 and _is_mixed(value) and not _PLACEHOLDER.match(value) and not _CODE.match(value):
            yield Secret(found.start("value"), found.start("value") + len(value), "secret value")


def _ibans(text: Searched) -> Iterator[Secret]:
    for found in text.find(IBAN):
        length = _iban_length(found.group())
        if length:
            yield Secret(found.start(), found.start() + length, "IBAN")


def _random_tokens(text: str) -> Iterator[Secret]:
    """Yield long tokens that mix lower case, upper case and digits as if at random."""
    if not any(_is_random(found.group()) for found in TOKEN.finditer(text)):
        return
    rest = HARMLESS.sub(lambda found: " " * len(found.group()), text)
    for found in TOKEN.finditer(rest):
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
    """A form of secret: its kind, the regular expression's group that is the secret, and a check of the value."""

    form: re.Pattern[str]
    kind: str
    group: int | str = 0
    accepts: Callable[[str], bool] = bool


# The order counts: for each part of a text the most certain kinds come first.
_KEYS: Final = (
    # This excludes `sk-xxxxxxxx`, as in instructions.
    _Rule(API_KEY, "API key", accepts=lambda value: len(set(value)) > 2 * _MIN_DISTINCT_CHARACTERS),
    _Rule(SLACK_WEBHOOK, "webhook", 1),
    _Rule(WEB_TOKEN, "JSON web token"),
    _Rule(PASSWORD_HASH, "password hash"),
    _Rule(AUTHORIZATION, "bearer token", 1, _is_mixed),
    _Rule(CONNECTION, "connection string", 1, lambda value: value[0] not in "<[{$%*"),
    _Rule(
        USER_OPTION,
        "password",
        1,
        lambda value: any(map(str.isalpha, value)) and not _PLACEHOLDER.match(value),
    ),
    _Rule(SIGNED_URL, "signed URL", 1, _is_mixed),
)
_CODES: Final = (
    _Rule(CODE_LAST, "PIN or code", "code"),
    _Rule(SECURITY_ANSWER, "security answer", "answer"),
)
_VALUES_AND_NUMBERS: Final = (
    _Rule(
        TOKEN_NEXT_TO_NAME,
        "secret value",
        1,
        lambda value: _is_mixed(value) and not HARMLESS.match(value),
    ),
    _Rule(
        CAPITALS,
        "secret value",
        1,
        lambda value: _is_mixed(value) and _entropy_bits(value) > _RANDOM_BITS - 0.5 and not _CODE.match(value),
    ),
    _Rule(WALLET_KEY, "private key", "key"),
    _Rule(CARD, "card number", accepts=_is_card),
)
_IDENTITIES: Final = (
    _Rule(IDENTITY, "identity number", "number"),
    _Rule(SOCIAL_SECURITY, "social security number", "after"),
    _Rule(SOCIAL_SECURITY, "social security number", "before"),
)


_Message = TypeVar("_Message", MessageRecord, SourceMessage)


def redact_secret_answers(messages: Iterable[_Message], before: str) -> list[_Message]:
    """Return the messages in order; those that follow a request for a secret are redacted.

    The next message of a speaker who announced a secret, or its second part, is redacted, too. `before` is the text of
    the message just before the first.
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
