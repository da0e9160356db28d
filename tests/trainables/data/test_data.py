from __future__ import annotations

import hashlib
import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainables import downloads
from trainables.data.load import load_split, splits_of
from trainables.downloads import PINNED, PinnedFile, pinned_file
from trainables.errors import InputError
from trainables.spec import TrainSpec
from trainables.toy_pairs import HIGHEST, ROWS, toy_pairs, vocabulary


def spec_of(root: Path | None = None, **data: Any) -> TrainSpec:
    return TrainSpec(trainable="noop", seed=0, data=data, root=root)


# -- toy -------------------------------------------------------------------------------------------------------


def test_toy_is_the_same_everywhere() -> None:
    text = "\n".join(f"{pair.sentence1}|{pair.sentence2}|{pair.label}" for pair in toy_pairs("test"))
    assert hashlib.sha256(text.encode()).hexdigest().startswith("57bffc30fa040cad")


def test_toy_has_graded_labels_and_a_closed_vocabulary() -> None:
    words = set(vocabulary())
    for split, rows in ROWS.items():
        pairs = toy_pairs(split)
        assert len(pairs) == rows
        labels = [pair.label for pair in pairs]
        assert len(set(labels)) > 15
        assert min(labels) >= 0
        assert max(labels) <= HIGHEST
        assert {word for pair in pairs for word in f"{pair.sentence1} {pair.sentence2}".split()} <= words


def test_toy_pretraining_pairs_are_in_no_study() -> None:
    studied = {(p.sentence1, p.sentence2) for split in ("train", "validation", "test") for p in toy_pairs(split)}
    assert studied.isdisjoint((pair.sentence1, pair.sentence2) for pair in toy_pairs("pretraining"))


def test_toy_shared_words_are_a_poor_guide() -> None:
    from scipy.stats import spearmanr

    pairs = toy_pairs("test")
    overlap = []
    for pair in pairs:
        one, two = set(pair.sentence1.split()), set(pair.sentence2.split())
        overlap.append(len(one & two) / len(one | two))
    assert spearmanr(overlap, [pair.label for pair in pairs]).statistic < 0.5


# -- built-in files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "split", "rows"),
    [
        ("jsts", "train", 12451), ("jsts", "validation", 1457), ("jsts", "test", 1589),
        ("stsb-en", "train", 5749), ("stsb-en", "validation", 1500), ("stsb-en", "test", 1379),
    ],
)  # fmt: skip
def test_real_data_is_whole(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, split: Any, rows: int
) -> None:
    monkeypatch.setenv("PAIRSWEEP_DATA", str(data_folder))
    pairs = load_split(spec_of(name=name), split)
    assert len(pairs) == len(set(pairs.ids)) == rows
    assert 0.0 <= pairs.labels.min() < pairs.labels.max() <= 1.0


def _pin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    file = PinnedFile(path="set/test.csv", url="https://example.org/t", sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(PINNED, "stsb-en", {"test": file})
    monkeypatch.delenv("PAIRSWEEP_DATA", raising=False)


def test_download_is_verified_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"a,b,1\nc,d,2\n"
    _pin(monkeypatch, content)
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path))
    asked: list[str] = []
    monkeypatch.setattr(downloads, "_download", lambda url: asked.append(url) or content)
    first, second = pinned_file("stsb-en", "test"), pinned_file("stsb-en", "test")
    assert first == second
    assert first.read_bytes() == content
    assert asked == ["https://example.org/t"]
    assert [path.name for path in first.parent.iterdir()] == ["test.csv"]


def test_download_with_another_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pin(monkeypatch, b"right")
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path))
    monkeypatch.setattr(downloads, "_download", lambda url: b"wrong")
    with pytest.raises(InputError, match=r"https://example.org/t: sha256: .* is not valid; expected"):
        pinned_file("stsb-en", "test")
    assert list(tmp_path.iterdir()) == []


def test_no_network_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pin(monkeypatch, b"right")
    monkeypatch.setenv("PAIRSWEEP_CACHE", str(tmp_path))

    def fail(url: str) -> bytes:
        raise urllib.error.URLError("Temporary failure in name resolution")

    monkeypatch.setattr(downloads, "_download", fail)
    with pytest.raises(InputError, match=r"set PAIRSWEEP_DATA to a folder that holds set/test\.csv") as caught:
        pinned_file("stsb-en", "test")
    assert "\n" not in str(caught.value)


