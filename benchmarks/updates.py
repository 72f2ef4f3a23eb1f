"""Measure what recall and context tell about facts that changed, that depend on a change, or that were to be forgotten.

FactConsolidation (MemoryAgentBench, ICLR 2026) has facts that later ones replace, and questions over one, two and four
of them; ForgetEval (arXiv 2606.15903) has histories with changes and wishes to forget; scenarios of our own have
everyday changes. All of it goes through the queue, `recall`, `context` and erasures `about` something. The texts that
these tell are judged.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.table import Table

from benchmarks.harness.datasets import read_json_lines
from benchmarks.harness.haystack import DatasetMessage, Haystack, ask, client_of, take_up
from benchmarks.harness.options import UnusableData, parser, run
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, console, rounded, shown
from benchmarks.harness.stack import Stack
from reverie import Reverie
from reverie.errors import Conflict, NotFound
from reverie.recall.types import ContextMemory, RecallResult

TOKENS: Final = 700
_RESULTS: Final = 10
_SESSION: Final = "said"
_ASKING: Final = "asking-now"
_ERASED_SECONDS: Final = 600.0
_LOOK_SECONDS: Final = 0.2
# By the suffix of a question: how many facts it combines. Other questions are about facts that nothing replaced.
_HOPS: Final = {"sh": "one", "sh-derived": "one", "mh": "two", "mh4": "four"}
_QUICK: Final = 2
# The goals: measure, relation, and percentage.
GOALS: Final[Mapping[str, tuple[str, float]]] = {
    "one_ahead": (">=", 95.0),
    "one_stale": ("<=", 5.0),
    "two_told": (">=", 70.0),
    "four_told": (">=", 40.0),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A question to an agent, and texts of memories that must, may or must not be in the answer.

    Of each group of `told`, one text must be there. A text of `stale` may be there only with a mark that it does not
    hold any more, or may not (if it depends on a change, it is in `told` as well). No text of `gone` may be there.
    `kind` names the figures that the case counts for.
    """

    agent: str
    kind: str
    question: str
    told: Sequence[Sequence[str]]
    stale: Sequence[str] = ()
    gone: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class History:
    """What an agent was told, in order, and what it is to forget afterwards."""

    agent: str
    said: Sequence[str]
    forget: Sequence[str] = ()

    def haystack(self) -> Haystack:
        """Return the messages, an hour apart, the last one an hour ago, and a new session."""
        now = datetime.now(UTC)
        ages = zip(range(len(self.said), 0, -1), enumerate(self.said), strict=True)
        messages = [
            DatasetMessage(str(number), _SESSION, "user", text, created_at=now - timedelta(hours=hours))
            for hours, (number, text) in ages
        ]
        greeting = DatasetMessage("greeting", _ASKING, "user", "Hello!")
        return Haystack(self.agent, [*messages, greeting])


def _own(kind: str, said: Sequence[str], question: str, **expected: Sequence[Any]) -> tuple[str, Sequence[str], Any]:
    return kind, said, (question, expected)


