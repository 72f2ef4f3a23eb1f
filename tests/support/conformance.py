"""What the public MCP conformance suite asks of a server, served by the transport and the authentication of Reverie.

The suite calls tools, resources and prompts of its own by their names. `serve_fixtures` puts these in the place of the
memory, and everything else stays: the gate, tokens, limits, and `/mcp`.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp.types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    CallToolResult,
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import Field
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from server.gate import MCP_PATH
from server.mcp.building import MemoryServer
from server.mcp.endpoint import McpEndpoint

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
SCHEMA_TOOL = "json_schema_2020_12_tool"
STRING = {"type": "string"}

Asked = InputRequiredResult
Ctx = Context[Any, Any]


class WithToken:
    """Adds a token to requests for a local name: the suite cannot send any, and a page of another site has none."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._header = (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = dict(scope.get("headers", ())).get(b"host", b"")
        if scope["type"] == "http" and host.startswith((b"127.0.0.1", b"localhost")):
            scope = {**scope, "headers": [*scope["headers"], self._header]}
        await self._app(scope, receive, send)


def serve_fixtures(app: Starlette, token: str) -> ASGIApp:
    """Return an application whose `/mcp` serves what the suite asks for."""
    (endpoint,) = (route.endpoint for route in app.routes if getattr(route, "path", "") == MCP_PATH)
    assert isinstance(endpoint, McpEndpoint)
    endpoint.build = lambda **_: fixture_server()
    return WithToken(app, token)


def fixture_server() -> MemoryServer:
    """Return the server with the tools, resources and prompts of the suite."""
    server = MemoryServer(name="reverie", version="1", log_level="WARNING", tools=[schema_tool()], subscriptions=False)
    for tool in (*CONTENT_TOOLS, *RUNNING_TOOLS, *ASKING_TOOLS):
        server.add_tool(tool, name=f"test_{tool.__name__}", description=f"Of the suite: {tool.__name__}")
    add_resources(server)
    add_prompts(server)

    @server.completion()
    async def complete(ref: object, argument: object, context: object) -> Completion:
        return Completion(values=[], total=0, has_more=False)

    return server


# --- content ---


def simple_text() -> str:
    return "This is a simple text response for testing."


def image_content() -> ImageContent:
    return ImageContent(type="image", data=PNG, mime_type="image/png")


def audio_content() -> AudioContent:
    return AudioContent(type="audio", data=WAV, mime_type="audio/wav")


def embedded_resource() -> EmbeddedResource:
    return embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")


def multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    data = json.dumps({"test": "data", "value": 123})
    resource = embedded("test://mixed-content-resource", "application/json", data)
    return [text("Multiple content types test:"), image_content(), resource]


def error_handling() -> str:
    raise RuntimeError("This tool intentionally returns an error for testing")


