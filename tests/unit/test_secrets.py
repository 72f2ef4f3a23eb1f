"""Secrets: the well-known forms and the ways in which people state them are found, and ordinary talk is not.

No key here was ever one. Each is put together from parts, so that no scanner of repositories takes it for one.
"""

from __future__ import annotations

import random
import re
import string
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import secrets
from memory.secrets import REDACTED, Searched, asks_for_secret, looks_secret, redacted
from support.hostile_texts import SEARCHED_FOR_SECRETS
from support.patterns import pumps_of
from support.work import count_calls

pytestmark = pytest.mark.slow

LETTERS = string.ascii_letters + string.digits


def noise(length: int, alphabet: str = LETTERS, *, seed: int = 7) -> str:
    """Characters by chance, the same ones in each run, with a digit, a capital and a small letter among them."""
    chosen = random.Random(seed)
    while True:
        found = "".join(chosen.choice(alphabet) for _ in range(length))
        if alphabet != LETTERS or (any(c.isdigit() for c in found) and found.lower() != found != found.upper()):
            return found


HEX = "0123456789abcdef"
CAPITALS = string.ascii_uppercase + string.digits
KEYS = {
    "OpenAI": "sk-" + noise(48),
    "OpenAI project": "sk-" + "proj-" + noise(60, LETTERS + "-_"),
    "Anthropic": "sk-" + "ant-api03-" + noise(90, LETTERS + "-_") + "A",
    "OpenRouter": "sk-" + "or-v1-" + noise(64, HEX),
    "Groq": "gsk" + "_" + noise(52),
    "Hugging Face": "hf" + "_" + noise(34),
    "AWS": "AKIA" + noise(16, CAPITALS),
    "AWS, for a while": "ASIA" + noise(16, CAPITALS),
    "Google": "AIza" + noise(35, LETTERS + "-_")[:-1] + "x",
    "GitHub": "ghp" + "_" + noise(36),
    "GitHub server": "ghs" + "_" + noise(36),
    "GitHub, fine": "github" + "_pat_" + noise(22) + "_" + noise(59),
    "GitLab": "glpat" + "-" + noise(20),
    "Slack bot": "xox" + "b-" + noise(12, string.digits) + "-" + noise(12, string.digits) + "-" + noise(24),
    "Stripe": "sk" + "_live_" + noise(24),
    "Stripe, limited": "rk" + "_test_" + noise(24),
    "npm": "npm" + "_" + noise(36),
    "PyPI": "pypi" + "-AgEIcHlwaS5vcmc" + noise(80, LETTERS + "-_"),
    "Docker": "dckr" + "_pat_" + noise(27),
    "Twilio": "SK" + noise(32, HEX),
    "SendGrid": "SG" + "." + noise(22) + "." + noise(43),
    "DigitalOcean": "dop" + "_v1_" + noise(64, HEX),
    "Shopify": "shpat" + "_" + noise(32, HEX),
    "Databricks": "dapi" + noise(32, HEX),
    "Telegram": "1234567890" + ":AA" + noise(33, LETTERS + "-_"),
    "age": "AGE-SECRET-" + "KEY-1" + noise(58, CAPITALS),
}
WEB_TOKEN = "ey" + "JhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + noise(43, LETTERS + "-_")
BLOCK = "-----BEGIN " + "RSA PRIVATE KEY-----\n" + noise(64) + "\n-----END " + "RSA PRIVATE KEY-----"
CARD = "4111" + "1111" + "1111" + "1111"
IBAN = "DE89" + " 3704" + " 0044" + " 0532" + " 0130" + " 00"


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_keys_of_well_known_forms_are_found_wherever_they_stand(key: str) -> None:
    """Given a key of a service, in prose or in a file, then it is found, and redaction leaves nothing of it."""
    assert looks_secret(key) == "API key"
    for around in (
        *("{}", "my key is {}.", "export KEY={}", '{{"key": "{}"}}'),
        *("see ({}), please", "a={}&b=2", "\n{}\n"),
    ):
        text = around.format(key)
        assert looks_secret(text) is not None, text
        assert key[8:] not in redacted(text), text


