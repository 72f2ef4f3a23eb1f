"""Tasks to an agent's own workers: what they carry, what of it is shown, and what becomes of a report."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, current_app
from kombu import Connection

from reverie.contract import QUEUES, TASK_QUEUES
from reverie.errors import Conflict, NotFound, Permanent, Rejected, Unauthorised, Unavailable
from reverie.scheduling import agent_worker
from reverie.scheduling.agent_worker import AgentTasks, AgentWorker, Run, agent_app
from reverie.scheduling.run_signing import SignedRun, WorkerKey, derive_worker_key, sign_run
from reverie.scheduling.types import RunReport, TaskExecutor

MEMORY = "memory://"
KEY = derive_worker_key(b"k" * 32, "home", "ana")
ARGUMENTS = {"schedule_id": "s1", "run_id": "r1", "goal": "buy milk"}
MORE = {"agent": "ana", "workspace": "home", "due_at": "2027-03-01T08:00:00Z", "timeout_seconds": 90, "trace": "t"}


@pytest.fixture
def tasks() -> Iterator[AgentTasks]:
    """Sends into the memory of this process."""
    sender = AgentTasks(MEMORY, prefix="x:")
    yield sender
    sender.close()


def sent(queue: str) -> list[Any]:
    """Take what lies in a queue."""
    with Connection(MEMORY) as connection, connection.SimpleQueue(queue) as simple:
        found = []
        while simple.qsize():
            message = simple.get_nowait()
            message.ack()
            found.append(message)
        return found


def send(tasks: AgentTasks, queue: str, *, goal: str = "buy milk") -> Any:
    executor = TaskExecutor(task="my_agent.shop", queue=queue)
    tasks.send(executor, workspace="home", schedule_id="s1", run_id="r1", goal=goal, headers=MORE)
    (message,) = sent(f"agent.home.{queue}")
    return message


def test_a_task_has_three_arguments_and_the_id_of_its_run(tasks: AgentTasks) -> None:
    """Given a run, then its task carries the schedule, the run and the goal, in JSON, and its own id is the run's."""
    message = send(tasks, "q-arguments")
    arguments, keywords, _ = message.payload
    assert (arguments, keywords) == ([], {"schedule_id": "s1", "run_id": "r1", "goal": "buy milk"})
    assert (message.headers["task"], message.headers["id"]) == ("my_agent.shop", "r1")
    assert message.content_type == "application/json"


def test_what_else_there_is_to_know_stands_in_headers(tasks: AgentTasks) -> None:
    """Given a run, then agent, workspace, due time, timeout and trace go along without being arguments."""
    headers = send(tasks, "q-headers").headers
    assert {name: headers[f"reverie_{name}"] for name in MORE} == MORE


def test_the_goal_is_in_nothing_that_logs_or_events_show(tasks: AgentTasks) -> None:
    """Given a goal, then neither the headers nor the representations of the arguments hold a word of it."""
    message = send(tasks, "q-shown", goal="the divorce papers")
    assert "divorce" not in json.dumps(message.headers)
    assert message.headers["argsrepr"] == "()"
    assert message.headers["kwargsrepr"] == "{'schedule_id': 's1', 'run_id': 'r1'}"


def test_a_task_sent_again_has_the_same_id(tasks: AgentTasks) -> None:
    """Given a run whose task is sent twice, then both are of one id."""
    assert [send(tasks, "q-again").headers["id"] for _ in range(2)] == ["r1", "r1"]


def test_a_task_is_begun_only_while_somebody_waits_for_it(tasks: AgentTasks) -> None:
    """Given the end of a run's time, then the task expires with it, as Celery's workers understand it."""
    end = datetime(2027, 3, 1, 8, 10, tzinfo=UTC)
    executor = TaskExecutor(task="a.b", queue="q-expires")
    tasks.send(executor, workspace="home", schedule_id="s", run_id="r", goal="g", headers={}, expires_at=end)
    (message,) = sent("agent.home.q-expires")
    assert message.headers["expires"] == "2027-03-01T08:10:00+00:00"


