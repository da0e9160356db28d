"""The process around a training: threads, seeds, quiet libraries, and leaving things as they were found."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import platform
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

_QUIET_LOGGERS: Final = ("sentence_transformers", "transformers", "datasets", "accelerate", "torch", "huggingface_hub")


def thread_variables(threads: int) -> dict[str, str]:
    """Environment variables from which libraries take their number of threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
    # Forked workers of a process that has tokenized in parallel would deadlock, and one cell has few threads anyway.
    return {**dict.fromkeys(names, str(threads)), "TOKENIZERS_PARALLELISM": "false"}


def configure(threads: int) -> None:
    """Fix the number of compute threads of this process; call it before anything is computed, as often as one likes.

    Args:
        threads: For torch, OpenMP, MKL and the tokenizers, which would otherwise take all cores.
    """
    if threads < 1:
        raise ValueError(f"threads: {threads} is not valid; at least 1")
    os.environ.update(thread_variables(threads))
    # torch reads them when it is imported; importing it here would cost seconds in processes that never need it.
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(threads)


def instruction_set() -> str:
    """The machine and the widest vector instructions that torch computes with, such as `x86_64 AVX512`."""
    import torch

    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Leave the random states of Python, NumPy and torch (every device) as they were before."""
    import torch

    # The global state of NumPy is not used here, but the libraries seed it, and a user's code may draw from it.
    numpy_state = np.random.get_state()  # noqa: NPY002
    python_state, torch_state = random.getstate(), torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        torch.set_rng_state(torch_state)
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)


@contextmanager
def isolated() -> Iterator[None]:
    """Leave random states, torch's defaults, logging levels and warning filters as they were before."""
    import torch
    from transformers.utils import logging as transformers_logging

    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    bars = transformers_logging.is_progress_bar_enabled()
    levels = {name: logging.getLogger(name).level for name in _QUIET_LOGGERS}
    try:
        for name in _QUIET_LOGGERS:
            logging.getLogger(name).setLevel(logging.ERROR)
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        with random_states_kept(), warnings.catch_warnings():
            _ignore_known_warnings()
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        if bars:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
        torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32


def _ignore_known_warnings() -> None:
    """Ignore what libraries warn about among themselves; a user can do nothing about it."""
    for module in ("transformers", "sentence_transformers", "accelerate", "datasets", "torch", "huggingface_hub"):
        warnings.filterwarnings("ignore", module=rf"{module}(\.|$)")


def release_memory() -> None:
    """Give freed memory back to the system, so that the hundredth cell of a process costs what the first did."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        try:
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        except (OSError, AttributeError):
            return  # another C library: nothing to trim


def peak_memory_mb() -> float:
    """Peak of the device on a GPU since the last reset, of the process on a CPU; MiB."""
    import torch

    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated()) / 2**20
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
