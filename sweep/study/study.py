"""A study: what is compared with what, under which conditions, how often. Read from a study file, then frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from analysis.plan import AnalysisPlan
from analysis.schema import CORRELATIONS, DEFAULT_SETTING, Endpoint, name_problem, parse_endpoint
from sweep.study import overrides as layers
from sweep.study.command_line import with_overrides
from sweep.study.fields import MAX_SEED, MAX_SEEDS, as_study_error, look_alike, suggestion, unknown_field
from sweep.study.model import Keep, Overrides, Resources, StudyFile
from sweep.study.search_block import SearchBlock, SearchedBy, check_search
from sweep.study.yaml_reader import MISSING, Document, FieldPath, read_document
from trainables.spec import BUILTIN_TRAINABLE, EVALUATION_SPLITS, TrainSpec
from trainables.tasks import TASKS
from trainables.training_fields import TRAINING_FIELDS

MAX_CELLS = 100_000
_GRID: FieldPath = ("settings", "grid")


@dataclass(frozen=True, kw_only=True)
class Study:
    """A validated study: every variant x setting resolves to a complete TrainSpec."""

    name: str
    path: Path
    """The study file, as it was given."""
    root: Path
    """Absolute folder of the study file: relative paths and user modules start here."""
    text: str
    """The study file as read; with fields overridden, one that says so and means the same."""
    base: layers.Layer
    """What the study sets outside of variants and settings."""
    variants: Mapping[str, layers.Layer]
    """Label -> overrides, in the order of the file."""
    baseline: str
    seeds: tuple[int, ...]
    settings: Mapping[str, layers.Layer]
    """Label -> overrides; `default` -> nothing when the study has no settings."""
    resources: Resources
    analysis: AnalysisPlan
    keep: Keep
    search: SearchBlock | None = None
    searched_by: SearchedBy | None = None
    overridden: tuple[str, ...] = ()
    """Fields given on the command line instead, as given: `training.epochs=1`."""
    specs: Mapping[tuple[str, str], TrainSpec]
    """(variant, setting) -> spec with the first seed."""

    @property
    def trainable(self) -> str:
        """The trainable of the study outside of overrides."""
        return str(self.base.get("trainable", BUILTIN_TRAINABLE))

    @property
    def primary(self) -> tuple[str, ...]:
        """Primary endpoints as declared, else the default one."""
        return self.analysis.primary or self.default_primary

    @property
    def default_primary(self) -> tuple[str, ...]:
        """What is primary where nothing is declared; empty where it depends on what the cells record.

        The largest common size's test Spearman; where the data's test split is not scored, what the task of the first
        named test set rests on.
        """
        dims, scored = self.common_dims, self.common_scores
        if not dims:
            return ()
        named = [f"{name}/{TASKS[source.task].primary}" for name, source in self._first_spec.evaluate.items()]
        metric = next((one for one in ("test/spearman", *named) if one in scored), None)
        return () if metric is None else (str(Endpoint(metric, max(dims))),)

    @property
    def _first_spec(self) -> TrainSpec:
        return next(iter(self.specs.values()))

    @property
    def common_scores(self) -> tuple[str, ...]:
        """`split/statistic` of every score that the built-in trainable gives in every variant and setting."""
        every = [_scores_of(spec) for spec in self.specs.values()]
        return tuple(name for name in every[0] if all(name in one for one in every))

    @property
    def common_dims(self) -> tuple[int, ...]:
        """Embedding sizes that every variant has in every setting, ascending."""
        sizes = [set(spec.matryoshka_dims) for spec in self.specs.values()]
        return tuple(sorted(set.intersection(*sizes)))

    @property
    def variant_fields(self) -> tuple[str, ...]:
        """Flat spec fields that any variant declares, or that differ between variants as a consequence; sorted."""
        declared = {name for layer in self.variants.values() for name in layers.flat_fields(layer)}
        flat = {key: spec.flat() for key, spec in self.specs.items()}
        present = {name for fields in flat.values() for name in fields}
        differing: set[str] = set()
        for setting in self.settings:
            fields = [flat[variant, setting] for variant in self.variants]
            names = {name for one in fields for name in one}
            differing |= {name for name in names if any(one.get(name) != fields[0].get(name) for one in fields)}
        return tuple(sorted((declared & present) | differing))

    def spec(self, variant: str, setting: str, seed: int) -> TrainSpec:
        """The resolved spec of one cell."""
        return self.specs[variant, setting].model_copy(update={"seed": seed})

    def with_seeds(self, seeds: int | Sequence[int]) -> Study:
        """The same study with other seeds.

        Args:
            seeds: A list of seeds; or a count: the first ones of the study's own, then the numbers that follow.

        Raises:
            ValueError: no seeds, too many, one twice, or one out of range.
        """
        if (seeds if isinstance(seeds, int) else len(seeds)) * len(self.specs) > MAX_CELLS:
            raise ValueError(f"more seeds than make {MAX_CELLS} cells")
        if isinstance(seeds, int):
            chosen = [*self.seeds[:seeds]]
            following = max(self.seeds) + 1
            chosen += range(following, following + seeds - len(chosen))
        else:
            chosen = list(seeds)
        if not chosen:
            raise ValueError("expected at least one seed")
        if len(set(chosen)) != len(chosen):
            raise ValueError(f"{chosen} names a seed twice")
        if len(chosen) > MAX_SEEDS:
            raise ValueError(f"expected at most {MAX_SEEDS} seeds")
        if not all(0 <= seed <= MAX_SEED for seed in chosen):
            raise ValueError(f"expected whole numbers from 0 to {MAX_SEED}")
        return replace(self, seeds=tuple(chosen))


def load_study(path: str | Path, overrides: Sequence[str] = ()) -> Study:
    """Read and check a study file; needs neither the model nor the data.

    Args:
        path: The file.
        overrides: Fields that replace the file's, such as `training.epochs=1` (sweep.study.command_line).

    Raises:
        StudyError: names file, field, value and what is allowed.
    """
    document = read_document(Path(path))
    if overrides:
        document = with_overrides(document, overrides)
    try:
        declared = StudyFile.model_validate(_labels_as_written(document))
    except ValidationError as error:
        raise as_study_error(document, error) from None
    except RecursionError:
        raise document.error((), "...", "it is nested too deeply") from None
    variants = {label: _given(overrides) for label, overrides in declared.variants.items()}
    baseline = declared.baseline or next(iter(variants))
    if baseline not in variants:
        allowed = f"expected one of the variants: {suggestion(baseline, variants)}{', '.join(variants)}"
        raise document.error(("baseline",), baseline, allowed)
    base = _given(declared, only=Overrides)
    root = Path(path).resolve().parent
    settings = _settings(document, declared, variants)
    if len(variants) * len(settings) * len(declared.seeds) > MAX_CELLS:
        count = len(variants) * len(settings) * len(declared.seeds)
        raise document.error(("seeds",), f"{count} cells", f"expected at most {MAX_CELLS} cells in one study")
    study = Study(
        name=declared.name,
        path=Path(path),
        root=root,
        text=document.text,
        overridden=tuple(overrides),
        base=base,
        variants=variants,
        baseline=baseline,
        seeds=declared.seeds,
        settings={label: layer for label, (layer, _) in settings.items()},
        resources=declared.resources,
        keep=declared.keep,
        analysis=declared.analysis,
        search=declared.search,
        searched_by=declared.searched_by,
        specs=_specs(document, base, variants, settings, declared.seeds[0], root),
    )
    _check_identical(document, study)
    _check_endpoints(document, study)
    _check_names(document, study)
    if study.search is not None:
        check_search(document, study.search, seeds=study.seeds, variants=variants, settings=study.settings)
    return study


def _labels_as_written(document: Document) -> dict[str, Any]:
    """`baseline: no` names the variant `no`, though YAML reads it as false."""
    data = dict(document.data)
    written = document.written.get(("baseline",))
    if "baseline" in data and written is not None:
        data["baseline"] = written or None
    return data


def _given(block: BaseModel | None, only: type[BaseModel] | None = None) -> dict[str, Any]:
    """What a block sets, as plain values; nothing that it leaves at a default."""
    if block is None:
        return {}
    fields = (only or type(block)).model_fields
    dumped = block.model_dump(exclude_unset=True)
    return {name: value for name, value in dumped.items() if name in fields and value is not None}


Located = tuple[layers.Layer, FieldPath]
"""A layer, and where in the study file it stands."""


def _settings(document: Document, declared: StudyFile, variants: Mapping[str, layers.Layer]) -> dict[str, Located]:
    """Label -> setting; each checked against what the variants set."""
    if declared.settings is None:
        return {DEFAULT_SETTING: ({}, ())}
    out: dict[str, Located] = {}
    grid = _grid(document, declared.settings.grid or {})
    if layers.grid_size(grid) > MAX_CELLS:
        allowed = f"expected at most {MAX_CELLS} cells in one study"
        raise document.error(_GRID, f"{layers.grid_size(grid)} points", allowed)
    if grid:
        for label, point in layers.grid_points(grid):
            if label in out:
                raise document.error(_GRID, label, "two points would have this label; name one of them under named:")
            out[label] = (layers.point_layer(point), _GRID)
    for label, overrides in (declared.settings.named or {}).items():
        place: FieldPath = ("settings", "named", label)
        if label in out:
            raise document.error(place, label, "the grid has a point with this label; choose another")
        out[label] = (_given(overrides), place)
    if twins := look_alike(out):
        allowed = f"{twins[1]!a} differs from {twins[0]!a} only in Unicode normalisation; choose another"
        raise document.error(out[twins[1]][1], twins[1], allowed)
    for layer, at in out.values():
        for variant, own in variants.items():
            path = layers.overlap(own, layer)
            if path is not None:
                field = (*at, layers.grid_name(path)) if at[-1] == "grid" else (*at, *path)
                allowed = f"variant {variant!r} sets it too; a field is set by variants or by settings, not by both"
                raise document.error(field, document.given(field, _value_at(layer, path)), allowed)
    return out


def _grid(document: Document, given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Grid with every value validated as the field it belongs to."""
    grid: dict[str, list[Any]] = {}
    for name, values in given.items():
        at: FieldPath = ("settings", "grid", name)
        path = layers.grid_path(name)
        if path is None:
            allowed = unknown_field(name, TRAINING_FIELDS, layers.GRID_HINT)
            raise document.error(at, values, allowed)
        if not isinstance(values, list) or not values:
            raise document.error(at, values, "expected a list of values, such as [1e-5, 2e-5]")
        grid[name] = []
        for index, value in enumerate(values):
            try:
                block = Overrides.model_validate(layers.nested(path, value))
            except ValidationError as error:
                raise as_study_error(document, error, at=(*at, index), flatten=True) from None
            validated = _value_at(_given(block), path)
            if validated is None:
                raise document.error((*at, index), value, "expected a value")
            if validated in grid[name]:
                raise document.error((*at, index), value, "it is listed twice")
            grid[name].append(validated)
    return grid


