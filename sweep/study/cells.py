"""A study's cells: one variant x seed x setting each, their keys and their order. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from analysis.revisions import SEED_FIELD, Content
from analysis.schema import KIND_CELL
from trainables.spec import TrainSpec

if TYPE_CHECKING:
    from sweep.study import Study


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training: the unit of scheduling, retry, resume and record."""

    key: str
    """sha256 of the canonical spec and the digests: its identity."""
    spec_key: str
    """The same without digests."""
    spec: TrainSpec
    variant: str
    seed: int
    setting: str
    """Label, `default` when the study has no settings."""
    variant_fields: tuple[str, ...] = ()
    """Flat spec fields that any variant of the study declares; they may differ inside a pair."""
    digests: Mapping[str, str]
    """`data`, `model`, `evaluate:<name>`, `module:<name>` -> digest."""
    unresolved: tuple[str, ...] = ()
    """Which digests could not be read here; the key is then provisional."""
    revision: int = 1
    """Of its variant (analysis.revisions); set when a launch has seen what is recorded. No part of the identity."""
    kind: str = KIND_CELL
    """`cell`, or `search` for a trial of a search: recorded alike, but never compared."""

    @property
    def content(self) -> Content:
        """What decides its result besides the seed."""
        return content(self.spec, self.digests)

    @property
    def run_name(self) -> str:
        """Name of the cell's MLflow run."""
        return f"{self.variant}-s{self.seed}-{self.setting}"


class Digests(Protocol):
    """What could be read of the things a spec names: trainables.digests.Digests."""

    @property
    def data(self) -> str | None: ...  # noqa: D102

    @property
    def model(self) -> str | None: ...  # noqa: D102

    @property
    def evaluate(self) -> Mapping[str, str]: ...  # noqa: D102

    @property
    def modules(self) -> Mapping[str, str]: ...  # noqa: D102

    @property
    def unresolved(self) -> tuple[str, ...]: ...  # noqa: D102


def cell_key(spec: TrainSpec, digests: Mapping[str, str]) -> str:
    """sha256 of the canonical spec (seed included) and the digests of what it names."""
    # The spec is put in as text: what identifies a spec is its canonical JSON and nothing else.
    identity = json.dumps([spec.canonical_json(), dict(digests)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(identity.encode()).hexdigest()


def content(spec: TrainSpec, digests: Mapping[str, str]) -> Content:
    """What a training depends on besides its seed, as a run records it."""
    return Content(fields={name: value for name, value in spec.flat().items() if name != SEED_FIELD}, digests=digests)


def named_digests(found: Digests) -> dict[str, str]:
    """`data`, `model`, `evaluate:<name>`, `module:<name>` -> digest, for those that could be read."""
    named = {"data": found.data, "model": found.model}
    named |= {f"evaluate:{name}": digest for name, digest in found.evaluate.items()}
    named |= {f"module:{name}": digest for name, digest in found.modules.items()}
    return {name: digest for name, digest in named.items() if digest is not None}


def expand(study: Study, digests: Callable[[TrainSpec], Digests]) -> list[Cell]:
    """The cells of a study in the order in which they are scheduled: complete pairs first.

    Seed by seed; within a seed setting by setting, with all variants of a setting adjacent.

    Args:
        study: A validated study.
        digests: Reads the digests of what a spec names, such as trainables.digests.resolve_digests; called once per
            variant and setting, since none depends on the seed.
    """
    resolved = {key: digests(spec) for key, spec in study.specs.items()}
    fields = study.variant_fields
    cells = []
    for seed in study.seeds:
        for setting in study.settings:
            for variant in study.variants:
                spec = study.spec(variant, setting, seed)
                found = resolved[variant, setting]
                cells.append(
                    Cell(
                        key=cell_key(spec, named_digests(found)),
                        spec_key=cell_key(spec, {}),
                        spec=spec,
                        variant=variant,
                        seed=seed,
                        setting=setting,
                        variant_fields=fields,
                        digests=named_digests(found),
                        unresolved=found.unresolved,
                    )
                )
    return cells
