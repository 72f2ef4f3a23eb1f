"""Words without which a pattern for secrets cannot match: most texts have none of them, and finding that out is fast.

Each pattern costs up to 0.3 µs for each character of ordinary prose, and several µs of what is made to be slow; looking
for a word costs a thousandth of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from memory.memories import secret_forms as forms

_PASSWORDS: Final = (
    "passw", "kennwort", "mot de passe", "contrase", "senha", "wachtwoord", "hasło", "пароль", "密码", "密碼",
    "パスワード", "비밀번호", "lösenord", "adgangskode", "salasana", "jelszó", "şifre", "heslo", "parola d'ordine",
    "clave ", "wlan", "wifi", "wi-fi", "netzwerk", "network", "pwd", "pw", "pass",
)  # fmt: skip
_CODES: Final = ("pin", "code", "código", "codice", "cvv", "cvc", "cv2", "otp", "combination", "geheimzahl")
_KEYS: Final = ("key", "secret", "token", "credential", "passphrase")
_IDENTITIES: Final = (
    "passport", "licen", "tax", "national", "card", "social", "steuer", "personalausweis", "reisepass", "dni", "curp",
    "cpf", "aadhaar", "pasaporte", "passeport", "medicare", "insurance", "sort code", "konto", "account", "routing",
)  # fmt: skip
# In lower case, folded.
_HINTS: Final[dict[re.Pattern[str], tuple[str, ...]]] = {
    forms.SLACK_WEBHOOK: ("hooks.slack",),
    forms.WEB_TOKEN: ("eyj",),
    forms.AUTHORIZATION: ("bearer", "authorization"),
    forms.PASSWORD_HASH: ("$",),
    forms.CONNECTION: ("://",),
    forms.SIGNED_URL: ("=",),
    forms.USER_OPTION: ("-u", "sshpass", "mysql"),
    forms.PASSWORD: _PASSWORDS,
    forms.PASSWORD_USED: _PASSWORDS,
    forms.PASSWORD_LAST: (*_PASSWORDS, "pin"),
    forms.PASSWORD_NEXT_TO_NAME: ("passw", "kennwort"),
    forms.LOGGED_IN_WITH: ("with",),
    forms.LOGIN_PAIR: ("login", "log-in", "creds", "credential", "access data", "zugangsdaten"),
    forms.PASSPHRASE: ("passphrase", "pass phrase", "seed", "recovery", "mnemonic", "wallet", "words"),
    forms.SECURITY_ANSWER: ("answer",),
    forms.CODE: _CODES,
    forms.CODE_LAST: ("pin", "otp", "code"),
    forms.ASSIGNMENT: _KEYS,
    forms.TOKEN_NEXT_TO_NAME: ("token", "api", "secret"),
    forms.CAPITALS: ("=",),
    forms.WALLET_KEY: ("wallet", "priv"),
    forms.IDENTITY: _IDENTITIES,
    forms.SOCIAL_SECURITY: ("ssn", "social security"),
    forms.ANNOUNCED: (*_PASSWORDS, "pin", "phrase", *_KEYS),
    forms.ASKED: (*_PASSWORDS, *_CODES, *_KEYS, "phrase", "card number", "iban", "ssn", "social security"),
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
        """The text as patterns that ignore case see it: to them also a dotless i is an i, and a long s an s."""
        if self.text.isascii():
            return self.text.lower()
        return self.text.casefold().replace("\u0131", "i").replace("i\u0307", "i")
