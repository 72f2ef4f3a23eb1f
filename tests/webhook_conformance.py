"""What every webhook sender must do. A test class inherits this and gives a `sender` and the `url` of a receiver."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import msgspec
import pytest

from adapters.webhooks.sender import WebhookAnswer, WebhookRefused, WebhookSender, delivery_outcome


class Message(msgspec.Struct):
    """A body to send."""

    type: str
    text: str


def post(sender: WebhookSender, url: str, message_id: str = "m1") -> WebhookAnswer:
    """Send one message now."""
    return sender.post(
        url, message_id=message_id, body={"goal": "Grüße, 東京"}, timeout_seconds=60, now=datetime.now(UTC)
    )


class WebhookConformance:
    """Inherit in a class named Test..., and give the fixtures `sender` and `url`, whose receiver answers 200.

    The sender may send to 127.0.0.1 and to no other address that is not global.
    """

    def test_it_tells_what_the_receiver_answered(self, sender: WebhookSender, url: str) -> None:
        """Given a receiver that takes a message, then its answer is one that is ok."""
        assert delivery_outcome(post(sender, url)) == "ok"

    def test_a_struct_may_be_sent(self, sender: WebhookSender, url: str) -> None:
        """Given a struct for a body, then it is taken as JSON."""
        body = Message("reminder.due", "call Ana")
        answer = sender.post(url, message_id="m2", body=body, timeout_seconds=60, now=datetime.now(UTC))
        assert answer.status == 200

    def test_it_sends_from_several_threads(self, sender: WebhookSender, url: str) -> None:
        """Given sixteen threads, when all send at once, then all are answered."""
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda number: post(sender, url, f"m{number}"), range(64)))
        assert {answer.status for answer in answers} == {200}

    @pytest.mark.parametrize("refused", ["", "agent.example/hook", "ftp://agent.example/", "http://10.0.0.1/hook"])
    def test_what_is_no_allowed_url_is_refused(self, sender: WebhookSender, refused: str) -> None:
        """Given no URL, another scheme or a private address, then nothing is sent, now or later."""
        with pytest.raises(WebhookRefused):
            post(sender, refused)

    @pytest.mark.parametrize("message_id", ["", "a b", "a\r\nx: y", "ü"])
    def test_an_id_must_fit_into_a_header(self, sender: WebhookSender, url: str, message_id: str) -> None:
        """Given an id that no header can carry, then the caller is told so."""
        with pytest.raises(ValueError, match="message_id"):
            post(sender, url, message_id)

    def test_a_time_must_have_a_zone(self, sender: WebhookSender, url: str) -> None:
        """Given a time without a zone, then the caller is told so: it would be signed wrongly."""
        with pytest.raises(ValueError, match="zone"):
            sender.post(url, message_id="m1", body={}, timeout_seconds=60, now=datetime(2027, 3, 29))
