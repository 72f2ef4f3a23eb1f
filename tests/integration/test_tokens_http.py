"""Tokens over HTTP, through the real application: what they open, what they do not, and what a refusal says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from memory.trust.audited import audited_name
from memory.trust.token_texts import new_token
from memory.trust.tokens import OPERATOR, TokenRequest, create_token, revoke_token
from reverie.client import Reverie
from reverie.contract import SCOPES, Scope
from server import authentication
from server.authentication import FAILURES_ALLOWED, Access
from storage.trust.audit import AuditFilter
from support.command_line import CommandLine
from support.http import running_server
from worker.runtime import Runtime

OPERATORS = "o" * 40

Send = Callable[..., httpx2.Response]


@pytest.fixture
def send(runtime: Runtime) -> Iterator[Send]:
    """Sends requests to a server that asks for tokens."""
    with (
        running_server(runtime, access=Access({"operator": OPERATORS})) as url,
        httpx2.Client(base_url=url, trust_env=False) as client,
    ):

        def request(token: str | None, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
            authorization = {} if token is None else {"Authorization": f"Bearer {token}"}
            named = {f"X-Reverie-{name.capitalize()}": value for name, value in headers.items()}
            return client.request(method, f"/v1/{path}", json=body, headers={**authorization, **named})

        yield request


@pytest.fixture
def make(runtime: Runtime) -> Callable[..., str]:
    """Makes tokens."""

    def token(
        workspace: str | None = "w",
        *agents: str,
        user: str | None = None,
        scopes: tuple[Scope, ...] = SCOPES,
        **more: Any,
    ) -> str:
        request = TokenRequest(workspace, agents, user, scopes, name=more.pop("name", None), **more)
        return create_token(runtime.stores, request, by=OPERATOR, now=runtime.now()).text

    return token


def refused(response: httpx2.Response, status: int, field: str) -> str:
    assert response.status_code == status, response.text
    problem = response.json()
    assert problem["field"] == field, problem
    return str(problem["detail"])


def test_without_a_valid_token_nothing_is_answered(send: Send, make: Callable[..., str], runtime: Runtime) -> None:
    """Given no token, a forged, truncated, expired or revoked one, then all are 401 and ask for a bearer token."""
    expired = make("w", lifetime_seconds=0, name="expired")
    revoked = make("w", name="revoked")
    revoke_token(runtime.stores, "revoked", by=OPERATOR, now=runtime.now())
    valid = make("w", "ana")
    for token in (None, new_token(), valid[:-1], valid + "A", expired, revoked, "x", OPERATORS[:-1]):
        response = send(token, "GET", "facts", agent="ana")
        assert response.status_code == 401, token
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert response.headers["content-type"] == "application/problem+json"
    assert send(valid, "GET", "facts", agent="ana").status_code == 200
    assert send(OPERATORS, "GET", "facts", agent="ana").status_code == 200


def test_headers_that_are_missing_are_those_of_the_token(send: Send, make: Callable[..., str]) -> None:
    """Given a token for one agent of a workspace, when no header names them, then the call is about these."""
    token = make("w", "ana")
    assert send(token, "PUT", "facts/home/city", {"value": "Lisbon"}).status_code == 200
    assert send(OPERATORS, "GET", "facts/home/city", agent="ana", workspace="w").json()["value"] == "Lisbon"
    assert send(token, "GET", "facts/home/city").json()["value"] == "Lisbon"
    several = make("w", "ana", "bob")
    assert "X-Reverie-Agent" in refused(send(several, "GET", "facts"), 422, "agent")


def test_headers_that_contradict_the_token_are_refused_whether_or_not_there_is_such_a_thing(
    send: Send, make: Callable[..., str]
) -> None:
    """Given a token, when a header names another workspace, agent or user, then 403 says which right, and no more."""
    token = make("w", "ana")
    bound = make("w", "ana", user="kate")
    assert send(OPERATORS, "PUT", "facts/home/city", {"value": "Lisbon"}, agent="ana", workspace="v").status_code == 200
    for workspace in ("v", "nowhere"):
        detail = refused(send(token, "GET", "facts", agent="ana", workspace=workspace), 403, "workspace")
        assert detail == "the token is not for this workspace"
    for agent in ("bob", "nobody"):
        detail = refused(send(token, "GET", "facts", agent=agent), 403, "agent")
        assert detail == "the token is not for this agent"
    assert refused(send(bound, "GET", "notes", user="leo"), 403, "user") == "the token is not for this user"
    assert refused(send(bound, "GET", "notes?user=leo"), 403, "user") == "the token is not for this user"


def test_a_token_of_a_user_is_for_calls_about_a_user_and_forces_theirs(send: Send, make: Callable[..., str]) -> None:
    """Given a token of a user, then what it stores is theirs, and calls that name no user are refused."""
    token = make("w", "ana", user="kate")
    assert send(token, "POST", "notes", {"note_id": "n", "content": "likes tea"}).status_code == 200
    assert [note["user"] for note in send(token, "GET", "notes").json()["notes"]] == ["kate"]
    assert send(OPERATORS, "GET", "notes?user=leo", agent="ana", workspace="w").json()["notes"] == []
    assert (
        refused(send(token, "DELETE", "channels/x"), 403, "user") == "the token is for one user, and this call is not"
    )
    narrowed = send(OPERATORS, "GET", "notes", agent="ana", workspace="w", user="leo")
    assert narrowed.json()["notes"] == []


def test_a_token_of_a_user_has_schedules_and_reminders_of_its_own(send: Send, make: Callable[..., str]) -> None:
    """Given tokens of kate and of leo, then each adds, reads and deletes their own, and learns nothing of theirs."""
    kate, leo = make("w", "ana", user="kate"), make("w", "ana", user="leo")
    body = {"id": "daily", "goal": "say what is due", "every": 3_600, "session": "hers"}
    assert send(kate, "POST", "schedules", body).json()["user"] == "kate"
    reminder = {"id": "oven", "session": "hers", "recipient": "kate", "message": "the oven is hot", "in_seconds": 0}
    assert send(kate, "POST", "reminders", reminder).json()["user"] == "kate"
    assert send(kate, "GET", "next-runs?every=60").status_code == 200
    run = send(kate, "POST", "schedules/daily/run", {}).json()["id"]
    for path in ("schedules/daily", "schedules/daily/runs", "schedules/daily/next", f"runs/{run}", "reminders/oven"):
        assert send(kate, "GET", path).status_code == 200
        assert send(leo, "GET", path).status_code == 404
    for path in ("schedules/daily/pause", f"runs/{run}/cancel", f"runs/{run}/complete", "schedules/daily/run"):
        assert send(leo, "POST", path, {}).status_code == 404
    assert [send(token, "GET", "schedules/count").json()["count"] for token in (kate, leo)] == [1, 0]
    assert [len(send(token, "POST", "reminders/claim", {}).json()["claimed"]) for token in (leo, kate)] == [0, 1]
    assert refused(send(leo, "POST", "schedules", body), 409, "id").startswith("id daily is in use")
    assert [send(token, "DELETE", "schedules/daily").json()["deleted"] for token in (leo, kate)] == [False, True]
    assert refused(send(kate, "GET", "worker-key"), 403, "user") == "the token is for one user, and this call is not"


def test_all_users_are_for_operators_and_for_what_delivers_to_all(send: Send, make: Callable[..., str]) -> None:
    """Given schedules of users, then a token needs operate to see them all; delivery needs schedule; a user may not."""
    agent, operator = make("w", "ana", scopes=("read", "schedule"), name="agent"), make("w", "ana")
    reader, kate = make("w", "ana", scopes=("read",), name="reader"), make("w", "ana", user="kate")
    for user in ("kate", "leo"):
        body = {"goal": "x", "every": 3_600, "user": user}
        assert send(agent, "POST", "schedules", body).status_code == 200
        reminder = {"session": user, "recipient": user, "message": "x", "in_seconds": 0, "user": user}
        assert send(agent, "POST", "reminders", reminder).status_code == 200
    assert send(agent, "GET", "schedules").json()["total"] == 0
    assert send(operator, "GET", "schedules?all_users=true").json()["total"] == 2
    for path in ("schedules", "schedules/count", "reminders"):
        refusal = refused(send(agent, "GET", f"{path}?all_users=true"), 403, "scope")
        assert refusal == "the token lacks the scope operate"
        assert refused(send(kate, "GET", f"{path}?all_users=true"), 403, "user") == "the token is not for this user"
    assert refused(send(operator, "GET", "schedules?all_users=true&user=leo"), 422, "all_users")
    assert send(agent, "GET", "notifications?all_users=true").status_code == 200
    assert refused(send(reader, "GET", "notifications?all_users=true"), 403, "scope")
    assert refused(send(kate, "POST", "reminders/claim", {"all_users": True}), 403, "user")
    claimed = send(agent, "POST", "reminders/claim", {"all_users": True}).json()["claimed"]
    assert {one["reminder"]["user"] for one in claimed} == {"kate", "leo"}
    for one in claimed:
        path = f"reminders/{one['reminder']['id']}/delivered"
        assert send(agent, "POST", path, {"token": one["token"]}).json()["status"] == "delivered"


@pytest.mark.parametrize(
    ("scope", "method", "path", "body"),
    [
        ("read", "GET", "facts", None),
        ("read", "POST", "recall", {"query": "x"}),
        ("write", "PUT", "facts/a/b", {"value": "x"}),
        ("forget", "DELETE", "facts/a/b", None),
        ("schedule", "POST", "reminders", {}),
        ("operate", "GET", "dead-letters", None),
    ],
)
def test_a_call_needs_its_scope(
    send: Send, make: Callable[..., str], scope: Scope, method: str, path: str, body: Any
) -> None:
    """Given tokens with all scopes but one and with this one alone, then only the second is let through."""
    without = make("w", "ana", scopes=tuple(one for one in SCOPES if one != scope), name="without")
    alone = make("w", "ana", scopes=(scope,), name="alone")
    assert refused(send(without, method, path, body), 403, "scope") == f"the token lacks the scope {scope}"
    assert send(alone, method, path, body).status_code in (200, 422)


def test_calls_about_all_workspaces_or_agents_are_not_for_bound_tokens(send: Send, make: Callable[..., str]) -> None:
    """Given tokens bound to a workspace or an agent, then they learn nothing about what lies outside."""
    send(OPERATORS, "PUT", "facts/a/b", {"value": "x"}, agent="ana", workspace="v")
    send(OPERATORS, "PUT", "facts/a/b", {"value": "x"}, agent="ana", workspace="w")
    send(OPERATORS, "PUT", "facts/a/b", {"value": "x"}, agent="bob", workspace="w")
    of_workspace, of_agent = make("w"), make("w", "ana")
    assert [one["name"] for one in send(of_workspace, "GET", "workspaces").json()["workspaces"]] == ["w"]
    assert [one["name"] for one in send(of_agent, "GET", "agents").json()["agents"]] == ["ana"]
    refused(send(of_workspace, "GET", "status"), 403, "workspace")
    refused(send(of_workspace, "GET", "jobs"), 403, "workspace")
    refused(send(of_workspace, "POST", "jobs/prune-decayed/run", {"workspace": "v"}), 403, "workspace")
    refused(send(of_agent, "POST", "jobs/prune-decayed/run", {"agent": "bob"}), 403, "agent")
    refused(send(of_agent, "DELETE", "workspace", workspace="w"), 403, "agent")
    refused(send(of_agent, "GET", "dead-letters?all_agents=true"), 403, "agent")
    assert send(of_workspace, "DELETE", "workspace", workspace="w").json() == {"deleted": True}


def test_only_operators_and_tokens_of_a_workspace_create_it(
    send: Send, make: Callable[..., str], runtime: Runtime
) -> None:
    """Given tokens for any workspace, when one without operate writes into a new one, then it lacks that scope."""
    writer = make(None, scopes=("read", "write"), name="writer")
    response = send(writer, "PUT", "facts/a/b", {"value": "x"}, agent="ana", workspace="new")
    assert refused(response, 403, "scope") == "the token lacks the scope operate"
    assert not runtime.stores.database_path("new").exists()
    assert send(make("new"), "PUT", "facts/a/b", {"value": "x"}, agent="ana").status_code == 200
    assert send(writer, "PUT", "facts/a/c", {"value": "x"}, agent="ana", workspace="new").status_code == 200
    created = runtime.stores.audit().entries(AuditFilter(action="create-workspace"), limit=10)
    assert [(one.actor, one.target) for one in created] == [("new", "new")]


@pytest.mark.parametrize("wait", ["queued", "searchable"])
def test_who_may_create_no_workspace_puts_nothing_into_it(
    send: Send, make: Callable[..., str], runtime: Runtime, wait: str
) -> None:
    """Given a token for any workspace without operate, when it sends messages into a new one, then none is accepted.

    Not either when it sends the same request again, and whichever threads the call takes. The audit log names it.
    """
    writer = make(None, scopes=("read", "write"), name="writer")
    body = {"session": "s", "messages": [{"role": "user", "content": "hello"}], "wait": wait}
    headers = {"X-Reverie-Agent": "ana", "X-Reverie-Workspace": "new", "Authorization": f"Bearer {writer}"}
    with running_server(runtime, access=Access({"operator": OPERATORS})) as url:
        for _ in range(2):
            response = httpx2.post(f"{url}/v1/messages", json=body, headers={**headers, "Idempotency-Key": "k1"})
            assert refused(response, 403, "scope") == "the token lacks the scope operate"
    assert runtime.inbox.stats("new").size == 0
    assert not runtime.stores.exists("new")
    entries = runtime.stores.audit().entries(AuditFilter(actors=["writer"]), limit=10)
    assert [one.outcome for one in entries] == ["refused: scope"]
    assert entries[0].count == 2


def test_garbage_of_one_workspace_is_collected_with_a_token_for_it(
    make: Callable[..., str], runtime: Runtime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a token for one workspace, then `memory gc` works there, and says that the account is left out."""
    with running_server(runtime, access=Access({"operator": OPERATORS})) as url:
        monkeypatch.setenv("REVERIE_TOKEN", make("w", "ana"))
        with Reverie("ana", url=url, workspace="w") as ana:
            ana.remember("Otto plays the cello")
        ended = CommandLine(monkeypatch, capsys, "--agent", "ana", "--workspace", "w", url=url)(
            "memory", "gc", "--json"
        )
        other = CommandLine(monkeypatch, capsys, "--agent", "ana", "--workspace", "v", url=url)(
            "memory", "gc", "--json"
        )
    assert (ended.code, "the account are left out" in ended.err, ended.json["looked_at"]) == (0, True, 1)
    assert (other.code, "not for this workspace" in other.err) == (1, True)