# Facts that a change makes doubtful, that ended, that changed twice or in other words, and that somebody else stated.
_SCENARIOS: Final = (
    _own("cascade", ("I live in Ghent.", "My landlord is Mr Brandt.", "I moved to Porto."),
         "who is my landlord?", told=[["Brandt"]], stale=["Brandt"]),
    _own("cascade", ("I work at Initech.", "My desk is next to the printer.", "I work at Acme now."),
         "where is my desk?", told=[["printer"]], stale=["printer"]),
    _own("cascade", ("I live in Ghent.", "I swim at a pool in Ghent.", "I moved to Porto."),
         "where do I swim?", told=[["pool"]], stale=["pool"]),
    _own("ended", ("I have a dog called Bruno.", "The weather is nice.", "I have no dog any more."),
         "do I have a dog?", told=[["no dog"]], stale=["Bruno"]),
    _own("ended", ("I am vegetarian.", "I am not vegetarian any more."),
         "am I vegetarian?", told=[["any more"]], stale=["I am vegetarian."]),
    _own("ended", ("I smoke a pack a day.", "Work was long.", "I stopped smoking in May."),
         "do I smoke?", told=[["stopped"]], stale=["a pack a day"]),
    _own("replaced", ("My office is on floor 3.", "Lunch was late.", "My office is on floor 4."),
         "on which floor is my office?", told=[["floor 4"]], stale=["floor 3"]),
    _own("replaced", ("My rent is 900 euros.", "My rent is 950 euros.", "My rent is 990 euros."),
         "how high is my rent?", told=[["990"]], stale=["900 euros", "950"]),
    _own("replaced", ("I live in Ghent.", "I had a haircut.", "I live in Turin now."),
         "where do I live?", told=[["Turin"]], stale=["Ghent"]),
    _own("replaced", ("The meeting with Olga is on Monday.", "The meeting with Olga was moved to Friday."),
         "when is the meeting with Olga?", told=[["Friday"]], stale=["on Monday"]),
    _own("replaced", ("Our service runs on Python 3.9.", "We upgraded to Python 3.12."),
         "which Python do we run?", told=[["3.12"]], stale=["3.9"]),
    _own("two languages", ("I live in Vienna.", "Ich wohne jetzt in Graz."),
         "where do I live?", told=[["Graz"]], stale=["Vienna"]),
    _own("kept", ("My sister lives in Oslo.", "My brother lives in Rome."),
         "where does my sister live?", told=[["Oslo"]]),
    _own("kept", ("My favourite tea is sencha.", "Tom said: my favourite tea is chai."),
         "which tea is my favourite?", told=[["sencha"]]),
)  # fmt: skip


def main() -> None:
    """Measure and write the result."""
    options = parser("updates", __doc__, data=False)
    options.add_argument("--factconsolidation", type=Path, help="FactConsolidation as JSON lines, compressed or not")
    options.add_argument("--forgeteval", type=Path, help="ForgetEval as JSON lines, compressed or not")
    arguments = options.parse_args()
    result = Result.of("updates", arguments)
    sets = {"scenarios": _scenarios()}
    for name in ("factconsolidation", "forgeteval"):
        path: Path | None = getattr(arguments, name)
        if path is None or not path.is_file():
            result.notes.append(f"{name} is not measured: " + (f"no --{name} FILE" if path is None else f"no {path}"))
        else:
            sets[name] = _load(path, quick=arguments.quick)
    with Stack() as stack:
        if not stack.wait_server():
            raise RuntimeError("the server does not answer, so nothing can be measured")
        for name, (histories, cases) in sets.items():
            tell = Progress()
            take_up(stack, name, [history.haystack() for history in histories], tell)
            if name == "scenarios":
                _extract(stack, name, histories)
            _forget(stack, name, histories, result)
            scores = ask(stack, name, [(case.agent, case) for case in cases], _scored, tell)
            _add(result, name, [(case.kind, score) for case, score in zip(cases, scores, strict=True)])
    for measure, (relation, goal) in GOALS.items():
        figure = result.figures.get(f"factconsolidation_{measure}")
        note = "" if figure is not None else "factconsolidation was not measured"
        what = f"FactConsolidation, {measure.replace('_', ' hop: ', 1)}"
        result.goals.append(Goal(what=what, relation=relation, goal=goal, figure=figure, unit="%", note=note))  # type: ignore[arg-type]
    result.finish(arguments.output)


def _scenarios() -> tuple[list[History], list[Case]]:
    histories, cases = [], []
    for number, (kind, said, (question, expected)) in enumerate(_SCENARIOS):
        histories.append(History(f"s{number}", said))
        cases.append(Case(f"s{number}", kind, question, **expected))
    return histories, cases


def _load(path: Path, *, quick: bool) -> tuple[list[History], list[Case]]:
    """Return the histories and cases of a file. Raises UnusableData: if it has another format."""
    try:
        records = list(read_json_lines(path))
        histories = [_history(one) for one in records if one["type"] == "context"][: _QUICK if quick else None]
        agents = {history.agent for history in histories}
        cases = [_case(one) for one in records if one["type"] == "case" and one["context"] in agents]
    except (KeyError, TypeError, ValueError) as error:
        raise UnusableData(f"{path} has not the form of updates: {error!r}") from error
    return histories, cases[: _QUICK if quick else None]


def _history(entry: Mapping[str, Any]) -> History:
    turns = sorted(entry["turns"], key=lambda turn: int(turn["i"]))
    said = [turn["text"] for turn in turns if turn["op"] in ("add", "supersede")]
    return History(entry["context"], said, [turn["target"] for turn in turns if turn["op"] in ("release", "purge")])