@pytest.mark.parametrize(
    ("text", "kind", "secret"),
    [
        (f"the cookie holds {WEB_TOKEN}", "JSON web token", WEB_TOKEN),
        (f"Authorization: Bearer {noise(30)}", "bearer token", noise(30)),
        (f"send 'Bearer {noise(20)}' along", "bearer token", noise(20)),
        ("Authorization: Basic " + "dXNlcjpodW50ZXIy", "bearer token", "dXNlcjpodW50ZXIy"),
        (f"here it is:\n{BLOCK}\nkeep it", "private key", BLOCK),
        (BLOCK[:70], "private key", BLOCK[:70]),
        ("-----BEGIN " + "PGP PRIVATE KEY BLOCK-----\nabc", "private key", "abc"),
        ("postgres://app:" + "s3cr3t@db.local:5432/app", "connection string", "s3cr3t"),
        ("redis://:" + "p4ss@cache:6379/0", "connection string", "p4ss"),
        ("https://ana:" + "token123@example.org/repo.git", "connection string", "token123"),
        ("mongodb+srv://ana:" + "Zq9!x@cluster0.example.net", "connection string", "Zq9!x"),
        ("hash $2b$" + "12$" + noise(53), "password hash", noise(53)),
        ("https://hooks.slack.com/services/" + "T0AB12CD3/B0AB12CD3/" + noise(24), "webhook", noise(24)),
        ("curl -u admin:" + "sup3rs3cret https://x.example", "password", "sup3rs3cret"),
        ("https://files.example/a?sig=" + noise(30), "signed URL", noise(30)),
        ("Server=db;User Id=sa;Password=" + "Zx81!q;", "password", "Zx81!q"),
        ("STRIPE_" + "KEY=" + noise(24), "secret value", noise(24)),
        ("API_" + "KEY=" + "a1b2c3d4e5f6", "secret value", "a1b2c3d4e5f6"),
        ('{"client_' + 'secret": "' + "9f8e7d6c-aaaa-bbbb-cccc-1234567890ab" + '"}', "secret value", "9f8e7d6c"),
        ("x-api-key: " + "0123456789abcdef", "secret value", "0123456789abcdef"),
        ("my api key is " + "q7w8e9r0t1y2", "secret value", "q7w8e9r0t1y2"),
        ("AWS_SECRET_ACCESS_" + "KEY=" + noise(40, LETTERS + "+/"), "secret value", noise(40, LETTERS + "+/")),
        ("use the token " + noise(20), "secret value", noise(20)),
        ("private key: 0x" + noise(64, HEX), "secret value", noise(64, HEX)),
        ("it is " + noise(32) + " in full", "high-entropy token", noise(32)),
        ("it is " + noise(40, LETTERS + "+/") + "==", "high-entropy token", noise(40, LETTERS + "+/")),
    ],
)
def test_tokens_and_credentials_are_found(text: str, kind: str, secret: str) -> None:
    """Given credentials as they stand in headers, files and addresses, then they are found and redacted."""
    assert looks_secret(text) == kind
    assert secret not in redacted(text)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("my password is hunter2", "hunter2"),
        ("My password is swordfish.", "swordfish"),
        ("The user's password is hunter2.", "hunter2"),
        ("password: Tr0ub4dor&3", "Tr0ub4dor&3"),
        ("password=letmein", "letmein"),
        ("PASSWORD = 'correct horse'", "correct horse"),
        ('{"password": "hunter2"}', "hunter2"),
        ("dbPassword: hunter2", "hunter2"),
        ("DB_PASSWORD=hunter2", "hunter2"),
        ("the password for the office wifi is Blaubeere99", "Blaubeere99"),
        ("the wifi password is: gruen-4711", "gruen-4711"),
        ('the password is "open sesame"', "open sesame"),
        ("the password was “open sesame”", "open sesame"),
        ("I changed my password to N3w!pass yesterday", "N3w!pass"),
        ("log in with password hunter2 please", "hunter2"),
        ("hunter2 is my email password", "hunter2"),
        ("pw: s3cret!", "s3cret!"),
        ("pwd=s3cret!", "s3cret!"),
        ("Mein Passwort ist Geheim123", "Geheim123"),
        ("mon mot de passe est Soleil42", "Soleil42"),
        ("mi contraseña es Girasol7", "Girasol7"),
        ("密码是hunter2", "hunter2"),
        ("<password>hunter2</password>", "hunter2"),
        ("password -> hunter2", "hunter2"),
        ("wifi: ssid Home, password Zebra-77", "Zebra-77"),
        ("the password is now hunter2", "hunter2"),
        ("The new password will be hunter2", "hunter2"),
        ("let's use hunter2 as the password", "hunter2"),
        ("sshpass -p hunter2 ssh host", "hunter2"),
        ("my password is ilovecats and my user is ana", "ilovecats"),
        ("Login: ana\nPassword: fluffy\nServer: mail", "fluffy"),
        ("My password is Pässwört1", "Pässwört1"),
        ("my wifi password starts with Falcon-20", "Falcon-20"),
        ("my password is spelled z-e-b-r-a-7", "z-e-b-r-a-7"),
        ("the rest is Riverbed-204 for my wifi password", "Riverbed-204"),
        ("Rex9911 which is my password too", "Rex9911"),
        ("remind me to change the password from Osprey_901", "Osprey_901"),
        ("I log in with Gr3en!Kettle everywhere", "Gr3en!Kettle"),
        ("guests get into our wlan with BlauReiher88", "BlauReiher88"),
        ("my login for the router is admin / kumquat4417", "kumquat4417"),
        ("Mein WLAN-Schlüssel ist Himmel-9917", "Himmel-9917"),
    ],
)
def test_stated_passwords_are_found(text: str, secret: str) -> None:
    """Given a sentence or a line that says what a password is, then it is found, and only it is redacted."""
    assert looks_secret(text) == "password"
    assert secret not in redacted(text)
    assert "pass" not in text.lower() or "pass" in redacted(text).lower()