def test_after_being_closed_it_sends_again(tasks: AgentTasks) -> None:
    """Given connections that were closed, then the next task opens them."""
    send(tasks, "q-closed")
    tasks.close()
    assert send(tasks, "q-closed").headers["id"] == "r1"


def test_a_broker_that_is_away_is_unavailable() -> None:
    """Given nobody at the broker's address, then the error names the setting, and nothing of Celery gets out."""
    tasks = AgentTasks("unix:///tmp/reverie-there-is-no-such.sock", prefix="x:")
    with pytest.raises(Unavailable, match="agent_broker_url"):
        tasks.send(
            TaskExecutor(task="a.b", queue="q"), workspace="w", schedule_id="s", run_id="r", goal="g", headers={}
        )
    tasks.close()


# Names of queues that lead, or might lead, out of `agent.<workspace>.`.
OUTSIDE = (
    *QUEUES, "celery", "celeryev", "reverie:inbox:default", "agent.other.ana", "ana.tasks", "ana:tasks", "../x", "x/y",
    ".", "..", "-ana", "a b", "ana\n", "ana\x06\x163", "ana*", "\u00e4na", "", " ", "a" * 64,
)  # fmt: skip


@pytest.mark.parametrize("queue", [name for name in OUTSIDE if name != "celeryev"])
def test_no_task_leaves_the_queues_of_its_workspace(tasks: AgentTasks, queue: str) -> None:
    """Given the name of another queue, however it came into a schedule, then nothing is sent, and the field named."""
    with pytest.raises(Rejected) as refused:
        tasks.send(
            TaskExecutor(task="a.b", queue=queue), workspace="home", schedule_id="s", run_id="r", goal="g", headers={}
        )
    assert refused.value.field == "queue"
    assert sent(queue or "empty") == []


@pytest.mark.parametrize("workspace", ["a.b", "home:x", "../home", "Home", ""])
def test_no_workspace_has_a_name_with_a_full_stop(tasks: AgentTasks, workspace: str) -> None:
    """Given what is no workspace, then nothing is sent: two workspaces never share a queue."""
    with pytest.raises(Rejected) as refused:
        tasks.send(
            TaskExecutor(task="a.b", queue="q"), workspace=workspace, schedule_id="s", run_id="r", goal="g", headers={}
        )
    assert refused.value.field == "workspace"


def test_a_name_of_a_queue_that_is_celerys_own_is_a_queue_of_the_workspace(tasks: AgentTasks) -> None:
    """Given the name of a queue for events, then it is an ordinary name below that of the workspace."""
    assert send(tasks, "celeryev").headers["task"] == "my_agent.shop"


def test_a_worker_takes_tasks_of_one_workspace() -> None:
    """Given workers of the same queue in two workspaces, then their queues and what they hold have different keys."""
    apps = [AgentWorker(agent="ana", queue="q", workspace=name, broker="redis://h/0").app for name in ("home", "work")]
    assert [app.conf.task_default_queue for app in apps] == ["agent.home.q", "agent.work.q"]
    assert [app.conf.broker_transport_options["unacked_key"] for app in apps] == [
        "unacked:agent.home.q",
        "unacked:agent.work.q",
    ]


@pytest.mark.parametrize("queue", ["ana.tasks", "ana:tasks", "ingest", "celery"])
def test_a_worker_of_a_queue_outside_is_refused(queue: str) -> None:
    """Given a name that an earlier release allowed, or one of Reverie's, then the worker says so when it is made."""
    with pytest.raises(Rejected, match="queue"):
        AgentWorker(agent="ana", queue=queue, broker="redis://h/0")


def test_its_app_is_not_the_process_s_and_knows_no_queue_of_reveries() -> None:
    """Given an app for an agent, then the current app is another, and no name of ours is routed by it."""
    app = agent_app("ours", MEMORY, prefix="x:")
    assert current_app.main != "ours"
    assert app.conf.task_default_queue == "celery"
    assert not app.conf.task_routes
    assert app.conf.broker_transport_options["global_keyprefix"] == "x:"
    assert app.conf.accept_content == ["json"]


# --- the worker ---


