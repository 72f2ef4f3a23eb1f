"""Where a webhook may go: which URLs are some, and which addresses are allowed."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from adapters.webhooks.addresses import AllowedHosts, WebhookPolicy, check_webhook_url, policy_of
from reverie.errors import Rejected

NOBODY = AllowedHosts()
PUBLIC = WebhookPolicy(NOBODY, https_only=False)

GLOBAL = [
    "8.8.8.8",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.0.1",
    "172.32.0.1",
    "2606:2800:220:1:248:1893:25c8:1946",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]
NOT_GLOBAL = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.9",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "2001:0:808:808::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:c0a8:1::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]


def as_url(address: str) -> str:
    """A URL of this address."""
    return f"https://[{address}]/hook" if ":" in address else f"https://{address}/hook"


@pytest.mark.parametrize("address", GLOBAL)
def test_a_global_address_is_allowed(address: str) -> None:
    """Given an address of the public internet, then anybody may send there."""
    assert check_webhook_url(as_url(address), PUBLIC).address == ip_address(address)


@pytest.mark.parametrize("address", NOT_GLOBAL)
def test_an_address_that_is_not_global_is_refused_at_once(address: str) -> None:
    """Given an address within, or one of IPv6 that carries such an address, then a schedule cannot be made with it."""
    with pytest.raises(Rejected, match="webhook_allow_private") as caught:
        check_webhook_url(as_url(address), PUBLIC)
    assert caught.value.field == "url"


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "127.0.1",
        "0177.0.0.1",
        "127.0.0.01",
        "0300.0250.0.1",
        "169.254.43518",
        "1.2.3.4.5",
        "256.256.256.256",
        "127.0.0.1.",
        "127。0。0。1",
        "１２７.0.0.1",
        "127.0.0.0x1",
        "0x",
        "127%2e0.0.1",
        "%6c%6f%63alhost",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[fe80::1%25eth0]",
        "[fe80::1%eth0]",
        "[::1",
        "::1",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "agent.localhost",
        "ｌocalhost",
        "ⓛocalhost",
    ],
)
def test_no_spelling_hides_an_address_within(host: str) -> None:
    """Given loopback in a spelling that some resolver understands, then it is refused without asking any."""
    with pytest.raises(Rejected) as caught:
        check_webhook_url(f"http://{host}/", PUBLIC)
    assert caught.value.field == "url"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "http"),
        ("agent.example", "http"),
        ("//agent.example/", "http"),
        ("ftp://agent.example/", "http"),
        ("file:///etc/passwd", "http"),
        ("javascript:alert(1)", "http"),
        ("http://", "no host"),
        ("http:///hook", "no host"),
        ("http:agent.example", "no host"),
        ("http://user:secret@agent.example/", "password"),
        ("http://user@agent.example/", "password"),
        ("http://agent.example\\@127.0.0.1/", "password"),
        ("http://127.0.0.1\\.agent.example/", "neither a name"),
        ("http://agent.example:0/", "port"),
        ("http://agent.example:65536/", "port"),
        ("http://agent.example:-1/", "port"),
        ("http://agent.example:x/", "port"),
        ("http://agent.example/a b", "blank"),
        ("http://agent.example/\r\nx: y", "control"),
        ("http://agent.example/\x00", "control"),
        ("http://agent.example/\ud800", "control"),
        (" http://agent.example/", "blank"),
        ("http://agent..example/", "neither a name"),
        ("http://.example/", "neither a name"),
        ("http://-agent.example/", "neither a name"),
        (f"http://{'a' * 64}.example/", "neither a name"),
        (f"http://{'a.' * 127}example/", "neither a name"),
        ("http://agent,example/", "neither a name"),
        (f"http://agent.example/{'a' * 2048}", "2,048"),
    ],
)
def test_what_is_no_url_of_a_webhook_is_rejected(url: str, why: str) -> None:
    """Given a URL that cannot be sent to, then the error says why on one line, and never shows the URL's secrets."""
    with pytest.raises(Rejected, match=why) as caught:
        check_webhook_url(url, WebhookPolicy(AllowedHosts(everything=True), https_only=False), field="executor.url")
    assert caught.value.field == "executor.url"
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "host", "port", "target", "authority"),
    [
        ("https://Agent.Example", "agent.example", 443, "/", "agent.example"),
        ("http://agent.example.:80/a?b=c#d", "agent.example", 80, "/a?b=c", "agent.example"),
        ("HTTP://agent_1:8080/x%20y", "agent_1", 8080, "/x%20y", "agent_1:8080"),
        ("https://bücher.example/ü?q=ü", "xn--bcher-kva.example", 443, "/%C3%BC?q=%C3%BC", "xn--bcher-kva.example"),
        ("https://[2606:2800::1]:8443/", "2606:2800::1", 8443, "/", "[2606:2800::1]:8443"),
        ("https://agent.example:443?q", "agent.example", 443, "/?q", "agent.example"),
    ],
)
def test_a_url_is_taken_apart(url: str, host: str, port: int, target: str, authority: str) -> None:
    """Given a URL in one of its many forms, then host, port, target and Host header are what is connected with."""
    found = check_webhook_url(url, PUBLIC)
    assert (found.host, found.port, found.target, found.authority) == (host, port, target, authority)
    assert found.origin == f"{found.scheme}://{authority}"