def custom_headers(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    return region


def schema_tool() -> Tool:
    """A tool whose schema has what JSON Schema 2020-12 allows."""

    def described(name: str = "") -> str:
        return name

    tool = Tool.from_function(described, name=SCHEMA_TOOL, description="A tool with JSON Schema 2020-12 features")
    address = {"$anchor": "addressDef", "type": "object", "properties": {"street": STRING, "city": STRING}}
    tool.parameters = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": address},
        "properties": {
            "name": STRING,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": STRING,
            "email": STRING,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
    return tool


# --- while a call runs ---


async def tool_with_progress(ctx: Ctx) -> str:
    for progress in (0, 50, 100):
        await ctx.report_progress(progress=progress, total=100)
        await asyncio.sleep(0.05)  # the suite wants the notifications apart
    return "done"


async def tool_with_logging(ctx: Ctx) -> str:
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(message)
        await asyncio.sleep(0.05)
    return "done"


async def logging_tool(ctx: Ctx) -> str:
    await ctx.info("nobody asked for it")
    return "done"


async def missing_capability(ctx: Ctx) -> str:
    if ctx.client_capabilities is None or ctx.client_capabilities.sampling is None:
        needed = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message="needs sampling", data=needed)
    return "done"


# --- tools that ask the client first ---


def input_required_result_elicitation(ctx: Ctx) -> CallToolResult | Asked:  # type: ignore[valid-type]
    return asked_once(ctx, "user_name", elicit("What is your name?", name=STRING), "name")


def streaming_elicitation(ctx: Ctx) -> CallToolResult | Asked:  # type: ignore[valid-type]
    return asked_once(ctx, "user_name", elicit("What is your name?", name=STRING), "name")


def input_required_result_sampling(ctx: Ctx) -> CallToolResult | Asked:  # type: ignore[valid-type]
    return asked_once(ctx, "capital_question", sample("What is the capital of France?"), "")


def input_required_result_list_roots(ctx: Ctx) -> CallToolResult | Asked:  # type: ignore[valid-type]
    return asked_once(ctx, "client_roots", ListRootsRequest(), "")


def input_required_result_request_state(ctx: Ctx) -> CallToolResult | Asked:  # type: ignore[valid-type]
    return with_state(ctx, {"confirm": elicit("Please confirm", ok={"type": "boolean"})}, "state-ok")


def input_required_result_tampered_state(ctx: Ctx) -> CallToolResult | Asked:  # type: ignore[valid-type]
    return with_state(ctx, {"confirm": elicit("Please confirm", ok={"type": "boolean"})}, "state-ok")


def input_required_result_multiple_inputs(ctx: Ctx) -> CallToolResult | Asked:  # type: ignore[valid-type]
    requests = {
        "user_name": elicit("What is your name?", name=STRING),
        "greeting": sample("Generate a greeting"),
        "client_roots": ListRootsRequest(),
    }
    return with_state(ctx, requests, "all there")


def input_required_result_multi_round(ctx: Ctx) -> CallToolResult | Asked:  # type: ignore[valid-type]
    answers = ctx.input_responses or {}
    if ctx.request_state == "round 2" and "step2" in answers:
        return result("done")
    if ctx.request_state == "round 1" and "step1" in answers:
        question = elicit("Step 2: What is your favorite color?", color=STRING)
        return Asked(input_requests={"step2": question}, request_state="round 2")
    question = elicit("Step 1: What is your name?", name=STRING)
    return Asked(input_requests={"step1": question}, request_state="round 1")


def input_required_result_capabilities(ctx: Ctx) -> CallToolResult | Asked:  # type: ignore[valid-type]
    can = ctx.client_capabilities
    requests: dict[str, Any] = {}
    if can is not None and can.sampling is not None:
        requests["greeting"] = sample("Generate a greeting")
    if can is not None and can.elicitation is not None:
        requests["user_name"] = elicit("What is your name?", name=STRING)
    return Asked(input_requests=requests) if requests else result("nothing to ask")


CONTENT_TOOLS = (
    simple_text,
    image_content,
    audio_content,
    embedded_resource,
    multiple_content_types,
    error_handling,
    custom_headers,
)
RUNNING_TOOLS = (tool_with_progress, tool_with_logging, logging_tool, missing_capability)
ASKING_TOOLS = (
    input_required_result_elicitation,
    streaming_elicitation,
    input_required_result_sampling,
    input_required_result_list_roots,
    input_required_result_request_state,
    input_required_result_tampered_state,
    input_required_result_multiple_inputs,
    input_required_result_multi_round,
    input_required_result_capabilities,
)


def asked_once(ctx: Ctx, key: str, request: Any, field: str) -> CallToolResult | Asked:
    """Ask for one thing, and return what was answered; a wrong answer is asked for again."""
    answer: Any = (ctx.input_responses or {}).get(key)
    if answer is None:
        return Asked(input_requests={key: request})
    if not field:
        return result(answer.model_dump_json(by_alias=True))
    content = getattr(answer, "content", None) or {}
    return result(f"Hello, {content[field]}!") if field in content else Asked(input_requests={key: request})


def with_state(ctx: Ctx, requests: dict[str, Any], done: str) -> CallToolResult | Asked:
    """Ask for several things with a state, and say `done` when they are all answered with that state."""
    answers = ctx.input_responses or {}
    if ctx.request_state == "asked" and requests.keys() <= answers.keys():
        return result(done)
    return Asked(input_requests=requests, request_state="asked")


# --- resources and prompts ---


def add_resources(server: MemoryServer) -> None:
    @server.resource("test://static-text", description="Of the suite", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", description="Of the suite", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(PNG)

    @server.resource("test://template/{id}/data", description="Of the suite", mime_type="application/json")
    def template(id: str) -> str:
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def add_prompts(server: MemoryServer) -> None:
    @server.prompt(name="test_simple_prompt", description="Of the suite")
    def simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @server.prompt(name="test_prompt_with_arguments", description="Of the suite")
    def with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt(name="test_prompt_with_embedded_resource", description="Of the suite")
    def with_resource(resourceUri: str) -> list[Any]:  # noqa: N803 - the suite's name
        resource = embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
        return [UserMessage(resource), UserMessage(text("Please process the embedded resource above."))]

    @server.prompt(name="test_prompt_with_image", description="Of the suite")
    def with_image() -> list[Any]:
        return [UserMessage(image_content()), UserMessage(text("Please analyze the image above."))]

    @server.prompt(name="test_input_required_result_prompt", description="Of the suite")
    def asking(ctx: Ctx) -> Any:
        answer = (ctx.input_responses or {}).get("user_context")
        if answer is None:
            question = elicit("What context should the prompt use?", context=STRING)
            return Asked(input_requests={"user_context": question})
        return "Use the context that was given."


def text(content: str) -> TextContent:
    return TextContent(type="text", text=content)


def result(content: str) -> CallToolResult:
    return CallToolResult(content=[text(content)])


def embedded(uri: str, mime_type: str, content: str) -> EmbeddedResource:
    contents = TextResourceContents(uri=uri, mime_type=mime_type, text=content)
    return EmbeddedResource(type="resource", resource=contents)


def elicit(message: str, **fields: dict[str, Any]) -> ElicitRequest:
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(prompt: str) -> CreateMessageRequest:
    messages = [SamplingMessage(role="user", content=text(prompt))]
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=messages, max_tokens=100))
