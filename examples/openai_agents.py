"""An agent of the OpenAI Agents SDK that keeps its conversations and recalls earlier ones.

It runs beside `reverie up` and needs no key, since its model is scripted: leave out `model=` to use a real one.

    pip install 'openai-agents>=0.24,<1'
    python examples/openai_agents.py
"""

from __future__ import annotations

import asyncio

from agents import Agent, Runner, ToolCallOutputItem, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from reverie import Reverie
from reverie.frameworks.openai_agents import ReverieSession


async def main(memory: Reverie) -> None:
    """Hold two conversations with Kate; in the second one the agent needs what she said in the first."""

    @function_tool
    def recall(question: str) -> str:
        """Return what was said in earlier conversations."""
        return "\n".join(result.text for result in memory.recall(question, user="kate", limit=3))

    model = ScriptedModel([
        [assistant_message("Lisbon, how nice!")],
        [function_call("recall", {"question": "Where does Kate live?"}, call_id="call-1")],
        [assistant_message("You live in Lisbon, so take a raincoat.")],
    ])  # fmt: skip
    agent = Agent(name="guide", tools=[recall], model=model)

    in_may = ReverieSession("kate-may", memory, user="kate", wait="searchable")
    print(f"The conversation of May has {len(await in_may.get_items())} items.")
    await Runner.run(agent, "I moved to Lisbon in May.", session=in_may)

    in_june = ReverieSession("kate-june", memory, user="kate", wait="searchable")
    result = await Runner.run(agent, "What should I wear today?", session=in_june)
    recalled = next(item.output for item in result.new_items if isinstance(item, ToolCallOutputItem))
    print("Recalled:", recalled)
    print("Answered:", result.final_output)


if __name__ == "__main__":
    set_tracing_disabled(True)  # else the SDK sends traces to OpenAI
    with Reverie("guide") as client:
        asyncio.run(main(client))
