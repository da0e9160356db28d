"""Tasks: what a test set's rows look like, and how an encoder is scored on them. One folder each, registered here.

A study's `evaluate:` block names test sets; each says its task. Light: a task's own modules are imported when a set
of it is read or opened.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_TASK: Final = "sentence-pair"
TAKEN_NAMES: Final = ("train", "validation", "test", "time", "memory", "report")
"""What endpoints and other metrics already begin with."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*\Z")
_LONGEST_NAME: Final = 60


@dataclass(frozen=True, kw_only=True)
class Task:
    """One way of scoring an encoder."""

    about: str
    """Half a sentence for the documentation."""
    source: str
    """`module:class` of the EvaluationSource that a study file's entry is read as."""
    opens: str
    """`module:function` that makes a trainables.evaluation.EvaluationSet of it: (name, source, spec) -> set."""
    primary: str
    """The statistic that is primary, at the largest size, where a study rests on named sets alone and names none."""


TASKS: Final[Mapping[str, Task]] = {
    DEFAULT_TASK: Task(
        about="cosines of sentence pairs against graded labels: Spearman and Pearson correlation",
        source="trainables.sentence_pair.source:SentencePairSource",
        opens="trainables.sentence_pair.test_set:open_test_set",
        primary="spearman",
    ),
}


class EvaluationSource(BaseModel):
    """Where one named test set comes from; each task adds its own fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    has_revision: ClassVar[bool] = True
    """Whether the task's sets may lie on the hub, so that `name` and `revision` say which."""

    task: str = DEFAULT_TASK
    """How the set is scored."""
    take: Literal["first", "last", "random"] = "first"
    """Which columns a size of k takes: the first k (as Matryoshka training means it), the last k, or k drawn once
    at random, the same for every cell. The last two are controls."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """What is measured on the set: the names that stand between the set's and the size in an endpoint."""
        raise NotImplementedError

    def digest(self, root: Path | None) -> str | None:
        """Identity of the contents, without reading more than it must; None where they cannot be read here."""
        raise NotImplementedError

    def files(self) -> Mapping[str, str]:
        """Field -> path, as the study file gives it, of every local file or folder that it names."""
        raise NotImplementedError

    def at_commit(self, commit: str) -> EvaluationSource:
        """The same hub dataset at a commit; itself where it is not on the hub."""
        raise NotImplementedError


class WrongSource(ValueError):
    """An entry of `evaluate:` that cannot be read: where below it, what stands there, what is allowed."""

    def __init__(self, path: tuple[str | int, ...], value: object, allowed: str) -> None:
        self.path, self.value, self.allowed = path, value, allowed
        super().__init__(path, value, allowed)

    def __str__(self) -> str:
        return f"{'.'.join(map(str, ('evaluate', *self.path)))}: {self.value!r} is not valid; {self.allowed}"


def read_sources(given: object) -> dict[str, EvaluationSource]:
    """The named test sets of an `evaluate:` block.

    Args:
        given: Name -> fields, or name -> EvaluationSource.

    Raises:
        WrongSource: a name, a task or a field that is not valid.
    """
    if not isinstance(given, Mapping):
        example = "{stsb: {task: sentence-pair, name: stsb-en}}"
        raise WrongSource((), given, f"expected a mapping of names and test sets, such as {example}")
    return {str(name): _read(name, fields) for name, fields in given.items()}


def _read(name: object, fields: object) -> EvaluationSource:
    if not isinstance(name, str) or not _NAME.match(name) or len(name) > _LONGEST_NAME:
        allowed = f"expected a name of at most {_LONGEST_NAME} letters, digits, dots and hyphens"
        raise WrongSource((str(name),), name, allowed)
    if name in TAKEN_NAMES:
        raise WrongSource((name,), name, f"{', '.join(TAKEN_NAMES)} are taken; choose another name")
    if isinstance(fields, EvaluationSource):
        return fields
    if not isinstance(fields, Mapping):
        raise WrongSource((name,), fields, "expected a mapping, such as {task: sentence-pair, name: stsb-en}")
    task = fields.get("task", DEFAULT_TASK)
    if task not in TASKS:
        close = difflib.get_close_matches(str(task), TASKS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise WrongSource((name, "task"), task, f"{hint}expected one of {', '.join(TASKS)}")
    kind = source_class(str(task))
    try:
        return kind.model_validate(dict(fields))
    except ValidationError as error:
        raise _first_of(error, name, kind, fields) from None


def _first_of(
    error: ValidationError, name: str, kind: type[EvaluationSource], fields: Mapping[str, Any]
) -> WrongSource:
    first = error.errors(include_url=False)[0]
    place: tuple[str | int, ...] = tuple(part for part in first["loc"] if part in fields or isinstance(part, int))
    if first["type"] == "extra_forbidden":
        wrong = str(first["loc"][0])
        known = sorted(kind.model_fields)
        close = difflib.get_close_matches(wrong, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return WrongSource(
            (name, wrong), first["input"], f"there is no such field; {hint}allowed here: {', '.join(known)}"
        )
    message = str(first["msg"]).removeprefix("Value error, ").replace("Input should be", "expected")
    field, colon, rest = message.partition(": ")
    if not place and colon and field in kind.model_fields:
        return WrongSource((name, field), fields.get(field), rest)
    return WrongSource((name, *place), first["input"] if place else dict(fields), message)


def source_class(task: str) -> type[EvaluationSource]:
    """The class that entries of a task are read as."""
    return cast("type[EvaluationSource]", _load(TASKS[task].source))


def opener(task: str) -> Any:
    """The function that opens a test set of a task; imports what it needs."""
    return _load(TASKS[task].opens)


def modules_of_tasks() -> Iterator[str]:
    """The modules that open test sets."""
    return (task.opens.partition(":")[0] for task in TASKS.values())


def _load(path: str) -> Any:
    # By name, not by import statements: a task's modules stand above this one.
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)
