"""Choose the device and dtype of a model: half precision only where the hardware is faster with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from adapters.embedders.base import DTypeChoice, EmbedderUnavailable

DType = Literal["float32", "bfloat16", "float16"]


def choose_device(requested: str) -> str:
    """Return the requested device; for "auto" CUDA, else Apple's MPS, else the CPU. Imports torch."""
    import torch

    if requested == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    if requested.startswith("cuda") and not torch.cuda.is_available():
        raise EmbedderUnavailable(f"device {requested!r} is not available: torch finds no CUDA. Use device auto or cpu")
    return requested


def choose_dtype(requested: DTypeChoice, device: str, capabilities: Mapping[str, object]) -> DType:
    """Return the requested dtype; for "auto" the fastest one.

    That is float16 on a GPU; on a CPU bfloat16 if it multiplies natively in bfloat16 (cosine to float32 over 400 chat
    turns: 0.9999 or more), otherwise float32, since emulated bfloat16 is slower. `capabilities` comes from
    `torch.cpu.get_capabilities()`.
    """
    if requested != "auto":
        return requested
    if device != "cpu":
        return "float16"
    native = any(capabilities.get(flag) for flag in ("avx512_bf16", "amx_bf16", "bf16"))
    return "bfloat16" if native else "float32"
