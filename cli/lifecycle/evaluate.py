"""`reverie evaluate`: ask captured questions again in a copy of the store, as it is and with something changed.

The copy lies in the data folder and is removed at the end, also after Ctrl-C; that of a run that was killed is removed
by the next one. The installation is only read, and no text leaves the machine unless the operator allows it. What takes
seconds to import is imported once the arguments are checked.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
import typer
from msgspec.structs import replace

from cli.application import Invocation
from cli.groups import root
from cli.options import time_since
from cli.output import AsJson, print_result, print_table, say, shortened, shown_progress, when
from reverie.clock import rfc3339
from reverie.contract import ACCOUNT_STORE
from reverie.counts import counted
from reverie.decoding import convert
from reverie.errors import NotFound, Rejected, Unavailable
from reverie.fields import micros_of
from reverie.recall.calls import MAX_RESULTS, GetContext, Recall

if TYPE_CHECKING:
    from adapters.embedders.record import EmbedderRecord
    from memory.evaluation import Evaluation, Figures, Question, Run
    from reverie.recall.types import Context, RecallResponse
    from server.services import Services
    from storage.recall.captured import CapturedQuery
    from storage.stores import Stores
    from worker.runtime import Runtime
    from worker.settings import Settings

# The parameters of a call that decide what a recall finds or a context contains. The settings that do are below.
_OF_RECALL: Final = ("mode", "limit", "scope", "fusion", "vector_weight", "fts_weight", "min_score", "rerank")
_OF_CONTEXT: Final = (
    *("ranking", "min_score", "max_messages"),
    *("token_budget", "reserved_tokens", "memory_tokens", "instruction_tokens"),
)
_WEIGHTS: Final = frozenset({"vector_weight", "fts_weight"})
# Only the first answers of the agent in this time are taken for answers to the question.
_ANSWERED_MICROS: Final = 10 * 60 * 1_000_000
_ANSWERS: Final = 3
_CHANGES_SHOWN: Final = 8
_PREFIX: Final = "evaluate-"


@root.command("evaluate")
def evaluate(
    command: Invocation,
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting, or a parameter of recall or context."),
    ] = None,
    embedding_model: Annotated[
        str | None, typer.Option(help="Embed the copy with this model, or by `hash` or `none`.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only questions since then, such as 3d.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The number of questions, the newest first.")] = 200,
    show: Annotated[int, typer.Option(min=0, help="The number of questions to print.")] = 10,
    allow_endpoints: Annotated[
        bool, typer.Option("--allow-endpoints", help="Let models on other machines get texts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask captured questions again in a copy, with a model, ranking or setting changed."""
    changes = _changes(setting or [], embedding_model)
    from adapters.embedders.record import EmbedderRecord
    from memory.evaluation import evaluate as compared
    from worker.model_specs import embedder_spec
    from worker.runtime import Runtime

    if command.settings.database:
        raise Rejected(
            "evaluate copies SQLite files: copy the database to a folder with `reverie db copy --to FOLDER`, and"
            " evaluate that with --data FOLDER, without REVERIE_DATABASE",
            field="database",
        )
    agent = command.agent if command.names_agent else None
    after_micros = 0 if since is None else micros_of(time_since(since))
    _check_captured(command, agent, after_micros)
    with _copied(command) as data:
        now, changed = (_settings_of(command, data, values) for values in ({}, _with_names(_settings(), changes)))
        if not allow_endpoints:
            for settings in (now, changed):
                _check_endpoints(settings, data)
        with closing(Runtime(now)) as runtime:
            with runtime.store(command.workspace).reading() as tx:
                asked = _distinct(tx.captured.newest(agent=agent, since=after_micros, limit=limit))
                answers = [tx.captured.answers(one, until=one.at + _ANSWERED_MICROS, limit=_ANSWERS) for one in asked]
            before = _replayed(runtime, command.workspace, asked, {}, "as it is")
            record = EmbedderRecord.from_embedder(embedder_spec(now), runtime.embedder) if runtime.embedder else None
        with closing(Runtime(changed)) as runtime:
            if any(name.startswith("embedding_") for name in changes):
                _reembed(runtime, record)
            after = _replayed(runtime, command.workspace, asked, changes, "changed")
    found = compared(asked, answers, before, after)
    whole = {"workspace": command.workspace, "changes": changes, **msgspec.to_builtins(found)}
    print_result(whole, as_json, lambda: _print(found, changes, command.workspace, show))


