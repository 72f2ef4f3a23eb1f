"""Where webhooks arrive: only at addresses that were checked, by name under TLS, and from many threads at once."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters import calls
from adapters.webhooks.sender import WebhookRefused
from support.certificate import write_certificate
from support.receiver import Receiver, drip, receiving, say, talking
from support.sending import PATIENCE_SECONDS, SECRET, Names, failure, post, sender_to, timed_out


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that takes everything."""
    with receiving(SECRET) as made:
        yield made


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Names that mean what a test says; no other name means anything."""
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    return made


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were connected to, none of which answers."""
    made: list[str] = []

    def refuse(address: tuple[str, int], timeout: float) -> socket.socket:
        made.append(address[0])
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", refuse)
    return made


def test_errors_do_not_show_path_query_or_key() -> None:
    """Given a URL with secrets in path and query, then errors name the receiver and nothing else of it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/hidden?token=hidden"
    sender = sender_to("127.0.0.1")
    with pytest.raises(WebhookRefused) as refused:
        post(sender_to(), url)
    for error in (failure(sender, url), refused.value):
        assert "hidden" not in str(error)
    assert SECRET[6:] not in f"{vars(sender)}"


def test_a_name_is_looked_up_once_and_what_was_checked_is_connected_to(names: Names, tried: list[str]) -> None:
    """Given a name that is global when it is checked and loopback afterwards, then only the first answer counts."""
    names.answers["agent.example"] = [["93.184.216.34", "2606:2800::1"], ["127.0.0.1"]]

    failed = failure(sender_to(), "http://agent.example/hook")

    assert failed.passing
    assert names.asked == ["agent.example"]
    assert tried == ["93.184.216.34", "2606:2800::1"]


def test_the_request_goes_to_the_first_answer_of_the_resolver(names: Names, receiver: Receiver) -> None:
    """Given a name that moves with every look-up, then the message arrives where it was at first, under its name."""
    names.answers["agent.internal"] = [["127.0.0.1"], ["127.0.0.2"]]

    answer = post(sender_to("agent.internal"), f"http://agent.internal:{receiver.port}/hook")

    assert answer.status == 200
    assert names.asked == ["agent.internal"]
    assert receiver.received[0].headers["host"] == f"agent.internal:{receiver.port}"


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["93.184.216.34", "::1"], ["::ffff:10.0.0.1"], ["169.254.169.254"]],
)
def test_a_name_that_leads_within_is_refused(names: Names, tried: list[str], addresses: list[str]) -> None:
    """Given one address within among those of a name, then nothing is connected to, and no address is told."""
    names.answers["agent.example"] = [addresses]

    with pytest.raises(WebhookRefused, match="webhook_allow_private") as caught:
        post(sender_to(), "http://agent.example/hook")

    assert tried == []
    assert not any(address in str(caught.value) for address in addresses)


def test_an_allowed_name_that_leads_to_metadata_is_refused(names: Names, tried: list[str]) -> None:
    """Given an allowed name that leads to a cloud's metadata, then it is refused all the same."""
    names.answers["agent.internal"] = [["169.254.169.254"]]
    with pytest.raises(WebhookRefused):
        post(sender_to("agent.internal"), "http://agent.internal/")
    assert tried == []


def test_addresses_are_tried_in_their_order(names: Names, receiver: Receiver) -> None:
    """Given a name whose first address takes no connection, then the second one gets the message."""
    names.answers["agent.internal"] = [["::1", "127.0.0.2", "127.0.0.1"]]
    assert post(sender_to("agent.internal"), f"http://agent.internal:{receiver.port}/").status == 200


def test_a_name_that_does_not_exist_is_a_failure_that_may_pass(names: Names) -> None:
    """Given a name without an address, then the failure says so; a service that restarts gets its name back."""
    failed = failure(sender_to(), "http://nobody.example/")
    assert failed.passing
    assert "nobody.example has no address" in str(failed)


