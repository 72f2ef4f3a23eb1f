"""An assistant that was written for mem0: one import is changed, and its memories are Reverie's.

It runs beside `reverie up` and needs no key and no mem0: the model is scripted.

    pip install reverie-pipeline-client
    python examples/mem0_drop_in.py
"""

from __future__ import annotations

import sys

# It was: from mem0 import Memory
from reverie.errors import Unavailable
from reverie.frameworks.mem0 import Memory


def scripted_model(question: str, known: list[str]) -> str:
    """Answer as a model would that was told what is known of the user."""
    return f"{question} I know: {'; '.join(known) or 'nothing'}."


def main() -> None:
    """Keep what Kate says, and answer her later, and Luis, of whom nothing is known."""
    with Memory(agent="mem0-example") as memory:
        talk = [
            {"role": "user", "content": "Remember that my locker number is 4711."},
            {"role": "assistant", "content": "I will remember it."},
        ]
        added = memory.add(talk, user_id="kate", run_id="monday", metadata={"topic": "gym"})
        print("Extracted:", [item["memory"] for item in added["results"]])
        memory.add("Kate comes on Mondays.", user_id="kate", infer=False)

        for user in ("kate", "luis"):
            question = "What is my locker number?"
            found = memory.search(question, filters={"user_id": user}, top_k=3)
            print(f"{user}:", scripted_model(question, [item["memory"] for item in found["results"]]))

        memory.delete_all(user_id="kate")
        print("Left of Kate:", memory.get_all(filters={"user_id": "kate"})["results"])


if __name__ == "__main__":
    try:
        main()
    except Unavailable as error:
        sys.exit(f"{error}")
