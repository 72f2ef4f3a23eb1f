"""A LangGraph agent that remembers each user across threads and restarts, with Reverie as its store.

    pip install langgraph 'reverie-pipeline-client[langgraph]'
    reverie up                            # in another terminal
    python examples/langgraph_agent.py    # twice: the second run knows what the first one was told

No key is needed: the model is scripted. Put a real one in the place of `scripted_model`.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.base import BaseStore

from reverie.errors import Unavailable
from reverie.frameworks.langgraph import ReverieStore


def scripted_model(question: str, known: list[str]) -> str:
    """Answer as a model would that was told what is known of the user."""
    if question.startswith("Remember: "):
        return "I will remember that."
    return "I know this of you: " + "; ".join(known) if known else "I know nothing about that yet."


def answer(state: MessagesState, config: RunnableConfig, *, store: BaseStore) -> dict[str, Any]:
    """Recall what fits the last message, answer, and keep what the user wants to be remembered."""
    namespace = ("memories", config["configurable"]["user_id"])
    text = str(state["messages"][-1].content)
    found = store.search(namespace, query=text, limit=3)
    if text.startswith("Remember: "):
        fact = text.removeprefix("Remember: ")
        # The same fact has the same key, so that it is kept once.
        store.put(namespace, hashlib.sha256(fact.encode()).hexdigest()[:16], {"text": fact})
    reply = scripted_model(text, [item.value["text"] for item in found])
    return {"messages": [{"role": "assistant", "content": reply}]}


def main() -> None:
    """Tell the agent something in one thread, and ask for it in another."""
    turns = [
        ("kate", "first thread", "Remember: I moved to Lisbon in May"),
        ("kate", "first thread", "Remember: my sister is called Ines"),
        ("kate", "second thread", "Which city do I live in?"),
        ("luis", "another thread", "Which city do I live in?"),
    ]
    with ReverieStore("langgraph-example", index={"fields": ["text"]}) as store:
        store.setup()
        builder = StateGraph(MessagesState)
        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        graph = builder.compile(store=store)
        for user, thread, text in turns:
            config: RunnableConfig = {"configurable": {"user_id": user, "thread_id": thread}}
            state: Any = {"messages": [{"role": "user", "content": text}]}
            result = graph.invoke(state, config)
            print(f"{user}, {thread}: {text}\n  {result['messages'][-1].content}")


if __name__ == "__main__":
    try:
        main()
    except Unavailable as error:
        sys.exit(f"{error}")
