"""Sending webhooks: what a receiver gets, and that no answer, no address and no delay of a stranger does harm."""

from __future__ import annotations

import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from webhook_conformance import WebhookConformance

from adapters.webhooks.addresses import AllowedHosts
from adapters.webhooks.sender import (
    MAX_ANSWER_BYTES,
    DeliveryOutcome,
    HttpWebhookSender,
    WebhookAnswer,
    WebhookFailed,
    delivery_outcome,
    describe_answer,
)
from reverie import __version__
from support.receiver import Receiver, drip, never, receiving, say, talking
from support.scripted import ScriptedWebhookSender
from support.sending import SECRET, TIMEOUT_SECONDS, failure, post, sender_to, timed_out

LOOPBACK = AllowedHosts.parse(["127.0.0.1"])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that takes everything."""
    with receiving(SECRET) as made:
        yield made


class TestHttpWebhookSender(WebhookConformance):
    """The real one, against a receiver on loopback."""

    @pytest.fixture
    def url(self, receiver: Receiver) -> str:
        """Of the receiver."""
        return receiver.url

    @pytest.fixture
    def sender(self) -> HttpWebhookSender:
        """May send to 127.0.0.1."""
        return sender_to("127.0.0.1")


class TestScriptedWebhookSender(WebhookConformance):
    """The fake one."""

    @pytest.fixture
    def url(self) -> str:
        """Of nobody."""
        return "http://127.0.0.1:9/hook"

    @pytest.fixture
    def sender(self) -> ScriptedWebhookSender:
        """Answers 200."""
        return ScriptedWebhookSender(allow=LOOPBACK)


def test_the_script_is_followed() -> None:
    """Given an answer, an error and a function, when four are sent, then they come in turn, the last one twice."""
    script = [
        WebhookAnswer(503),
        WebhookFailed("away", passing=True),
        lambda posted: WebhookAnswer(200, body=posted.message_id.encode()),
    ]
    sender = ScriptedWebhookSender(script)
    now = datetime(2027, 3, 29, tzinfo=UTC)

    def send(number: int) -> WebhookAnswer:
        return sender.post(
            "https://agent.example/", message_id=f"m{number}", body={"n": number}, timeout_seconds=3, now=now
        )

    assert send(1).status == 503
    with pytest.raises(WebhookFailed, match="away"):
        send(2)
    assert [send(3).body, send(4).body] == [b"m3", b"m4"]
    assert [posted.body for posted in sender.posted] == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    assert sender.posted[0].now == now


def test_a_receiver_can_verify_what_it_gets(receiver: Receiver) -> None:
    """Given a receiver with the secret, then the public library verifies body and headers, and the path is kept."""
    answer = post(sender_to("127.0.0.1"), f"{receiver.url}/%C3%BC?a=b#c")

    (got,) = receiver.received
    assert answer == WebhookAnswer(200, None, b"{}")
    assert got.body == {"goal": "Grüße, 東京"}
    assert got.path == "/hook/%C3%BC?a=b"
    assert got.headers["webhook-id"] == "m1"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["user-agent"] == f"Reverie/{__version__}"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"


def test_what_the_receiver_says_comes_back() -> None:
    """Given an answer with a body, a type and Retry-After, then the caller gets all three."""
    with receiving(SECRET, status=429, content=b"slow down", Content_Type="text/plain", Retry_After="17") as receiver:
        answer = post(sender_to("127.0.0.1"), receiver.url)

    assert answer == WebhookAnswer(429, "text/plain", b"slow down", 17.0)
    assert describe_answer(answer) == "the receiver answered 429: slow down"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("9" * 40, 600.0),
        ("9" * 400, None),
        ("soon", None),
        ("-5", 0.0),
        ("Mon, 01 Jan 2024 00:00:00 +" + "9" * 20, None),
    ],
)
def test_a_retry_after_that_makes_no_sense_does_no_harm(header: str, seconds: float | None) -> None:
    """Given a header that no wait can follow from, then it is cut to ten minutes or left out."""
    with receiving(SECRET, status=503, Retry_After=header) as receiver:
        assert post(sender_to("127.0.0.1"), receiver.url).retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((status, "ok") for status in (200, 202, 204, 299)),
        *((status, "retry") for status in (408, 425, 429, 500, 503, 599)),
        (410, "gone"),
        *((status, "failed") for status in (101, 301, 304, 308, 400, 401, 404, 422, 600)),
    ],
)
def test_a_status_has_a_verdict(status: int, expected: DeliveryOutcome) -> None:
    """Given a status, then it is said whether to be done, to try again, or to give up."""
    assert delivery_outcome(WebhookAnswer(status)) == expected


def test_a_reason_is_one_short_line_without_control_characters() -> None:
    """Given an error page that would clear a terminal, then its beginning is shown on one line, as plain text."""
    shown = describe_answer(WebhookAnswer(500, body=b"\x1b[2Jno\r\n\tway\x00" + b"\xff" * 5000))
    assert shown.startswith("the receiver answered 500: [2Jno way")
    assert shown.isprintable()
    assert len(shown) < 300
    assert describe_answer(WebhookAnswer(404)) == "the receiver answered 404 with an empty body"


def test_a_redirect_is_never_followed() -> None:
    """Given a redirect to the metadata of a cloud, then nobody goes there, and the reason says where it pointed to."""
    elsewhere = "http://169.254.169.254/latest/meta-data/"
    with receiving(SECRET, status=307, Location=elsewhere) as receiver:
        answer = post(sender_to("*"), receiver.url)
        assert receiver.requests == 1

    assert delivery_outcome(answer) == "failed"
    assert elsewhere in describe_answer(answer)
    assert "never followed" in describe_answer(answer)


def test_a_redirect_to_itself_is_one_request(receiver: Receiver) -> None:
    """Given a receiver that redirects to itself, then it is asked once."""
    receiver.status, receiver.headers = 302, {"Location": receiver.url}
    assert post(sender_to("127.0.0.1"), receiver.url).status == 302
    assert receiver.requests == 1


def test_no_cookie_is_kept(receiver: Receiver) -> None:
    """Given a receiver that sets a cookie, when it is sent to again, then it does not come back."""
    receiver.headers = {"Set-Cookie": "a=b; Path=/"}
    sender = sender_to("127.0.0.1")
    for _ in range(2):
        post(sender, receiver.url)
    assert all("cookie" not in got.headers for got in receiver.received)


def test_proxies_of_the_environment_are_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given proxies that nobody answers at, then the message goes straight to its receiver."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert post(sender_to("127.0.0.1"), receiver.url).status == 200


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nx-slow: ",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 500 Broken\r\n\r\n",
    ],
    ids=["status", "headers", "body", "chunks", "error"],
)
def test_a_drip_does_not_outlast_the_timeout(beginning: bytes) -> None:
    """Given a receiver whose answer drips for ever, then the whole attempt ends at its timeout."""
    pieces = {b"": b"H", b"\r\n\r\n": b" "}
    piece = b"1\r\nx\r\n" if b"chunked" in beginning else pieces.get(beginning[-4:], b"x")
    with talking(drip(beginning, piece)) as url:
        failed = timed_out(sender_to("127.0.0.1"), url)
    assert failed.passing


def test_informational_answers_for_ever_end_at_the_timeout() -> None:
    """Given a receiver that says 103 again and again, then the attempt ends at its timeout."""
    with talking(drip(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n")) as url:
        assert timed_out(sender_to("127.0.0.1"), url).passing


def test_a_receiver_that_says_nothing_is_left_at_the_timeout() -> None:
    """Given a receiver that takes the message and never answers, then the attempt ends at its timeout."""
    with talking(never) as url:
        assert timed_out(sender_to("127.0.0.1"), url).passing


def test_a_receiver_that_does_not_read_is_left_at_the_timeout() -> None:
    """Given a body larger than all buffers and a receiver that reads none of it, then the timeout holds too."""
    with talking(never, read_first=False) as url, pytest.raises(WebhookFailed, match="within"):
        sender_to("127.0.0.1").post(
            url,
            message_id="m1",
            body={"goal": "x" * 16_000_000},
            timeout_seconds=TIMEOUT_SECONDS,
            now=datetime.now(UTC),
        )


def reset(connection: socket.socket, over: threading.Event) -> None:
    """The connection is reset instead of an answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(
    "talk",
    [
        reset,
        say(b""),
        say(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"),
        say(b"HTTP/1.1 200 OK\r\nx\r\n\r\n"),
        say(b"HTTP/1.1 200 OK\r\nx: \x00\r\n\r\n"),
        say(b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n"),
        say(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000),
        say(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000),
        say(b"SSH-2.0-OpenSSH_9.2\r\n"),
        say(b"\x00" * 1000),
    ],
    ids=["reset", "empty", "half", "header", "nul", "length", "long", "many", "ssh", "nuls"],
)
def test_what_is_no_answer_is_a_failure_that_may_pass(talk: Any) -> None:
    """Given a receiver that dies or speaks no HTTP, then the failure names it, on one line, and may pass."""
    with talking(talk) as url:
        failed = failure(sender_to("127.0.0.1"), url)
    assert failed.passing
    assert str(failed).startswith(url.removesuffix("/hook") + " did not answer")
    assert "\n" not in str(failed)


def test_a_port_where_nobody_listens_is_a_failure_that_may_pass() -> None:
    """Given a port that was just closed, then the failure may pass: a receiver may start again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert failure(sender_to("127.0.0.1"), f"http://127.0.0.1:{port}/").passing


def test_an_answer_of_a_mebibyte_is_the_longest() -> None:
    """Given an answer of exactly what is allowed, then it is taken; of one byte more, then it is a failure for good."""
    with receiving(SECRET, content=b"x" * MAX_ANSWER_BYTES) as receiver:
        assert len(post(sender_to("127.0.0.1"), receiver.url).body) == MAX_ANSWER_BYTES
        receiver.content += b"x"
        failed = failure(sender_to("127.0.0.1"), receiver.url)
    assert not failed.passing
    assert "1,048,576 bytes" in str(failed)


def test_an_answer_without_an_end_is_cut_off() -> None:
    """Given ten megabytes in chunks, then no more than a mebibyte of them is kept."""
    chunk = b"%x\r\n%s\r\n" % (65536, b"x" * 65536)
    with talking(say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk * 160)) as url:
        assert not failure(sender_to("127.0.0.1"), url).passing


def test_a_long_error_page_is_cut_and_its_status_counts() -> None:
    """Given a 503 with ten megabytes, then it is a 503, with the beginning of the page."""
    with receiving(SECRET, status=503, content=b"x" * 10_000_000) as receiver:
        answer = post(sender_to("127.0.0.1"), receiver.url)
    assert delivery_outcome(answer) == "retry"
    assert len(answer.body) == MAX_ANSWER_BYTES


def test_a_compressed_answer_is_not_unpacked() -> None:
    """Given ten megabytes in ten kilobytes, though asked for a plain body, then it is a failure for good."""
    bomb = zlib.compress(b"x" * 10_000_000)
    with receiving(SECRET, content=bomb, Content_Encoding="deflate") as receiver:
        failed = failure(sender_to("127.0.0.1"), receiver.url)
        receiver.status = 500
        answer = post(sender_to("127.0.0.1"), receiver.url)
    assert not failed.passing
    assert "deflate" in str(failed)
    assert receiver.received[0].headers["accept-encoding"] == "identity"
    assert (answer.status, answer.body) == (500, b"")
