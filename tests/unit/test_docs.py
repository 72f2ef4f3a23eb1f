"""The pages say what is: every command is described, every command they show exists, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from adapters.broker.inbox import GRACE_SECONDS
from adapters.broker.monitor import ALIVE_SECONDS
from generators.__main__ import main
from generators.commands import commands, page
from memory.cutting import CHUNK_CHARACTERS, OVERLAP_CHARACTERS
from memory.pipeline.chunking import BATCH_SOURCES
from memory.pipeline.embedding import BATCH_CHUNKS, BATCH_VECTORS
from memory.pipeline.ingest import BATCH_ITEMS
from memory.stage import STAGE_LEASE_SECONDS
from reverie.pipeline.inbox import NOTIFICATION_SECONDS
from reverie.pipeline.status import RUNBOOKS
from reverie.recall.calls import Recall
from storage.driver import OLDEST_SAFE_SQLITE
from worker.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = {path for path, _ in commands()}
OF_ALL = {"--data", "--workspace", "--agent", "--broker", "--json", "--help", "--version"}
OPTIONS = {
    path: OF_ALL | {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for path, command in commands()
}
GROUPS = {path[:length] for path in NAMES for length in range(1, len(path))}
SWEEP_SECONDS = Settings.model_fields["sweep_interval_seconds"].default
# `reverie` with what may stand before and after a command: options with and without a value.
SHOWN = re.compile(
    r"(?<![\w./-])(?:\.venv/bin/)?reverie((?: --(?:data|workspace|agent|broker) \S+)*)((?: [a-z][a-z-]*)*)"
)
# A line of the glossary: the term, what it means, and its names in the code.
GLOSSARY = re.compile(r"^- \*\*(.*?)\*\*: (.*?\.)(?: \((.*)\))?$", re.MULTILINE)
# A setting or another variable of the environment.
VARIABLE = re.compile(r"(?<![A-Z_])REVERIE_([A-Z_]+[A-Z])")
# Variables of clients, of the operator's token, of one process, and of `docker-compose.yml`.
NO_SETTINGS = {
    *("AGENT", "CONFIG", "LOG_FILE", "PARENT_PID", "PROCESS", "TOKEN", "URL", "USER", "WORKER_KEY", "WORKSPACE"),
    *("BROKER_PASSWORD", "DATABASE_PASSWORD", "IMAGE", "PUBLISH"),
}
MODULE = re.compile(r"python -m ([a-z][a-z_.]*[a-z])")
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def code_of(path: Path) -> list[str]:
    """What a page shows of the shell: the lines of blocks without a language, and inline spans."""
    blocks = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
    text = path.read_text(encoding="utf-8")
    shell = [line for language, block in blocks.findall(text) if not language for line in block.splitlines()]
    return [*shell, *re.findall(r"`([^`\n]+)`", blocks.sub("", text))]


def test_the_page_of_commands_is_current() -> None:
    """Given the commands, then the page in the repository is what they give."""
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_command_is_described_with_its_options() -> None:
    """Given a command, then its section names each option but `--json`, and its help says what it does."""
    described = page()
    for path, command in commands():
        section = described.partition(f"\n## {' '.join(path)}\n")[2].partition("\n## ")[0]

        assert command.help, path
        assert command.help.splitlines()[0] in section
        for parameter in command.params:
            of_all = parameter.name == "help" or "--json" in parameter.opts
            assert of_all or parameter.opts[0] in section or parameter.name.upper() in section


@pytest.mark.parametrize("name", ["docs/cli.md", "docs/configuration.md"])
def test_an_outdated_file_is_refused_with_what_to_do(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a generated file that differs, when it is checked, then the answer is 1 and names `make docs`; written, it
    is 0."""
    outdated = tmp_path / name
    outdated.parent.mkdir()
    outdated.write_text("# Something else\n")

    assert main(["--check", name], tmp_path) == 1
    assert "make docs" in capsys.readouterr().err
    assert main([name], tmp_path) == 0
    assert main(["--check", name], tmp_path) == 0


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("--chekc", 2), ("docs/other.md", 2)])
def test_a_wrong_argument_of_the_generators_writes_nothing(argument: str, status: int, tmp_path: Path) -> None:
    """Given `--help`, or an option or a file that does not exist, then nothing is written and the exit code says which
    it was."""
    with pytest.raises(SystemExit) as ended:
        main([argument], tmp_path)

    assert ended.value.code == status
    assert list(tmp_path.iterdir()) == []


