"""Study files that are right: what they resolve to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.errors import SweepError
from sweep.study import Study, load_study
from sweep.study.overrides import grid_points
from tests.sweep.studies import ARTICLE, noop, toy, write
from trainables.registry import BUILTIN_TRAINABLES
from trainables.spec import TRAINABLE_NAMES, TrainSpec


def load(folder: Path, study: object) -> Study:
    return load_study(write(folder, study))  # type: ignore[arg-type]


def only(study: Study, variant: str = "a", setting: str = "default") -> TrainSpec:
    return study.specs[variant, setting]


def test_the_design_example(tmp_path: Path) -> None:
    text = ARTICLE.replace(
        "baseline: chunked\n",
        "  both: {loss: [{name: cosent, weight: 1.0}, {name: angle, layout: interleaved, weight: 0.5}]}\n"
        '  mine: {loss: "my_losses:Margin", loss_args: {margin: 0.2}}\n'
        "baseline: chunked\n"
        "settings:\n"
        "  grid: {learning_rate: [1e-5, 2e-5], batch_size: [16, 32]}\n"
        "  named: {other-data: {data: {name: stsb-en}}}\n",
    )
    study = load(tmp_path, text)
    assert list(study.variants) == ["chunked", "interleaved", "both", "mine"]
    assert list(study.settings) == [
        "learning_rate=1e-05,batch_size=16",
        "learning_rate=1e-05,batch_size=32",
        "learning_rate=2e-05,batch_size=16",
        "learning_rate=2e-05,batch_size=32",
        "other-data",
    ]
    assert study.seeds == (0, 1, 2, 3, 4)
    assert study.resources.cpus == 4
    assert study.resources.gpus == 1.0
    assert study.analysis.margin == 0.002
    assert study.text == text
    assert study.root == tmp_path
    flat = study.spec("both", "other-data", 3).flat()
    assert flat["loss"] == [{"name": "cosent"}, {"name": "angle", "layout": "interleaved", "weight": 0.5}]
    assert flat["data.name"] == "stsb-en"
    assert flat["learning_rate"] == 2e-5
    assert flat["seed"] == 3
    mine = study.specs["mine", "learning_rate=1e-05,batch_size=16"].flat()
    assert (mine["loss"], mine["loss.args"], mine["learning_rate"]) == ("my_losses:Margin", {"margin": 0.2}, 1e-5)
    assert study.variant_fields == ("loss", "loss.args", "loss.layout")


def test_numbers_however_yaml_reads_them(tmp_path: Path) -> None:
    texts = [f"training: {{learning_rate: {number}}}\n" for number in ("2e-5", "2.0e-5", "0.00002", '"2e-5"')]
    body = "name: x\ntrainable: noop\nvariants: {a: {}}\nseeds: 1\n"
    specs = [only(load(tmp_path, body + text)).canonical_json() for text in texts]
    assert len(set(specs)) == 1


def test_labels_are_text_as_written(tmp_path: Path) -> None:
    body = "name: x\ntrainable: noop\nseeds: 2\nbaseline: no\nvariants:\n"
    lines = "  on: {options: {x: 1}}\n  no: {options: {x: 2}}\n  1: {options: {x: 3}}\n  1e-5: {options: {x: 4}}\n"
    study = load(tmp_path, body + lines + "  2024-01-01: {options: {x: 5}}\n  null: {options: {x: 6}}\n")
    assert list(study.variants) == ["on", "no", "1", "1e-5", "2024-01-01", "null"]
    assert study.baseline == "no"


def test_dates_and_times_stay_text_and_octals_are_decimal(tmp_path: Path) -> None:
    options = "options: {a: 2024-01-01, b: 1:30, c: 010, d: 1_000, e: 1e3, f: yes, g: .5}\n"
    study = load(tmp_path, "name: x\ntrainable: noop\nvariants: {a: {}}\nseeds: 1\n" + options)
    assert only(study).options == {"a": "2024-01-01", "b": "1:30", "c": 10, "d": 1000, "e": 1000.0, "f": True, "g": 0.5}


def test_anchors_merge_keys_crlf_and_byte_order_mark(tmp_path: Path) -> None:
    text = (
        "name: x\r\ntrainable: noop\r\nseeds: 1\r\n"
        "variants:\r\n  a: &a {options: {x: 1, y: 2}}\r\n  b:\r\n    <<: *a\r\n    training: {batch_size: 4}\r\n"
    )
    path = tmp_path / "study.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    study = load_study(path)
    assert only(study, "b").options == {"x": 1, "y": 2}
    assert only(study, "b").training["batch_size"] == 4


def test_defaults(tmp_path: Path) -> None:
    study = load(tmp_path, toy(analysis=None))
    assert study.baseline == "a"
    assert list(study.settings) == ["default"]
    assert (study.resources.cpus, study.resources.gpus) == (1, 0.0)
    assert study.primary == ("test/spearman_64",)
    assert study.analysis.primary == ()


def test_primary_is_the_largest_common_size(tmp_path: Path) -> None:
    study = load(
        tmp_path,
        toy(variants={"a": {"loss": "angle"}, "b": {"loss": "angle", "matryoshka_dims": [16, 32]}}, analysis=None),
    )
    assert study.primary == ("test/spearman_32",)


def test_seeds_as_a_list_keep_their_order(tmp_path: Path) -> None:
    assert load(tmp_path, toy(seeds=[7, 3, 5])).seeds == (7, 3, 5)


@pytest.mark.parametrize(
    ("declared", "asked", "expected"),
    [
        (5, 7, (0, 1, 2, 3, 4, 5, 6)),
        (5, 2, (0, 1)),
        ([10, 12], 4, (10, 12, 13, 14)),
        ([10, 12], [1, 2], (1, 2)),
    ],
)
def test_with_seeds(declared: object, asked: int | list[int], expected: tuple[int, ...], tmp_path: Path) -> None:
    assert load(tmp_path, toy(seeds=declared)).with_seeds(asked).seeds == expected


@pytest.mark.parametrize("asked", [0, [], [1, 1], [-1], [2**32], 100_001, 10**15])
def test_with_seeds_refuses(asked: int | list[int], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"seed|whole numbers"):
        load(tmp_path, toy()).with_seeds(asked)


def test_another_loss_drops_what_described_the_first(tmp_path: Path) -> None:
    base = {"loss": "angle", "layout": "interleaved", "loss_args": {"scale": 10.0}}
    study = load(tmp_path, toy(**base, variants={"a": {}, "b": {"loss": "cosent"}, "c": {"layout": "chunked"}}))
    assert only(study, "a").flat()["loss.layout"] == "interleaved"
    assert "loss.layout" not in only(study, "b").flat()
    assert "loss.args" not in only(study, "b").flat()
    assert only(study, "c").flat()["loss.args"] == {"scale": 10.0}
    assert study.variant_fields == ("loss", "loss.args", "loss.layout")


def test_another_dataset_drops_what_described_the_first(tmp_path: Path) -> None:
    own = {"train": "a.csv", "test": "b.csv", "label_range": [0, 5], "columns": {"label": "y"}, "limit": {"train": 9}}
    study = load(
        tmp_path,
        toy(
            data=own,
            settings={
                "named": {"same": {}, "toy": {"data": {"name": "toy"}}, "short": {"data": {"limit": {"test": 5}}}}
            },
        ),
    )
    assert only(study, setting="toy").flat().items() >= {"data.name": "toy", "data.limit": {"train": 9}}.items()
    assert "data.columns" not in only(study, setting="toy").flat()
    assert only(study, setting="short").flat()["data.limit"] == {"train": 9, "test": 5}
    assert only(study, setting="same").flat()["data.columns"] == {"label": "y"}


def test_own_files_in_place_of_a_built_in_set(tmp_path: Path) -> None:
    files = {"data": {"train": "a.csv", "test": "b.csv", "label_range": [0, 1]}}
    study = load(tmp_path, toy(settings={"named": {"base": {}, "own": files}}))
    assert "data.name" not in only(study, setting="own").flat()
    assert only(study, setting="own").resolve_path("a.csv") == tmp_path / "a.csv"


def test_another_model_drops_the_revision_and_keeps_the_rest(tmp_path: Path) -> None:
    study = load(
        tmp_path,
        toy(
            model={"name": "org/one", "revision": "v1", "prompt": "query: "},
            variants={"a": {"loss": "angle"}, "b": {"loss": "angle", "model": {"name": "org/two"}}},
        ),
    )
    flat = only(study, "b").flat()
    assert flat["model.prompt"] == "query: "
    assert "model.revision" not in flat
    assert study.variant_fields == ("loss", "loss.layout", "model.name", "model.revision")


def test_variants_may_override_anything_that_is_trained(tmp_path: Path) -> None:
    variants = {
        "a": {"loss": "angle"},
        "b": {"loss": "angle", "training": {"warmup_ratio": 0.2}},
        "c": {"loss": "angle", "model": {"max_seq_length": 32}},
        "d": {"loss": "angle", "data": {"limit": {"train": 100}}},
        "e": {"loss": "angle", "matryoshka_dims": [64]},
        "f": {"trainable": "noop", "options": {"x": 1}},
    }
    study = load(tmp_path, toy(variants=variants, analysis=None))
    assert len({spec.canonical_json() for spec in study.specs.values()}) == 6
    assert set(study.variant_fields) >= {
        "warmup_ratio", "model.max_seq_length", "data.limit", "matryoshka_dims", "trainable", "options.x",
    }  # fmt: skip


def test_an_empty_named_setting_is_the_study_as_it_stands(tmp_path: Path) -> None:
    named = {"default": None, "small": {"training": {"batch_size": 4}}}
    study = load(tmp_path, toy(settings={"named": named}))
    assert list(study.settings) == ["default", "small"]
    assert only(study).training["batch_size"] == 8


def test_grid_over_model_and_options(tmp_path: Path) -> None:
    study = load(tmp_path, noop(settings={"grid": {"options.depth": [1, 2], "bf16": [True, False]}}))
    assert next(iter(study.settings)) == "options.depth=1,bf16=true"
    assert only(study, setting="options.depth=2,bf16=true").options["depth"] == 2


def test_trainables_that_need_neither_model_nor_data(tmp_path: Path) -> None:
    assert only(load(tmp_path, noop())).model is None
    assert load(tmp_path, noop(trainable="my_module:train")).trainable == "my_module:train"


def test_known_trainables_are_the_registered_ones() -> None:
    assert set(TRAINABLE_NAMES) == set(BUILTIN_TRAINABLES)


def test_the_study_is_frozen(tmp_path: Path) -> None:
    study = load(tmp_path, toy())
    with pytest.raises(AttributeError):
        study.name = "other"  # type: ignore[misc]


@given(
    st.dictionaries(
        st.sampled_from("abc"), st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True), min_size=1
    )
)
def test_a_grid_is_the_product_of_its_values(grid: dict[str, list[int]]) -> None:
    points = list(grid_points(grid))
    expected = 1
    for values in grid.values():
        expected *= len(values)
    assert len({label for label, _ in points}) == expected
    assert all(point[name] in grid[name] for _, point in points for name in grid)


def refusal(path: Path) -> str | None:
    """The error's text, or None where the file is taken."""
    try:
        load_study(path)
    except SweepError as error:
        return str(error)
    return None