def _value_at(layer: Any, path: Sequence[str]) -> Any:
    for part in path:
        layer = layer.get(part) if isinstance(layer, Mapping) else None
    return layer


def _specs(
    document: Document,
    base: layers.Layer,
    variants: Mapping[str, layers.Layer],
    settings: Mapping[str, Located],
    seed: int,
    root: Path,
) -> dict[tuple[str, str], TrainSpec]:
    specs = {}
    for setting, (above, place) in settings.items():
        for variant, own in variants.items():
            fields = layers.resolve(base, own, above)
            at: FieldPath = ("variants", variant)
            layered = ((own, at), (above, place), (base, ()))
            try:
                loss = layers.loss_terms(fields)
            except ValueError as error:
                name, _, allowed = str(error).partition(": ")
                raise document.error(_locate((name,), layered), fields.get(name), allowed) from None
            given = {name: value for name, value in fields.items() if name not in ("layout", "loss_args")}
            try:
                specs[variant, setting] = TrainSpec.model_validate({**given, "loss": loss, "seed": seed, "root": root})
            except ValidationError as error:
                where = "" if setting == DEFAULT_SETTING else f", setting {setting!r}"

                def locate(path: FieldPath, layered: Sequence[Located] = layered) -> FieldPath:
                    return _locate(_as_written(path, layered), layered)

                suffix = f" (variant {variant!r}{where})"
                raise as_study_error(document, error, locate=locate, suffix=suffix) from None
    return specs


