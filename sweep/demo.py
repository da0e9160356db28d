"""`make demo`: the toy study from nothing to a report, with the commands one would type.

Run in the folder that holds `studies/`; leaves `mlflow.db` and `mlruns/` there, as any study does, and the report
in `demo/`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from analysis.showing import counted
from sweep.record.tracking_uri import default_uri
from sweep.study import Study, load_study

STUDY_FILE: Final = Path("studies/toy.yaml")
OUTPUT: Final = Path("demo")
BIN: Final = Path(sys.executable).parent
NAMES: Final = {"toy-random": "random weights", "toy": "after the shared pretraining"}


def _command(*words: str) -> None:
    print(f"\n$ {' '.join(words)}", flush=True)
    code = subprocess.call([str(BIN / words[0]), *words[1:]])
    if code:
        sys.exit(code)


def _before_training(study: Study, endpoint: str) -> dict[str, float]:
    """Score of each toy encoder before any cell, by model name."""
    from sweep.run.worker import untrained_scores

    spec = next(iter(study.specs.values())).model_copy(update={"seed": study.seeds[0]})
    assert spec.model is not None
    models = {name: spec.model.model_copy(update={"name": name}) for name in NAMES}
    return {
        name: untrained_scores(spec.model_copy(update={"model": model}))[endpoint] for name, model in models.items()
    }


def _after_training(study: Study, endpoint: str) -> dict[str, tuple[float, int]]:
    """Mean score over the finished cells of each variant, and how many there are."""
    from analysis import load

    table = load(study.name, tracking_uri=default_uri()).table
    metric, dim = endpoint.rsplit("_", 1)
    rows = table[(table["metric"] == metric) & (table["dim"] == int(dim))]
    return {
        variant: (float(rows.loc[rows["variant"] == variant, "value"].mean()), int((rows["variant"] == variant).sum()))
        for variant in study.variants
    }


def main() -> None:
    """Run the demo; exits with the code of the first command that fails."""
    started = time.monotonic()
    study = load_study(STUDY_FILE)
    endpoint = f"test/spearman_{max(next(iter(study.specs.values())).matryoshka_dims)}"
    print("Preparing the toy encoder (built once, then cached) ...", flush=True)
    before = _before_training(study, endpoint)
    _command("sweep", "run", str(STUDY_FILE))
    _command("analysis", "report", str(STUDY_FILE), "--output", str(OUTPUT))

    print(f"\nDoes anything learn here? {endpoint}:")
    for name, score in before.items():
        print(f"  {score:6.3f}  {NAMES[name]}")
    for variant, (mean, cells) in _after_training(study, endpoint).items():
        print(f"  {mean:6.3f}  {variant}, mean of {counted(cells, 'cell')}")
    print(
        f"\n{time.monotonic() - started:.0f} s in all. What next:\n"
        f"  the report with figures   {OUTPUT / 'report.html'}\n"
        f"  compare runs in MLflow    {BIN.parent.name}/bin/mlflow ui       (then open http://127.0.0.1:5000)\n"
        f"  two more seeds            {BIN.parent.name}/bin/sweep run {STUDY_FILE} --seeds 7\n"
        f"  your own study            {BIN.parent.name}/bin/sweep init --name my-study"
    )


if __name__ == "__main__":
    main()