def _distinct(captured: Sequence[CapturedQuery]) -> list[CapturedQuery]:
    """Return each question once, as it was asked last: a question that a client repeats counts once."""
    return list({(one.agent, one.user, one.kind, one.query, one.parameters): one for one in captured[::-1]}.values())


def _changes(pairs: Sequence[str], model: str | None) -> dict[str, str]:
    """Return the settings and parameters to change, by name. Raises `Rejected` for an unknown name or a bad value."""
    given = dict(_pair(text) for text in pairs)
    if model is not None:
        given |= {"embedding_provider": model} if model in ("hash", "none") else {"embedding_model": model}
    if not given:
        raise Rejected(
            "name what to change: --embedding-model NAME, or --setting NAME=VALUE, such as fusion=rrf", field="setting"
        )
    known = (*_settings(), *_OF_RECALL, *_OF_CONTEXT)
    if unknown := [name for name in given if name not in known]:
        names = ", ".join(dict.fromkeys(known))
        raise Rejected(
            f"--setting {unknown[0]}: no recall or context depends on it; known are {names}", field="setting"
        )
    convert({"query": "x", **_with_names(_OF_RECALL, given)}, Recall, name="recall", from_text=True).checked()
    convert({"session": "x", **_with_names(_OF_CONTEXT, given)}, GetContext, name="context", from_text=True)
    return given


def _settings() -> tuple[str, ...]:
    """Return the names of the settings that decide what a recall finds or a context tells."""
    from worker.settings import Settings

    whole = ("context_token_budget", "system_prompt_buffer", "recency_window", "max_context_messages")
    return tuple(
        name
        for name, setting in Settings.model_fields.items()
        if setting.repr
        and (name.startswith(("embedding_", "reranker_")) or name in (*whole, "decay_profile", "trust_policy"))
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise Rejected(f"--setting {text!r}: give NAME=VALUE", field="setting")
    return name.strip().lower().removeprefix("reverie_"), value.strip()


def _with_names(names: Sequence[str], changes: Mapping[str, str]) -> dict[str, Any]:
    """Return those of the changes that have one of these names."""
    found: dict[str, Any] = {name: value for name, value in changes.items() if name in names}
    # The two weights sum to 1: if one is changed, the captured value of the other is dropped.
    if len(weight := found.keys() & _WEIGHTS) == 1:
        found |= dict.fromkeys(_WEIGHTS - weight)
    return found


def _check_captured(command: Invocation, agent: str | None, since: int) -> None:
    """Raise `NotFound`, saying how to have questions captured, if there are none."""
    store = command.existing_runtime.stores.workspace(command.workspace, create=False)
    with store.reading() as tx:
        if tx.captured.newest(agent=agent, since=since, limit=1):
            return
    days = command.settings.captured_queries_days
    how = (
        f"they are kept for {days:g} days once agents ask: wait for some"
        if days
        else "set captured_queries_days = 30 in reverie.toml and start Reverie again; then recalls and contexts are"
        " kept for so many days"
    )
    raise NotFound(f"no questions were captured in workspace {command.workspace!r}: {how}", field="workspace")


# --- the copy ---


@contextmanager
def _copied(command: Invocation) -> Iterator[Path]:
    """Copy the workspace and the account into a folder of their own, and remove it at the end.

    Raises `StoreUnavailable` if the disk has no room for it.
    """
    from storage.lifecycle.copying import copy_store
    from storage.stores import Stores

    stores: Stores = command.runtime.stores
    scratch = command.settings.data / "run"
    scratch.mkdir(mode=0o700, exist_ok=True)
    for left in scratch.glob(f"{_PREFIX}*"):
        if not _is_alive(int(left.name.split("-")[1])):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=scratch))

    def end(number: int, _frame: object) -> None:
        # Without an exception, which would be lost in a callback of the garbage collector.
        shutil.rmtree(folder, ignore_errors=True)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    kept = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with closing(Stores(folder)) as copies:
            for name in (command.workspace, ACCOUNT_STORE):
                if stores.exists(name):
                    copy = copies.database_path(name)
                    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    with shown_progress(f"copying {name}") as progress:
                        copy_store(stores.database_path(name), copy, progress)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for number, handler in kept.items():
            signal.signal(number, handler)


