"""What was forgotten, or is being erased, is taken up by no stage and leaves the process no more."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import text as sql

from adapters.embedders.base import REMOTE, EmbeddingRefused, HashEmbedder
from adapters.embedders.openai_compatible import BATCH_INPUTS
from adapters.language_models import Check, Completion, LanguageModel, LanguageModelUnavailable, unchecked
from adapters.rerankers import GuardedReranker
from adapters.tokens import EstimatedTokens
from memory.items.embedding import embed_waiting
from memory.lifecycle import forgetting
from memory.lifecycle.erasure_rows import Scope
from memory.lifecycle.erasures import request_erasure
from memory.lifecycle.forgetting import RemovalServices, forget_workspace
from memory.scheduling.executing import embed_goals
from memory.scheduling.notifier import push_due
from memory.sessions.condensers import Condenser
from memory.sessions.summaries import RollingRules, SummaryRules
from memory.sessions.summary_jobs import compact_session
from retrieval.context.write import build_context
from retrieval.query import RecallRequest
from retrieval.recaller import Reranking
from retrieval.results import find_results
from reverie.clock import to_micros
from reverie.errors import NotFound, StoreUnavailable
from reverie.scheduling.types import Executor, LlmExecutor
from storage.items import NewItem
from storage.memories.records import NewMemory
from storage.scheduling.records import NewNotification
from storage.stores import Stores
from support.carrying_out import CarryingOut
from support.contexts import context_request
from support.extracting import Extracting, answer, tell
from support.knowing import Knowing
from support.pipeline import WORKSPACE, Pipeline
from support.recalling import find
from support.scheduled import HOOK, WORKERS, Scheduled
from support.scripted import ScriptedLanguageModel, ScriptedReranker
from support.telling import BEGAN, Clock, Notifier, add_reminder
from worker.scheduling.goal_context import recall_for_goal

MESSAGES = 400  # more than one request, and more than is deleted in one transaction


class LoggingEmbedder(HashEmbedder):
    """An embedder behind HTTP that logs each request; `before` is called with its number before it is answered."""

    device = REMOTE  # type: ignore[misc,assignment]

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.before: Callable[[int], object] = lambda _: None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.requests.append(list(texts))
        self.before(len(self.requests))
        return super().embed(texts)

    def sent(self, word: str) -> list[str]:
        return [text for request in self.requests for text in request if word in text]


@pytest.fixture
def endpoint() -> LoggingEmbedder:
    return LoggingEmbedder()


@pytest.fixture
def pipe(tmp_path: Path, endpoint: LoggingEmbedder) -> Iterator[Pipeline]:
    """A pipeline whose removal of large sessions and files is left to the sweep."""
    pipe = Pipeline(tmp_path / "data", embedder=endpoint)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forgetting, "_REMOVING_SECONDS", 0.0)
        patch.setattr(forgetting, "_REMOVING_SECONDS", 0.0)
        yield pipe
    pipe.close()


def erase(
    pipe: Pipeline, kind: str, target: str = "", *, agent: str | None = None, workspace: str | None = None
) -> None:
    """Ask for an erasure, whose job has not begun."""
    scope = Scope(kind, target, agent, workspace)  # type: ignore[arg-type]
    request_erasure(pipe.stores, pipe.stores.data_dir, scope, requested_by="tester", now=pipe.now())


FORGETS: dict[str, Callable[[Pipeline], object]] = {
    "forget session": lambda pipe: pipe.forget("heron"),
    "erase session": lambda pipe: erase(pipe, "session", "heron"),
    "erase user": lambda pipe: erase(pipe, "user", "kate"),
    "erase agent": lambda pipe: erase(pipe, "agent", agent="ana"),
    "erase workspace": lambda pipe: erase(pipe, "workspace", workspace=WORKSPACE),
    "erase user in workspace": lambda pipe: erase(pipe, "user", "kate", workspace=WORKSPACE),
}
OF_ONE_AGENT = {name: forget for name, forget in FORGETS.items() if name != "erase workspace"}


def say_much(pipe: Pipeline) -> None:
    pipe.say(*(f"The heron flew {number} miles" for number in range(MESSAGES)), session="heron", user="kate")
    pipe.say("Plums are ripe in August", session="plum", user="lif", agent="bob")
    pipe.drain(lambda: pipe.ingest().taken)


@pytest.mark.parametrize("forget", FORGETS.values(), ids=FORGETS)
def test_nothing_of_it_is_cut_or_sent_when_it_waits(
    pipe: Pipeline, endpoint: LoggingEmbedder, forget: Callable[[Pipeline], object]
) -> None:
    """Given stored messages, when they are forgotten, then no stage cuts, embeds or indexes one of them."""
    say_much(pipe)
    forget(pipe)
    pipe.settle()
    assert endpoint.sent("heron") == []
    assert pipe.count("chunks", "text LIKE '%heron%'") == 0


@pytest.mark.parametrize("forget", OF_ONE_AGENT.values(), ids=OF_ONE_AGENT)
def test_nothing_of_it_is_sent_once_it_was_cut_and_others_go_on(
    pipe: Pipeline, endpoint: LoggingEmbedder, forget: Callable[[Pipeline], object]
) -> None:
    """Given chunks of one agent that wait, when they are forgotten, then only those of another agent are sent."""
    say_much(pipe)
    pipe.drain(lambda: pipe.chunk().more)
    forget(pipe)
    pipe.settle()
    assert endpoint.sent("heron") == []
    assert endpoint.sent("Plums") != []
    assert len(pipe.ready) == 1


@pytest.mark.parametrize("forget", FORGETS.values(), ids=FORGETS)
def test_what_is_in_hand_is_dropped_before_the_next_request(
    pipe: Pipeline, endpoint: LoggingEmbedder, forget: Callable[[Pipeline], object]
) -> None:
    """Given a batch of which a part is at the endpoint, when it is forgotten, then no further part is sent."""
    say_much(pipe)
    pipe.drain(lambda: pipe.chunk().more)
    endpoint.before = lambda number: forget(pipe) if number == 1 else None
    pipe.settle()
    first = [text for text in endpoint.requests[0] if "heron" in text]
    assert endpoint.sent("heron") == first
    assert 0 < len(first) < MESSAGES
    assert pipe.dead_letters() == []


def test_a_refused_batch_is_not_halved_with_what_was_forgotten(pipe: Pipeline, endpoint: LoggingEmbedder) -> None:
    """Given a batch that the endpoint refuses, when it is forgotten meanwhile, then its halves are not sent."""
    pipe.say("The heron flies", "The heron sings", session="heron", user="kate")
    pipe.drain(lambda: pipe.ingest().taken)
    pipe.drain(lambda: pipe.chunk().more)

    def refuse(number: int) -> None:
        if number == 1:
            erase(pipe, "user", "kate")
            raise EmbeddingRefused("one of the texts is refused")

    endpoint.before = refuse
    pipe.settle()
    assert endpoint.sent("heron") == endpoint.requests[0]
    assert pipe.dead_letters() == []


def test_what_an_erasure_leaves_is_taken_up_again(pipe: Pipeline, endpoint: LoggingEmbedder) -> None:
    """Given an erasure of a session, when it has ended and the rows are still there, then they are embedded later."""
    pipe.say("The heron flies", session="heron", user="kate")
    pipe.drain(lambda: pipe.ingest().taken)
    erase(pipe, "session", "heron")
    pipe.settle()
    assert endpoint.requests == []
    (unfinished,) = pipe.stores.erasures().unfinished()
    pipe.stores.erasures().finish(unfinished.id, receipt={}, name="erased", now=pipe.now())
    pipe.advance(120)
    pipe.settle()
    assert len(endpoint.sent("heron")) == 1


def test_in_a_group_only_what_the_user_said_is_withdrawn(pipe: Pipeline, endpoint: LoggingEmbedder) -> None:
    """Given a group, when one user is being erased, then neither a message nor an answer that quotes it is sent."""
    pipe.say({"content": "Where does the heron nest?", "user": "kate"}, session="group", user="kate")
    pipe.say({"content": "In the reeds", "user": "lif"}, session="group", user="lif")
    pipe.say({"content": "Good to know", "user": "lif"}, session="group", user="lif")
    pipe.drain(lambda: pipe.ingest().taken)
    pipe.drain(lambda: pipe.chunk().more)
    erase(pipe, "user", "kate")
    pipe.settle()
    assert endpoint.sent("heron") == []
    assert len(endpoint.sent("Good to know")) == 1


def test_a_deleted_workspace_sends_nothing_from_a_file_that_is_still_open(
    pipe: Pipeline, endpoint: LoggingEmbedder
) -> None:
    """Given a batch at the endpoint, when its workspace is deleted, then the rest of the batch is dropped."""
    say_much(pipe)
    pipe.drain(lambda: pipe.chunk().more)

    other_process = Stores(pipe.stores.data_dir)

    def delete(number: int) -> None:
        if number == 1:
            forget_workspace(RemovalServices(other_process, pipe.inbox, pipe.working, pipe.recalls), WORKSPACE)

    endpoint.before = delete
    with pytest.raises(StoreUnavailable):
        pipe.embed()
    other_process.close()
    assert len(endpoint.requests) == 1


# --- language models ---


class LoggingModel(LanguageModel):
    """A language model that logs its prompts; `before` is called with their number before one is answered."""

    name = source = "logging"

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.before: Callable[[int], object] = lambda _: None

    def complete(
        self, system: str, prompt: str, max_tokens: int, *, purpose: str, check: Check = unchecked, form: Any = None
    ) -> Completion:
        check()
        self.prompts.append(prompt)
        self.before(len(self.prompts))
        if form is None:
            raise LanguageModelUnavailable(f"{purpose} was logged")
        return Completion(answer())


def tell_much(pipe: Pipeline) -> None:
    told = [
        f"I have seen heron number {number} in the reeds of Cacilhas, and it was grey. " * 9 for number in range(80)
    ]
    tell(pipe, *told, session="heron", user="kate")


@pytest.mark.parametrize("forget", FORGETS.values(), ids=FORGETS)
def test_extraction_asks_nothing_about_it(pipe: Pipeline, forget: Callable[[Pipeline], object]) -> None:
    """Given a session that is due, when it is forgotten before or while it is read, then no further prompt is sent."""
    model = LoggingModel()
    tell_much(pipe)
    model.before = lambda number: forget(pipe) if number == 1 else None
    Extracting(pipe, model).sweep()
    assert len(model.prompts) == 1
    pipe.advance(7_200)
    Extracting(pipe, model).sweep()
    assert len(model.prompts) == 1


@pytest.mark.parametrize("forget", FORGETS.values(), ids=FORGETS)
def test_a_summary_is_not_asked_for(pipe: Pipeline, forget: Callable[[Pipeline], object]) -> None:
    """Given a session over its budget, when it is forgotten, then its words are in no prompt."""
    model = LoggingModel()
    tell_much(pipe)
    forget(pipe)
    condenser = Condenser(EstimatedTokens(), model, fallback=False)
    rules = SummaryRules(1_000, RollingRules(), None, 2_000)
    with pytest.raises(NotFound):
        compact_session(pipe.store, condenser, rules, agent="ana", session="heron", token_budget=None, now=pipe.now())
    assert model.prompts == []


def test_what_is_known_of_an_erased_user_is_in_no_prompt(pipe: Pipeline) -> None:
    """Given a memory of the account that is being erased, when a session is read, then the prompt leaves it out."""
    model = LoggingModel()
    with pipe.stores.account_store().writing() as tx:
        kept = NewMemory(id="keeps", content="Kate keeps herons", created_at=pipe.now(), tier="account")
        tx.for_agent("ana").memories.add(kept, now=pipe.now())
    tell(pipe, "I would like to hear about storks and their nests today", session="stork", user="kate")
    erase(pipe, "memory", "keeps")
    Extracting(pipe, model).sweep()
    assert len(model.prompts) == 1
    assert "herons" not in model.prompts[0]


# --- rerankers, refinements and looks back: while a request is answered ---


def heron_and_plum(pipe: Pipeline) -> None:
    """Two users of one agent, each of whom has told something in a group, and what held before."""
    known = Knowing(pipe.stores, workspace=WORKSPACE)
    for year, nest in ((2023, "reeds"), (2024, "willows")):
        known.set_fact("stork", "nest", nest, at=to_micros(datetime(year, 5, 3, tzinfo=UTC)), user="kate")
    for number in range(3):
        pipe.say({"content": f"The heron flew {number} miles", "user": "kate"}, session="group", user="kate")
        pipe.say({"content": f"The plums fell {number} miles", "user": "lif"}, session="group", user="lif")
    pipe.settle()


FORGETS_OF_IT = {
    "forget session": lambda pipe: pipe.forget("group"),
    **{name: FORGETS[name] for name in ("erase user", "erase agent", "erase workspace")},
}


def about_it(texts: Iterable[str], forget: Callable[[Pipeline], object]) -> list[str]:
    """Those of the texts that are forgotten; the facts belong to no session."""
    words = ("heron",) if forget is FORGETS_OF_IT["forget session"] else ("heron", "stork")
    return [text for text in texts if any(word in text for word in words)]


@pytest.mark.parametrize("in_hand", [False, True], ids=["before it", "during it"])
@pytest.mark.parametrize("forget", FORGETS_OF_IT.values(), ids=FORGETS_OF_IT)
def test_no_result_of_it_is_reranked(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, forget: Callable[[Pipeline], object], in_hand: bool
) -> None:
    """Given a recall, when its results are forgotten before it or while it searches, then no reranker gets them."""
    heron_and_plum(pipe)
    sent: list[str] = []
    reranker = ScriptedReranker(lambda _, text: sent.append(text) or 1.0)  # type: ignore[func-returns-value]

    def search(*args: Any, **more: Any) -> Any:
        found = find_results(*args, **more)
        if in_hand:
            forget(pipe)
        return found

    monkeypatch.setattr("retrieval.recaller.find_results", search)
    if not in_hand:
        forget(pipe)
    request = RecallRequest(
        query="heron stork nest plums miles", agent="ana", user="kate", limit=100, as_of="2023-12-01"
    )
    for one in (request, msgspec.structs.replace(request, as_of=None)):
        find(pipe.store, pipe.embedder, one, reranking=Reranking(GuardedReranker(reranker), 50))
    assert about_it(sent, forget) == []


@pytest.mark.parametrize("in_hand", [False, True], ids=["before it", "during it"])
@pytest.mark.parametrize("forget", FORGETS_OF_IT.values(), ids=FORGETS_OF_IT)
def test_a_refinement_sends_nothing_of_it(pipe: Pipeline, forget: Callable[[Pipeline], object], in_hand: bool) -> None:
    """Given a context, when a part is forgotten before it or while it is written, then no language model gets that."""
    heron_and_plum(pipe)
    model = LoggingModel()
    is_begun = False

    class Counter(EstimatedTokens):
        def count(self, texts: Sequence[str]) -> list[int]:
            if in_hand and is_begun:
                forget(pipe)
            return super().count(texts)

    with pipe.store.writing() as tx:
        tx.connection.execute(sql("UPDATE sessions SET summary_text = 'A stork was seen' WHERE id = 'group'"))
    search = partial(find, pipe.store, pipe.embedder)
    request = context_request(None, session="group", user="kate", recency_window=2, now=pipe.now())
    build_context(pipe.store, search, Counter(), request, room=10_000, refiner=model)
    assert "heron" in model.prompts.pop()
    is_begun = True
    if not in_hand:
        forget(pipe)
    with contextlib.suppress(NotFound):
        build_context(pipe.store, search, Counter(), request, room=10_000, refiner=model)
    assert about_it(model.prompts, forget) == []


@pytest.mark.parametrize("forget", FORGETS_OF_IT.values(), ids=FORGETS_OF_IT)
def test_what_held_before_is_not_embedded_for_a_look_back(
    pipe: Pipeline, endpoint: LoggingEmbedder, forget: Callable[[Pipeline], object]
) -> None:
    """Given a fact that was replaced, when it is being erased, then a recall of its time does not send it."""
    heron_and_plum(pipe)
    forget(pipe)
    endpoint.requests.clear()
    find(pipe.store, endpoint, RecallRequest(query="nest", agent="ana", user="kate", as_of="2023-12-01"))
    assert about_it(itertools.chain(*endpoint.requests), forget) == []


@pytest.mark.parametrize("forget", FORGETS_OF_IT.values(), ids=FORGETS_OF_IT)
def test_the_context_of_a_goal_has_nothing_of_it(tmp_path: Path, forget: Callable[[Pipeline], object]) -> None:
    """Given a run whose goal recalls, when what it would find is forgotten, then neither model nor receiver gets it."""
    here = CarryingOut(tmp_path / "data")
    heron_and_plum(here.pipeline)
    schedule = here.time.schedule(here.time.hourly(goal="heron stork nest plums miles", user="kate", recall_limit=20))
    assert "heron" in recall_for_goal(here.here, WORKSPACE, schedule).text
    forget(here.pipeline)
    assert about_it(recall_for_goal(here.here, WORKSPACE, schedule).lines, forget) == []
    here.close()


def test_a_look_back_asks_again_before_its_second_request(pipe: Pipeline, endpoint: LoggingEmbedder) -> None:
    """Given more facts of a time than one request holds, when they are erased during it, then no second is sent."""
    known = Knowing(pipe.stores, workspace=WORKSPACE)
    for number, (year, nest) in itertools.product(range(BATCH_INPUTS + 1), ((2023, "reeds"), (2024, "willows"))):
        at = to_micros(datetime(year, 5, 3, tzinfo=UTC))
        known.set_fact("stork", f"nest {number}", nest, at=at, user="kate")
    pipe.settle()
    endpoint.requests.clear()
    endpoint.before = lambda number: erase(pipe, "user", "kate") if number == 2 else None  # the first is the query
    find(pipe.store, endpoint, RecallRequest(query="nest", agent="ana", user="kate", as_of="2023-12-01"))
    assert [len(texts) for texts in endpoint.requests] == [1, BATCH_INPUTS]


# --- receivers of webhooks ---


@pytest.mark.parametrize("kind", ["reminder", "notification"])
@pytest.mark.parametrize("forget", [FORGETS["erase user"], FORGETS["erase agent"]], ids=["user", "agent"])
def test_nothing_is_pushed_of_it(pipe: Pipeline, kind: str, forget: Callable[[Pipeline], object]) -> None:
    """Given a reminder or notification that is due, when its user or agent is being erased, then it is not pushed."""
    clock, notifier = Clock(), Notifier()
    if kind == "reminder":
        add_reminder(pipe.store, "r")
    else:
        with pipe.store.writing() as tx:
            notification = NewNotification(
                user="kate", kind="run", schedule="s", schedule_name=None, run=None, run_status=None, channel=None,
                session=None, title="It is done", body="All of it.",
            )  # fmt: skip
            tx.for_agent("ana").notifications.add(notification, now=BEGAN)
    forget(pipe)
    push_due(pipe.store, notifier.pushing(clock), has_time=lambda: True)
    assert notifier.took == []


@pytest.mark.parametrize("executor", [HOOK, WORKERS], ids=["webhook", "task"])
def test_a_run_that_has_begun_sends_nothing_of_it(tmp_path: Path, executor: Executor) -> None:
    """Given a schedule whose run begins, when its user is erased before it is sent, then nothing is sent."""
    here = CarryingOut(tmp_path / "data")
    sender, queue = here.answer_webhooks(), here.queue_tasks()
    schedule = here.time.hourly(user="kate", executor=executor)
    erase(here.pipeline, "user", "kate")
    here.fire(schedule)
    assert (sender.posted, queue.sent) == ([], [])
    here.close()


@pytest.mark.parametrize("forget", FORGETS_OF_IT.values(), ids=FORGETS_OF_IT)
def test_a_goal_that_takes_a_second_request_is_not_sent_again(
    tmp_path: Path, forget: Callable[[Pipeline], object]
) -> None:
    """Given a run whose model asks twice, when what was recalled is forgotten in between, then nothing is repeated."""
    here = CarryingOut(tmp_path / "data")
    heron_and_plum(here.pipeline)

    class AsksTwice(ScriptedLanguageModel):
        def complete(self, *args: Any, **more: Any) -> Completion:
            super().complete(*args, **more)
            forget(here.pipeline)
            return super().complete(*args, **more)

    model = AsksTwice(["It is done."])
    here.work_with(schedule_model=here.guarded(model))
    goal = "heron stork nest plums miles"
    run = here.fire(here.time.hourly(goal=goal, user="kate", recall_limit=20, executor=LlmExecutor()))
    assert run.status == "pending"
    assert ["heron" in prompt for _, prompt in model.prompts] == [True]
    here.close()


def test_goals_and_items_of_an_erased_user_are_not_embedded(pipe: Pipeline, endpoint: LoggingEmbedder) -> None:
    """Given items and goals that wait, when their user is being erased, then only those of others are embedded."""
    here = Scheduled(pipe.stores.data_dir)
    for user in ("kate", "lif"):
        here.hourly(goal=f"greet {user} about herons", user=user)
        with pipe.store.writing() as tx:
            value = {"text": f"{user} has an item about herons"}
            item = NewItem(["n"], "k", value, index_fields=["text"], ttl_seconds=None, embedding_model=None, vectors=())
            tx.for_agent("ana").items.of(user).put(item, now=pipe.now())
    erase(pipe, "user", "kate")
    here.close()
    embed_goals(pipe.store, endpoint)
    embed_waiting(pipe.store, endpoint, now=pipe.now)
    assert endpoint.sent("kate") == []
    assert len(endpoint.sent("lif")) == 2