class Server:
    """Stands in for the client: answers each report as a test says, the last answer again and again."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.reports: list[dict[str, Any]] = []
        self.made: dict[str, Any] = {}
        self.status = "running"
        self.asked: tuple[str | None, str | None] | None = None
        self.reported_for: str | None = None
        self.runs = self

    def __call__(self, **made: Any) -> Server:
        self.made = made
        return self

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def worker_key(self) -> WorkerKey:
        return WorkerKey(key=KEY)

    def get(self, run_id: str, *, user: str | None, session: str | None) -> Any:
        self.asked = (user, session)
        return SimpleNamespace(id=run_id, schedule_id="s1", status=self.status)

    def complete(self, run_id: str, *, user: str | None, **report: Any) -> None:
        self.reported_for = user
        self.reports.append({"run_id": run_id, **report})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer


@pytest.fixture
def worker() -> AgentWorker:
    return AgentWorker(agent="ana", queue="ana", workspace="home", broker="redis://127.0.0.1:1/0")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it would have waited between two tries; time goes on by that much."""
    waited: list[float] = []
    monkeypatch.setattr(agent_worker.time, "sleep", waited.append)
    monkeypatch.setattr(agent_worker.time, "monotonic", lambda: sum(waited))
    return waited


def execute(
    worker: AgentWorker,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    outcome: object,
    *,
    timeout_seconds: int = 90,
    user: str | None = None,
) -> Run:
    """Have a worker execute a function that returns, or raises, this; returns what the function was told."""
    runs: list[Run] = []

    def function(goal: str, run: Run) -> object:
        assert goal == run.goal
        runs.append(run)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("reverie.client.Reverie", server)
    worker.app.tasks.pop("my_agent.shop", None)  # of an earlier call
    task = worker.task("my_agent.shop")(function)
    run = signed_run(timeout_seconds=timeout_seconds, user=user)
    task.apply(kwargs=ARGUMENTS, headers=headers_of(run, sign_run(KEY, run)), throw=True)
    return runs[0]


def signed_run(**changes: Any) -> SignedRun:
    """A run as Reverie signs it now, with some fields changed."""
    fields = {**MORE, **ARGUMENTS, "task": "my_agent.shop", "signed_at": int(time.time()), **changes}
    return SignedRun(**fields)


def headers_of(run: SignedRun, signature: object) -> dict[str, Any]:
    names = (*MORE, "signed_at", "user", "session")
    return {f"reverie_{name}": getattr(run, name) for name in names} | {"reverie_signature": signature}


def signed_headers() -> dict[str, Any]:
    """Return the headers of a run that is signed now; two of them may be of different seconds."""
    run = signed_run()
    return headers_of(run, sign_run(KEY, run))


def test_a_task_is_registered_with_no_other_app_of_the_process(worker: AgentWorker) -> None:
    """Given another Celery app beside the agent's, then it knows nothing of the agent's tasks."""
    worker.task("my_agent.shop")(lambda goal, run: None)
    assert "my_agent.shop" in worker.app.tasks
    assert "my_agent.shop" not in Celery("other", set_as_current=False).tasks


