"""The secrets of agents' webhooks: derived, different for each, and two at once for a week after a rotation."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from adapters.webhooks.signing import Signer, secrets_in
from reverie.errors import NotFound, StoreUnusable

KEY = b"k" * 32
NOW = datetime(2027, 3, 1, 8, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a workspace."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_each_agent_of_each_workspace_and_installation_has_its_own(tmp_path: Path) -> None:
    """Given agents, workspaces and installations, then no two have the same secret, and reading writes nothing."""
    found = [
        secrets_in(tmp_path / workspace, key).secrets(agent, NOW)
        for key in (KEY, b"l" * 32)
        for workspace in ("home", "work")
        for agent in ("ana", "bob", "")
    ]
    assert all(len(secrets) == 1 for secrets in found)
    assert len({secrets[0] for secrets in found}) == 12
    assert list(tmp_path.iterdir()) == []


def test_for_a_week_after_a_rotation_both_sign(folder: Path) -> None:
    """Given a rotation, then receivers with the old or the new secret verify for a week, and then the new one only."""
    secrets = secrets_in(folder, KEY)
    (old,) = secrets.secrets("ana", NOW)
    assert secrets.rotate("ana", NOW) == secrets.secrets("ana", NOW + timedelta(days=6, hours=23))
    new, also = secrets.secrets("ana", NOW)
    assert also == old
    assert new != old
    assert secrets.secrets("ana", NOW + timedelta(days=7)) == [new]
    assert secrets_in(folder, KEY).secrets("ana", NOW) == [new, old]
    assert len(secrets.secrets("bob", NOW)) == 1

    at = datetime.now(UTC)
    headers = Signer([new, old]).headers("m1", b"{}", at)
    for secret in (new, old):
        assert Webhook(secret).verify("{}", headers) == {}
    with pytest.raises(WebhookVerificationError):
        Webhook(old).verify("{}", Signer([new]).headers("m1", b"{}", at))


def test_rotated_twice_the_first_is_over(folder: Path) -> None:
    """Given two rotations in a row, then the last two secrets sign, and the first no longer."""
    secrets = secrets_in(folder, KEY)
    (first,) = secrets.secrets("ana", NOW)
    second = secrets.rotate("ana", NOW)[0]
    third = secrets.rotate("ana", NOW)[0]
    assert secrets.secrets("ana", NOW) == [third, second]
    assert len({first, second, third}) == 3


def test_no_rotation_at_once_is_lost(folder: Path) -> None:
    """Given many rotations of several agents at once, then each counts."""
    with ThreadPoolExecutor(8) as pool:
        names = ["ana", "bob"] * 10
        list(pool.map(lambda name: secrets_in(folder, KEY).rotate(name, NOW), names))
    found = json.loads((folder / "webhook-secrets.json").read_text())
    assert [rotation["count"] for rotation in found.values()] == [10, 10]


def test_the_file_has_no_secret_and_only_its_owner_reads_it(folder: Path) -> None:
    """Given a rotation, then what is stored is a count and a time, under a hash of the agent's name."""
    secrets = secrets_in(folder, KEY)
    made = secrets.rotate("ana", NOW)
    path = folder / "webhook-secrets.json"
    assert [*json.loads(path.read_text()).values()] == [{"count": 1, "at": "2027-03-01T08:00:00Z"}]
    assert "ana" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert all(secret not in path.read_text() for secret in made)


def test_nothing_is_rotated_where_there_is_no_workspace(tmp_path: Path) -> None:
    """Given no workspace of that name, then nothing is made for it."""
    with pytest.raises(NotFound):
        secrets_in(tmp_path / "nowhere", KEY).rotate("ana", NOW)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_an_error_that_names_it(folder: Path) -> None:
    """Given a file that cannot be read, then no message is signed with a secret that was replaced."""
    (folder / "webhook-secrets.json").write_text("{")
    with pytest.raises(StoreUnusable, match=r"webhook-secrets\.json"):
        secrets_in(folder, KEY).secrets("ana", NOW)
