"""The secrets of agents' webhooks: derived, different for each, and two at once for a week after a rotation."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from adapters.kept_secrets import installation_key
from adapters.webhooks.signing import Signer
from memory.trust.webhook_secrets import AgentSecrets
from reverie.clock import to_micros
from reverie.errors import NotFound
from storage.rows import DamagedRow
from storage.stores import Stores

NOW = datetime(2027, 3, 1, 8, tzinfo=UTC)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """Stores with one workspace, "home"."""
    stores = Stores(tmp_path / "data")
    stores.workspace("home")
    yield stores
    stores.close()


def rows_of(stores: Stores) -> list[tuple[str, int, int]]:
    """Return what is stored of rotations."""
    with stores.workspace("home").reading() as tx:
        rows = tx.connection.exec_driver_sql("SELECT agent_hash, count, rotated_at FROM webhook_rotations")
        return [(str(row[0]), int(row[1]), int(row[2])) for row in rows]


def test_each_agent_of_each_workspace_and_installation_has_its_own(tmp_path: Path) -> None:
    """Given agents, workspaces and installations, then no two have the same secret, and reading writes nothing."""
    installations = [Stores(tmp_path / name) for name in ("one", "other")]
    for stores in installations:
        installation_key(stores.data_dir)
    before = sorted(tmp_path.rglob("*"))
    found = [
        AgentSecrets(stores, workspace).secrets(agent, NOW)
        for stores in installations
        for workspace in ("home", "work")
        for agent in ("ana", "bob", "")
    ]
    assert all(len(secrets) == 1 for secrets in found)
    assert len({secrets[0] for secrets in found}) == 12
    assert sorted(tmp_path.rglob("*")) == before


def test_for_a_week_after_a_rotation_both_sign(stores: Stores) -> None:
    """Given a rotation, then receivers with the old or the new secret verify for a week, and then the new one only."""
    secrets = AgentSecrets(stores, "home")
    (old,) = secrets.secrets("ana", NOW)
    assert secrets.rotate("ana", NOW) == secrets.secrets("ana", NOW + timedelta(days=6, hours=23))
    new, also = secrets.secrets("ana", NOW)
    assert also == old
    assert new != old
    assert secrets.secrets("ana", NOW + timedelta(days=7)) == [new]
    assert AgentSecrets(stores, "home").secrets("ana", NOW) == [new, old]
    assert len(secrets.secrets("bob", NOW)) == 1

    at = datetime.now(UTC)
    headers = Signer([new, old]).headers("m1", b"{}", at)
    for secret in (new, old):
        assert Webhook(secret).verify("{}", headers) == {}
    with pytest.raises(WebhookVerificationError):
        Webhook(old).verify("{}", Signer([new]).headers("m1", b"{}", at))


def test_rotated_twice_the_first_is_over(stores: Stores) -> None:
    """Given two rotations in a row, then the last two secrets sign, and the first no longer."""
    secrets = AgentSecrets(stores, "home")
    (first,) = secrets.secrets("ana", NOW)
    second = secrets.rotate("ana", NOW)[0]
    third = secrets.rotate("ana", NOW)[0]
    assert secrets.secrets("ana", NOW) == [third, second]
    assert len({first, second, third}) == 3


def test_no_rotation_at_once_is_lost(stores: Stores) -> None:
    """Given many rotations of several agents at once, then each counts."""
    with ThreadPoolExecutor(8) as pool:
        names = ["ana", "bob"] * 10
        list(pool.map(lambda name: AgentSecrets(stores, "home").rotate(name, NOW), names))
    assert [count for _, count, _ in rows_of(stores)] == [10, 10]


def test_no_secret_and_no_name_is_stored(stores: Stores) -> None:
    """Given a rotation, then what is stored is a count and a time, under a hash of the agent's name."""
    made = AgentSecrets(stores, "home").rotate("ana", NOW)
    ((name, count, at),) = rows_of(stores)
    assert (count, at) == (1, to_micros(NOW))
    assert name != "ana"
    assert int(name, 16)
    assert all(secret not in name for secret in made)


def test_nothing_is_rotated_where_there_is_no_workspace(stores: Stores) -> None:
    """Given no workspace of that name, then nothing is made for it."""
    with pytest.raises(NotFound):
        AgentSecrets(stores, "nowhere").rotate("ana", NOW)
    assert stores.names() == ["home"]


def test_a_damaged_row_is_an_error(stores: Stores) -> None:
    """Given a row that cannot be read, then no message is signed with a secret that was replaced."""
    AgentSecrets(stores, "home").rotate("ana", NOW)
    with stores.workspace("home").writing() as tx:
        tx.connection.exec_driver_sql("UPDATE webhook_rotations SET count = 'many'")
    with pytest.raises(DamagedRow):
        AgentSecrets(stores, "home").secrets("ana", NOW)
