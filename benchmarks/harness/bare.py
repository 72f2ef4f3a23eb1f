"""The bare model: `SentenceTransformer.encode` of texts in a process of its own, and nothing else.

Runs as `python -m benchmarks.harness.bare TEXTS.json`; prints one line of JSON. If the embedder is not a
sentence-transformers model, its own `embed` is called.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

BATCH_TEXTS: Final = 32
_WARM_TEXTS: Final = 64


class Bare(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of the bare model."""

    seconds: float
    texts: int
    dtype: str
    what: str


def run_bare(texts: Sequence[str], folder: Path) -> Bare:
    """Measure in a fresh process, so that its memory is free again when Reverie is measured."""
    path = folder / "texts.json"
    path.write_text(json.dumps(list(texts)), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.harness.bare", str(path)]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "REVERIE_CONFIG": os.devnull,
        "TRANSFORMERS_VERBOSITY": "error",
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"the bare model failed:\n{done.stderr[-2_000:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Bare)


def main(path: str) -> None:
    """Load, warm up, measure, print."""
    texts = json.loads(Path(path).read_text(encoding="utf-8"))
    encode, dtype, what = _encoder()
    encode(texts[:_WARM_TEXTS])
    started = time.perf_counter()
    encode(texts)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "texts": len(texts), "dtype": dtype, "what": what}))


def _encoder() -> tuple[Callable[[list[str]], Any], str, str]:
    from adapters.embedders.local import choose_device, choose_dtype
    from adapters.embedders.model_files import find_sentence_transformer
    from adapters.embedders.record import build_embedder
    from worker.model_specs import embedder_spec
    from worker.settings import load_settings

    spec = embedder_spec(load_settings())
    if spec.provider != "sentence-transformers":
        embedder = build_embedder(spec)
        assert embedder is not None, "this benchmark needs an embedder"
        embedder.load()
        return embedder.embed, embedder.dtype, f"{embedder.model}.embed"
    import torch
    from sentence_transformers import SentenceTransformer

    if spec.threads > 0:
        torch.set_num_threads(spec.threads)
    device = choose_device(spec.device)
    dtype = choose_dtype(spec.dtype, device, torch.cpu.get_capabilities())
    model = SentenceTransformer(
        str(find_sentence_transformer(spec.model)),
        device=device,
        local_files_only=True,
        model_kwargs={"dtype": getattr(torch, dtype)},
    )

    def encode(texts: list[str]) -> Any:
        return model.encode(texts, batch_size=BATCH_TEXTS, show_progress_bar=False, convert_to_numpy=True)

    return encode, dtype, f"SentenceTransformer.encode, batches of {BATCH_TEXTS}, on {device}"


if __name__ == "__main__":
    main(sys.argv[1])
