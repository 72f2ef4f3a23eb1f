"""Simulate the month: which messages, questions, notes and jobs come when, from one seed.

Notes are the observations that LoCoMo has for each session. Each is stored as an agent would store it: with an
importance, in a tier, some for a few days only, and some twice.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.haystack import DatasetMessage, Haystack
from benchmarks.story.census import Day, done_since, memories_of
from benchmarks.story.world import World
from reverie import contract
from reverie.clock import from_micros
from reverie.memories.types import MemoryDraft, MemoryKind, Tier

_TURN_ID: Final = re.compile(r"D\d+:\d+")
# How an agent may distribute its notes: most about the project, some about one topic, a few for everywhere.
_TIERS: Final[Sequence[tuple[float, Tier]]] = ((0.62, "workspace"), (0.9, "channel"), (0.96, "conversation"))
_CHANNEL: Final = "together"
_SHORT_LIVED: Final = 0.12
_LONGEST_DAYS: Final = 12
_NOTED_TWICE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Observation:
    """One note. `expires_days` and `again_days` count from the day of the session; None means never."""

    text: str
    source_message: str
    tier: Tier
    kind: MemoryKind
    importance: float
    channel: str | None
    expires_days: int | None
    again_days: int | None


def load_observations(path: Path, seed: int) -> dict[str, dict[str, list[Observation]]]:
    """Return the observations by conversation and session; empty if the file has none.

    Raises ValueError: for another format.
    """
    chance = random.Random(seed)
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {str(entry["sample_id"]): dict(_sessions(entry, chance)) for entry in entries}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} has not the form of LoCoMo: {error!r}") from error


def _sessions(entry: Mapping[str, Any], chance: random.Random) -> Iterator[tuple[str, list[Observation]]]:
    for name, speakers in entry.get("observation", {}).items():
        noted = [
            _observation(text, _TURN_ID.findall(str(evidence))[0], chance)
            for lines in speakers.values()
            for text, evidence in lines
            if _TURN_ID.findall(str(evidence))
        ]
        yield name.removesuffix("_observation"), noted


def _observation(text: str, source: str, chance: random.Random) -> Observation:
    draw = chance.random()
    tier: Tier = next((tier for share, tier in _TIERS if draw < share), "account")
    return Observation(
        text=text,
        source_message=source,
        tier=tier,
        kind="preference" if tier == "account" else "fact",
        importance=round(chance.uniform(0.05, 0.7), 2),
        channel=_CHANNEL if tier == "channel" else None,
        expires_days=chance.randint(2, _LONGEST_DAYS) if chance.random() < _SHORT_LIVED else None,
        again_days=chance.randint(1, 4) if chance.random() < _NOTED_TWICE else None,
    )


DAYS: Final = 30
# Days without a new session at the end, in which the jobs catch up.
_LAST_DAYS: Final = 5
HOUR: Final = 3_600_000_000
DAY: Final = 24 * HOUR
# Questions of an agent per day: some hours of work.
ASKED_A_DAY: Final = 8
# Half of the questions are repeated over time, as people do.
_ASKED_AGAIN: Final = 0.5
_ASKS_FROM_HOUR: Final = 8
_ASKS_TO_HOUR: Final = 20
# Jobs of a day, by hour. In addition, extraction runs after each session.
_EVERY_SIX_HOURS: Final = (contract.CONSOLIDATE_MEMORIES, contract.CONSOLIDATE_CONVERSATIONS)
_AT: Final[Mapping[int, Sequence[str]]] = {
    0: _EVERY_SIX_HOURS,
    3: (contract.DREAM_SWEEP,),
    6: (*_EVERY_SIX_HOURS, contract.CLOSE_IDLE_SESSIONS),
    12: (*_EVERY_SIX_HOURS, contract.SUMMARIZE_SESSIONS),
    18: (*_EVERY_SIX_HOURS, contract.CLOSE_IDLE_SESSIONS),
}
JOBS: Final[Mapping[int, Sequence[str]]] = {hour: (*_AT.get(hour, ()), contract.PRUNE_DECAYED) for hour in range(24)}


@dataclass(frozen=True, slots=True)
class Life:
    """Input of an agent: its sessions in order, its notes on each, and the questions it may ask."""

    haystack: Haystack
    asks: Sequence[str]
    notes: Mapping[str, Sequence[Observation]] = field(default_factory=dict)


@dataclass(slots=True)
class _Event:
    hour: float
    what: Callable[[], None]


@dataclass(slots=True)
class Month:
    """Some days of some agents in one world, hour by hour; without maintenance, no job ever runs."""

    world: World
    lives: Sequence[Life]
    start: int
    seed: int
    tell: Callable[[str], None]
    length: int = DAYS
    maintained: bool = True
    days: list[Day] = field(default_factory=list)
    _later: dict[int, list[_Event]] = field(default_factory=dict)

    def live(self) -> list[Day]:
        """Run through the month and return its days."""
        chance = random.Random(self.seed)
        spread = [_spread(life, self.length) for life in self.lives]
        for number in range(1, self.length + 1):
            day = Day(number)
            events = [
                event
                for life, sessions_by_day in zip(self.lives, spread, strict=True)
                for event in self._of_agent(day, life, sessions_by_day.get(number, ()), chance)
            ]
            events += self._later.pop(number, [])
            events += [_Event(hour, partial(self._job, job)) for hour, jobs in JOBS.items() for job in jobs]
            begins = self.start + (number - 1) * DAY
            for event in sorted(events, key=lambda event: event.hour):
                self.world.at(begins + int(event.hour * HOUR))
                event.what()
            self._close(day, begins)
            self.tell(f"day {number} of {self.length}: {len(day.standing):,} memories")
        return self.days

    def _of_agent(
        self, day: Day, life: Life, sessions: Sequence[Sequence[DatasetMessage]], chance: random.Random
    ) -> list[_Event]:
        agent = life.haystack.agent
        events = []
        for messages in sessions:
            hour = chance.uniform(7.0, 21.0)
            events.append(_Event(hour, partial(self._say, day, agent, messages)))
            events += self._noting(day, life, messages[0].session, hour)
            # Extraction runs at the next sweep after half a minute without a message.
            events.append(_Event(hour + 0.02, partial(self._job, contract.EXTRACT_MEMORIES)))
        for _ in range(ASKED_A_DAY if life.asks else 0):
            # A seed has favourites: the first questions are asked again and again.
            pool = life.asks[: max(1, len(life.asks) // 4)] if chance.random() < _ASKED_AGAIN else life.asks
            question = chance.choice(pool)
            hour = chance.uniform(_ASKS_FROM_HOUR, _ASKS_TO_HOUR)
            events.append(_Event(hour, partial(self._ask, day, agent, question)))
        return events

    def _noting(self, day: Day, life: Life, session: str, hour: float) -> list[_Event]:
        """Write the agent's notes on a session right after it, and those repeated on another day."""
        agent, events = life.haystack.agent, []
        for place, note in enumerate(life.notes.get(session, ())):
            name = f"{agent}-{session}-{place}"
            first = hour + 0.01
            events.append(_Event(first, partial(self._note, agent, session, note, name)))
            if note.again_days is not None and day.number + note.again_days <= self.length:
                later = self._later.setdefault(day.number + note.again_days, [])
                later.append(_Event(9.0, partial(self._note, agent, session, note, name + "-again")))
        return events

    def _note(self, agent: str, session: str, note: Observation, name: str) -> None:
        expires = None if note.expires_days is None else from_micros(self.world.now + note.expires_days * DAY)
        account = note.tier == "account"
        draft = MemoryDraft(
            id=name,
            content=note.text,
            tier=note.tier,
            kind=note.kind,
            importance=note.importance,
            expires_at=expires,
            session=None if account else session,
            channel=note.channel,
            source_message=None if account else note.source_message,
        )
        self.world.remember(agent, draft)

    def _say(self, day: Day, agent: str, messages: Sequence[DatasetMessage]) -> None:
        self.world.say(agent, messages[0].session, messages)
        day.messages += len(messages)

    def _ask(self, day: Day, agent: str, question: str) -> None:
        self.world.recall(agent, question)
        day.asked += 1

    def _job(self, task: str) -> None:
        if self.maintained:
            self.world.run(task)

    def _close(self, day: Day, begins: int) -> None:
        """Take the census at the end of a day."""
        self.world.at(begins + DAY - 1)
        agents = [life.haystack.agent for life in self.lives]
        memories = list(memories_of(self.world.stores, agents))
        day.standing = [memory for memory in memories if memory.active]
        day.superseded = len(memories) - len(day.standing)
        day.done = done_since(self.world.stores, agents, begins)
        self.days.append(day)


def _spread(life: Life, length: int) -> dict[int, list[list[DatasetMessage]]]:
    """Distribute the sessions as evenly as possible over the days, except for the last days."""
    sessions = list(life.haystack.by_session().values())
    spread: dict[int, list[list[DatasetMessage]]] = {}
    last = length - _LAST_DAYS
    for place, messages in enumerate(sessions):
        spread.setdefault(1 + place * last // max(len(sessions), 1), []).append(messages)
    return spread