def _case(entry: Mapping[str, Any]) -> Case:
    facts, kind = entry["meta"].get("new_facts"), entry["kind"].rpartition("/")[2]
    if facts:
        hops = _HOPS.get(kind, "kept")
        stale = entry["meta"]["old_facts"]
        return Case(entry["context"], hops, entry["question"], [[fact] for fact in facts], stale)
    family, told, old = entry["kind"].partition("/")[0], entry["must"], entry["must_not"]
    if family in ("purge", "amnesia", "decay"):
        return Case(entry["context"], "forgotten", entry["question"], told, gone=old)
    return Case(entry["context"], "replaced", entry["question"], told, old)


def _extract(stack: Stack, workspace: str, histories: Iterable[History]) -> None:
    """Extract memories from what agents were told, as Reverie does once a conversation rests."""
    for history in histories:
        with client_of(stack, history.agent, workspace) as client:
            client.sessions.archive(_SESSION, force=True)
    with client_of(stack, "any", workspace) as client:
        client.admin.jobs.run("extract-memories", workspace=workspace)


def _forget(stack: Stack, workspace: str, histories: Iterable[History], result: Result) -> None:
    """Erase what each agent is to forget, and wait until it is gone."""
    asked, unclear, missing = [], 0, 0
    for history in histories:
        with client_of(stack, history.agent, workspace) as client:
            for target in history.forget:
                try:
                    plan = client.admin.erasures.create(about=target, agent=history.agent, workspace=workspace)
                except Conflict:
                    unclear += 1
                except NotFound:
                    missing += 1
                else:
                    asked.append(plan.id)
    if not (asked or unclear or missing):
        return
    deadline = time.monotonic() + _ERASED_SECONDS
    with client_of(stack, "any", workspace) as client:
        for erasure in asked:
            while client.admin.erasures.get(erasure).state not in ("done", "failed"):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"erasure {erasure} is not done after {_ERASED_SECONDS:g} s")
                time.sleep(_LOOK_SECONDS)
    result.add(f"{workspace}_erasures", len(asked))
    result.add(f"{workspace}_erasures_of_several_people", unclear)
    result.add(f"{workspace}_erasures_that_found_nothing", missing)


def _scored(client: Reverie, case: Case) -> dict[str, float]:
    """Return 1 or 0 for each measure that applies to a case."""
    found = client.recall(case.question, limit=_RESULTS).results
    told = client.context(_ASKING, case.question, token_budget=TOKENS).memories
    scores = {"told": float(all(any(map(_holds(told), texts)) for texts in case.told))} if case.told else {}
    if case.stale:
        new = [text for text in chain(*case.told) if text not in case.stale]
        old = [one for one in told if any(map(_holds([one]), case.stale)) and not any(map(_holds([one]), new))]
        scores["stale"] = float(any(one.replaced_at is None and one.changed_since is None for one in old))
        if new:
            scores["ahead"] = float(_first(found, new) < _first(found, case.stale))
    if case.gone:
        scores["gone"] = float(not any(map(_holds([*told, *found]), case.gone)))
    return scores


def _holds(told: Sequence[ContextMemory | RecallResult]) -> Any:
    return lambda text: any(text in one.text for one in told)


def _first(found: Sequence[RecallResult], texts: Sequence[str]) -> int:
    """Return the place of the first result with one of some texts; behind the last if there is none."""
    return next((place for place, one in enumerate(found) if any(text in one.text for text in texts)), len(found))


def _add(result: Result, name: str, scored: Sequence[tuple[str, Mapping[str, float]]]) -> None:
    """Add and print each measure in percent, by the kind of case."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for kind, scores in scored:
        for measure, score in scores.items():
            groups[kind, measure].append(score)
    table = Table(title=f"{name}, percent", title_justify="left", header_style="bold")
    for column in ("kind", "measure", "of them", "percent"):
        table.add_column(column, justify="right" if column in ("of them", "percent") else "left")
    for (kind, measure), values in sorted(groups.items()):
        percent = rounded(100 * fmean(values))
        result.add(f"{name}_{kind.replace(' ', '_')}_{measure}", percent, "%")
        table.add_row(kind, measure, str(len(values)), shown(percent))
    console.print(table)


if __name__ == "__main__":
    run(main)