def _is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        with suppress(PermissionError):
            os.kill(pid, 0)
        return True
    return False


def _settings_of(command: Invocation, data: Path, changes: Mapping[str, str]) -> Settings:
    """Return the settings for the copy: without the installation's broker, its webhooks and its language model."""
    from worker.settings import load_settings

    settings = load_settings(data=command.settings.data, **changes)
    alone = {"broker": None, "otlp_endpoint": None, "language_model_base_url": None, "notifier_webhook_url": None}
    return settings.model_copy(update={"data": data, **alone})


def _check_endpoints(settings: Settings, data: Path) -> None:
    """Raise `Rejected` if a model on another machine would get texts."""
    from adapters.embedders.record import EmbedderRecord
    from storage.stores import Stores
    from worker.access import is_loopback

    urls = {"the reranker": settings.reranker_base_url}
    if settings.embedding_provider == "openai":
        urls["the embedder"] = settings.embedding_base_url
    with closing(Stores(data)) as stores:
        for name in stores.all_names() if settings.embedding_provider != "none" else ():
            with stores.workspace(name).reading() as tx:
                active = tx.index.active("vector")
            record = EmbedderRecord.decode(active.embedder) if active is not None else None
            if record is not None and record.provider == "openai":
                urls["the embedder of the vectors"] = record.base_url
    for what, url in urls.items():
        if url and not is_loopback(urlsplit(url).hostname or ""):
            raise Rejected(
                f"{what} at {urlsplit(url).hostname} would get captured questions and stored texts: allow it by"
                " --allow-endpoints",
                field="allow_endpoints",
            )


def _reembed(runtime: Runtime, configured: EmbedderRecord | None) -> None:
    """Embed the copy with the model of the settings, unless its vectors are of that model."""
    from cli.lifecycle.reembed import load_embedder
    from memory.pipeline.reembedding import ReembedControl, ReembedTarget, reembed
    from worker.model_specs import embedder_spec

    spec = embedder_spec(runtime.settings)
    if spec.provider == "none":
        return
    embedder, record = load_embedder(spec)
    for name in runtime.stores.all_names():
        with shown_progress(f"embedding {name}: {record.model}") as progress:
            target = ReembedTarget(embedder, record, configured=configured)
            reembed(runtime.stores.workspace(name), target, now=runtime.now, control=ReembedControl(progress=progress))


# --- the questions ---


def _replayed(
    runtime: Runtime, workspace: str, questions: Sequence[CapturedQuery], changes: Mapping[str, str], label: str
) -> list[Run]:
    """Ask all questions, each as of the time when it was asked."""
    from server.services import Services

    services, runs = Services(runtime), list["Run"]()
    embedder = runtime.embedder_for(runtime.store(workspace))
    if embedder is not None:
        with suppress(Unavailable):  # then each answer says that it is by words alone, and why
            embedder.load()
    _ask(services, workspace, questions[0], changes)  # so that no question waits until the index is read
    with shown_progress(label) as progress:
        for question in questions:
            runs.append(_ask(services, workspace, question, changes))
            progress(len(runs), len(questions))
    return runs