def test_a_wrong_token_is_told_where_to_get_another(send: Send) -> None:
    """Given a token that nobody made, then the refusal names the variable and the commands that print a right one."""
    detail = refused(send(new_token(), "GET", "facts"), 401, "token")
    assert "set REVERIE_TOKEN to one of `reverie tokens create`" in detail


def test_wrong_tokens_are_slowed_down_and_a_right_one_passes(send: Send, make: Callable[..., str]) -> None:
    """Given many wrong tokens from an address, then further ones are 429 for a time, and a right one is served."""
    valid = make("w", "ana")
    statuses = [send(new_token(), "GET", "facts").status_code for _ in range(FAILURES_ALLOWED + 2)]
    assert statuses == [401] * FAILURES_ALLOWED + [429] * 2
    limited = send("nonsense", "GET", "facts")
    assert limited.status_code == 429
    assert 0 < int(limited.headers["Retry-After"]) <= 60
    assert send(valid, "GET", "facts").status_code == 200


def test_the_audit_log_has_deletions_and_refusals_without_content(
    send: Send, make: Callable[..., str], runtime: Runtime
) -> None:
    """Given a deletion, an export and refusals, then the log tells who did what from where, and equal refusals once."""
    token = make("w", "ana", name="phone", scopes=("read", "write", "forget"))
    send(token, "PUT", "facts/home/city", {"value": "Lisbon"})
    send(token, "DELETE", "facts/home/city")
    send(token, "DELETE", "facts/home/city")
    send(token, "GET", "export")
    entries = runtime.stores.audit().entries(AuditFilter(), limit=20)
    deletions = [one for one in entries if one.action == "forget-fact"]
    assert [(one.outcome, one.actor, one.target, one.origin) for one in deletions] == [
        ("nothing", "phone", audited_name(runtime.settings.data, "id", "home/city"), "127.0.0.1"),
        ("done", "phone", audited_name(runtime.settings.data, "id", "home/city"), "127.0.0.1"),
    ]
    assert all(one.token and one.trace for one in deletions)
    assert [one.agent for one in entries if one.action == "export-memories"] == ["ana"]
    assert "Lisbon" not in repr(entries)


