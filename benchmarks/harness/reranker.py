"""The reranker of a benchmark: an endpoint that exists, or a scripted one that counts words and pairs of words.

The scripted one shows what reranking costs and that it works. It is no model of a cross-encoder: it knows no more than
the words, which the ranking has counted already.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Final

SCRIPTED: Final = "scripted"
# Enough for a loaded machine: the benchmark measures quality, and a recall that is not reranked would spoil it.
_TIMEOUT_SECONDS: Final = 20
# The usual parameters of BM25.
_K1: Final = 1.2
_B: Final = 0.75
_WORDS: Final = re.compile(r"\w+")


def add_reranker_options(options: argparse.ArgumentParser) -> None:
    """Add the options that select a reranker."""
    options.add_argument(
        "--reranker",
        help=f"base URL of a rerank endpoint; `{SCRIPTED}`: one that scores by BM25 of words and pairs of words."
        " Recalls are measured without it as well",
    )
    options.add_argument("--reranker-model", help="the model at that endpoint")
    options.add_argument("--reranker-candidates", type=int, default=50, help="how many results it scores")


@contextmanager
def reranker_settings(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Yield the environment of a stack with the reranker of these options; empty without one."""
    if not options.reranker:
        yield {}
        return
    settings = {
        "REVERIE_RERANKER_CANDIDATES": str(options.reranker_candidates),
        "REVERIE_RERANKER_TIMEOUT_SECONDS": str(_TIMEOUT_SECONDS),
    }
    if options.reranker_model:
        settings["REVERIE_RERANKER_MODEL"] = options.reranker_model
    if options.reranker != SCRIPTED:
        yield {**settings, "REVERIE_RERANKER_BASE_URL": options.reranker}
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Scripted)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield {**settings, "REVERIE_RERANKER_BASE_URL": f"http://127.0.0.1:{server.server_port}"}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def bm25_scores(query: str, texts: Sequence[str]) -> list[float]:
    """Return the BM25 of the query's words and pairs of words in each text, weighted by how few of the texts have them.

    S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
    """
    counted = [Counter(_terms(text)) for text in texts]
    mean = sum(sum(counts.values()) for counts in counted) / max(len(counted), 1) or 1.0
    scores = [0.0] * len(texts)
    for term in set(_terms(query)):
        having = sum(term in counts for counts in counted)
        idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for place, counts in enumerate(counted):
            length = 1 - _B + _B * sum(counts.values()) / mean
            scores[place] += idf * counts[term] * (_K1 + 1) / (counts[term] + _K1 * length)
    return scores


def _terms(text: str) -> list[str]:
    words = _WORDS.findall(text.casefold())
    return [*words, *(f"{one} {two}" for one, two in pairwise(words))]


class _Scripted(BaseHTTPRequestHandler):
    """Answers POST /rerank in both forms."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        of_cohere = "documents" in asked
        scores = bm25_scores(asked["query"], asked["documents"] if of_cohere else asked["texts"])
        field = "relevance_score" if of_cohere else "score"
        ranks = [{"index": place, field: score} for place, score in enumerate(scores)]
        body = json.dumps({"results": ranks} if of_cohere else ranks).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
