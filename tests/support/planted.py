"""Fake secrets in conversations: many kinds, in every role, in sentences that extraction and dream sweeps would store.

Each is assembled from parts, so that no secret scanner reports this file.
"""

from __future__ import annotations

import random
import string
from dataclasses import dataclass
from typing import Any, Final

LETTERS: Final = string.ascii_letters + string.digits
_CAPITALS: Final = string.ascii_uppercase + string.digits
_HEX: Final = "0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Planted:
    """A secret, the message that contains it, and the question before it if that matters."""

    secret: str
    message: dict[str, Any]
    asked: dict[str, Any] | None = None


def noise(length: int, seed: int, alphabet: str = LETTERS) -> str:
    """Return pseudo-random characters, the same in each run; from LETTERS, with digits and letters of both cases."""
    chance = random.Random(f"planted {seed}")
    while True:
        found = "".join(chance.choice(alphabet) for _ in range(length))
        if alphabet != LETTERS or (any(map(str.isdigit, found)) and found.lower() != found != found.upper()):
            return found


def planted() -> list[Planted]:
    """Return all secrets, each in its own message."""
    in_prose = [
        Planted(secret, {"role": role, "content": sentence.format(secret)})
        for role, sentence, secret in (*_KEYS, *_PASSWORDS, *_NUMBERS)
    ]
    return [*in_prose, *_of_tools(), *_answers()]


_KEYS: Final = (
    ("user", "Remember that my api key is {} and that I live in Lisbon.", "sk-" + "proj-" + noise(48, 1)),
    ("user", "Please remember that I use the key {} for the weather service.", "AIza" + noise(34, 2) + "x"),
    ("user", "I prefer to sign in with {} when I work on the boat project.", "ghp" + "_" + noise(36, 3)),
    ("user", "From now on, always call the shop with {} when I order tea.", "sk" + "_live_" + noise(24, 4)),
    ("user", "My dentist is Doctor Moreno and my AWS key is {} by the way.", "AKIA" + noise(16, 5, _CAPITALS)),
    ("user", "Don't forget that the bot of my sailing club has the token {} now.",
     "xox" + "b-" + noise(12, 6, string.digits) + "-" + noise(24, 7)),
    ("user", "For the record, my database is at postgres://app:{}@db.local:5432/boats today.", "Kestrel" + "-9182"),
    ("user", "Note that I send Authorization: Bearer {} to the harbour office.", noise(40, 8)),
    ("user", "Keep in mind that my server's key is\n-----BEGIN " + "RSA PRIVATE KEY-----\n{}\n-----END "
     + "RSA PRIVATE KEY-----\nand it lies in the drawer.", noise(64, 9)),
    ("user", "Remember that I keep the value {} in the settings of the radio.", noise(40, 10)),
    ("assistant", "I have noted it: your key for the models is {} and you live near the river.",
     "sk-" + "ant-api03-" + noise(80, 11) + "A"),
    ("assistant", "Put this into the file .env of the boat project: CLIENT_SECRET={} and restart it.", noise(32, 12)),
)  # fmt: skip
_PASSWORDS: Final = (
    ("user", "My password is {} and I always use it for the boat club.", "Marlinspike" + "77"),
    ("user", "Remember that my password for the harbour wifi is {} in case I ask.", "gannet" + "roost"),
    ("user", "I changed my password to {} yesterday, after the regatta in Porto.", "T3rn" + "!colony"),
    ("user", "Call me Ana. The PIN of my card is {} and I like oat milk.", "48" + "1597"),
    ("user", "I prefer the blue door; its door code is {} at night.", "73" + "9164"),
    ("user", "Remember that my recovery phrase is {} for the wallet.",
     " ".join(("cormorant", "velvet", "anchor", "sextant", "marble", "plover", "ladder", "quince"))),
    ("assistant", "Of course. Your password for the boat club is {} as you told me.", "Bowsprit" + "#42"),
    ("user", "I moved to Ghent, and {} is my email password there.", "halyard" + "2291"),
)  # fmt: skip
_NUMBERS: Final = (
    ("user", "I like to pay with my card {} when I order ropes.", "5500" + "0055" + "5555" + "5559"),
    ("user", "Remember that my account for the mooring is {} at the bank.", "GB82" + " WEST 1234" + " 5698 7654 32"),
    ("user", "For future reference, my social security number is {} on every form.", "536-" + "22-" + "8726"),
    ("assistant", "The token is ey" + "JhbGciOiJIUzI1NiJ9.{} and it is valid until May.",
     "eyJzdWIiOiI5OTAwMTEyMjMzIn0" + "." + noise(43, 13)),
)  # fmt: skip


def _of_tools() -> list[Planted]:
    env, header, result = "hf" + "_" + noise(34, 20), noise(36, 21), "glpat" + "-" + noise(20, 22)
    return [
        Planted(env, {"role": "tool", "tool_name": "shell", "tool_call_id": "c1",
                      "content": f"$ cat .env\nHF_TOKEN={env}\nBOAT=Petrel\n"}),
        Planted(result, {"role": "tool", "tool_name": "vault", "tool_call_id": "c2",
                         "content": f'{{"name": "harbour", "token": "{result}"}}'}),
        Planted(header, {"role": "assistant", "content": "I ask the harbour office.",
                         "tool_calls": [{"name": "http", "arguments": {"authorization": f"Bearer {header}"}}]}),
    ]  # fmt: skip


def _answers() -> list[Planted]:
    """Return answers that only the question before them identifies as secrets."""
    wifi, alarm = "Saltmarsh" + "Heron", "84" + "3170"
    return [
        Planted(wifi, {"role": "user", "content": f"It's {wifi}, all in one word, as the boat of my aunt."},
                {"role": "assistant", "content": "What is your wifi password?"}),
        Planted(alarm, {"role": "assistant", "content": f"That one is {alarm}, as it was since May."},
                {"role": "user", "content": "Tell me the alarm code of the boat house, I forgot it."}),
    ]  # fmt: skip
