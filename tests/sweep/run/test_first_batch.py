"""`sweep check` tries each loss on one batch: what is broken is said with file and line, without a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sweep.cli import main
from sweep.errors import PreflightError
from sweep.run.preflight import check_study
from sweep.study import Study, load_study
from tests.sweep.studies import toy, write

LOSSES = """\
import os
import torch
from torch import nn


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, sentence_features, labels):
        a, b = (self.model(features)["sentence_embedding"] for features in sentence_features)
        error = torch.cosine_similarity(a, b) - labels.view(-1)
        {line}
"""
BROKEN = {
    "vector": (
        "return error ** 2",
        "gives a loss that is not a scalar, shape (8,), at my_losses.py:14; expected a scalar",
    ),
    "none": ("error.mean()", "gives None at my_losses.py:14; expected a scalar tensor"),
    "nan": ("return (error * float('nan')).mean()", "gives a loss of nan on the first batch at my_losses.py:14"),
    "detached": (
        "return error.detach().mean()",
        "gives a loss without a gradient (detached, or made of numbers) at my_l",
    ),
    "raises": ("return helper(error)", "raises NameError: name 'helper' is not defined at my_losses.py:14"),
    "exits": ("os._exit(3)", "its code ends its process with exit status 3"),
}


def study(folder: Path, line: str, **changes: Any) -> Study:
    (folder / "my_losses.py").write_text(LOSSES.format(line=line))
    variants = {"base": {"loss": "cosent"}, "mine": {"loss": "my_losses:Loss"}}
    return load_study(write(folder, toy(variants=variants, training={"batch_size": 8}, **changes)))


def tried(study: Study) -> list[str]:
    return check_study(study, tries_batch=True)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_loss_is_named_with_its_line(kind: str, tmp_path: Path) -> None:
    line, message = BROKEN[kind]
    with pytest.raises(PreflightError) as caught:
        tried(study(tmp_path, line))
    assert str(caught.value).startswith(f"{tmp_path}/study.yaml: variants.mine")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_good_loss_passes_and_runs_elsewhere(tmp_path: Path) -> None:
    line = f"open({str(tmp_path / 'pid')!r}, 'a').write(str(os.getpid()) + ' '); return (error ** 2).mean()"
    assert tried(study(tmp_path, line, settings={"grid": {"learning_rate": [1e-5, 2e-5]}})) == []
    seen = (tmp_path / "pid").read_text().split()
    assert str(os.getpid()) not in seen
    assert len(seen) == 3  # once for each of three sizes: the learning rate makes no other first batch


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        ("return ((error[:, None] - labels) ** 2).mean()", True),
        ("return nn.functional.mse_loss(torch.cosine_similarity(a, b)[:, None], labels)", True),
        ("return (torch.relu(error[:, None] - error)).mean()", False),
        ("return ((torch.cosine_similarity(a, b)[:, None] - labels[:, None]) ** 2).mean()", False),
    ],
)
def test_what_broadcasts_is_warned_about(line: str, warned: bool, tmp_path: Path) -> None:
    found = tried(study(tmp_path, line))
    assert len(found) == warned
    if warned:
        assert "'my_losses:Loss' broadcasts shapes (8,) and (8, 1) to (8, 8) at my_losses.py:14" in found[0]


@pytest.mark.endtoend
def test_check_shows_a_line_and_the_traceback_when_asked(tmp_path: Path) -> None:
    path = str(study(tmp_path, "return helper(error)").path)
    short, long, machine = (
        CliRunner().invoke(main, ["check", path, *more]) for more in ([], ["--verbose"], ["--json"])
    )
    assert [one.exit_code for one in (short, long, machine)] == [2, 2, 2]
    assert "Traceback" not in short.output
    assert "--verbose shows the whole traceback" in short.stderr
    assert "Traceback" in long.stderr
    assert "return helper(error)" in long.stderr
    found = json.loads(machine.stdout)
    assert not found["valid"]
    assert "my_losses.py:14" in found["error"]
    assert "return helper(error)" in found["traceback"]
