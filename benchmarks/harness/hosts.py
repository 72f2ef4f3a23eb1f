"""Hosts that run Reverie's processes in namespaces of a network, the broker of all, and what is done to them."""

from __future__ import annotations

import random
import secrets
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.harness.network import Network
from benchmarks.harness.postgres import RunningServer
from benchmarks.harness.stack import WORKSPACE, Stack
from reverie.pipeline.producer import Producer
from worker.supervision.embedded_broker import valkey_server_path, wait_until_ready
from worker.supervision.processes import spawn

DATA_HOST: Final = "data"
AGENTS_HOST: Final = "agents"
_WRONG_CLOCK: Final = Path(__file__).with_name("wrong_clock.c")
# By how many seconds the clocks of the hosts are wrong, in turn.
_OFFSETS: Final = (-2.0, 0.0, 2.0, 1.0)
_START_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 0.5
# What happens, each as likely as it is here often.
_KINDS: Final = (*("process",) * 8, *("link",) * 4, *("host",) * 2, "vanish", *("database",) * 2, *("broker",) * 2)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens, and when, in seconds from the start of the load."""

    at: float
    what: str
    host: int
    seconds: float


class Broker:
    """A broker on the host of the data, with a password."""

    def __init__(self, network: Network, address: str, folder: Path) -> None:
        password = secrets.token_hex(8)
        self.url = f"redis://:{password}@{address}:6379/0"
        self._network = network
        self._folder = folder
        self._words = [
            *(str(valkey_server_path()), "--bind", address, "--port", "6379", "--requirepass", password),
            *("--dir", str(folder), "--appendonly", "yes", "--appendfsync", "no", "--save", ""),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it has read its file."""
        with self._network.inside(DATA_HOST):
            self._process = spawn(self._words, {}, self._folder / "log", signal.SIGKILL)
            # From there, for the link of the agents' host, where this process is, may be cut.
            wait_until_ready(self.url, _START_SECONDS)

    def crash(self) -> None:
        """Kill it and start it again."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Hosts:
    """The hosts that workers run on."""

    def __init__(self, network: Network, count: int, environment: Mapping[str, str], broker: str, folder: Path) -> None:
        """`folder` is for files that are needed as long as the hosts run."""
        library = _compiled_clock(folder)
        self._network = network
        self.broker_url = broker
        self.names = [f"host{number}" for number in range(1, count + 1)]
        self.stacks: list[Stack] = []
        for number, name in enumerate(self.names):
            network.add(name)
            offset = _OFFSETS[number % len(_OFFSETS)]
            clock = {"LD_PRELOAD": str(library), "CLOCK_OFFSET": f"{offset:g}"}
            named = ("unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh")
            self.stacks.append(Stack(env={**environment, **clock}, broker=broker, prefix=named))

    def producer(self) -> Producer:
        """Return a producer on this host."""
        return Producer(self.broker_url, workspace=WORKSPACE)

    def launch(self, number: int) -> None:
        """Start `reverie up` on a host."""
        with self._network.inside(self.names[number]):
            self.stacks[number].launch()

    def start(self) -> None:
        """Start all, and return when each has workers."""
        for number in range(len(self.stacks)):
            self.launch(number)
        deadline = time.monotonic() + _START_SECONDS
        while {worker.host for worker in self.stacks[0].monitor()} < set(self.names):
            for stack in self.stacks:
                stack.check_alive(deadline)
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End all processes and remove their folders."""
        for stack in self.stacks:
            stack.__exit__()

    def kill_process(self, number: int, chance: random.Random) -> str:
        """Kill a process of a host, or a child of one; return its name."""
        stack = self.stacks[number]
        names = {entry.pid: entry.name for entry in stack.processes()}
        with suppress(psutil.NoSuchProcess):
            # Of those that live: the numbers in the file of a host that was killed may be those of other processes.
            processes = psutil.Process(stack.supervisor_pid).children()
            if processes:
                process = chance.choice(processes)
                chance.choice([process, *process.children()]).kill()
                return names.get(process.pid, "one that just started")
        return "none, as none runs"

    def kill(self, number: int) -> None:
        """Kill all processes of a host at once, as when its power fails."""
        self.stacks[number].kill()

    def crash(self, number: int) -> None:
        """Kill all processes of a host at once, and start it again."""
        self.kill(number)
        self.launch(number)