def _ask(services: Services, workspace: str, question: CapturedQuery, changes: Mapping[str, str]) -> Run:
    from memory.evaluation import CUTS, Run, items_of
    from retrieval.query import RecallRequest
    from server.caller import Caller
    from server.recall import get_context

    caller = Caller(question.agent, workspace, "", notes_recalls=False)
    raw = {**msgspec.json.decode(question.parameters), "query": question.query or None, "as_of": rfc3339(question.at)}
    response: RecallResponse | Context
    try:
        if question.kind == "recall":
            raw |= {"query": question.query, **_with_names(_OF_RECALL, changes)}
            recall = convert(raw, RecallRequest, name="recall", from_text=True)
            limit = recall.limit
            recall = replace(recall, limit=min(max(limit, *CUTS), MAX_RESULTS))
            started = time.perf_counter()
            response = services.recall(caller, recall)
        else:
            raw |= {"refine": False, **_with_names(_OF_CONTEXT, changes)}
            context = convert(raw, GetContext, name="context", from_text=True)
            limit = sys.maxsize
            started = time.perf_counter()
            response = get_context(services, caller, context)
        seconds = time.perf_counter() - started
    except Rejected as error:  # such as for a session that was forgotten since
        return Run({}, error=str(error))
    return Run(items_of(response, session=question.session), limit, seconds, response.degraded)


# --- the report ---


def _print(found: Evaluation, changes: Mapping[str, str], workspace: str, show: int) -> None:
    changed_to = ", ".join(f"{name}={value}" for name, value in changes.items())
    say(
        f"{counted(found.asked, 'question')} of workspace {workspace}, asked in a copy: as it is, and with"
        f" {changed_to}."
    )
    for error, number in Counter(found.not_asked.values()).items():
        say(f"{counted(number, 'question')} could not be asked: {error}")
    say(f"With the change, {found.changed} get other results or another order; {_share(found.overlap)} of them stay.")
    say(f"Without it, {_share(found.overlap_with_then)} of the results are those that were captured.")
    say(
        f"In {counted(found.with_used, 'question')} the agent's next answer has rare words of a result: such a result"
        f" counts as used. With the change, used results rank better in {found.better}, worse in {found.worse}."
    )
    say()
    print_table(("", "as it is", "changed"), _rows(found.before, found.after), empty="")
    for side, label in ((0, "As it is"), (1, "Changed")):
        for why, number in Counter(one.degraded[side] for one in found.questions if one.degraded[side]).most_common(3):
            say(f"{label}, {counted(number, 'question')} got less than asked for: {why}")
    changed = [one for one in found.questions if one.changes][:show]
    if changed:
        say("\nThe most changed first: + came in, - went out, ~ another rank; * is a used result.")
    for number, question in enumerate(changed, start=1):
        _print_question(number, question)


def _rows(before: Figures, after: Figures) -> list[tuple[str, str, str]]:
    """Return the lines of the table, without those that have no figures."""
    lines: list[tuple[str, Callable[[Figures], str]]] = [
        ("recalls with a used result among the first 5", lambda one: _share(one.used_in_5)),
        ("recalls with a used result among the first 10", lambda one: _share(one.used_in_10)),
        ("mean reciprocal rank of the first used result", lambda one: _decimals(one.mean_reciprocal_rank)),
        ("used results that contexts tell", lambda one: _share(one.used_told)),
        ("time of a question, median", lambda one: f"{one.median_ms:.0f} ms"),
        ("time of a question, slowest twentieth", lambda one: f"{one.slowest_twentieth_ms:.0f} ms"),
    ]
    rows = [(name, cell(before), cell(after)) for name, cell in lines]
    return [row for row in rows if row[1:] != ("-", "-")]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _place(before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return f"at {after}" if before is None else f"was {before}"
    return f"{before} to {after}"


def _print_question(number: int, question: Question) -> None:
    asked = shortened(question.query, 100) or f"(the newest message of session {question.session})"
    whose = question.agent if question.user is None else f"{question.agent} for {question.user}"
    say(f"\n{number}. {asked}")
    say(f"   {question.kind} of {whose}, {when(question.at)}; {_share(question.overlap)} the same")
    for change in question.changes[:_CHANGES_SHOWN]:
        sign = "+" if change.before is None else "-" if change.after is None else "~"
        ranks = "" if question.kind == "context" else f"{_place(change.before, change.after):8} "
        say(f"   {sign} {ranks}{'*' if change.used else ' '} {shortened(change.text, 100)}")
    if len(question.changes) > _CHANGES_SHOWN:
        say(f"     and {len(question.changes) - _CHANGES_SHOWN} more, see --json")
