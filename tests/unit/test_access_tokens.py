"""Tokens: made once, stored as a hash, rotated, revoked, and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from memory.trust.token_texts import LENGTH, is_well_formed, new_token
from memory.trust.tokens import (
    FRESH_SECONDS,
    OPERATOR,
    Principal,
    TokenChecker,
    TokenRequest,
    create_token,
    list_tokens,
    principal_of,
    revoke_token,
    rotate_token,
)
from reverie.contract import SCOPES
from reverie.errors import Conflict, Forbidden, NotFound, Rejected, StoreUnavailable
from server.authentication import Ledger
from storage.stores import Stores
from storage.trust.tokens import TokenRecord, Tokens
from worker.logs import log_to_standard_error

NOW = 1_780_000_000_000_000
SECOND = 1_000_000
ANA = TokenRequest("w", ("ana",), None, ("read", "write"))


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    made = Stores(tmp_path)
    yield made
    made.close()


class Clock:
    """A clock that tests set, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> int:
        return NOW + int(self.seconds * SECOND)

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def checker_of(stores: Stores, clock: Clock) -> TokenChecker:
    return TokenChecker(stores, now=clock.now, monotonic=clock.monotonic)


def test_a_token_is_recognised_by_its_form_and_a_damaged_one_is_not() -> None:
    """Given a new token, then it is well-formed; truncated, mistyped or extended it is not."""
    token = new_token()
    assert len(token) == LENGTH
    assert is_well_formed(token)
    assert new_token() != token
    swapped = token[:10] + ("A" if token[10] != "A" else "B") + token[11:]
    for wrong in (token[:-1], token + "A", swapped, "", "rv_", token.upper(), "x" * LENGTH, "rv_" + "ä" * 49):
        assert not is_well_formed(wrong), wrong


def test_the_store_keeps_no_token_but_its_hash(stores: Stores, tmp_path: Path) -> None:
    """Given a created token, then no file of the data folder holds its text."""
    made = create_token(stores, ANA, by=OPERATOR, now=NOW)
    stores.close()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert made.text.encode() not in path.read_bytes(), path


def test_a_created_token_gives_the_rights_that_were_asked_for(stores: Stores, clock: Clock) -> None:
    """Given a token for one agent and user, when it is checked, then it stands for exactly these."""
    request = TokenRequest("w", ("ana",), "kate", ("read",), name="phone", lifetime_seconds=10)
    made = create_token(stores, request, by=OPERATOR, now=NOW)
    holder = checker_of(stores, clock).check(made.text)
    expected = Principal("phone", "w", frozenset({"ana"}), "kate", frozenset({"read"}), made.record.id)
    assert holder == expected == principal_of(made.record)


def test_an_expired_token_is_refused_from_its_last_moment_on(stores: Stores, clock: Clock) -> None:
    """Given a token for ten seconds, then it is valid until then, also from memory, and not after."""
    made = create_token(stores, replace(ANA, lifetime_seconds=10), by=OPERATOR, now=NOW)
    checker = checker_of(stores, clock)
    clock.seconds = 9.9
    assert checker.check(made.text) is not None
    assert checker.known(made.text) is not None
    clock.seconds = 10.0
    assert checker.known(made.text) is None
    assert checker.check(made.text) is None


def test_a_revocation_by_another_process_takes_effect_when_the_token_is_not_fresh(
    stores: Stores, clock: Clock, tmp_path: Path
) -> None:
    """Given a checked token, when another process revokes it, then memory knows it only until it is not fresh."""
    made = create_token(stores, ANA, by=OPERATOR, now=NOW)
    checker = checker_of(stores, clock)
    assert checker.check(made.text) is not None
    other = Stores(tmp_path)
    revoke_token(other, made.record.id, by=OPERATOR, now=NOW)
    other.close()
    clock.seconds = FRESH_SECONDS + 0.01
    assert checker.known(made.text) is None
    assert checker.check(made.text) is None
    assert FRESH_SECONDS < 1


