"""Connects the official MCP client to what is tested, and reads results of tools."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

ROOT = Path(__file__).parents[2]
# How clients of both specifications connect: with single requests after a discovery, or with the handshake.
MODES = ("auto", "legacy")
VERSIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}

_T = TypeVar("_T")


@asynccontextmanager
async def over_http(
    url: str, token: str | None, *, mode: str = "auto", path: str = "/mcp", **headers: str
) -> AsyncIterator[Client]:
    """Connect to `/mcp` of a server with a token and headers, `agent="ana"` for X-Reverie-Agent."""
    sent = {f"X-Reverie-{name.capitalize()}": value for name, value in headers.items()}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    async with httpx2.AsyncClient(headers=sent, trust_env=False, timeout=30.0) as http:
        transport = streamable_http_client(f"{url}{path}", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@asynccontextmanager
async def over_stdio(
    folder: Path, *options: str, environment: Mapping[str, str], mode: str = "auto"
) -> AsyncIterator[Client]:
    """Start `reverie mcp` in a folder, as MCP clients do, and connect to it."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "cli", "mcp", *options],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", **environment},
        cwd=folder,
    )
    async with Client(server, mode=mode) as client:
        yield client


def text_of(result: Any) -> str:
    """Return the text of a tool result that is no error."""
    assert isinstance(result, CallToolResult)
    assert not result.is_error, result.content
    return _text(result)


def error_of(result: Any) -> str:
    """Return the text of a tool result that is an error."""
    assert isinstance(result, CallToolResult)
    assert result.is_error, result.content
    return _text(result)


def run(main: Callable[[], Awaitable[_T]]) -> _T:
    """Run an asynchronous test, at most a minute. What it raises is raised without the groups of the client's tasks."""

    async def limited() -> _T:
        async with asyncio.timeout(60):
            return await main()

    try:
        return asyncio.run(limited())
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


def _text(result: CallToolResult) -> str:
    return "\n".join(getattr(block, "text", "") for block in result.content)