@pytest.mark.parametrize(
    ("entries", "url"),
    [
        (["127.0.0.1"], "http://127.0.0.1:8000/"),
        (["127.0.0.0/8"], "http://127.9.9.9/"),
        (["127.0.0.1"], "http://[::ffff:127.0.0.1]/"),
        (["::1"], "http://[::1]/"),
        (["10.0.0.0/8"], "http://[64:ff9b::10.1.2.3]/"),
        (["localhost"], "http://localhost:8000/"),
        (["LocalHost."], "http://localhost/"),
        (["127.0.0.1"], "http://localhost/"),
        (["agent.localhost"], "http://agent.localhost/"),
        (["169.254.169.254"], "http://169.254.169.254/"),
        (["169.254.0.0/16"], "http://169.254.169.254/"),
        (["fd00:ec2::/32"], "http://[fd00:ec2::254]/"),
        (["*"], "http://10.1.2.3/"),
        ([" * "], "http://localhost/"),
        (["192.168.0.0/16", "fd00::/8"], "http://[fd00::7]/"),
    ],
)
def test_what_the_operator_allows_may_be_sent_to(entries: list[str], url: str) -> None:
    """Given an address within that is on the list by name, address, network or `*`, then it is allowed."""
    assert check_webhook_url(url, policy_of(private=entries, hosts="*", allow_http=True))


@pytest.mark.parametrize(
    ("entries", "url"),
    [
        (["127.0.0.1"], "http://127.0.0.2/"),
        (["10.0.0.0/8"], "http://11.0.0.1.example.localhost/"),
        (["10.0.0.0/8"], "http://127.0.0.1/"),
        (["localhost"], "http://127.0.0.1/"),
        (["localhost"], "http://agent.localhost/"),
        (["*"], "http://0x7f.1/"),
        (["*"], "http://169.254.169.254/"),
        (["*", "169.0.0.0/8"], "http://169.254.169.254/"),
        (["0.0.0.0/0", "::/0"], "http://169.254.169.254/"),
        (["*"], "http://[::ffff:169.254.169.254]/"),
        (["*"], "http://[64:ff9b::169.254.169.254]/"),
        (["*"], "http://100.100.100.200/"),
        (["100.64.0.0/10"], "http://100.100.100.200/"),
        (["*"], "http://168.63.129.16/"),
        (["*", "fd00::/8"], "http://[fd00:ec2::254]/"),
        (["*"], "http://[fd20:ce::254]/"),
        (["*"], "http://[fe80::a9fe:a9fe]/"),
        (["*"], "http://user:pw@agent.example/"),
    ],
)
def test_the_list_opens_what_it_names_and_no_more(entries: list[str], url: str) -> None:
    """Given a list, then what it does not name stays refused, and so does what is no URL at all."""
    with pytest.raises(Rejected):
        check_webhook_url(url, policy_of(private=entries, hosts="*", allow_http=True))


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "fd00::7", "::ffff:192.168.0.1"])
def test_a_name_on_the_list_may_lead_anywhere(address: str) -> None:
    """Given a name that the operator allows, then it may lead to any address within."""
    allow = AllowedHosts.parse(["agent.internal"])
    assert allow.allows("agent.internal", ip_address(address))
    assert not allow.allows("other.internal", ip_address(address))


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "::ffff:169.254.169.254", "100.100.100.200", "fd00:ec2::254", "fe80::1"]
)
def test_no_name_leads_to_the_metadata_of_a_cloud(address: str) -> None:
    """Given an allowed name that leads to where a cloud hands out credentials, then it is refused all the same."""
    assert not AllowedHosts.parse(["agent.internal"]).allows("agent.internal", ip_address(address))
    assert AllowedHosts.parse([address]).allows("agent.internal", ip_address(address))


