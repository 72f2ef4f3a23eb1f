"""`reverie doctor`: check everything that can be wrong on this machine, and say what to do."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from cli.application import Invocation
from cli.groups import root
from cli.output import AsJson, note, print_json, say, say_beside
from reverie.config import state_folder
from reverie.counts import counted
from reverie.errors import ReverieError
from reverie.pipeline.status import Finding, by_harm

if TYPE_CHECKING:
    from worker.settings import Settings

_WIDTH: Final = 16


@root.command("doctor")
def doctor(command: Invocation, as_json: AsJson = False) -> None:
    """Check everything that can be wrong on this machine, and say what to do; exit code 1 for a problem.

    It changes nothing. What runs is checked if a Reverie runs; otherwise the embedding model is loaded to try it.
    Problems and warnings are shown last, each group in order of harm.
    """
    findings = []
    for finding in _findings(command):
        findings.append(finding)
        if not as_json and finding.state == "ok":
            _print(finding)
    findings = by_harm(findings)
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            if finding.state != "ok":
                _print(finding)
    problems = sum(finding.state == "problem" for finding in findings)
    warnings = sum(finding.state == "warning" for finding in findings)
    if not as_json:
        say()
        counts = f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}."
        say(counts if problems or warnings else "All is well.")
    raise typer.Exit(1 if problems else 0)


def _print(finding: Finding) -> None:
    label = f"{finding.state:<9}{finding.subject:<{_WIDTH}}"
    say_beside(label, finding.found, finding.advice, finding.runbook)


def _findings(command: Invocation) -> Iterator[Finding]:
    from worker.doctor import check_broker_program, check_memory, check_open_files, check_programs, run_check

    yield from run_check("SQLite", check_programs)
    yield from run_check("Open files", check_open_files)
    try:
        settings = command.settings
        url = command.target.url
    except ReverieError as error:  # without settings there is nothing else to look at
        yield Finding("Settings", "problem", str(error))
        return
    yield from run_check("Settings", partial(_check_settings, settings))
    yield from run_check("Memory", partial(check_memory, running=url is not None))
    if not command.target.is_remote:
        yield from run_check("Broker program", partial(check_broker_program, settings))
        yield from _folder_findings(settings)
    if url is None:
        yield from run_check("Server", partial(_check_starting, command))
        yield from run_check("Embedder", partial(_check_embedder, settings))
    else:
        yield from _running_findings(command, url)
    yield from run_check("Coding agents", _check_coding_agents)


def _check_settings(settings: Settings) -> Iterator[Finding]:
    from worker.settings import config_path

    file = config_path()
    given = len(settings.model_fields_set)
    found = f"{file.resolve()} and the environment" if file.exists() else "the defaults and the environment"
    yield Finding("Settings", "ok", f"{found}: {counted(given, 'setting')} given")


def _folder_findings(settings: Settings) -> Iterator[Finding]:
    from worker.doctor import check_backups, check_databases, check_disk, check_folder, check_logs, run_check

    data = settings.data
    if not data.is_dir():
        advice = "`reverie up` creates it; name another with --data or REVERIE_DATA"
        yield Finding("Data folder", "warning", f"none yet at {data}", advice)
        if settings.database:
            yield from run_check("Databases", partial(check_databases, data, settings.database))
        return
    yield from run_check("Data folder", partial(check_folder, data))
    yield from run_check("Disk", partial(check_disk, data))
    yield from run_check("Logs", partial(check_logs, data))
    yield from run_check("Databases", partial(check_databases, data, settings.database))
    yield from run_check("Backups", partial(check_backups, settings, datetime.now(UTC)))


def _check_starting(command: Invocation) -> Iterator[Finding]:
    from worker.supervision.server_file import refuse_taken_port

    if command.target.has_supervisor:
        logs = command.settings.data / "logs"
        yield Finding("Server", "problem", "Reverie runs, and its server does not answer", f"see {logs / 'server.log'}")
    else:
        refuse_taken_port(command.settings.host, command.settings.port)
        yield Finding("Server", "warning", "no Reverie runs here", "start it with `reverie up`")


def _check_embedder(settings: Settings) -> Iterator[Finding]:
    from adapters.embedders.record import build_embedder
    from worker.model_specs import embedder_spec

    spec = embedder_spec(settings)
    note(f"reverie: loading the embedding model {spec.model or spec.provider}")
    embedder = build_embedder(spec)
    if embedder is None:
        yield Finding("Embedder", "ok", "none: recall goes by words")
        return
    gc.disable()  # looking for garbage among what is imported took a fifth of the time
    try:
        dimension = len(embedder.embed_query("a text to try"))
    finally:
        gc.enable()
    yield Finding("Embedder", "ok", f"{embedder.model}, {dimension} dimensions, {embedder.dtype} on {embedder.device}")


def _running_findings(command: Invocation, url: str) -> Iterator[Finding]:
    from reverie import __version__
    from worker.doctor import run_check

    server = command.target.server
    if server is not None and server.version != __version__:
        found = f"{url} is of version {server.version}, this command of {__version__}"
        yield Finding("Server", "problem", found, "restart it with the `reverie up` of this version")

    def check_running() -> Iterator[Finding]:
        status = command.pipeline_status()
        yield Finding("Server", "ok", f"answers at {url}")
        yield from status.findings

    yield from run_check("Server", check_running)


def _check_coding_agents() -> Iterator[Finding]:
    spool = state_folder() / "hooks"
    waiting = sum(1 for _ in spool.glob("*.json"))
    dropped: Path = spool / "dropped.log"
    if dropped.exists():
        lost = counted(len(dropped.read_text("utf-8", "replace").splitlines()), "event")
        advice = f"Reverie was away for too long; remove {dropped} to end this warning"
        yield Finding("Coding agents", "warning", f"{lost} dropped because too much was waiting", advice)
    if waiting:
        found = f"{counted(waiting, 'event')} waiting to be handed over"
        yield Finding("Coding agents", "warning", found, "they are sent with the next event while Reverie runs")
