"""What must be equal between the two cells of a pair, besides what their variants declare to differ."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Final

import torch

from analysis.schema import (
    FINGERPRINT_DETERMINISTIC,
    FINGERPRINT_DEVICE,
    FINGERPRINT_DTYPE,
    FINGERPRINT_INSTRUCTION_SET,
    FINGERPRINT_SOFTWARE,
    FINGERPRINT_TF32,
    FINGERPRINT_THREADS,
)
from trainables.runtime import instruction_set

_SOFTWARE: Final = ("torch", "transformers", "sentence-transformers", "tokenizers", "accelerate", "numpy", "scipy")


def weights_digest(model: torch.nn.Module) -> str:
    """sha256 over names, types, shapes and bytes of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data if tensor.ndim else b"")
        if not tensor.ndim:
            digest.update(repr(tensor.item()).encode())
    return digest.hexdigest()


def order_digest(ids: Iterable[str]) -> str:
    """sha256 of the sequence of example ids; how it is cut into batches does not matter."""
    digest = hashlib.sha256()
    for one in ids:
        digest.update(one.encode() + b"\n")
    return digest.hexdigest()


def data_digest(digests: Mapping[str, str]) -> str:
    """sha256 over the digests of all splits and named test sets."""
    text = "\n".join(f"{split} {digest}" for split, digest in sorted(digests.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def environment(dtype: str, *, deterministic: bool = False) -> dict[str, str]:
    """Software versions, device and number type of this process; on a CPU its instruction set and threads too."""
    versions = " ".join(f"{name}={metadata.version(name)}" for name in _SOFTWARE)
    found = {
        FINGERPRINT_SOFTWARE: f"python={platform.python_version()} {versions}",
        FINGERPRINT_DTYPE: dtype,
    }
    if torch.cuda.is_available():
        found[FINGERPRINT_DEVICE] = torch.cuda.get_device_name(torch.cuda.current_device())
        found[FINGERPRINT_TF32] = str(torch.backends.cuda.matmul.allow_tf32).lower()
        found[FINGERPRINT_DETERMINISTIC] = str(deterministic).lower()
    else:
        found[FINGERPRINT_DEVICE] = "cpu"
        found[FINGERPRINT_INSTRUCTION_SET] = instruction_set()
        found[FINGERPRINT_THREADS] = str(torch.get_num_threads())
    return found
