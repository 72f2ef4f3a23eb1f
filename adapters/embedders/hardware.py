"""Which device and number type a model runs on: half precision only where the hardware is faster for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from adapters.embedders.base import DTypeChoice, EmbedderUnavailable

DType = Literal["float32", "bfloat16", "float16"]


def choose_device(wanted: str) -> str:
    """The device named, or for "auto" CUDA, then Apple's MPS, then the CPU. Imports torch."""
    import torch

    if wanted == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise EmbedderUnavailable(f"device {wanted!r} is not there: torch sees no CUDA. Use device auto or cpu")
    return wanted


def choose_dtype(wanted: DTypeChoice, device: str, capabilities: Mapping[str, object]) -> DType:
    """The number type named, or for "auto" the fast one.

    On a GPU float16. On a CPU bfloat16 where it multiplies in bfloat16 (cosine to float32 over 400
    chat turns: 0.9999 or more), and float32 elsewhere: emulated bfloat16 is slower than float32.
    `capabilities` is what `torch.cpu.get_capabilities()` says.
    """
    if wanted != "auto":
        return wanted
    if device != "cpu":
        return "float16"
    native = any(capabilities.get(flag) for flag in ("avx512_bf16", "amx_bf16", "bf16"))
    return "bfloat16" if native else "float32"
