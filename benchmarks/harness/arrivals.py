"""A webhook receiver in a process of its own: it records when each message arrived and answers with a report.

`python -m benchmarks.harness.arrivals LOG` prints its port, and writes a line for each message: the run id and the time
in microseconds.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.harness.options import ROOT

_ANSWER: Final = b'{"output": "done", "turn_count": 1}'


class Arrival(NamedTuple):
    """The arrival of a webhook; the time is in microseconds."""

    run: str
    at: int


@contextmanager
def noting_arrivals(log: Path) -> Iterator[str]:
    """Run a receiver for the duration of a benchmark; yields its URL."""
    command = [sys.executable, "-m", "benchmarks.harness.arrivals", str(log)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/run"
    finally:
        process.kill()
        process.wait()


def arrivals(log: Path) -> list[Arrival]:
    """Return the arrivals in order."""
    lines = (line.split() for line in log.read_text(encoding="ascii").splitlines())
    return [Arrival(run, int(at)) for run, at in lines]


def main() -> None:
    """Receive until killed."""
    with Path(sys.argv[1]).open("a", encoding="ascii", buffering=1) as log:

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                at = time.time_ns() // 1_000
                self.rfile.read(int(self.headers["Content-Length"]))
                log.write(f"{self.headers['webhook-id']} {at}\n")
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(_ANSWER)))
                self.end_headers()
                self.wfile.write(_ANSWER)

            def log_message(self, *_: object) -> None:
                """Write nothing to standard error."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 1_024

        server = Server(("127.0.0.1", 0), Handler)
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
