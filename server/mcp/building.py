"""Build the MCP server: its tools, resources and prompts. Imported where one is needed: `mcp` takes half a second."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final, get_type_hints

from mcp.server.lowlevel import Server
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolResult,
    GetPromptResult,
    InputRequiredResult,
    ToolAnnotations,
)
from pydantic import AnyUrl, ValidationError

from reverie import __version__
from reverie.errors import NotFound, Rejected, ReverieError
from server.mcp import descriptions
from server.mcp.binding import Current
from server.mcp.failing import explanation, failed, invalid_arguments, unknown_arguments
from server.mcp.memory_tools import MemoryTools
from server.mcp.prompts import add_prompts
from server.mcp.reading_tools import ReadingTools
from server.mcp.resources import add_resources
from server.mcp.time_tools import TimeTools

_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ADDS: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
_CHANGES: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
# What they delete stays deleted, but adding twice adds two.
_KEEPS: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False
)


class MemoryServer(MCPServer[Any]):
    """An MCP server whose errors say what to do, and whose tools refuse arguments that they do not know."""

    @cached_property
    def protocol(self) -> Server[Any]:
        """The server below, which transports serve."""
        self.streamable_http_app(stateless_http=True)  # makes the manager that names it
        return self.session_manager.app

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. What a caller can do something about is the result of the tool; a bug is raised."""
        known = (self._tool_input_schema(name) or {}).get("properties", {})
        unknown = [argument for argument in arguments if argument not in known]
        if unknown and self._tool_input_schema(name) is not None:
            return failed(unknown_arguments(name, unknown, list(known)))
        # Models that fill in every argument write null for those that they leave out.
        given = {argument: value for argument, value in arguments.items() if value is not None}
        try:
            return await super().call_tool(name, given, context)
        except ToolError as error:
            if isinstance(error.__cause__, ReverieError):
                return failed(explanation(error.__cause__))
            if isinstance(error.__cause__, ValidationError):
                return failed(invalid_arguments(name, error.__cause__))
            raise

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        """Read a resource. Raises `ResourceNotFoundError`, and `ResourceError` with what to do."""
        try:
            return await super().read_resource(uri, context)
        except ResourceError as error:
            cause = _cause(error)
            if cause is None:
                raise
            kind = ResourceNotFoundError if isinstance(cause, NotFound) else ResourceError
            raise kind(explanation(cause)) from cause

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Any, Any] | None = None
    ) -> GetPromptResult | InputRequiredResult:
        """Return the messages of a prompt. Raises `MCPError` with what to do."""
        try:
            return await super().get_prompt(name, arguments, context)
        except ValueError as error:
            cause = _cause(error)
            if cause is None:
                # An unknown prompt, or arguments that are missing or of another type.
                raise MCPError(code=INVALID_PARAMS, message=str(error)) from error
            code = INVALID_PARAMS if isinstance(cause, Rejected) else INTERNAL_ERROR
            raise MCPError(code=code, message=explanation(cause)) from error


def build_server(current: Current) -> MemoryServer:
    """Return the MCP server whose calls are for whom `current` says."""
    # Its log says which arguments failed; what callers send is not for a log.
    logging.getLogger("mcp").setLevel(logging.WARNING)
    server = MemoryServer(
        name="reverie",
        title="Reverie",
        description="Long-term memory for AI agents.",
        instructions=descriptions.INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
        tools=_tools(current),
        subscriptions=False,
    )
    add_resources(server, current)
    add_prompts(server, current)
    return server


def _tools(current: Current) -> list[Tool]:
    memories, reading, time = MemoryTools(current), ReadingTools(current), TimeTools(current)
    return [
        _tool(reading.context, "What to know now", descriptions.CONTEXT, _READS),
        _tool(reading.recall, "Search memory", descriptions.RECALL, _READS),
        _tool(memories.remember, "Remember", descriptions.REMEMBER, _ADDS),
        _tool(memories.list_memories, "List memories", descriptions.LIST, _READS),
        _tool(memories.update_memory, "Change a memory", descriptions.UPDATE, _CHANGES),
        _tool(memories.forget, "Forget a memory", descriptions.FORGET, _CHANGES),
        _tool(time.schedule, "Schedules", descriptions.SCHEDULE, _KEEPS),
        _tool(time.reminders, "Reminders", descriptions.REMINDERS, _KEEPS),
    ]


def _tool(function: Callable[..., Any], title: str, description: str, annotations: ToolAnnotations) -> Tool:
    """Return a tool of a method, whose schema says that it takes no other arguments."""
    tool = Tool.from_function(
        function,
        title=title,
        description=" ".join(description.split()),
        annotations=annotations,
        # A text as the field of an object besides would only cost tokens.
        structured_output=False if get_type_hints(function)["return"] is str else None,
    )
    for schema in filter(None, (tool.parameters, tool.output_schema)):
        for field in (schema, *schema.get("properties", {}).values()):
            field.pop("title", None)  # repeats the name
    tool.parameters["additionalProperties"] = False
    return tool


def _cause(error: BaseException | None) -> ReverieError | None:
    """Return the error of Reverie that is behind another one, if there is one."""
    while error is not None and not isinstance(error, ReverieError):
        error = error.__cause__
    return error
