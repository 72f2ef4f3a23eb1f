"""Signatures, secrets, and the secret that an installation makes for itself."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from adapters.webhooks import Signer, installation_secret, new_secret
from adapters.webhooks.signing import decode_secret
from reverie.errors import Rejected, StoreUnavailable, StoreUnusable

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


def test_an_installation_keeps_its_secret(tmp_path: Path) -> None:
    """Given an empty data folder, when the secret is asked for twice, then one is made, for its owner's eyes only."""
    data = tmp_path / "new" / "data"

    secret = installation_secret(data)

    assert installation_secret(data) == secret
    assert Signer([secret])
    assert [path.name for path in data.iterdir()] == ["webhook.secret"]
    assert (data / "webhook.secret").stat().st_mode & 0o777 == 0o600
    assert data.stat().st_mode & 0o777 == 0o700


def test_threads_that_ask_at_once_get_one_secret(tmp_path: Path) -> None:
    """Given sixteen threads and an empty folder, when all ask, then all get the same, and no draft is left."""
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(installation_secret, [tmp_path] * 64))
    assert len(found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["webhook.secret"]


def test_processes_that_ask_at_once_get_one_secret(tmp_path: Path) -> None:
    """Given four processes that start together, when all ask, then all get the same."""
    code = (
        "import sys, pathlib\n"
        "from adapters.webhooks.secret_file import installation_secret\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(installation_secret(pathlib.Path(sys.argv[1])))\n"
    )
    root = Path(__file__).resolve().parents[2]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"

    found = set()
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        found.add(process.communicate(timeout=60)[0])

    assert found == {(tmp_path / "webhook.secret").read_text()}


@pytest.mark.parametrize("step", ["fsync", "link", "unlink"])
def test_a_crash_while_a_secret_is_made_leaves_none_or_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Given a process that dies between two steps, when another asks, then it gets a secret that stays."""

    def die(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        # A dead process cleans nothing up.
        dying.setattr(Path, "unlink", die if step == "unlink" else lambda *args, **kwargs: None)
        if step != "unlink":
            dying.setattr(os, step, die)
        with pytest.raises(KeyboardInterrupt):
            installation_secret(tmp_path)
    before = (tmp_path / "webhook.secret").read_text() if step == "unlink" else None

    secret = installation_secret(tmp_path)

    assert Signer([secret])
    assert installation_secret(tmp_path) == secret
    assert before in (None, f"{secret}\n")


def test_a_secret_that_the_operator_put_there_is_used(tmp_path: Path) -> None:
    """Given a file that was written by hand, then it is what is signed with."""
    (tmp_path / "webhook.secret").write_text(f"  {secret_of(24)}\r\n")
    assert installation_secret(tmp_path) == secret_of(24)


@pytest.mark.parametrize("content", [b"", b"topsecret", b"\xff\x00topsecret", b"whsec_topsecret"])
def test_a_file_that_holds_no_secret_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    """Given a file with something else in it, then it is left alone, and the error says what to do."""
    path = tmp_path / "webhook.secret"
    path.write_bytes(content)

    with pytest.raises(StoreUnusable, match="remove the file") as caught:
        installation_secret(tmp_path)

    assert "topsecret" not in str(caught.value)
    assert path.read_bytes() == content


def test_a_disk_that_refuses_is_an_error_to_try_again_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a full disk, then the error is StoreUnavailable, names the path, and leaves no draft behind."""

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(StoreUnavailable, match="No space left"):
        installation_secret(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_a_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Given a folder where the file should be, then the error is StoreUnavailable and names the path."""
    (tmp_path / "webhook.secret").mkdir()
    with pytest.raises(StoreUnavailable, match=r"webhook\.secret"):
        installation_secret(tmp_path)