def test_a_resolver_that_hangs_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a resolver that does not answer, then the attempt ends at its timeout, and so does one behind it."""
    over = threading.Event()
    ended = threading.Semaphore(0)

    def hang(*args: object, **kwargs: object) -> None:
        over.wait(30)
        ended.release()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(calls, "MAX_CALLS", 1)
    sender = sender_to()
    try:
        for _ in range(2):
            timed_out(sender, "http://agent.example/")
    finally:
        over.set()
    assert ended.acquire(timeout=PATIENCE_SECONDS)

    assert "Temporary failure" in str(failure(sender, "http://agent.example/"))


def test_a_literal_address_asks_no_resolver(names: Names, receiver: Receiver) -> None:
    """Given a URL with an address, then no resolver is asked, and IPv6 in brackets is connected to as it is."""
    assert post(sender_to("127.0.0.1"), receiver.url).status == 200
    mapped = f"http://[::ffff:127.0.0.1]:{receiver.port}/"
    assert post(sender_to("127.0.0.1"), mapped).status == 200
    assert receiver.received[1].headers["host"] == f"[::ffff:127.0.0.1]:{receiver.port}"
    assert names.asked == []


def test_sixteen_threads_get_each_its_own_answer() -> None:
    """Given sixteen threads that send at once, then each message arrives once, and no connection is shared."""
    ids = [f"m{number}" for number in range(160)]
    with receiving(SECRET) as receiver, ThreadPoolExecutor(16) as pool:
        sender = sender_to("127.0.0.1")

        def send(message_id: str) -> int:
            return sender.post(
                receiver.url, message_id=message_id, body={"id": message_id}, timeout_seconds=30, now=datetime.now(UTC)
            ).status

        assert set(pool.map(send, ids)) == {200}
        assert sorted(got.body["id"] for got in receiver.received) == sorted(ids)
        assert {got.headers["connection"] for got in receiver.received} == {"close"}


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for agent.internal alone, and its key."""
    return write_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def asked_for() -> list[str | None]:
    """The names that clients asked a TLS receiver for (SNI)."""
    return []


@pytest.fixture
def tls_receiver(certificate: tuple[Path, Path], asked_for: list[str | None]) -> Iterator[Receiver]:
    """A receiver with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.sni_callback = lambda connection, name, context: asked_for.append(name)
    with receiving(SECRET, tls=context) as made:
        yield made


@pytest.fixture
def believing(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """Believes that certificate."""
    return ssl.create_default_context(cafile=str(certificate[0]))


def test_tls_is_checked_against_the_name_though_an_address_is_connected_to(
    names: Names, tls_receiver: Receiver, believing: ssl.SSLContext, asked_for: list[str | None]
) -> None:
    """Given a receiver with a certificate of its name, then it is asked for by name, and gets the message."""
    names.answers["agent.internal"] = [["127.0.0.1"]]
    url = f"https://agent.internal:{tls_receiver.port}/hook"

    assert post(sender_to("agent.internal", tls=believing), url).status == 200
    assert asked_for == ["agent.internal"]
    assert tls_receiver.received[0].headers["host"] == f"agent.internal:{tls_receiver.port}"


def test_sixteen_threads_send_over_tls(names: Names, tls_receiver: Receiver, believing: ssl.SSLContext) -> None:
    """Given one sender and sixteen threads, then each has a TLS connection of its own."""
    names.answers["agent.internal"] = [["127.0.0.1"]]
    sender = sender_to("agent.internal", tls=believing)
    url = f"https://agent.internal:{tls_receiver.port}/hook"
    with ThreadPoolExecutor(16) as pool:
        assert {answer.status for answer in pool.map(lambda _: post(sender, url, 30), range(64))} == {200}


def test_a_certificate_of_another_name_is_a_failure_for_good(
    names: Names, tls_receiver: Receiver, believing: ssl.SSLContext
) -> None:
    """Given a name that the certificate does not have, then no message is sent, and trying again would not help."""
    names.answers["other.internal"] = [["127.0.0.1"]]
    failed = failure(sender_to("other.internal", tls=believing), f"https://other.internal:{tls_receiver.port}/")
    assert not failed.passing
    assert "other.internal" in str(failed)
    assert tls_receiver.requests == 0


def test_a_certificate_that_nobody_vouches_for_is_a_failure_for_good(names: Names, tls_receiver: Receiver) -> None:
    """Given a certificate that the system does not believe, then no message is sent."""
    names.answers["agent.internal"] = [["127.0.0.1"]]
    failed = failure(sender_to("agent.internal"), f"https://agent.internal:{tls_receiver.port}/")
    assert not failed.passing
    assert "certificate" in str(failed)
    assert tls_receiver.requests == 0


def test_https_to_a_port_without_tls_is_a_failure_for_good(believing: ssl.SSLContext) -> None:
    """Given a receiver of plain HTTP, then HTTPS to it fails, and says that there may be no TLS."""
    with talking(say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), read_first=False) as url:
        failed = failure(sender_to("127.0.0.1", tls=believing), url.replace("http:", "https:"))
    assert not failed.passing
    assert "TLS" in str(failed)


def test_a_handshake_that_drips_ends_at_the_timeout(believing: ssl.SSLContext) -> None:
    """Given a TLS record that comes byte by byte, then the handshake as a whole ends at the timeout."""
    with talking(drip(b"\x16\x03\x03\x3f\xff", b"\x02"), read_first=False) as url:
        failed = timed_out(sender_to("127.0.0.1", tls=believing), url.replace("http:", "https:"))
    assert failed.passing