FIELDS = [
    "name", "trainable", "model", "data", "loss", "layout", "loss_args", "matryoshka_dims", "training", "options",
    "variants", "baseline", "seeds", "settings", "resources", "analysis", "search", "version", "searched_by",
]  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats(allow_nan=False) | st.text(max_size=6)
KEYS = st.sampled_from([*FIELDS, "train", "grid", "named", "learning_rate", "space", "cpus", "primary", "alpha", "a"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


@settings(max_examples=60, deadline=None)
@given(field=st.sampled_from(FIELDS), value=VALUES)
def test_any_value_anywhere_is_taken_or_refused_in_one_line(
    field: str, value: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = write(folder, {**toy(), field: value})
    line = refusal(path)
    assert line is None or (line.startswith(f"{path}:") and "\n" not in line)


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60) | st.binary(max_size=60).map(lambda content: content.decode("latin-1")))
def test_any_text_is_refused_in_one_line(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    line = refusal(path)
    assert line is not None
    assert "\n" not in line


@pytest.mark.parametrize(
    ("given", "bytes_"),
    [("8GiB", 8 * 2**30), ("1.5 gib", 3 * 2**29), ("500MB", 500_000_000), ("64MiB", 64 * 2**20), (None, None)],
)
def test_memory_of_a_cell(tmp_path: Path, given: str | None, bytes_: int | None) -> None:
    assert load_study(write(tmp_path, toy(resources={"memory": given}))).resources.memory == bytes_


@pytest.mark.parametrize(
    ("given", "seconds"), [("2h", 7200), ("90m", 5400), ("1h 30m", 5400), ("45s", 45), ("1d2h", 93600), (None, None)]
)
def test_time_limit_of_a_cell(tmp_path: Path, given: str | None, seconds: float | None) -> None:
    assert load_study(write(tmp_path, toy(resources={"time_limit": given}))).resources.time_limit == seconds
