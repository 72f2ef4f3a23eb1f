"""Tokens, of which only a hash is stored, and how often the webhook secrets of agents were rotated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reverie.contract import Scope
from storage.repository import AccountRepository, Repository
from storage.rows import execute, insert_sql, select_list, to_json, to_parameters

# The time at which a token was used is not worth a longer wait for the write lock.
_LOCK_WAIT_SECONDS: Final = 1.0
# Time for the token that asked for an erasure to read its receipt.
_SPARED_MICROSECONDS: Final = 3_600 * 1_000_000


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A stored token. `workspace` and `user` None, and no agents, mean any. Times are microseconds.

    `hash` is the SHA-256 of the token, and `replaces` the id of the token that it replaced.
    """

    id: str
    name: str
    hash: bytes
    workspace: str | None
    agents: tuple[str, ...] | None
    user: str | None
    scopes: tuple[Scope, ...]
    created_at: int
    created_by: str
    expires_at: int | None = None
    last_used_at: int | None = None
    revoked_at: int | None = None
    replaces: str | None = None

    def is_valid(self, now: int) -> bool:
        """Return whether the token can be used at a time (microseconds)."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Tokens(AccountRepository):
    """The tokens of an installation. Each method is a transaction of its own."""

    def add(self, token: TokenRecord) -> None:
        """Store a token."""
        self._execute(_INSERT, **to_parameters(token))

    def by_hash(self, hash: bytes) -> TokenRecord | None:
        """Return the token with a hash, or None."""
        return self._record(TokenRecord, f"{_SELECT} WHERE hash = :hash", hash=hash)

    def named(self, name: str) -> list[TokenRecord]:
        """Return the tokens with an id or a name, newest first; revoked and expired ones too."""
        sql = f"{_SELECT} WHERE id = :name OR name = :name ORDER BY created_at DESC, id DESC"
        return self._records(TokenRecord, sql, name=name)

    def list(self, *, workspace: str | None, valid_at: int | None, limit: int, offset: int) -> list[TokenRecord]:
        """Return a page of the tokens, newest first: of one workspace, and valid at a time, unless these are None."""
        sql = (
            f"{_SELECT} WHERE (:workspace IS NULL OR workspace = :workspace) AND (:valid_at IS NULL OR {_VALID})"
            " ORDER BY created_at DESC, id DESC LIMIT :limit OFFSET :offset"
        )
        return self._records(TokenRecord, sql, workspace=workspace, valid_at=valid_at, limit=limit, offset=offset)

    def any_valid(self, now: int) -> bool:
        """Return whether there is a token that can be used."""
        return bool(self._value(f"SELECT 1 FROM tokens WHERE {_VALID} LIMIT 1", valid_at=now))

    def revoke(self, id: str, *, now: int) -> bool:
        """Revoke a token; return False if it was revoked before or does not exist."""
        sql = "UPDATE tokens SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL"
        return self._execute(sql, id=id, now=now) > 0

    def replace(self, id: str, token: TokenRecord, *, ends_at: int | None) -> bool:
        """Store a token in the place of another, which ends at a time, or is revoked now if `ends_at` is None.

        Return False, and store nothing, if the other token is no longer valid.
        """
        with self._account.atomic() as connection:
            earlier = "expires_at = min(:ends_at, coalesce(expires_at, :ends_at))"
            change = "revoked_at = :now" if ends_at is None else earlier
            sql = f"UPDATE tokens SET {change} WHERE id = :id AND {_VALID}"
            now = token.created_at
            if not execute(connection, sql, id=id, ends_at=ends_at, now=now, valid_at=now).rowcount:
                return False
            execute(connection, _INSERT, **to_parameters(token))
            return True

    def forget_user(
        self, user: str, name: str, *, workspace: str | None, agent: str | None, now: int, spared: str
    ) -> frozenset[str]:
        """Revoke the tokens of a user, and replace their names and the user's name by a meaningless `name`.

        With a `workspace` or an `agent`, only tokens that are limited to them. Tokens with the name `spared` may read
        for an hour instead. Returns the names that the tokens had.
        """
        condition = (
            "user_id = :user AND (:workspace IS NULL OR workspace = :workspace)"
            " AND (:agents IS NULL OR agents = :agents)"
        )
        values = {"user": user, "workspace": workspace, "agents": None if agent is None else to_json([agent])}
        with self._account.atomic() as connection:
            names = execute(connection, f"SELECT DISTINCT name FROM tokens WHERE {condition}", **values).scalars().all()
            execute(
                connection,
                "UPDATE tokens SET user_id = :name, scopes = iif(name = :spared, :read, scopes),"
                " expires_at = iif(name = :spared, min(:until, coalesce(expires_at, :until)), expires_at),"
                " revoked_at = iif(name = :spared, revoked_at, coalesce(revoked_at, :now)), name = :name"
                f" WHERE {condition}",
                **values,
                name=name,
                spared=spared,
                read=to_json(["read"]),
                until=now + _SPARED_MICROSECONDS,
                now=now,
            )
        return frozenset(map(str, names))

    def not_revoked(self) -> tuple[TokenRecord, ...]:
        """Return all tokens that are not revoked, expired ones too, oldest first."""
        return tuple(self._records(TokenRecord, f"{_SELECT} WHERE revoked_at IS NULL ORDER BY created_at, id"))

    def forget_name(self, id: str, name: str, *, now: int) -> None:
        """Revoke one token, and replace its name and its user's name by a meaningless `name`."""
        sql = "UPDATE tokens SET user_id = :name, name = :name, revoked_at = coalesce(revoked_at, :now) WHERE id = :id"
        self._execute(sql, id=id, name=name, now=now)

    def note_uses(self, used_at: Mapping[str, int]) -> None:
        """Store when tokens, by id, were last used. Raises `StoreUnavailable` if the file is locked for a second."""
        with self._account.atomic(lock_wait_seconds=_LOCK_WAIT_SECONDS) as connection:
            for id, at in used_at.items():
                execute(connection, _NOTE_USE, id=id, at=at)


_VALID: Final = "revoked_at IS NULL AND (expires_at IS NULL OR :valid_at < expires_at)"
_SELECT: Final = f"SELECT {select_list(TokenRecord)} FROM tokens"
_INSERT: Final = insert_sql("tokens", TokenRecord)
_NOTE_USE: Final = "UPDATE tokens SET last_used_at = max(:at, coalesce(last_used_at, 0)) WHERE id = :id"


@dataclass(frozen=True, slots=True)
class RotationRecord:
    """How often a secret was rotated, and when last (microseconds)."""

    count: int
    rotated_at: int


class WebhookRotations(Repository):
    """The agents of one workspace whose secret was ever rotated, by the hash of their name."""

    def of(self, agent_hash: str) -> RotationRecord | None:
        """Return the rotations of an agent, or None. Raises `DamagedRow`."""
        sql = "SELECT count, rotated_at FROM webhook_rotations WHERE agent_hash = :agent_hash"
        return self._record(RotationRecord, sql, agent_hash=agent_hash)

    def add(self, agent_hash: str, *, now: int) -> None:
        """Count one more rotation of an agent's secret."""
        self._execute(
            "INSERT INTO webhook_rotations (agent_hash, count, rotated_at) VALUES (:agent_hash, 1, :now)"
            " ON CONFLICT (agent_hash) DO UPDATE SET count = webhook_rotations.count + 1, rotated_at = :now",
            agent_hash=agent_hash,
            now=now,
        )
