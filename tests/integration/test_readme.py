"""The agent of the README, run as it stands against a scripted model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from reverie import Reverie
from support.endpoint import chat_endpoint
from support.http import running_server
from support.stages import pipeline_at_work
from worker.runtime import Runtime

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    """Given the README, then it has at most 1,100 words, and its agent fifteen lines and a blank one."""
    assert len(README.split()) <= 1_100
    assert len(agent().splitlines()) <= 16


def agent() -> str:
    found = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def say(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
    """Say whether the context has what was said before."""
    about = question["messages"][0]["content"]
    message = {"role": "assistant", "content": "I know." if "Lisbon" in about else "Tell me more."}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "scripted"}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    content = json.dumps({**body, "choices": choices}).encode()
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def test_the_agent_of_the_readme_remembers(runtime: Runtime) -> None:
    """Given its fifteen lines, when something is said and then asked, then the model was given it."""
    with running_server(runtime) as url, pipeline_at_work(runtime), chat_endpoint(say) as model:
        environment = {**os.environ, "REVERIE_URL": url, "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "sk-test"}
        done = subprocess.run(
            [sys.executable, "-c", agent()],
            input="I moved to Lisbon in May.\nWhere do I live?\n",  # and then what Ctrl-D sends
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "> Tell me more.\n> I know.\n> "
        with Reverie(agent="ana", url=url) as memory:
            assert len(memory.sessions.messages("chat-42")) == 4