@pytest.mark.parametrize(
    "text",
    [
        "my passphrase is correct horse battery staple",
        "The passphrase for the laptop is correct horse battery staple.",
        "seed phrase: apple river stone cloud window table seven",
        "my recovery phrase is apple river stone cloud horse table for the wallet",
    ],
)
def test_stated_passphrases_are_found(text: str) -> None:
    """Given several words that are said to be a passphrase, then they are found."""
    assert looks_secret(text) == "passphrase"
    assert "river" not in redacted(text)
    assert "horse" not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "my PIN is 4821",
        "PIN: 0421",
        "the pin code for the safe is 90210",
        "The door code is 4 8 2 1.",
        "CVV: 123",
        "your verification code is 123-456",
        "the alarm code is 7731#",
        "The combination of the safe is 12-34-56",
        "the garage code is 4711",
        "6627 is the gate code",
        "I open the garage with 6627 as code",
        "771 904 came by SMS as verification code",
        "mon code secret est le 90417",
        "my recovery codes are 1234-5678 and 2233-4455",
    ],
)
def test_stated_codes_are_found(text: str) -> None:
    """Given a PIN or a code with its name, then it is found."""
    assert looks_secret(text) == "PIN or code"
    assert not any(character.isdigit() for character in redacted(text))


@pytest.mark.parametrize(
    "number",
    [
        CARD,
        "4111-1111" + "-1111-1111",
        "4111 1111" + " 1111 1111",
        "4111.1111" + ".1111.1111",
        "4111\u00a01111" + "\u00a01111\u00a01111",
        "5500" + "005555555559",
        "2223" + "003122003222",
        "3782 822463" + " 10005",
        "3056" + "9309025904",
        "6011" + "0009 9013 9424".replace(" ", ""),
        "3530" + "111333300000",
        "6200" + "000000000005",
    ],
)
def test_card_numbers_are_found(number: str) -> None:
    """Given the numbers that the networks give out for tests, with separators or without, then they are found."""
    assert looks_secret(f"charge it to {number}, please") == "card number"
    assert redacted(f"charge it to {number}, please") == f"charge it to {REDACTED}, please"