def test_changed_file_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jsts-v1.3").mkdir()
    (tmp_path / "jsts-v1.3" / "test-v1.3.json").write_text("{}\n")
    monkeypatch.setenv("PAIRSWEEP_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"test-v1.3.json: sha256: .* is not valid; expected b31ff21e"):
        load_split(spec_of(name="jsts"), "test")
    with pytest.raises(InputError, match=r"must hold jsts-v1\.3/train-v1\.3\.json"):
        load_split(spec_of(name="jsts"), "train")


# -- local files -----------------------------------------------------------------------------------------------


def _local(tmp_path: Path, rows: int = 10) -> TrainSpec:
    for split in ("train", "test"):
        lines = "".join(f"s{i},t{i},{i % 5 - 1}\n" for i in range(rows))
        (tmp_path / f"{split}.csv").write_text(f"one,two,score\n{lines}")
    columns = {"sentence1": "one", "sentence2": "two", "label": "score"}
    return spec_of(
        root=tmp_path, train="train.csv", test="test.csv", columns=columns, label_range=[-1, 3], limit={"train": 4}
    )


def test_labels_are_scaled_and_limits_spread(tmp_path: Path) -> None:
    spec = _local(tmp_path)
    train, test = load_split(spec, "train"), load_split(spec, "test")
    assert splits_of(spec) == ("train", "test")
    assert train.sentence1 == ("s0", "s2", "s5", "s7")
    assert len(test) == 10
    np.testing.assert_allclose(test.labels, [0, 0.25, 0.5, 0.75, 1.0] * 2)


def test_changed_file_is_read_anew(tmp_path: Path) -> None:
    spec = _local(tmp_path)
    before = load_split(spec, "test")
    assert load_split(spec, "test") is before
    (tmp_path / "test.csv").write_text("one,two,score\na,b,1\nc,d,2\n")
    assert load_split(spec, "test").digest != before.digest


def test_missing_file(tmp_path: Path) -> None:
    spec = spec_of(root=tmp_path, train="no.csv", test="no.csv", label_range=[0, 1])
    with pytest.raises(InputError, match=r"no.csv: data.train: 'no.csv' is not valid; no such file"):
        load_split(spec, "train")


def test_a_single_row_is_too_few(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("sentence1,sentence2,label\na,b,1\n")
    with pytest.raises(InputError, match="at least 2 sentence pairs"):
        load_split(spec_of(root=tmp_path, train="one.csv", test="one.csv", label_range=[0, 1]), "test")


def test_bad_rows_are_dropped_before_the_limit_and_noted(tmp_path: Path) -> None:
    rows = [f"s{number},t{number},{1 if number % 5 else 'bad'}" for number in range(20)]
    (tmp_path / "own.csv").write_text("sentence1,sentence2,label\n" + "\n".join(rows) + "\n")
    own = {"train": "own.csv", "test": "own.csv", "label_range": [0, 1]}
    with pytest.raises(InputError, match="4 of 20 rows are bad"):
        load_split(spec_of(tmp_path, **own), "train")
    spec = spec_of(tmp_path, **own, bad_rows="drop", limit={"train": 8})
    train, test = load_split(spec, "train"), load_split(spec, "test")
    assert (len(train), len(test)) == (8, 16)
    assert set(train.ids) < set(test.ids)
    assert train.notes == (f"{tmp_path / 'own.csv'}: 4 of 20 rows left out (data.bad_rows: drop), lines 2, 7, 12, 17",)


def test_bad_rows_is_in_the_key_only_where_it_is_used() -> None:
    own = {"train": "own.csv", "test": "own.csv", "label_range": [0, 1]}
    assert "bad_rows" not in spec_of(**own).canonical_json()
    assert '"data.bad_rows":"drop"' in spec_of(**own, bad_rows="drop").canonical_json()
    with pytest.raises(ValueError, match="bad_rows: does not go with the built-in dataset"):
        spec_of(name="toy", bad_rows="drop")
