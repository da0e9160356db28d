from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainables.digests import resolve_digests
from trainables.spec import TrainSpec


def spec_of(root: Path | None = None, **fields: Any) -> TrainSpec:
    base: dict[str, Any] = {
        "model": {"name": "toy"}, "data": {"name": "toy"}, "loss": [{"name": "cosent"}], "matryoshka_dims": [8],
    }  # fmt: skip
    return TrainSpec(seed=0, root=root, **{**base, **fields})


def test_pinned_data_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRSWEEP_DATA", "/nowhere")
    found = [resolve_digests(spec_of(data={"name": name})) for name in ("jsts", "stsb-en", "toy")]
    assert len({one.data for one in found}) == 3
    assert all(one.data and one.model and not one.unresolved for one in found)


def test_local_files_by_content(tmp_path: Path) -> None:
    data = {"train": "a.csv", "test": "b.csv", "label_range": [0, 1]}
    assert resolve_digests(spec_of(tmp_path, data=data)).unresolved == ("data",)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("sentence1,sentence2,label\n")
    before = resolve_digests(spec_of(tmp_path, data=data)).data
    assert before == resolve_digests(spec_of(tmp_path, data=data)).data
    (tmp_path / "b.csv").write_text("sentence1,sentence2,label\nx,y,1\n")
    assert resolve_digests(spec_of(tmp_path, data=data)).data not in (None, before)


def test_model_folder_by_content(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    before = resolve_digests(spec_of(tmp_path, model={"name": "model"})).model
    (tmp_path / "model" / "README.md").write_text("words")
    assert resolve_digests(spec_of(tmp_path, model={"name": "model"})).model == before
    (tmp_path / "model" / "config.json").write_text("{ }")
    assert resolve_digests(spec_of(tmp_path, model={"name": "model"})).model != before


def test_hub_model_by_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    commit = "0123456789abcdef0123456789abcdef01234567"
    model = {"name": "org/encoder"}
    assert resolve_digests(spec_of(model=model)).unresolved == ("model",)
    assert resolve_digests(spec_of(model={**model, "revision": commit})).model == commit
    reference = tmp_path / "models--org--encoder" / "refs" / "main"
    reference.parent.mkdir(parents=True)
    reference.write_text(commit)
    assert resolve_digests(spec_of(model=model)).model == commit


def test_user_modules_by_source_without_running_them(tmp_path: Path) -> None:
    module = tmp_path / "digest_probe_loss.py"
    module.write_text("raise RuntimeError('imported')\n")
    loss = [{"name": "digest_probe_loss:Mine"}]
    before = resolve_digests(spec_of(tmp_path, loss=loss)).modules
    module.write_text("raise RuntimeError('imported, changed')\n")
    after = resolve_digests(spec_of(tmp_path, loss=loss)).modules
    assert set(before) == set(after) == {"digest_probe_loss"}
    assert before != after
    missing = resolve_digests(spec_of(tmp_path, loss=[{"name": "digest_missing:Mine"}]))
    assert missing.unresolved == ("module:digest_missing",)


def test_light() -> None:
    code = (
        "import sys, trainables.digests, trainables.checks, trainables.registry, trainables.synthetic\n"
        "import trainables.data.load\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'datasets', 'scipy', 'pandas', 'ray', 'mlflow'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"
