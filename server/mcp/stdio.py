"""MCP over standard input and output. A request that cannot be read gets an answer, so that no client waits for ever.

The package passes over lines that it cannot decode: half of a surrogate pair in a text is enough.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_PARAMS, PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from reverie.decoding import check_keys
from reverie.errors import Rejected
from server.bodies import check_values

if TYPE_CHECKING:
    from server.mcp.building import MemoryServer


async def serve(server: MemoryServer) -> None:
    """Answer the messages of standard input until it ends."""
    lines = _Lines()
    async with stdio_server(stdin=lines) as (messages, answers):  # type: ignore[arg-type]
        lines.answers = answers
        await server.protocol.run(messages, answers, server.protocol.create_initialization_options())


class _Lines:
    """The lines of standard input. A request that cannot be read is left out, and answered with the reason."""

    answers: Any = None

    async def __aiter__(self) -> AsyncIterator[str]:
        with open(0, encoding="utf-8", errors="replace", closefd=False) as standard_input:
            async for line in anyio.wrap_file(standard_input):
                refusal = _refusal(line)
                if refusal is None:
                    yield line
                else:
                    await self.answers.send(SessionMessage(refusal))


def _refusal(line: str) -> JSONRPCError | None:
    """Return the answer to a request that cannot be read; None for any other line."""
    try:
        check_values(line.encode())
        check_keys(line.encode(), name="message")
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    except Rejected as error:
        reason = ErrorData(code=INVALID_PARAMS, message=str(error))
    except ValidationError as error:
        reason = ErrorData(code=PARSE_ERROR, message=f"the message cannot be read: {error.errors()[0]['msg']}")
    else:
        return None
    try:
        id = json.loads(line)["id"]  # takes what the package does not
        return JSONRPCError(jsonrpc="2.0", id=id, error=reason)
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