@pytest.mark.parametrize("name", ["metadata.google.internal", "metadata", "instance-data.ec2.internal"])
def test_a_name_of_a_metadata_service_is_refused_wherever_it_leads(name: str) -> None:
    """Given such a name, then `*` does not allow it, not even with a global address."""
    assert not AllowedHosts.parse(["*"]).allows(name, ip_address("10.1.2.3"))
    assert not AllowedHosts.parse(["*"]).allows(name, ip_address("8.8.8.8"))


POLICY: dict[str, Any] = {"private": [], "hosts": "*", "allow_http": False}


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "https://agent.example/hook"),
        ({"hosts": "agent.example"}, "https://AGENT.example./hook"),
        ({"hosts": "other.example, *.example.org"}, "https://a.b.example.org/"),
        ({"hosts": "93.184.215.14"}, "https://93.184.215.14/"),
        ({"hosts": "*.example.org", "private": ["agent.internal"]}, "https://agent.internal/"),
        ({"hosts": "*.example.org", "private": ["10.0.0.0/8"]}, "https://10.1.2.3/"),
        ({"hosts": "*.example.org, *"}, "https://agent.example/"),
        ({"allow_http": True}, "http://agent.example/"),
        ({"private": ["127.0.0.1", "::1"]}, "http://127.0.0.1:8000/"),
        ({"private": ["127.0.0.1", "::1"]}, "http://[::1]/"),
        ({"private": ["127.0.0.1"]}, "http://[::ffff:127.0.0.1]/"),
        ({"private": ["localhost"]}, "http://localhost/"),
    ],
)
def test_the_policy_allows_what_the_operator_lists(settings: dict[str, Any], url: str) -> None:
    """Given a list of hosts or `*`, then https to them is allowed, and http where it may or cannot be read."""
    assert check_webhook_url(url, policy_of(**POLICY | settings))


@pytest.mark.parametrize(
    ("settings", "url", "reason"),
    [
        ({}, "http://agent.example/hook", "webhook_allow_http"),
        ({"private": ["10.0.0.0/8"]}, "http://10.1.2.3/", "webhook_allow_http"),
        ({"private": ["agent.internal"]}, "http://agent.internal/", "webhook_allow_http"),
        ({}, "https://10.1.2.3/", "webhook_allow_private"),
        ({"hosts": "agent.example"}, "https://evil.example/", "webhook_hosts"),
        ({"hosts": "agent.example"}, "https://x.agent.example/", "webhook_hosts"),
        ({"hosts": "*.example.org"}, "https://example.org/", "webhook_hosts"),
        ({"hosts": "*.example.org"}, "https://example.org.evil.example/", "webhook_hosts"),
        ({"hosts": "*.example.org"}, "https://evilexample.org/", "webhook_hosts"),
        ({"hosts": ""}, "https://agent.example/", "webhook_hosts"),
        ({"hosts": "10.1.2.3"}, "https://10.1.2.3/", "webhook_allow_private"),
        ({"hosts": "*.internal", "private": ["*"]}, "https://agent.example/", "webhook_hosts"),
        ({"hosts": "*", "private": ["*"]}, "https://169.254.169.254/", "not a public address"),
    ],
)
def test_the_policy_refuses_all_else_with_the_setting_to_change(
    settings: dict[str, Any], url: str, reason: str
) -> None:
    """Given another host, or http, then it is refused, and the error names the setting that would allow it."""
    with pytest.raises(Rejected, match=reason):
        check_webhook_url(url, policy_of(**POLICY | settings), field="executor.url")


@pytest.mark.parametrize("hosts", ["https://agent.example", "agent.example:443", "a.*.example", "*example.org", "**"])
def test_nonsense_in_the_list_of_hosts_is_rejected(hosts: str) -> None:
    """Given an entry that would never match, then it is rejected instead of being dropped silently."""
    with pytest.raises(Rejected) as caught:
        policy_of(**POLICY | {"hosts": f"agent.example, {hosts}"})
    assert caught.value.field == "webhook_hosts"


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "http://agent.internal",
        "agent.internal:8080",
        "agent.internal/hook",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "[::1]",
        "*.internal",
        "a b",
        "0x7f.1",
        "ü",
    ],
)
def test_nonsense_in_the_list_is_rejected(entry: str) -> None:
    """Given an entry that would never match, then it is rejected instead of being dropped silently."""
    with pytest.raises(Rejected, match="webhook_allow_private") as caught:
        AllowedHosts.parse(["agent.internal", entry])
    assert caught.value.field == "webhook_allow_private"


def test_an_empty_list_allows_nothing_within() -> None:
    """Given no entries, then it is the list that allows nothing but what is global."""
    assert AllowedHosts.parse([]) == NOBODY