@pytest.mark.parametrize(
    "number",
    [
        IBAN,
        IBAN.replace(" ", ""),
        IBAN.replace(" ", "").lower(),
        "GB82 WEST" + " 1234 5698 7654 32",
        "FR14 2004 1010" + " 0505 0001 3M02 606",
    ],
)
def test_ibans_are_found(number: str) -> None:
    """Given an IBAN whose check digits are right, then it is found, and what follows it is kept."""
    assert looks_secret(f"pay to {number} today") == "IBAN"
    assert redacted(f"pay to {number} ASAP") == f"pay to {REDACTED} ASAP"


@pytest.mark.parametrize(
    "text",
    [
        "my passport number is C01X00T478",
        "my tax id is 86 095 742 719",
        "my driver's license number is F255-9215-0094",
        "my bank account number is 12345678",
        "my social is 536-90-4399",
    ],
)
def test_numbers_of_papers_are_found_where_they_are_named(text: str) -> None:
    """Given the number of a passport or the like, then it is found."""
    assert looks_secret(text) == "identity number"
    assert not any(character.isdigit() for character in redacted(text))


def test_other_things_that_open_a_door_are_found() -> None:
    """Given the words or the key of a wallet, or what a security question asks for, then they are found."""
    words = "legal winner thank year wave sausage worth useful legal winner thank yellow"
    assert redacted(f"my wallet is {words}") == f"my wallet is {REDACTED}"
    assert looks_secret("my wallet is brown leather") is None
    assert REDACTED in redacted("my wallet is 0x" + "4c0883a69102937d" * 4)
    assert redacted("my security answer is Blue Heron Street.") == f"my security answer is {REDACTED}."
    assert REDACTED in redacted("The API key of the dashboards is " + "9775a026f1ca7d1c" * 2)