def test_each_term_of_the_glossary_is_defined_once_and_in_order() -> None:
    """Given the glossary, then its terms are alphabetical, none comes twice, and each has one sentence."""
    rows = GLOSSARY.findall((ROOT / "docs" / "glossary.md").read_text("utf-8"))
    terms = [term for term, _, _ in rows]

    assert terms
    assert terms == sorted(set(terms))
    assert [meaning for _, meaning, _ in rows if not re.fullmatch(r"[A-Z`].*\.", meaning)] == []


def test_the_glossary_names_what_the_code_has() -> None:
    """Given the names in brackets in the glossary, then each word of a name occurs in the code."""
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    columns = [bracketed for _, _, bracketed in GLOSSARY.findall(glossary)]
    names = {
        word for column in columns for name in re.findall(r"`([^`]+)`", column) for word in re.findall(r"\w+", name)
    }
    folders = ("adapters", "cli", "client", "memory", "retrieval", "server", "storage", "tasks", "worker")
    # Settings are named in the code without the prefix of their variables; their page has both.
    pages = [ROOT / "beat_schedule.py", ROOT / "docs" / "configuration.md"]
    files = [*pages, *(path for folder in folders for path in (ROOT / folder).rglob("*.py"))]
    code = {word for path in files for word in re.findall(r"\w+", path.read_text("utf-8"))}

    assert sorted(names - code) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_shown_exists(path: Path) -> None:
    """Given `reverie ...` as code on a page, then it is a command, or a group of commands."""
    shown = [(("reverie", *words.split()), line) for line in code_of(path) for _, words in SHOWN.findall(line)]
    unknown = [line for words, line in shown if words not in GROUPS and not begins_with_a_command(words)]

    assert unknown == []


# The recipes add an option that does not exist.
@pytest.mark.parametrize("path", [page for page in PAGES if page.name != "recipes.md"], ids=lambda path: path.name)
def test_every_option_of_a_command_shown_exists(path: Path) -> None:
    """Given `reverie ... --option` as code on a page, then the command has that option, or `reverie` itself does."""
    unknown = []
    for line in code_of(path):
        for part in re.split(r"[|;#]|&&|-- |\$\(", line):
            for _, words in SHOWN.findall(part):
                found = ("reverie", *words.split())
                names = [found[:length] for length in range(2, len(found) + 1) if found[:length] in OPTIONS]
                shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", part.partition("reverie")[2]))
                unknown += [line] if names and shown - OPTIONS[names[-1]] else []

    assert unknown == []


def test_every_token_shown_names_its_workspaces() -> None:
    """Given `reverie tokens create` with options on a page or in an example, then it says for which workspaces."""
    shown = [line for path in PAGES for line in code_of(path)]
    shown += (ROOT / "monitoring" / "prometheus.yml").read_text("utf-8").splitlines()

    assert [line for line in shown if "tokens create --" in line and not re.search("--(all-)?workspace", line)] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_variable_shown_is_a_setting(path: Path) -> None:
    """Given `REVERIE_...` on a page, then a setting has that name, or a client or Compose reads it."""
    shown = set(VARIABLE.findall(path.read_text("utf-8")))

    assert {name for name in shown - NO_SETTINGS if name.lower() not in Settings.model_fields} == set()


def test_the_page_of_recall_has_each_parameter() -> None:
    """Given a new parameter of a recall, then the table of parameters has it."""
    table = (ROOT / "docs" / "recall.md").read_text().split("## Parameters")[1].split("\n## ")[0]
    assert {name for name in Recall.__struct_fields__ if f"`{name}`" not in table} == set()


