"""What Claude's export holds beside conversations: its own memory of the user, and the knowledge of projects.

The memory is a text in Markdown of which each paragraph becomes a memory; a document of a project becomes a document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from adapters.histories.conversations import label_of, stable_id, stored_text
from adapters.histories.lines import moment
from adapters.histories.reading import Reading
from adapters.histories.statements import memory
from reverie.trust.export_types import ExportedFile, ExportedRecord

_MEMORY: Final = ("conversations_memory", "project_memories")
_PROJECT: Final = ("docs", "prompt_template")
_INSTRUCTIONS: Final = "instructions"


def is_knowledge(value: Any) -> bool:
    """Return whether an element of the export is a memory or a project."""
    return isinstance(value, dict) and any(name in value for name in (*_MEMORY, *_PROJECT))


def knowledge(
    value: Mapping[str, Any], source: str, where: str, at: datetime, reading: Reading
) -> Iterator[ExportedRecord]:
    """Yield the memories or the documents of an element. What has no time of its own has that of the export, `at`."""
    yield from _memories(value.get("conversations_memory"), "", source, at, reading)
    projects = value.get("project_memories")
    for project, text in projects.items() if isinstance(projects, dict) else ():
        yield from _memories(text, project, source, at, reading)
    if any(name in value for name in _PROJECT):
        yield from _documents(value, source, where, at, reading)


def _memories(text: Any, project: str, source: str, at: datetime, reading: Reading) -> Iterator[ExportedRecord]:
    heading = ""
    for paragraph in text.replace("\r\n", "\n").split("\n\n") if isinstance(text, str) else ():
        paragraph = paragraph.strip()
        if "\n" not in paragraph and (title := _title(paragraph)):
            heading = title
        elif paragraph:
            id = stable_id("memory", project, paragraph)
            metadata = {"heading": heading, "project": project}
            yield memory(reading, source, id, paragraph, created_at=at, details=(None, (heading,), metadata))


def _title(line: str) -> str:
    """Return the title in a line that is a heading, empty if it is none."""
    if line.startswith("#"):
        return line.lstrip("#").strip()
    return line.strip("*").strip() if line.startswith("**") and line.endswith("**") and line.count("**") == 2 else ""


def _documents(
    project: Mapping[str, Any], source: str, where: str, at: datetime, reading: Reading
) -> Iterator[ExportedRecord]:
    id = str(project.get("uuid") or stable_id(str(project.get("name"))))
    found = [(_INSTRUCTIONS, project.get("prompt_template"), project)]
    documents = project.get("docs")
    for document in documents if isinstance(documents, list) else ():
        if not isinstance(document, dict):
            reading.leave("documents of projects of an unknown shape", where)
            continue
        found.append((str(document.get("filename") or document.get("uuid") or ""), document.get("content"), document))
    names: Counter[str] = Counter()
    for name, text, fields in found:
        if not isinstance(text, str) or not text.strip():
            if name != _INSTRUCTIONS:
                reading.leave("documents of projects without a text", where)
            continue
        label = label_of(name) or "document"
        names[label] += 1
        yield ExportedFile(
            workspace=reading.workspace,
            agent=reading.agent,
            id=f"{source}:project:{stable_id(id, label, str(names[label]))}",
            source_uri=f"{source}:project:{id}/{label if names[label] == 1 else f'{label} ({names[label]})'}",
            content=stored_text(text),
            created_at=moment(fields.get("created_at")) or at,
            tags=[source],
            metadata={"source": source, "project": label_of(str(project.get("name") or "")) or id},
        )