def test_a_token_that_is_revoked_while_another_call_reads_it_is_not_known_afterwards(
    stores: Stores, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a call that has read a token, when it is revoked before the call goes on, then memory has it not."""
    made = create_token(stores, ANA, by=OPERATOR, now=NOW)
    checker = checker_of(stores, clock)
    by_hash = Tokens.by_hash

    def read(tokens: Tokens, key: bytes) -> TokenRecord | None:
        found = by_hash(tokens, key)
        revoke_token(stores, made.record.id, by=OPERATOR, now=NOW)
        checker.forget()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Tokens, "by_hash", read)
        checker.check(made.text)
    assert checker.known(made.text) is None
    assert checker.check(made.text) is None


def test_a_rotated_token_ends_at_once_or_after_its_grace(stores: Stores, clock: Clock) -> None:
    """Given two tokens, when one is rotated with a grace and one without, then only the first still works, and ends."""
    plain = create_token(stores, ANA, by=OPERATOR, now=NOW)
    graced = create_token(stores, TokenRequest("w", ("bob",), None, ("read",)), by=OPERATOR, now=NOW)
    new_plain = rotate_token(stores, plain.record.name, grace_seconds=0, by=OPERATOR, now=NOW + SECOND)
    new_graced = rotate_token(stores, graced.record.id, grace_seconds=60, by=OPERATOR, now=NOW + SECOND)
    clock.seconds = 2
    checker = checker_of(stores, clock)
    assert checker.check(plain.text) is None
    assert checker.check(graced.text) is not None
    for new, old in ((new_plain, plain), (new_graced, graced)):
        assert checker.check(new.text) is not None
        assert (new.record.name, new.record.scopes, new.record.replaces) == (
            old.record.name,
            old.record.scopes,
            old.record.id,
        )
    clock.seconds = 61
    assert checker.check(graced.text) is None
    assert checker.check(new_graced.text) is not None


def test_a_revoked_token_cannot_be_rotated_back(stores: Stores) -> None:
    """Given a revoked token, then neither rotating nor revoking it finds it."""
    made = create_token(stores, ANA, by=OPERATOR, now=NOW)
    assert [one.id for one in revoke_token(stores, made.record.name, by=OPERATOR, now=NOW)] == [made.record.id]
    with pytest.raises(NotFound):
        rotate_token(stores, made.record.id, grace_seconds=0, by=OPERATOR, now=NOW)
    with pytest.raises(NotFound):
        revoke_token(stores, made.record.id, by=OPERATOR, now=NOW)


def test_two_valid_tokens_never_have_one_name(stores: Stores) -> None:
    """Given a token, when another is made of its name, then it is refused until the first was revoked."""
    made = create_token(stores, ANA, by=OPERATOR, now=NOW)
    with pytest.raises(Conflict, match="w/ana"):
        create_token(stores, ANA, by=OPERATOR, now=NOW)
    revoke_token(stores, made.record.id, by=OPERATOR, now=NOW)
    create_token(stores, ANA, by=OPERATOR, now=NOW)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (TokenRequest("v", ("ana",), "kate", ("read",)), "workspace"),
        (TokenRequest(None, (), None, ("read",)), "workspace"),
        (TokenRequest("w", (), "kate", ("read",)), "agents"),
        (TokenRequest("w", ("ana", "bob"), "kate", ("read",)), "agents"),
        (TokenRequest("w", ("ana",), None, ("read",)), "user"),
        (TokenRequest("w", ("ana",), "leo", ("read",)), "user"),
        (TokenRequest("w", ("ana",), "kate", ("read", "write")), "scopes"),
        (TokenRequest("w", ("ana",), "kate", ("read",), tenant="acme"), "tenant"),
    ],
)
def test_nobody_makes_a_token_that_allows_more_than_their_own(
    stores: Stores, request_: TokenRequest, field: str
) -> None:
    """Given a bound operator, when it makes a token beyond its own rights, then it is refused in that field."""
    by = Principal("o", "w", frozenset({"ana"}), "kate", frozenset({"read", "operate"}))
    with pytest.raises(Forbidden) as caught:
        create_token(stores, request_, by=by, now=NOW)
    assert caught.value.field == field
    create_token(stores, TokenRequest("w", ("ana",), "kate", ("read",)), by=by, now=NOW)


def test_a_bound_operator_sees_rotates_and_revokes_only_tokens_within_its_rights(stores: Stores) -> None:
    """Given tokens of two workspaces, then the operator of one finds only those of its own."""
    own = create_token(stores, ANA, by=OPERATOR, now=NOW)
    foreign = create_token(stores, TokenRequest("v", ("ana",), None, ("read",)), by=OPERATOR, now=NOW)
    everything = create_token(stores, TokenRequest(None, (), None, SCOPES), by=OPERATOR, now=NOW)
    by = Principal("o", "w", scopes=frozenset(SCOPES))
    listed = list_tokens(stores, by=by, everything=False, now=NOW, limit=10, offset=0)
    assert [one.id for one in listed] == [own.record.id]
    for hidden in (foreign, everything):
        with pytest.raises(NotFound):
            revoke_token(stores, hidden.record.id, by=by, now=NOW)
        with pytest.raises(NotFound):
            rotate_token(stores, hidden.record.id, grace_seconds=0, by=by, now=NOW)


def test_agents_and_users_need_a_workspace(stores: Stores) -> None:
    """Given an agent without a workspace, when a token is made, then it is refused: names repeat across workspaces."""
    with pytest.raises(Rejected, match="workspace"):
        create_token(stores, TokenRequest(None, ("ana",), None, ("read",)), by=OPERATOR, now=NOW)


def test_a_bound_token_makes_its_workspace_a_tenant_of_its_own_unless_another_is_named(stores: Stores) -> None:
    """Given tokens for workspaces, then each workspace is its own tenant, the named one, or stays what it was."""
    create_token(stores, ANA, by=OPERATOR, now=NOW)
    create_token(stores, TokenRequest("v", (), None, ("read",), tenant="local"), by=OPERATOR, now=NOW)
    create_token(stores, TokenRequest("v", ("x",), None, ("read",)), by=OPERATOR, now=NOW)
    create_token(stores, TokenRequest("u", (), None, ("read",), tenant="acme"), by=OPERATOR, now=NOW)
    assert [stores.tenants().of(name) for name in ("w", "v", "u")] == ["w", "local", "acme"]
    with pytest.raises(Conflict, match="acme"):
        create_token(stores, TokenRequest("u", ("x",), None, ("read",), tenant="other"), by=OPERATOR, now=NOW)


def test_uses_are_collected_and_written_later(stores: Stores, clock: Clock) -> None:
    """Given a used token, then its use is handed over once, and stored as the latest."""
    made = create_token(stores, ANA, by=OPERATOR, now=NOW)
    checker = checker_of(stores, clock)
    checker.check(made.text)
    clock.seconds = 0.2
    checker.known(made.text)
    used = checker.take_uses()
    assert used == {made.record.id: NOW + SECOND // 5}
    assert checker.take_uses() == {}
    stores.tokens().note_uses(used)
    stores.tokens().note_uses({made.record.id: NOW})
    assert stores.tokens().named(made.record.id)[0].last_used_at == NOW + SECOND // 5


def test_a_token_that_reaches_a_log_line_is_removed(capsys: pytest.CaptureFixture[str]) -> None:
    """Given a token in an event, in a field and in an exception, when they are logged, then none is written."""
    structlog.reset_defaults()
    token = new_token()
    log_to_standard_error()
    try:
        log = structlog.get_logger("test")
        log.info("sent", token=token, header=f"Bearer {token}", cut=token[:30])
        try:
            raise ValueError(token)
        except ValueError:
            log.exception("failed")
    finally:
        structlog.reset_defaults()
    written = capsys.readouterr().err
    assert "rv_(removed)" in written
    assert token[:20] not in written


def test_a_use_that_cannot_be_written_now_is_written_later(
    stores: Stores, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a used token and a file that is locked, when it is free again, then the use is written."""
    made = create_token(stores, ANA, by=OPERATOR, now=NOW)
    checker = checker_of(stores, clock)
    ledger = Ledger(stores, checker)
    checker.check(made.text)

    def locked(_tokens: Tokens, _used_at: Mapping[str, int]) -> None:
        raise StoreUnavailable("another writer holds the lock")

    with monkeypatch.context() as patched:
        patched.setattr(Tokens, "note_uses", locked)
        ledger.flush()
    assert stores.tokens().named(made.record.id)[0].last_used_at is None
    ledger.flush()
    assert stores.tokens().named(made.record.id)[0].last_used_at == NOW


def test_a_use_while_uses_are_taken_is_not_lost(stores: Stores, clock: Clock) -> None:
    """Given a use by another thread at the moment when uses are taken, then it is handed over the next time."""
    checker = checker_of(stores, clock)

    class Meanwhile(dict[str, int]):
        def __iter__(self) -> Iterator[str]:
            known = iter(list(super().__iter__()))
            self["later"] = 2
            return known

    checker._used_at = uses = Meanwhile(first=1)
    assert (checker.take_uses(), uses) == ({"first": 1}, {"later": 2})