def test_every_alert_names_a_part_of_the_page_of_operations() -> None:
    """Given the alerts, then each leads to a heading under which it says what to do."""
    rules = yaml.safe_load((ROOT / "monitoring" / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
    runbooks = {rule["alert"]: rule["annotations"]["runbook"].partition("#") for rule in rules}
    anchors = anchors_of(ROOT / "docs" / "operations.md")

    assert {page for page, _, _ in runbooks.values()} == {"docs/operations.md"}
    assert [alert for alert, (_, _, anchor) in runbooks.items() if anchor not in anchors] == []
    # What `reverie doctor` finds leads to the same parts.
    assert set(RUNBOOKS.values()) <= anchors
    same = {"Broker": "BrokerDown", "Databases": "StoreUnusable", "Disk": "DiskFilling", "Embedder": "EmbedderDown"}
    same |= {
        "Faults": "Stalled",
        "Inbox": "InboxFilling",
        "Jobs": "JobFailed",
        "Schedules": "SchedulesLate",
        "Server": "Down",
        "Workers": "NoWorkers",
    }
    assert {RUNBOOKS[subject] == runbooks[f"Reverie{alert}"][2] for subject, alert in same.items()} == {True}


def begins_with_a_command(words: tuple[str, ...]) -> bool:
    """Whether what stands first is a command; what follows may be an argument of it."""
    return any(words[:length] in NAMES for length in range(2, len(words) + 1))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_make_target_shown_exists(path: Path) -> None:
    """Given `make ...` as code on a page, then the Makefile has that target."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = {target for line in code_of(path) for target in re.findall(r"^(?:\$ )?make ([a-z]+)", line)}

    assert shown <= targets


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_module_shown_can_be_run(path: Path) -> None:
    """Given `python -m` with a module of ours on a page, then it does something when it is run."""
    for name in MODULE.findall(path.read_text(encoding="utf-8")):
        found = ROOT / name.replace(".", "/")
        source = found.with_suffix(".py") if found.with_suffix(".py").exists() else found / "__main__.py"
        assert 'if __name__ == "__main__":' in source.read_text(encoding="utf-8"), name


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_within_the_repository_leads_somewhere(path: Path) -> None:
    """Given a relative link, then its file exists, and so does the heading that it names."""
    for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        linked = (path.parent / target).resolve()
        assert linked.exists(), target
        if anchor:
            assert anchor[1:] in anchors_of(linked), target + anchor


def anchors_of(path: Path) -> set[str]:
    """The anchors that a Markdown page gets from its headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    ("page_name", "says"),
    [
        ("delivery.md", f"{CHUNK_CHARACTERS} characters, {OVERLAP_CHARACTERS} of them shared"),
        ("delivery.md", f"in an inbox for more than {GRACE_SECONDS} s"),
        (
            "limits.md",
            f"removed by the task that they stand for, or after {NOTIFICATION_SECONDS // 3_600} h",
        ),
        ("delivery.md", f"a lease of {STAGE_LEASE_SECONDS:g} s"),
        ("delivery.md", f"| {BATCH_ITEMS} items |"),
        ("delivery.md", f"| {BATCH_SOURCES} sources |"),
        ("delivery.md", f"| {BATCH_CHUNKS} chunks, or as many as take ten seconds |"),
        ("delivery.md", f"| {BATCH_VECTORS} vectors |"),
        ("architecture.md", f"SQLite {'.'.join(map(str, OLDEST_SAFE_SQLITE))} or newer"),
        ("delivery.md", f"{GRACE_SECONDS + SWEEP_SECONDS:g} s: in the inbox for {GRACE_SECONDS} s"),
        ("delivery.md", f"{STAGE_LEASE_SECONDS + SWEEP_SECONDS:g} s: a lease of {STAGE_LEASE_SECONDS:g} s"),
        ("operations.md", f"not reported for {ALIVE_SECONDS} s"),
    ],
)
def test_a_number_on_a_page_is_the_one_in_the_code(page_name: str, says: str) -> None:
    """Given a number that a page gives, then it is the constant's value: whoever changes one is led to the other."""
    text = " ".join((ROOT / "docs" / page_name).read_text(encoding="utf-8").split())

    assert says in text
