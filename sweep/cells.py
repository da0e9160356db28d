"""A study's cells: one variant x seed x setting each, their keys and their order. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.schema import KIND_CELL
from trainables.spec import TrainSpec


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
    """`data`, `model`, `module:<name>` -> digest."""
    unresolved: tuple[str, ...] = ()
    """Which digests could not be read here; the key is then provisional."""
    kind: str = KIND_CELL
    """`cell`, or `search` for a trial of a search: recorded alike, but never compared."""

    @property
    def run_name(self) -> str:
        """Name of the cell's MLflow run."""
        return f"{self.variant}-s{self.seed}-{self.setting}"
