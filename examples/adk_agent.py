"""An agent of Google's Agent Development Kit that keeps its sessions and recalls earlier ones.

It runs beside `reverie up` and needs no key, since its model is scripted: name a real one, such as "gemini-2.5-flash".

    pip install 'google-adk>=2.13,<3'
    python examples/adk_agent.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.load_memory_tool import load_memory_tool
from google.genai import types

from reverie.frameworks.adk import ReverieMemoryService, ReverieSessionService


class ScriptedModel(BaseLlm):
    """A model that searches the memory when it is asked a question, and answers with what that returned."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[Any, None]:
        """Yield one response, whole also if a `stream` is asked for."""
        del stream
        last = llm_request.contents[-1].parts[-1]
        if last.function_response:
            memories = last.function_response.response["result"].memories
            part = types.Part(text=f"I remember: {memories[0].content.parts[0].text}")
        elif last.text.endswith("?"):
            part = types.Part(function_call=types.FunctionCall(name="load_memory", args={"query": last.text}))
        else:
            part = types.Part(text="How nice!")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def main() -> None:
    """Hold two conversations with Kate; in the second one the agent needs what she said in the first."""
    sessions, memory = ReverieSessionService(), ReverieMemoryService()
    agent = LlmAgent(name="guide", model=ScriptedModel(model="scripted"), tools=[load_memory_tool])
    runner = Runner(app_name="guide", agent=agent, session_service=sessions, memory_service=memory)

    async def say(text: str, session_id: str) -> str:
        message = types.Content(role="user", parts=[types.Part(text=text)])
        events = [event async for event in runner.run_async(user_id="kate", session_id=session_id, new_message=message)]
        content = events[-1].content
        return str(content.parts[0].text) if content and content.parts else ""

    known = await sessions.list_sessions(app_name="guide", user_id="kate")
    print(f"Kate has {len(known.sessions)} sessions.")
    first = await sessions.create_session(app_name="guide", user_id="kate")
    print(await say("I moved to Lisbon in May.", first.id))
    if (held := await sessions.get_session(app_name="guide", user_id="kate", session_id=first.id)) is not None:
        await memory.add_session_to_memory(held)
    second = await sessions.create_session(app_name="guide", user_id="kate")
    print(await say("When did I move to Lisbon?", second.id))
    await sessions.close()
    await memory.close()


if __name__ == "__main__":
    asyncio.run(main())
