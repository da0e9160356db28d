"""How large a model's saved weights will be, read from what is known before it is loaded. Imports no torch."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Final

from trainables.encoder.fetch import fetched_folder
from trainables.encoder.model_checks import hub_snapshot
from trainables.locations import locate_model
from trainables.spec import TrainSpec
from trainables.toy_encoder import _SPECIAL, HIDDEN, LAYERS, MAX_TOKENS
from trainables.toy_pairs import vocabulary

_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}


def saved_bytes(spec: TrainSpec) -> int | None:
    """Bytes of the trained model's weights on disk, in the number format of the spec.

    Returns:
        None where the spec names no model, or one whose weights are not on this machine.

    Raises:
        InputError: a folder or package that does not exist.
    """
    if spec.model is None:
        return None
    location = locate_model(spec)
    if location.kind == "toy":
        return _toy_parameters() * _BYTES[spec.model.dtype]
    folder = location.folder
    if folder is None:
        revision = spec.model.revision
        folder = fetched_folder(location, revision) or hub_snapshot(location, revision)
    return None if folder is None else _weights(folder, _BYTES[spec.model.dtype])


def _toy_parameters() -> int:
    """Of a BERT with feed-forward layers of twice its width, with the pooling layer that loading adds."""
    norm = 2 * HIDDEN
    embeddings = (len(_SPECIAL) + len(vocabulary()) + MAX_TOKENS + 1) * HIDDEN + norm
    attention = 4 * (HIDDEN * HIDDEN + HIDDEN) + norm
    feed_forward = 4 * HIDDEN * HIDDEN + 3 * HIDDEN + norm
    return embeddings + LAYERS * (attention + feed_forward) + HIDDEN * HIDDEN + HIDDEN


def _weights(folder: Path, bytes_each: int) -> int | None:
    """From the headers of the safetensors files; from the sizes of PyTorch's own files where there are none."""
    files = [path for path in folder.rglob("*.safetensors") if path.is_file()]
    if files:
        return sum(_elements(path) for path in files) * bytes_each
    sizes = [path.stat().st_size for path in folder.rglob("pytorch_model*.bin") if path.is_file()]
    return sum(sizes) or None


def _elements(path: Path) -> int:
    """Numbers in a safetensors file: its first 8 bytes are the length of a JSON header with every tensor's shape."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
