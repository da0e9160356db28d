"""What must be equal between the two cells of a pair, besides what their variants declare to differ."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from importlib import metadata
from typing import TYPE_CHECKING, Final

import torch

from trainables.runtime import instruction_set

if TYPE_CHECKING:
    from trainables.data.load import Pairs

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


def data_digest(pairs: dict[str, Pairs]) -> str:
    """sha256 over the digests of all splits."""
    text = "\n".join(f"{split} {one.digest}" for split, one in sorted(pairs.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def environment(dtype: str, *, deterministic: bool = False) -> dict[str, str]:
    """Software versions, device and number type of this process; on a CPU its instruction set and threads too."""
    versions = " ".join(f"{name}={metadata.version(name)}" for name in _SOFTWARE)
    found = {"software": f"python={platform.python_version()} {versions}", "dtype": dtype}
    if torch.cuda.is_available():
        found["device"] = torch.cuda.get_device_name(torch.cuda.current_device())
        found["tf32"] = str(torch.backends.cuda.matmul.allow_tf32).lower()
        found["deterministic"] = str(deterministic).lower()
    else:
        found["device"] = "cpu"
        found["instruction_set"] = instruction_set()
        found["threads"] = str(torch.get_num_threads())
    return found
