"""One forward and backward of a training's first batch, to find a broken loss before anything is scheduled.

Runs the user's code: only for a process of its own (trainables.first_batch).
"""

from __future__ import annotations

import copy
import math
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import set_seed

from trainables import runtime
from trainables.data.load import Pairs, load_split
from trainables.digests import user_modules
from trainables.encoder.fetch import fetched_folder
from trainables.encoder.models import load_model
from trainables.errors import FirstBatchError
from trainables.locations import hub_commit, locate_model
from trainables.sentence_pair.losses import PositivesOnly, WeightedSum
from trainables.sentence_pair.options import sentence_pair_options
from trainables.sentence_pair.tokens import token_cache
from trainables.sentence_pair.train import make_trainer, pad_where_it_differs
from trainables.sentence_pair.trainer import CellTrainer
from trainables.spec import Progress, TrainSpec
from trainables.user_code import is_import_path

MOST_ROWS: Final = 64
"""Of a batch; a larger one shows nothing more, and the machine may be smaller than those that train."""
_OURS: Final = Path(__file__).parent.parent
_NEEDS_GPU: Final = ("bf16", "fp16", "tf32")
_WEIGHTS: Final = (".safetensors", ".bin")


def try_first_batch(spec: TrainSpec) -> tuple[str, ...]:
    """Compute the loss of one real batch and its gradient.

    Args:
        spec: Of the built-in trainable, with data that can be read.

    Returns:
        Warnings, one line each: shapes that broadcast, a gradient of zero, what could not be tried.

    Raises:
        FirstBatchError: the loss raises, is no finite scalar, or gives the model no finite gradient.
        InputError: data or model cannot be read.
    """
    found = _at_hand(spec)
    if found is None:
        assert spec.model is not None
        return (f"first batch: not tried with model {spec.model.name}, which is not on this machine yet",)
    needed = next((name for name in _NEEDS_GPU if spec.training.get(name)), None)
    if needed is not None and not torch.cuda.is_available():
        return (f"first batch: not tried with training.{needed}: this machine has no GPU",)
    with runtime.isolated():
        return _tried(found)


def _at_hand(spec: TrainSpec) -> TrainSpec | None:
    """The spec, its hub model at the commit that is on this machine; None where its weights are not."""
    assert spec.model is not None
    location = locate_model(spec)
    if location.kind != "hub":
        return spec
    commit = hub_commit(location.name, spec.model.revision, kind="models")
    if commit is None:
        return None
    if fetched_folder(location, commit) is None:
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(location.name, revision=commit, local_files_only=True))
        except Exception:
            return None
        if not any(path.suffix in _WEIGHTS for path in folder.rglob("*")):
            return None
    return spec.model_copy(update={"model": spec.model.model_copy(update={"revision": commit})})


def _tried(spec: TrainSpec) -> tuple[str, ...]:
    assert spec.model is not None
    options = sentence_pair_options(spec)
    if options.deterministic:
        torch.use_deterministic_algorithms(True)
    pairs = _batch_of(load_split(spec, "train"), min(spec.training["batch_size"], MOST_ROWS))
    set_seed(spec.seed)
    loaded = load_model(spec)
    tokens = token_cache(loaded, spec.model.prompt, [*pairs.sentence1, *pairs.sentence2])
    packed = options.length_aware and tokens is not None and tokens.can_pack(loaded.model)
    watch = _Watch(spec, len(pairs))
    with tempfile.TemporaryDirectory(prefix="first-batch-") as folder:

        def quiet(progress: Progress) -> None:
            """Nobody asks."""

        trainer = make_trainer(spec, options, loaded, pairs, tokens, Path(folder), quiet, packed=packed)
        with watch.reporting():
            size = _forward_and_backward(trainer, watch)
        warnings = [*watch.warnings]
        if size == 0 and len(pairs) > 1:
            warnings.append(f"{watch.names} teaches nothing on the first batch: every gradient is 0")
        return (*warnings, *pad_where_it_differs(trainer, len(pairs)))