class Faults:
    """Carries out a plan that was drawn in advance. Call `step` from one thread."""

    def __init__(
        self, hosts: Hosts, network: Network, database: RunningServer, broker: Broker, plan: list[Fault], seed: int
    ) -> None:
        self.done_by_kind: Counter[str] = Counter()
        self._hosts = hosts
        self._network = network
        self._database = database
        self._broker = broker
        self._chance = random.Random(seed)
        self._plan = list(plan)
        self._mend_at: dict[str, float] = {}
        self._return_at: dict[int, float] = {}

    @property
    def done(self) -> bool:
        """Return whether all has been done, and all links and hosts are back."""
        return not (self._plan or self._mend_at or self._return_at)

    def step(self, now: float) -> Iterator[str]:
        """Do what is due, `now` seconds after the start; yield a line about each."""
        for name in [name for name, at in self._mend_at.items() if at <= now]:
            del self._mend_at[name]
            if name not in {self._hosts.names[number] for number in self._return_at}:
                self._network.mend(name)
                yield f"the link of {name} is back"
        for number in [number for number, at in self._return_at.items() if at <= now]:
            self._network.mend(self._hosts.names[number])
            self._hosts.crash(number)
            del self._return_at[number]
            yield f"{self._hosts.names[number]} starts again"
        while self._plan and self._plan[0].at <= now:
            fault = self._plan.pop(0)
            self.done_by_kind[fault.what] += 1
            yield f"{fault.what}: {self._do(fault)}"

    def _do(self, fault: Fault) -> str:
        """Return what it was done to."""
        match fault.what:
            case "process":
                return self._hosts.kill_process(fault.host, self._chance)
            case "host":
                self._hosts.crash(fault.host)
                return self._hosts.names[fault.host]
            case "vanish":
                return self._vanish(fault)
            case "database":
                self._database.crash()
            case "broker":
                self._broker.crash()
            case _:
                return self._cut(fault)
        return "restarted"

    def _cut(self, fault: Fault) -> str:
        name = self._chance.choice([*self._hosts.names, DATA_HOST, AGENTS_HOST])
        self._network.cut(name)
        self._mend_at[name] = fault.at + fault.seconds
        return f"{name}, for {fault.seconds:.0f} s"

    def _vanish(self, fault: Fault) -> str:
        """Kill a host whose link is cut, so that no connection of it is closed; it is away for the given time."""
        name = self._hosts.names[fault.host]
        self._network.cut(name)
        self._hosts.kill(fault.host)
        self._return_at[fault.host] = fault.at + fault.seconds
        return f"{name}, for {fault.seconds:.0f} s"


def drawn_faults(count: int, seconds: float, hosts: int, *, longest_cut: float, seed: int) -> list[Fault]:
    """Draw the faults; some two of five are kills of single processes. What is cut off stays so up to `longest_cut`
    seconds."""
    chance = random.Random(seed)
    times = sorted(chance.uniform(0.02, 1.0) * seconds for _ in range(count))
    return [Fault(at, chance.choice(_KINDS), chance.randrange(hosts), chance.uniform(1.0, longest_cut)) for at in times]


def _compiled_clock(folder: Path) -> Path:
    """Compile the library that makes a clock wrong."""
    if shutil.which("cc") is None:
        raise SystemExit("this benchmark sets clocks wrong: it needs a C compiler, apt-get install gcc libc6-dev")
    library = folder / "wrong_clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, _WRONG_CLOCK, "-ldl"], check=True)
    return library
