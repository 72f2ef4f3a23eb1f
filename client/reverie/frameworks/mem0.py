"""mem0's calls on the memories of Reverie, without mem0.

    from reverie.frameworks.mem0 import Memory

    memory = Memory()
    memory.add("I moved to Lisbon in May.", user_id="kate")
    memory.search("where does she live?", filters={"user_id": "kate"})

Arguments and results are those of mem0ai 2.2; what has no counterpart is refused and never ignored.
"""

from reverie.frameworks.mem0_async import AsyncMemory
from reverie.frameworks.mem0_memory import Memory
from reverie.frameworks.mem0_records import InvalidCall, MemoryNotFound

__all__ = ["AsyncMemory", "InvalidCall", "Memory", "MemoryNotFound"]
