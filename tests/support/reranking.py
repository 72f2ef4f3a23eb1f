"""Answers of rerank endpoints, for `support.endpoint`."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.endpoint import Answer, send


def scores(*pairs: tuple[int, Any], field: str = "relevance_score") -> bytes:
    """Return the body of an answer in Cohere's form with these indices and scores."""
    return json.dumps({"results": [{"index": index, field: score} for index, score in pairs]}).encode()


def score_by(score: Callable[[str, str], float]) -> Answer:
    """Return an answer that scores each text by a function of query and text, best first, in the form of the request.

    As Jina and vLLM do, it repeats each document in Cohere's form.
    """

    def answer(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
        of_cohere = "documents" in question
        texts = question["documents"] if of_cohere else question["texts"]
        found = sorted(enumerate(texts), key=lambda one: -score(question["query"], one[1]))
        if of_cohere:
            results = [
                {"index": place, "relevance_score": score(question["query"], text), "document": {"text": text}}
                for place, text in found[: question["top_n"]]
            ]
            send(json.dumps({"id": "r", "results": results}).encode())(handler, question)
        else:
            ranks = [{"index": place, "score": score(question["query"], text)} for place, text in found]
            send(json.dumps(ranks).encode())(handler, question)

    return answer
