"""Signatures and secrets of webhooks."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from adapters.webhooks.signing import Signer, decode_secret
from reverie.errors import Rejected
from support.sending import new_secret

BODY = '{"goal":"Grüße, 東京"}'.encode()


def secret_of(length_bytes: int) -> str:
    """A secret of this many bytes."""
    return "whsec_" + base64.b64encode(b"k" * length_bytes).decode()


def test_what_is_signed_verifies_with_the_public_library() -> None:
    """Given a body, when it is signed in any zone, then a receiver with the secret gets it back."""
    secret = new_secret()
    now = datetime.now(timezone(timedelta(hours=-9, minutes=-30)))

    headers = Signer([secret]).headers("m1", BODY, now)

    assert Webhook(secret).verify(BODY, headers) == json.loads(BODY)
    assert headers["webhook-id"] == "m1"
    assert headers["webhook-timestamp"] == str(int(now.timestamp()))


def test_the_signature_is_that_of_the_specification() -> None:
    """Given the specification's published example, then the signature is the published one."""
    signer = Signer(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])

    headers = signer.headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', datetime.fromtimestamp(1614265330, UTC)
    )

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_secrets_change_every_one_of_them_verifies() -> None:
    """Given two secrets, then a receiver that knows either accepts the message, and one that knows neither does not."""
    old, new = new_secret(), new_secret()

    headers = Signer([new, old]).headers("m1", BODY, datetime.now(UTC))

    assert headers["webhook-signature"].count(" ") == 1
    for secret in (old, new):
        assert Webhook(secret).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(BODY, headers)


def test_a_changed_body_or_id_does_not_verify() -> None:
    """Given a signed message, when one byte of it changes, then it is not verified."""
    secret = new_secret()
    headers = Signer([secret]).headers("m1", BODY, datetime.now(UTC))

    for body, changed in ((BODY + b" ", headers), (BODY, {**headers, "webhook-id": "m2"})):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body, changed)


@pytest.mark.parametrize("length_bytes", [24, 32, 64])
def test_a_secret_has_24_to_64_bytes(length_bytes: int) -> None:
    """Given a secret of the specification's length, then it is taken, with padding or without."""
    assert decode_secret(secret_of(length_bytes), source="it") == b"k" * length_bytes
    assert decode_secret(secret_of(length_bytes).rstrip("="), source="it") == b"k" * length_bytes


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ("", "whsec_"),
        ("topsecret", "whsec_"),
        ("whsec_", "0 bytes"),
        (secret_of(23), "23 bytes"),
        (secret_of(65), "65 bytes"),
        ("whsec_topsecret topsecret topsecret topsecret", "base64"),
        ("whsec_topsecret-topsecret_topsecrettopsecret", "base64"),
        ("whsec_topsecrettopsecrettopsecrettopsecret12345", "base64"),
        ("whsec_ütopsecret", "base64"),
    ],
)
def test_what_is_no_secret_is_rejected_and_never_shown(secret: str, why: str) -> None:
    """Given a secret that receivers could not use, then the error says which, why and how to make one, not what."""
    with pytest.raises(Rejected, match=why) as caught:
        Signer([new_secret(), secret])
    assert caught.value.field == "webhook_secret"
    assert "secret 2 of webhook_secret" in str(caught.value)
    assert "openssl rand" in str(caught.value)
    assert "topsecret" not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_no_secret_at_all_is_rejected() -> None:
    """Given an empty list, then it is rejected: nothing goes out unsigned."""
    with pytest.raises(Rejected, match="at least one"):
        Signer([])


def test_a_signer_does_not_show_its_keys() -> None:
    """Given a signer, when it is printed, then there is nothing of a secret in it."""
    secret = new_secret()
    signer = Signer([secret])
    assert repr(signer) == "Signer(1 secrets)"
    assert secret[6:] not in f"{signer.__dict__}"