@pytest.mark.parametrize("text", ["my SSN is 123-45-6789", "social security number: 123 45 6789", "123-45-6789 (ssn)"])
def test_social_security_numbers_are_found_where_they_are_named(text: str) -> None:
    """Given nine digits that are said to be such a number, then they are found."""
    assert looks_secret(text) == "social security number"
    assert "6789" not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "I live in Berlin and prefer tea.",
        "",
        "I forgot my password again",
        "my password is expired",
        "My password is not working.",
        "the password is too short",
        "the password is stored in the vault",
        "the password for the wifi is on the fridge",
        "password is required",
        "a password starts with letters",
        "2. **Annual Passholder Discounts**: As an annual passholder, you save",
        "I log in with my phone",
        "I sign in with GitHub2 and get in with ease",
        "I got into trouble with him in 1987",
        "my passport is valid until 2031",
        "my account was opened on 2024-05-06",
        "1999 is the year, and 4021 is the zip code",
        "Password: required",
        "password: str",
        "password: string;",
        "password = None",
        "password = get_password()",
        'password = os.environ["DB_PASSWORD"]',
        "password=settings.password",
        "password=${DB_PASSWORD}",
        "PASSWORD={{ vault.password }}",
        "password: <your password>",
        "password: ********",
        "password: [redacted]",
        "I use a password manager: Bitwarden.",
        "The password must have at least 12 characters.",
        "password: 12 characters or more",
        "my password is 16-character",
        "I changed my password to something stronger.",
        "What is my password?",
        "PASS: test_foo (0.12s)",
        "beyond 2 GiB, pass force_zip64 to it",
        "https://news.example.org/ca4594c6-1102-4939-b090-61f8",
        "password: bytes,",
        "FAIL/PASS = 3/27, pass=27 fail=3",
        "password SHA256 hashes are slow enough",
        "set the token msg_" + noise(24),
        "key: value; the key is under the mat",
        "invoice number 2024-000123, room 4711",
        "it asks for no password: leave it on loopback",
        "The cause may pass: try again later.",
        "no password is shown",
        "self.key_password = key_password",
        "We have to pass to: the next stage",
        "passphrase: Optional[bytes] = None",
        "Bearer Token: https://tools.example.org/html/rfc6750",
        "Change-Id: Idf28379f8705e403a3c6a937f6a798a042ef2540",
        "This is my password policy",
        "We use two-factor authentication instead of passwords.",
        "the secret is to use more butter",
        "The token is expired.",
        "tokenizer: all-MiniLM-L6-v2",
        "max_tokens=4096",
        "the token budget is 100000",
        "api_key: required",
        "API_KEY=your-api-key-here",
        "api_key=settings.api_key",
        "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "Set the Bearer authentication-mechanism of the gateway",
        "the bearer of this letter",
        "My passphrase is something that I keep to myself",
        "My passphrase is usually very hard to guess",
        "call me at +49 170 1234567 or (555) 010-9999",
        "+1 415 555 2671",
        "the PIN is on the back",
        "connect pin 13 to ground; the pin is 13",
        "the meeting is on 2026-05-01 at 09:30:00.123456Z",
        "01.05.2026 12:30",
        "order 1234567890123456 was shipped",
        "at 1764561234567890 microseconds",
        "tracking number 4111 1111 1111 1112",
        "snowflake 417389472873984713",
        "550e8400-e29b-41d4-a716-446655440000",
        "message 01890a5d-ac96-774b-bcce-b302099a8057 was stored",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b fixed it",
        "bisect says 89e6c98d92887913cadf06b2adb97f26cde4849b is bad",
        "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        '"integrity": "sha512-' + noise(86, LETTERS + "+/") + '=="',
        "SHA256:" + noise(43, LETTERS + "+/"),
        "ssh-ed25519 AAAA" + noise(64, LETTERS + "+/") + " ana@laptop",
        "-----BEGIN PUBLIC KEY-----\n" + noise(64, LETTERS + "+/") + "\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----\n" + noise(64, LETTERS + "+/") + "\n-----END CERTIFICATE-----",
        "https://docs.google.com/document/d/" + noise(44) + "/edit",
        "https://www.youtube.com/watch?v=dQw4w9WgXcQ",
        "see https://example.org:8080/@ana/posts?page=2",
        "git@github.com:example/project.git",
        "https://user@example.org/",
        "ana.schmidt.1987@mail.example.org",
        "msg_" + noise(24) + " and toolu_" + noise(24),
        "cus_" + noise(24),
        "AbstractSingletonProxyFactoryBean2Implementation",
        "test_that_HTTP2_and_TLS13_work_with_IPv6_and_UTF8",
        "src/components/UserProfileCardV2/UserProfileCardV2.stories.tsx",
        "GPT4AndClaude3CompareLongContextRecallAt100kTokens",
        "com.example.project.Module2.SubModuleName3.ClassName",
        "all-MiniLM-L6-v2-onnx-quantized-avx512-vnni",
        "Qwen2.5-Coder-32B-Instruct-AWQ-Int4-GPTQ-Q4_K_M",
        "docker run -u 1000:1000 image",
        "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
        "192.168.100.200, 2001:0db8:85a3:0000:0000:8a2e:0370:7334",
        "ISBN 978-3-16-148410-0",
        "123-45-6789 is the part number",
        "0x1234567890abcdef1234567890abcdef12345678",
        "ACGTACGTACGTACGTACGTACGTACGTACGT",
        "the train leaves at 10:15 from platform 4, seat 61 in coach 23",
        "Wait, is the passcode needed? It is 4 digits long.",
        "grüße aus 東京 🏕️",
        "a" * 500,
        "=" * 80,
    ],
)
def test_ordinary_talk_is_no_secret(text: str) -> None:
    """Given sentences, dates, phone numbers, ids, hashes, addresses and code, then nothing is found or redacted."""
    assert looks_secret(text) is None, redacted(text)
    assert redacted(text) == text


