"""Sessions and memory for agents of Google's Agent Development Kit.

from google.adk.runners import Runner
from reverie.frameworks.adk import ReverieMemoryService, ReverieSessionService

runner = Runner(
    app_name="guide",
    agent=agent,
    session_service=ReverieSessionService(),
    memory_service=ReverieMemoryService(),
)
"""

from __future__ import annotations

try:
    from reverie.frameworks.adk_memory import ReverieMemoryService
    from reverie.frameworks.adk_sessions import ReverieSessionService
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "reverie":
        raise
    raise ImportError("reverie.frameworks.adk needs Google ADK: pip install 'google-adk>=2.13,<3'") from error

__all__ = ["ReverieMemoryService", "ReverieSessionService"]