def _batch_of(pairs: Pairs, count: int) -> Pairs:
    """Rows spread over the data."""
    count = min(count, len(pairs))
    rows = [index * len(pairs) // count for index in range(count)]
    return replace(
        pairs,
        sentence1=tuple(pairs.sentence1[row] for row in rows),
        sentence2=tuple(pairs.sentence2[row] for row in rows),
        labels=pairs.labels[rows],
        ids=tuple(pairs.ids[row] for row in rows),
    )


def _forward_and_backward(trainer: CellTrainer, watch: _Watch) -> float:
    """Length of the gradient."""
    rows: Any = trainer.train_dataset
    collator: Any = trainer.data_collator
    batch: Mapping[str, Any] = collator([rows[index] for index in range(len(rows))])
    whole: Any = trainer.loss
    with watch.on_terms(whole), trainer.compute_loss_context_manager(), watch:
        loss = trainer.compute_loss(trainer.model, trainer._prepare_inputs(copy.copy(dict(batch))))
    parameters = [p for p in whole.parameters() if p.requires_grad]
    gradients = [one for one in torch.autograd.grad(loss, parameters, allow_unused=True) if one is not None]
    if not gradients:
        raise watch.wrong("gives a loss without a gradient: it does not depend on the model's embeddings")
    total = sum(float(one.double().square().sum()) for one in gradients)
    if not math.isfinite(total):
        raise watch.wrong(f"gives a gradient of {total**0.5} on the first batch, with a finite loss")
    return float(total**0.5)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A line of the user's own code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f" at {self.file}:{self.line}"


@dataclass
class _Watch(TorchFunctionMode):
    """Looks at what each term of the loss gives, and at what it broadcasts."""

    spec: TrainSpec
    rows: int
    warnings: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self.names = " + ".join(repr(term.name) for term in self.spec.loss)
        self._term: str | None = None
        self._returned: _Place | None = None
        named = (getattr(sys.modules.get(name), "__file__", None) for name in user_modules(self.spec))
        self._files = {str(file) for file in named if file}

    # -- which lines are the user's ------------------------------------------------------------------------------------
    def _place(self, file: str, line: int | None) -> _Place | None:
        path, root = Path(file), self.spec.root
        beside = root is not None and path.is_relative_to(root) and not path.is_relative_to(_OURS)
        if file not in self._files and (not beside or "site-packages" in path.parts):
            return None
        shown = path.relative_to(root) if root is not None and path.is_relative_to(root) else path
        return _Place(file=str(shown), line=line or 0)

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "return" and (place := self._place(frame.f_code.co_filename, frame.f_lineno)) is not None:
            self._returned = place  # the last one to return is the loss itself

    def _here(self) -> _Place | None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if (place := self._place(frame.f_code.co_filename, frame.f_lineno)) is not None:
                return place
            frame = frame.f_back
        return None

    # -- what a term gives ---------------------------------------------------------------------------------------------
    @contextmanager
    def on_terms(self, whole: nn.Module) -> Iterator[None]:
        """Inside, each term's results are looked at."""
        inner: Any = whole.loss if isinstance(whole, MatryoshkaLoss) else whole
        terms: list[Any] = list(inner.terms) if isinstance(inner, WeightedSum) else [inner]
        handles: list[Any] = []
        for spec, term in zip(self.spec.loss, terms, strict=True):
            called = term.loss if isinstance(term, PositivesOnly) else term
            handles.append(called.register_forward_pre_hook(self._before(spec.name)))
            handles.append(called.register_forward_hook(self._after))
        try:
            yield
        finally:
            sys.setprofile(None)
            for handle in handles:
                handle.remove()

    def _before(self, name: str) -> Callable[..., None]:
        def begin(module: nn.Module, given: Any) -> None:
            self._term, self._returned = name, None
            sys.setprofile(self._profile)

        return begin

    def _after(self, module: nn.Module, given: Any, loss: Any) -> None:
        sys.setprofile(None)
        if not isinstance(loss, Tensor):
            what = "None" if loss is None else f"a {type(loss).__name__}"
            raise self.wrong(f"gives {what}", "a scalar tensor")
        if loss.numel() != 1:
            raise self.wrong(f"gives a loss that is not a scalar, shape {tuple(loss.shape)},", "a scalar tensor")
        if not loss.requires_grad:
            raise self.wrong("gives a loss without a gradient (detached, or made of numbers)", "a tensor with one")
        if not math.isfinite(float(loss.detach())):
            raise self.wrong(f"gives a loss of {float(loss.detach())} on the first batch", "a finite number")
        self._term = self._returned = None

    def wrong(self, says: str, expected: str = "") -> FirstBatchError:
        """What is told of the term at hand."""
        name = self.names if self._term is None else repr(self._term)
        wanted = f"; expected {expected}" if expected else ""
        return FirstBatchError(field="loss", says=f"{name} {says}{self._returned or ''}{wanted}")

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Inside, whatever is raised becomes one line with the innermost place in the user's code."""
        try:
            yield
        except FirstBatchError:
            raise
        except Exception as error:
            sys.setprofile(None)
            told = traceback.walk_tb(error.__traceback__)
            places = [self._place(frame.f_code.co_filename, line) for frame, line in told]
            place = next((one for one in reversed(places) if one is not None), None)
            what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            name = self.names if self._term is None else repr(self._term)
            whole = "".join(traceback.format_exception(error))
            raise FirstBatchError(field="loss", says=f"{name} raises {what}{place or ''}", detail=whole) from error

    # -- what broadcasts -----------------------------------------------------------------------------------------------
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every call into torch: does it hold each row against every other without being asked to?"""
        result = func(*args, **(kwargs or {}))
        if self._term is None or self.rows < 2:
            return result
        flat, column = (self.rows,), (self.rows, 1)
        given = [one for one in (*args, *(kwargs or {}).values()) if isinstance(one, Tensor)]
        flats = [one for one in given if one.shape == flat]
        columns = [one for one in given if one.shape == column]
        if not flats or not columns:
            return result
        square = isinstance(result, Tensor) and result.shape == (self.rows, self.rows)
        if not square and not getattr(func, "__name__", "").endswith("_loss"):
            return result
        if _same_storage(flats[0], columns[0]):  # `x[:, None] - x`: all pairs on purpose
            return result
        place = self._here()
        if place is not None and is_import_path(self._term):
            self.warnings[
                f"{self._term!r} broadcasts shapes {flat} and {column} to {(self.rows, self.rows)}{place}: "
                "each row is held against all rows of the batch; give both one shape"
            ] = None
        return result


def _same_storage(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