def test_a_function_is_told_of_its_run(worker: AgentWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a task with its headers, then the function gets them, and the report goes to the run's workspace."""
    server = Server(None)
    run = execute(worker, server, monkeypatch, "milk")
    assert (run.id, run.schedule_id, run.agent, run.workspace, run.timeout_seconds) == ("r1", "s1", "ana", "home", 90)
    assert run.due_at is not None
    assert run.due_at.isoformat() == "2027-03-01T08:00:00+00:00"
    assert (server.made["agent"], server.made["workspace"]) == ("ana", "home")
    assert [(report["run_id"], report["status"], report["output"]) for report in server.reports] == [
        ("r1", "success", "milk")
    ]


def test_a_run_of_a_user_is_asked_for_and_reported_for_that_user(
    worker: AgentWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a run of kate, then the function is told so, and the server asked and told as for her."""
    server = Server(None)
    assert execute(worker, server, monkeypatch, "done", user="kate").user == "kate"
    assert (server.asked, server.reported_for) == (("kate", None), "kate")


@pytest.mark.parametrize(
    ("outcome", "status", "output", "error"),
    [
        (None, "success", "", ""),
        (7, "success", "7", ""),
        (RunReport(status="failed", output="half", error="no milk"), "failed", "half", "no milk"),
        (ValueError("no \x00milk\ud800"), "failed", "", "ValueError: no milk?"),
        (KeyError("k" * 5_000), "failed", "", "KeyError: '" + "k" * 1_989),
    ],
)
def test_what_came_of_it_is_the_report(
    worker: AgentWorker, monkeypatch: pytest.MonkeyPatch, outcome: object, status: str, output: str, error: str
) -> None:
    """Given a result or an exception, then the report says it in what a store can hold."""
    server = Server(None)
    execute(worker, server, monkeypatch, outcome)
    (report,) = server.reports
    assert (report["status"], report["output"], report["error"]) == (status, output, error)


@pytest.mark.parametrize("answer", [Conflict("cancelled"), NotFound("deleted")])
def test_a_report_that_nobody_waits_for_is_dropped(
    worker: AgentWorker, monkeypatch: pytest.MonkeyPatch, answer: Exception
) -> None:
    """Given a run that has ended otherwise, or is gone, then the report is sent once and nothing fails."""
    server = Server(answer)
    execute(worker, server, monkeypatch, "milk")
    assert len(server.reports) == 1


def test_what_cannot_be_taken_has_failed_the_run(worker: AgentWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an output that is refused, then the run fails with the reason, and does not wait for its deadline."""
    server = Server(Rejected("output has 2,000,000 bytes; the limit is 1", field="output"), None)
    execute(worker, server, monkeypatch, "milk")
    failed = server.reports[-1]
    assert (failed["run_id"], failed["status"]) == ("r1", "failed")
    assert failed["error"] == "its return value was rejected: output has 2,000,000 bytes; the limit is 1"


@pytest.mark.parametrize("answer", [Unauthorised("another token", field="token"), Permanent("no Reverie server")])
def test_what_is_wrong_with_the_worker_itself_fails_its_task(
    worker: AgentWorker, monkeypatch: pytest.MonkeyPatch, answer: Exception
) -> None:
    """Given a wrong token or URL, then the task fails aloud: no report could say it."""
    with pytest.raises(type(answer)):
        execute(worker, Server(answer), monkeypatch, "milk")


def test_it_reports_again_until_the_server_is_back(
    worker: AgentWorker, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """Given a server that is away four times, then the fifth report arrives, after growing pauses."""
    server = Server(*[Unavailable("away")] * 4, None)
    execute(worker, server, monkeypatch, "milk")
    assert len(server.reports) == 5
    assert all(longest / 2 <= wait <= longest for wait, longest in zip(waits, (1, 2, 4, 8), strict=True))


def test_it_gives_up_when_the_run_s_time_is_over(
    worker: AgentWorker, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """Given a server that stays away, then the task fails once the run has no time left."""
    with pytest.raises(Unavailable):
        execute(worker, Server(Unavailable("away")), monkeypatch, "milk", timeout_seconds=30)
    assert 10 < sum(waits) <= 30


@pytest.mark.parametrize("name", [*TASK_QUEUES, "celery.chord", "a b", ""])
def test_names_that_are_reverie_s_are_refused(worker: AgentWorker, name: str) -> None:
    """Given a task of ours, or no name, then it is refused before a worker starts."""
    with pytest.raises(Rejected) as refused:
        worker.task(name)
    assert refused.value.field == "task"


@pytest.mark.parametrize("queue", [*QUEUES, "celery", "a b", ""])
def test_queues_that_are_reverie_s_are_refused(queue: str) -> None:
    """Given a queue of ours, then no worker listens to it."""
    with pytest.raises(Rejected) as refused:
        AgentWorker(agent="ana", queue=queue, broker="redis://127.0.0.1:1/0")
    assert refused.value.field == "queue"


def test_without_a_broker_it_says_where_to_find_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given neither argument nor environment, then the error says how to print the URL; with one, it is taken."""
    with pytest.raises(Rejected, match="reverie broker-url") as refused:
        AgentWorker(agent="ana", queue="ana")
    assert refused.value.field == "broker"
    monkeypatch.setenv("REVERIE_BROKER", "redis://127.0.0.1:1/3")
    monkeypatch.setenv("REVERIE_BROKER_PREFIX", "mine:")
    app = AgentWorker(agent="ana", queue="ana").app
    assert app.conf.broker_url == "redis://127.0.0.1:1/3"
    assert app.conf.broker_transport_options["global_keyprefix"] == "mine:"
    assert AgentWorker(agent="ana", queue="ana", prefix="").app.conf.broker_transport_options["global_keyprefix"] == ""


def test_what_a_task_may_take_is_the_queue_s_own(worker: AgentWorker) -> None:
    """Given a worker of long tasks, then neither it nor Reverie's own workers take one for lost before its time."""
    with pytest.raises(Rejected, match="longest_seconds"):
        AgentWorker(agent="ana", queue="ana", broker="redis://127.0.0.1:1/0", longest_seconds=0)
    slow = AgentWorker(agent="ana", queue="slow", broker="redis://127.0.0.1:1/0", longest_seconds=7_200)
    options = [app.conf.broker_transport_options for app in (worker.app, slow.app)]
    assert [one["visibility_timeout"] for one in options] == [420, 7_320]
    assert {one["unacked_restore_interval"] for one in options} == {10}, "it comes within seconds of that"
    assert [one["unacked_key"] for one in options] == ["unacked:agent.home.ana", "unacked:agent.default.slow"]


# --- what a worker refuses ---

OTHER_KEY = derive_worker_key(b"k" * 32, "home", "bob")


def apply(
    worker: AgentWorker, monkeypatch: pytest.MonkeyPatch, server: Server, headers: dict[str, Any], **arguments: Any
) -> tuple[str, list[Run]]:
    """Have a worker take a task; returns why it was refused, and the runs that the function was told of."""
    runs: list[Run] = []
    monkeypatch.setattr("reverie.client.Reverie", server)
    worker.app.tasks.pop("my_agent.shop", None)  # of an earlier call
    task = worker.task("my_agent.shop")(lambda goal, run: runs.append(run))
    state = task.apply(kwargs=ARGUMENTS | arguments, headers=headers)
    return (str(state.result) if state.state == "REJECTED" else "", runs)


NOW = int(time.time())
FORGED = [
    ("not signed", signed_run(), None),
    ("signature is wrong", signed_run(), "v1=" + "0" * 64),
    ("signature is wrong", signed_run(), "\u00e4"),
    ("signature is wrong", signed_run(), sign_run(OTHER_KEY, signed_run())),
    ("signature is wrong", signed_run(trace="x"), sign_run(KEY, signed_run())),
    ("signature is wrong", signed_run(timeout_seconds=86_400), sign_run(KEY, signed_run())),
    ("signature is wrong", signed_run(due_at="2028-01-01T00:00:00Z"), sign_run(KEY, signed_run())),
    ("signature is wrong", signed_run(signed_at=NOW + 60), sign_run(KEY, signed_run(signed_at=NOW))),
    ("not for 'ana'", signed_run(agent="bob"), sign_run(OTHER_KEY, signed_run(agent="bob"))),
    ("not for 'ana'", signed_run(workspace="work"), sign_run(KEY, signed_run(workspace="work"))),
    ("had 90 s to end", signed_run(signed_at=NOW - 500), sign_run(KEY, signed_run(signed_at=NOW - 500))),
    ("clocks", signed_run(signed_at=NOW + 86_400), sign_run(KEY, signed_run(signed_at=NOW + 86_400))),
]


# Signatures contain the time, so they differ in each process.
@pytest.mark.parametrize(("reason", "run", "signature"), FORGED, ids=map(str, range(len(FORGED))))
def test_a_run_that_was_not_signed_for_this_agent_is_refused(
    worker: AgentWorker, monkeypatch: pytest.MonkeyPatch, reason: str, run: SignedRun, signature: object
) -> None:
    """Given a run that is unsigned, forged, changed, of another agent, old, or of the future, then nothing runs."""
    server = Server(None)
    refused, runs = apply(worker, monkeypatch, server, headers_of(run, signature))
    assert reason in refused
    assert (runs, server.reports) == ([], [])


@pytest.mark.parametrize("change", [{"goal": "buy gin"}, {"run_id": "r2"}, {"schedule_id": "s2"}])
def test_an_argument_that_was_not_signed_is_refused(
    worker: AgentWorker, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    """Given the signature of a run with another goal, run or schedule, then nothing runs."""
    run = signed_run()
    refused, runs = apply(worker, monkeypatch, Server(None), headers_of(run, sign_run(KEY, run)), **change)
    assert "signature is wrong" in refused
    assert runs == []


@pytest.mark.parametrize("change", [{"timeout_seconds": "90"}, {"signed_at": None}, {"agent": ["ana"]}])
def test_headers_of_other_types_are_refused(
    worker: AgentWorker, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """Given headers that are none of ours, then nothing runs, and the error names what is wrong."""
    headers = headers_of(signed_run(), "v1=") | {f"reverie_{name}": value for name, value in change.items()}
    refused, runs = apply(worker, monkeypatch, Server(None), headers)
    assert "not those of a run" in refused
    assert runs == []


def test_a_run_for_another_task_is_refused(worker: AgentWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a run that is signed for another task of the same agent, then nothing runs."""
    run = signed_run(task="my_agent.pay")
    refused, runs = apply(worker, monkeypatch, Server(None), headers_of(run, sign_run(KEY, run)))
    assert "signature is wrong" in refused
    assert runs == []


@pytest.mark.parametrize("status", ["success", "failed", "cancelled", "timed_out"])
def test_a_run_that_has_ended_is_not_executed_again(
    worker: AgentWorker, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """Given the task of a run that the server knows to have ended, then nothing runs."""
    server = Server(None)
    server.status = status
    refused, runs = apply(worker, monkeypatch, server, signed_headers())
    assert "has ended" in refused
    assert runs == []


def test_a_task_that_is_sent_twice_is_executed_once(worker: AgentWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a copy of a task that this process has executed, then it runs once, whatever the server says."""
    headers = signed_headers()
    assert len(apply(worker, monkeypatch, Server(None), headers)[1]) == 1
    refused, runs = apply(worker, monkeypatch, Server(None), headers)
    assert "has had it before" in refused
    assert runs == []


def test_a_task_that_was_not_reported_may_come_again(
    worker: AgentWorker, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """Given a report that no server accepted, when the task comes again, then it is executed again."""
    with pytest.raises(Unavailable):
        execute(worker, Server(Unavailable("away")), monkeypatch, "milk", timeout_seconds=30)
    assert execute(worker, Server(None), monkeypatch, "milk").id == "r1"


def test_every_agent_of_every_workspace_has_a_key_of_its_own() -> None:
    """Given names that would be the same when joined, then their keys differ, and another installation's do, too."""
    pairs = [("a", "b"), ("b", "a"), ("a", "b\x1f"), ("ab", ""), ("", "ab"), ('a","b', ""), ("a", "")]
    keys = [derive_worker_key(key, *pair) for pair in pairs for key in (b"k" * 32, b"l" * 32)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("key", ["secret", "rvwk_x", "rvwk_" + "0" * 63, "rvwk_" + "G" * 64, KEY + "0"])
def test_a_key_that_is_none_is_refused_without_showing_it(key: str) -> None:
    """Given a text that is no key, then the worker is not made, and the error says where to find the key."""
    with pytest.raises(Rejected, match="worker-key") as refused:
        AgentWorker(agent="ana", queue="ana", broker="redis://h/0", key=key)
    assert key not in str(refused.value)


def test_a_key_of_the_environment_needs_no_server(worker: AgentWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a key in the environment, then it is used instead of the server's."""
    monkeypatch.setenv("REVERIE_WORKER_KEY", OTHER_KEY)
    own = AgentWorker(agent="ana", queue="ana", workspace="home", broker="redis://h/0")
    headers = headers_of(signed_run(), sign_run(OTHER_KEY, signed_run()))
    assert len(apply(own, monkeypatch, Server(None), headers)[1]) == 1