def _as_written(path: FieldPath, layered: Sequence[Located]) -> FieldPath:
    """`loss[0].layout` of a resolved spec -> `layout`, where the study file gives it beside the loss."""
    name = (
        {"layout": "layout", "args": "loss_args"}.get(str(path[2]))
        if path[0:1] == ("loss",) and len(path) > 2
        else None
    )
    return (name,) if name is not None and any(name in layer for layer, _ in layered) else path


def _locate(path: FieldPath, layered: Sequence[Located]) -> FieldPath:
    """Where the study file sets a field of a resolved spec: in the variant, the setting, or at the top."""
    first = str(path[0]) if path else ""
    for layer, at in layered:
        if first in layer and (len(path) < 2 or not isinstance(layer[first], Mapping) or path[1] in layer[first]):
            if at == _GRID:
                return (*at, layers.grid_name(tuple(str(part) for part in path[:2])))
            return (*at, *path)
    return path


def _scores_of(spec: TrainSpec) -> tuple[str, ...]:
    own = EVALUATION_SPLITS if spec.data is None else spec.data.scored
    return (
        *(f"{split}/{name}" for split in own for name in CORRELATIONS),
        *(f"{name}/{statistic}" for name, source in spec.evaluate.items() for statistic in source.statistics),
    )


def _check_identical(document: Document, study: Study) -> None:
    """Two cells with one meaning would be one cell recorded under two names."""
    first: dict[str, tuple[str, str]] = {}
    for (variant, setting), spec in study.specs.items():
        text = spec.canonical_json()
        if text not in first:
            first[text] = (variant, setting)
            continue
        other_variant, other_setting = first[text]
        if variant != other_variant:
            field: FieldPath = ("variants", variant)
            where = "" if setting == DEFAULT_SETTING else f" (setting {setting!r})"
            allowed = f"it means the same training as variant {other_variant!r}{where}; two variants must differ"
            raise document.error(field, document.given(field, {}), allowed)
        field = ("settings", "named", setting) if setting in _named(document) else _GRID
        allowed = f"it means the same training as setting {other_setting!r}; two settings must differ"
        raise document.error(field, setting, allowed)