def test_the_audit_log_has_no_text_that_a_caller_chose_and_whoever_knows_it_finds_it(
    send: Send, make: Callable[..., str], runtime: Runtime
) -> None:
    """Given deletions, refusals and exports with telling ids, then none is in the log, and each finds its entries."""
    token = make("w", "ana", name="phone", scopes=("read", "write", "forget"))
    of_user = make("w", "ana", user="kate-canary", scopes=("read", "forget"))
    for path in ("facts/health-canary/hiv", "sessions/session-canary", "memories/memory-canary", "notes/note-canary"):
        send(token, "DELETE", path, trace="trace-canary")
    send(token, "GET", "sessions/session-canary/export", trace="trace-canary")
    send(of_user, "DELETE", "facts/other-canary/key")
    send(of_user, "PUT", "facts/other-canary/key", {"value": "x"})
    operator = make(None, scopes=("operate",))
    entries = runtime.stores.audit().entries(AuditFilter(), limit=50)
    assert len(entries) > 5
    assert "canary" not in repr(entries)

    def found(**wanted: str) -> list[str]:
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in wanted.items())
        listed = send(operator, "GET", f"audit?{query}").json()["entries"]
        return [one["action"] for one in listed]

    assert found(target="health-canary/hiv") == ["forget-fact"]
    assert set(found(target="session-canary")) >= {"forget-session"}
    assert found(target="memory-canary") == ["forget"]
    assert found(target="note-canary") == ["delete-note"]
    assert found(actor="kate-canary") == ["forget-fact"]
    assert found(target="nothing-canary") == []


def test_equal_refusals_become_one_entry_of_the_audit_log(
    runtime: Runtime, make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given refusals, when the server has written them, then equal ones are one entry with their number."""
    monkeypatch.setattr(authentication, "_FLUSH_SECONDS", 3_600.0)  # six requests may take long
    token = make("w", "ana", name="phone")
    with running_server(runtime, access=Access({"operator": OPERATORS})) as url:
        for headers in ({"Authorization": f"Bearer {token}", "X-Reverie-Agent": "bob"}, {"Authorization": "Bearer x"}):
            for _ in range(3):
                httpx2.get(f"{url}/v1/facts", headers=headers, trust_env=False)
    entries = runtime.stores.audit().entries(AuditFilter(), limit=20)
    assert [(one.actor, one.action, one.outcome, one.origin, one.count) for one in entries] == [
        ("", "authentication", "refused", "127.0.0.1", 3),
        ("phone", "list-facts", "refused: agent", "127.0.0.1", 3),
    ]
    assert runtime.stores.tokens().named("phone")[0].last_used_at is not None
