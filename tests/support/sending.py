"""Sending webhooks in tests: a sender that may reach loopback, names that mean what a test says, failures in time."""

from __future__ import annotations

import socket
import ssl
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from adapters.webhooks import AllowedHosts, HttpWebhookSender, Signer, WebhookAnswer, WebhookFailed, new_secret

SECRET = new_secret()
TIMEOUT_SECONDS = 0.3
# A machine that is busy with other tests may be late, but not by as long as the slow receivers would take.
PATIENCE_SECONDS = 5.0


def sender_to(*allowed: str, tls: ssl.SSLContext | None = None) -> HttpWebhookSender:
    """A sender that may send to these beside what is global."""
    return HttpWebhookSender(Signer([SECRET]), AllowedHosts.parse(allowed), tls=tls)


def post(sender: HttpWebhookSender, url: str, timeout_seconds: float = 5.0) -> WebhookAnswer:
    """Send one message now."""
    body = {"goal": "Grüße, 東京"}
    return sender.post(url, message_id="m1", body=body, timeout_seconds=timeout_seconds, now=datetime.now(UTC))


def failure(sender: HttpWebhookSender, url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> WebhookFailed:
    """Send one message that gets no answer, within the time allowed."""
    began = time.monotonic()
    with pytest.raises(WebhookFailed) as caught:
        post(sender, url, timeout_seconds)
    assert time.monotonic() - began < timeout_seconds + PATIENCE_SECONDS
    return caught.value


class Names:
    """Stands in for the system's resolver: each look-up of a name gives its next answer, and is counted."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []

    def getaddrinfo(self, host: str, port: int, **kwargs: Any) -> list[tuple[Any, ...]]:
        """As socket.getaddrinfo."""
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