def _check_names(document: Document, study: Study) -> None:
    """What is recorded under a name that the study file gives must have one that a store takes."""
    asked: dict[FieldPath, str] = {("analysis", "primary", i): text for i, text in enumerate(study.analysis.primary)}
    if study.search is not None and study.search.endpoint:
        asked["search", "endpoint"] = study.search.endpoint
    for at, text in asked.items():
        if problem := name_problem(text):
            raise document.error(at, text, problem)
    for (variant, _), spec in study.specs.items():
        for name in spec.flat():
            if problem := name_problem(name):
                field = tuple(name.split(".", 1))
                layer = study.variants[variant]
                inside = len(field) > 1 and field[1] in (layer.get(field[0]) or {})
                raise document.error(("variants", variant, *field) if inside else field, name, problem)


def _named(document: Document) -> Mapping[str, Any]:
    settings = document.data.get("settings")
    named = settings.get("named") if isinstance(settings, Mapping) else None
    return named if isinstance(named, Mapping) else {}


def _check_endpoints(document: Document, study: Study) -> None:
    """Primary endpoints of the built-in trainable must be ones that every cell will have."""
    if any(spec.trainable != BUILTIN_TRAINABLE for spec in study.specs.values()):
        return
    searched = study.search.endpoint if study.search is not None else None
    asked: dict[FieldPath, str] = {("analysis", "primary", i): text for i, text in enumerate(study.analysis.primary)}
    if searched:
        asked["search", "endpoint"] = searched
    if study.analysis.primary == () and not study.common_dims:
        allowed = "name one that every variant has in every setting; they have no embedding size in common"
        raise document.error(("analysis", "primary"), MISSING, allowed)
    for at, text in asked.items():
        endpoint = parse_endpoint(text)
        if endpoint.metric not in study.common_scores:
            known = ", ".join(f"{name}_DIM" for name in study.common_scores)
            raise document.error(at, text, f"expected one of {known}")
        if endpoint.dim not in study.common_dims:
            sizes = ", ".join(str(dim) for dim in study.common_dims) or "none"
            raise document.error(at, text, f"expected an embedding size that every cell has: {sizes}")
