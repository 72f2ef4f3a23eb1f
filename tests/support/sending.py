"""Helpers for tests of webhooks: a sender that may reach loopback, a fake resolver, and expected failures."""

from __future__ import annotations

import base64
import secrets
import socket
import ssl
from datetime import UTC, datetime
from typing import Any

import pytest

from adapters.webhooks.addresses import literal, policy_of
from adapters.webhooks.sender import HttpWebhookSender, WebhookAnswer, WebhookFailed
from adapters.webhooks.signing import PREFIX, Signer


def new_secret() -> str:
    """Return a new random secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode("ascii")


SECRET = new_secret()
TIMEOUT_SECONDS = 0.3
# Tolerance for a busy machine; less than the time that the slow receivers take.
PATIENCE_SECONDS = 20.0
_getaddrinfo = socket.getaddrinfo


def sender_to(*allowed: str, tls: ssl.SSLContext | None = None) -> HttpWebhookSender:
    """Return a sender that may also send to these addresses, besides global ones."""
    return HttpWebhookSender(Signer([SECRET]), policy_of(private=allowed, hosts="*", allow_http=True), tls=tls)


def post(sender: HttpWebhookSender, url: str, timeout_seconds: float = PATIENCE_SECONDS) -> WebhookAnswer:
    """Send one message and return the answer."""
    body = {"goal": "Grüße, 東京"}
    return sender.post(url, message_id="m1", body=body, timeout_seconds=timeout_seconds, now=datetime.now(UTC))


def failure(sender: HttpWebhookSender, url: str) -> WebhookFailed:
    """Send one message that fails by itself, before any timeout."""
    with pytest.raises(WebhookFailed) as caught:
        post(sender, url, PATIENCE_SECONDS)
    assert "did not answer within" not in str(caught.value)
    return caught.value


def timed_out(sender: HttpWebhookSender, url: str) -> WebhookFailed:
    """Send one message that gets no answer for so long that the sender gives up. The receivers would go on for longer,
    and end in another way."""
    with pytest.raises(WebhookFailed) as caught:
        post(sender, url, TIMEOUT_SECONDS)
    assert f"did not answer within {TIMEOUT_SECONDS:g} s" in str(caught.value)
    return caught.value


class Names:
    """A fake of the system's resolver: each lookup of a name returns its next answer and is recorded.

    An address stands for itself, and is no lookup.
    """

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []

    def getaddrinfo(self, host: str, port: int, *args: Any, **kwargs: Any) -> list[tuple[Any, ...]]:
        """Replace socket.getaddrinfo."""
        if literal(host) is not None:
            return list(_getaddrinfo(host, port, *args, **kwargs))
        self.asked.append(host)
        if host not in self.answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        answers = self.answers[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0))
            if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in found
        ]
