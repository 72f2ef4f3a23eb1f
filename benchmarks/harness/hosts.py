"""Hosts that run Reverie's processes in namespaces of a network, the broker of all, and what is done to them.

The namespaces are connected by a bridge, and their links can be cut. Needs root, and `ip` of iproute2. Nothing is
changed in the network of the machine itself: the bridge has a namespace of its own, too.
"""

from __future__ import annotations

import ctypes
import os
import random
import secrets
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import psutil

from benchmarks.harness import steps
from benchmarks.harness.postgres import RunningServer
from benchmarks.harness.stack import WORKSPACE, Stack
from reverie.pipeline.producer import Producer
from worker.supervision.broker_address import valkey_server_path
from worker.supervision.embedded_broker import wait_until_ready
from worker.supervision.processes import spawn

ADDRESSES: Final = "10.77.0.0/24"
_CLONE_NEWNET: Final = 0x40000000
_HUB: Final = "hub"
_BRIDGE: Final = "rvb0"
_FOLDER: Final = Path("/run/netns")
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Network:
    """Hosts by their names, with addresses in 10.77.0.0/24. Use it in a `with` statement."""

    def __init__(self) -> None:
        self._prefix = f"rvb{os.getpid()}"
        self._hosts: list[str] = []

    def __enter__(self) -> Self:
        self._add_namespace(_HUB)
        self._run_in(_HUB, "link", "add", _BRIDGE, "type", "bridge")
        self._run_in(_HUB, "link", "set", _BRIDGE, "up")
        return self

    def __exit__(self, *_: object) -> None:
        """Remove all namespaces, and with them their links. Processes in them should have ended."""
        for name in (*self._hosts, _HUB):
            subprocess.run(["ip", "netns", "del", self._namespace(name)], check=False)

    def add(self, name: str) -> str:
        """Add a host; return its address."""
        self._add_namespace(name)
        self._hosts.append(name)
        here, there = f"v{len(self._hosts)}a", f"v{len(self._hosts)}b"
        self._run_in(_HUB, "link", "add", here, "type", "veth", "peer", "name", there, "netns", self._namespace(name))
        self._run_in(_HUB, "link", "set", here, "master", _BRIDGE, "up")
        address = f"10.77.0.{len(self._hosts)}"
        self._run_in(name, "address", "add", f"{address}/24", "dev", there)
        self._run_in(name, "link", "set", there, "up")
        return address

    def cut(self, name: str) -> None:
        """Cut the link of a host: what it sends is lost, and nobody is told."""
        self._run_in(_HUB, "link", "set", self._link(name), "down")

    def mend(self, name: str) -> None:
        """Connect a host again."""
        self._run_in(_HUB, "link", "set", self._link(name), "up")

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Have this thread be on a host: what it connects to and what it starts is there."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            self.enter(name)
            yield
        finally:
            _set_namespace(before)
            os.close(before)

    def enter(self, name: str) -> None:
        """Have this thread, and the threads that it starts from now on, be on a host."""
        descriptor = os.open(_FOLDER / self._namespace(name), os.O_RDONLY)
        try:
            _set_namespace(descriptor)
        finally:
            os.close(descriptor)

    def _link(self, name: str) -> str:
        return f"v{self._hosts.index(name) + 1}a"

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _add_namespace(self, name: str) -> None:
        subprocess.run(["ip", "netns", "add", self._namespace(name)], check=True)
        self._run_in(name, "link", "set", "lo", "up")

    def _run_in(self, name: str, *words: str) -> None:
        subprocess.run(["ip", "-netns", self._namespace(name), *words], check=True)


def _set_namespace(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


DATA_HOST: Final = "data"
AGENTS_HOST: Final = "agents"
_WRONG_CLOCK: Final = Path(__file__).with_name("wrong_clock.c")
# The errors of the hosts' clocks in seconds, in turn.
_OFFSETS: Final = (-2.0, 0.0, 2.0, 1.0)
_START_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 0.5
# The least time that a task of embedding takes, and the times for which the broker is away.
_TASK_SECONDS: Final = 3.0
_OUTAGES_SECONDS: Final = (2.0, 8.0, 30.0)
_BROKER: Final = "broker"
# The kinds of faults; each is as likely as the number of times that it is listed.
_KINDS: Final = (*("process",) * 8, *("link",) * 4, *("host",) * 2, "vanish", *("database",) * 2, *("broker",) * 4)


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
            # Tested from that host: this process is on the agents' host, whose link may be cut.
            wait_until_ready(self.url, _START_SECONDS)

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
            slow = {steps.TASK_SECONDS: str(_TASK_SECONDS)}
            prefix = (*named, *steps.PREFIX, str(folder))
            self.stacks.append(Stack(env={**environment, **clock, **slow}, broker=broker, prefix=prefix))

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

    def count_workers_without_tasks(self) -> int:
        """Return how often a worker ended itself because it took no task although it could."""
        logs = (log for stack in self.stacks for log in stack.data.glob("logs/*.log*"))
        return sum(log.read_text("utf-8", "replace").count("worker_takes_no_tasks") for log in logs)

    def stop(self) -> None:
        """End all processes and remove their folders."""
        for stack in self.stacks:
            stack.__exit__()

    def kill_process(self, number: int, chance: random.Random) -> str:
        """Kill a process of a host, or a child of one; return its name."""
        stack = self.stacks[number]
        names = {entry.pid: entry.name for entry in stack.processes()}
        with suppress(psutil.NoSuchProcess):
            # Not by the run file: if the host was killed, other processes may have the process ids in it.
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
            if name == _BROKER:
                self._broker.start()
                yield "the broker is back"
            elif name not in {self._hosts.names[number] for number in self._return_at}:
                self._network.mend(name)
                yield f"the link of {name} is back"
        for number in [number for number, at in self._return_at.items() if at <= now]:
            self._network.mend(self._hosts.names[number])
            self._hosts.crash(number)
            del self._return_at[number]
            yield f"{self._hosts.names[number]} starts again"
        for number, stack in enumerate(self._hosts.stacks):
            # It refuses to start while the broker is away: a service manager would try again.
            if stack.has_ended() and _BROKER not in self._mend_at:
                self._hosts.launch(number)
                yield f"{self._hosts.names[number]} had ended, and starts again"
        while self._plan and self._plan[0].at <= now:
            fault = self._plan.pop(0)
            self.done_by_kind[fault.what] += 1
            yield f"{fault.what}: {self._cause(fault)}"

    def _cause(self, fault: Fault) -> str:
        """Cause a fault; return which process, host or link it was."""
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
                self._broker.stop()
                seconds = self._chance.choice(_OUTAGES_SECONDS)
                self._mend_at[_BROKER] = fault.at + seconds
                return f"away for {seconds:.0f} s"
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
    """Draw the faults; about two of five are kills of single processes. A link or host is cut off for at most
    `longest_cut` seconds."""
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