def test_several_secrets_are_all_redacted() -> None:
    """Given a text with three secrets, one of them within another, then each is gone and the words between stay."""
    text = f"password: hunter2, card {CARD}, and export TOKEN={KEYS['GitHub']} for CI"
    assert redacted(text) == f"password: {REDACTED}, card {REDACTED}, and export TOKEN={REDACTED} for CI"


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(st.sampled_from([*KEYS.values(), CARD, IBAN, "my password is hunter2", BLOCK]), st.text(max_size=20)),
        max_size=6,
    )
)
def test_what_was_redacted_holds_no_secret(pieces: list[str]) -> None:
    """Given any mixture of secrets and text, when it was redacted, then nothing is found in it any more."""
    assert looks_secret(redacted("\n".join(pieces))) is None


@pytest.mark.parametrize("piece", SEARCHED_FOR_SECRETS)
def test_a_long_text_is_searched_once_by_each_form(piece: str) -> None:
    """Given 200,000 characters of what the forms begin with, then twice the text takes twice the calls, or no more."""
    half, whole = (
        count_calls(partial(looks_secret, piece * (characters // len(piece)))) for characters in (100_000, 200_000)
    )
    assert whole < 2.2 * half


@pytest.mark.parametrize(
    "question",
    [
        "What is your wifi password?",
        "what's the PIN of the card",
        "Sure. Which API key do you use?",
        "Please tell me the alarm code, I forgot it.",
        "Can you share the access token with me?",
        "Please enter your PIN so that I can check.",
    ],
)
def test_who_asks_for_a_secret_is_noticed(question: str) -> None:
    """Given a question whose answer is a secret, then that is known before there is an answer."""
    assert asks_for_secret(question)


@pytest.mark.parametrize(
    "text",
    [
        "Which password manager do you like?",
        "Where do you live?",
        "Should I pin it to the wall?",
        "What is the token limit of this model?",
        "I forgot my password again.",
        "What happened to the code of the shop?",
    ],
)
def test_other_questions_ask_for_no_secret(text: str) -> None:
    """Given talk about secrets or other things, then nothing is taken for a question for one."""
    assert not asks_for_secret(text)


@pytest.mark.parametrize("name", [name for name, form in vars(secrets).items() if isinstance(form, re.Pattern)])
def test_no_form_is_skipped_in_a_text_that_has_it(name: str) -> None:
    """Given texts that a form matches, in both cases, then it is searched for: the text has one of its words."""
    form: re.Pattern[str] = getattr(secrets, name)
    samples = [pump.before + pump.repeated + pump.after for pump in pumps_of(form, seed=3, limit=300)]
    matched = [text for one in samples for text in (one, one.upper(), one.lower()) if form.search(text)]
    for text in matched:
        assert next(Searched(text).find(form), None) is not None, text


def test_letters_that_only_look_like_those_of_a_word_do_not_hide_it() -> None:
    """Given a long s and a dotless i, which patterns take for an s and an i, then the secret is found."""
    assert looks_secret("my pa\u017f\u017fword is Zebra77x") == "password"
    assert looks_secret("my p\u0131n is 4711") == "PIN or code"


@pytest.mark.parametrize("before", [0, 12_280, 16_370, 16_384, 28_660, 100_000])
def test_a_secret_is_found_wherever_it_stands_in_a_long_text(before: int) -> None:
    """Given a long text, which is searched in windows, then what stands where two meet is redacted as a whole."""
    padding = ("a word " * (before // 7 + 1))[:before]
    text = f"{padding}. My password is Zebra77-Okapi. {'more words ' * 3_000}"
    assert redacted(text) == text.replace("Zebra77-Okapi", REDACTED)
