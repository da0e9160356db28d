"""What a running sweep shows, on a terminal and elsewhere."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.schema import KIND_CELL, KIND_SEARCH
from sweep.run import progress as module
from sweep.run.progress import Count, Progress, Tally, duration, eta_s, fitted, tally_of
from sweep.run.worker import WorkerStatus
from sweep.study import load_study
from tests.sweep import studies
from tests.sweep.runs import a_cell, a_run

PRIMARY = "test/spearman_64"
COLOUR = r"\x1b\[(?:\d+;)*(?:3\d|38;[\d;]+|9\d)m"


@pytest.fixture
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands still unless it is moved."""
    monkeypatch.setattr(module.time, "monotonic", lambda: 100.0)


def a_sweep(total: int = 4, before: int = 0, gpus: float = 0.0) -> Progress:
    return Progress(Count(total=total, before=before), Tally([PRIMARY], ["a", "b"], "a"), gpus=gpus)


@pytest.mark.usefixtures("_clock")
class TestPlainLines:
    def test_a_sweep_from_begin_to_end(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sweep = a_sweep(gpus=0.5)
        sweep.slots = 2
        sweep.start()
        monkeypatch.setattr(module.time, "monotonic", lambda: 110.0)
        sweep.finished(a_cell("a", 0), scores={PRIMARY: 0.5}, seconds=3600)
        sweep.finished(a_cell("b", 0), scores={PRIMARY: 0.6}, seconds=3600)
        sweep.retry("a-s1-default", "its worker died", 2.0)
        sweep.failed("a-s1-default", "loss is nan")
        sweep.stop()
        assert capsys.readouterr().err.splitlines() == [
            f"[1/4] finished a-s0-default  {PRIMARY} 0.5000  in 60 min, about 2 h 00 min left",
            f"[2/4] finished b-s0-default  {PRIMARY} 0.6000  in 60 min, about 60 min left",
            "[2/4] lost a-s1-default: its worker died; again in 2 s",
            "[3/4] FAILED a-s1-default: loss is nan",
            "2 trained in 10 s, 1 GPU-hours",
            f"so far, not a verdict: {PRIMARY}: b ahead of a in 1 of 1 pair",
        ]

    def test_silence_is_broken_by_what_runs(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sweep = a_sweep()
        sweep.start()
        running = {
            "a-s0": WorkerStatus(phase="train", step=12, total_steps=40, loss=0.31234),
            "b-s0": WorkerStatus(phase="load"),
            "a-s1": None,
        }
        sweep.running(running)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(module.time, "monotonic", lambda: 131.0)
        sweep.running(running)
        sweep.running(running)
        assert capsys.readouterr().err == "[0/4] running a-s0 (train 12/40, loss 0.312), b-s0 (load), a-s1\n"

    def test_a_cell_without_a_step_is_shown_first_with_its_last_step(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [0.0]
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
        sweep = a_sweep()
        sweep.start()
        hangs = WorkerStatus(phase="train", step=12, total_steps=40)
        for second in range(0, 200, 10):
            now[0] = float(second)
            sweep.running(
                {"a-s0": WorkerStatus(phase="train", step=second, total_steps=400), "b-s0": hangs, "a-s1": None}
            )
        last = capsys.readouterr().err.splitlines()[-1]
        assert "running b-s0 (train 12/40, stalled: no step for 3 min), a-s1 (nothing heard for 3 min), a-s0" in last

    def test_who_is_ahead_is_said_once(self, capsys: pytest.CaptureFixture[str]) -> None:
        sweep = a_sweep(total=2)
        sweep.start()
        sweep.finished(a_cell("a", 0), scores={PRIMARY: 0.5}, seconds=1)
        sweep.finished(a_cell("b", 0), scores={PRIMARY: 0.4}, seconds=1)
        sweep.stop()
        sweep.stop()
        assert capsys.readouterr().err.count("b ahead of a in 0 of 1 pair") == 1

    def test_no_cell_no_summary(self, capsys: pytest.CaptureFixture[str]) -> None:
        sweep = a_sweep()
        sweep.start()
        sweep.stop()
        assert capsys.readouterr().err == ""


def test_what_does_not_fit_is_dropped_from_the_end() -> None:
    parts = [["12/40 cells", "12/40"], ["-" * 8], ["about 3 min left"], [], ["a (train)", "a"]]
    assert fitted(parts, 60) == ["12/40 cells", "-" * 8, "about 3 min left", "a (train)"]
    assert fitted(parts, 42) == ["12/40 cells", "-" * 8, "about 3 min left", "a"]
    assert fitted(parts, 30) == ["12/40 cells", "-" * 8]
    assert fitted(parts, 8) == ["12/40"]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestTerminal:
    def play(self, monkeypatch: pytest.MonkeyPatch) -> str:
        """What a terminal gets of a small sweep."""
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "160")
        screen = _Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        sweep = a_sweep(gpus=1.0)
        sweep.start()
        sweep.finished(a_cell("a", 0), scores={PRIMARY: 0.5}, seconds=3600)
        sweep.finished(a_cell("b", 0), scores={PRIMARY: 0.6}, seconds=3600)
        sweep.running({"a-s1[x]": WorkerStatus(phase="train", step=1, total_steps=2, loss=0.5)})
        sweep.stop()
        return screen.getvalue()

    def test_a_bar_with_what_runs_and_who_is_ahead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NO_COLOR", raising=False)
        text = self.play(monkeypatch)
        assert "2/4" in text
        assert "a-s1[x] (train 1/2, loss 0.5)" in text
        assert "2 GPU-hours" in text
        assert "so far, not a verdict" in text
        assert re.search(COLOUR, text)

    @pytest.mark.parametrize("width", [20, 40, 80, 120, 160])
    def test_one_line_fits_any_width(self, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
        """Grid labels are long: count, bar and time left stay, what runs is cut short or left out."""
        sweep = a_sweep(total=80)
        sweep.count.finished, sweep.count.seconds = 4, 2400.0
        names = [f"interleaved-s{n}-learning_rate=1e-05,batch_size=16,warmup_ratio=0.1" for n in range(4)]
        sweep.running(dict.fromkeys(names, WorkerStatus(phase="train", step=12, total_steps=400, loss=0.3123)))
        line = sweep._line(width).plain
        assert len(line) <= width
        assert "\n" not in line
        assert line.startswith("4/80")
        assert ("about 12 h 40 min left" in line) == (width >= 80)
        assert ("interleaved-s0" in line) == (width >= 80)

    def test_no_color(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        text = self.play(monkeypatch)
        assert "2/4" in text
        assert not re.search(COLOUR, text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(47, "47 s"), (89.4, "89 s"), (720, "12 min"), (3 * 3600 + 300, "3 h 05 min"), (52 * 3600, "2 d 4 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_what_is_left_at_the_pace_of_the_finished_cells() -> None:
    assert eta_s(Count(total=10, before=2), 2) is None
    assert eta_s(Count(total=10, before=2, failed=1), 2) is None
    assert eta_s(Count(total=10, before=2, finished=3, failed=1, seconds=60), 1) == 80  # 4 cells of 20 s
    assert eta_s(Count(total=10, before=2, finished=3, seconds=60), 2) == 60  # 5 cells in 3 rounds
    assert eta_s(Count(total=10, before=2, finished=3, seconds=60), 100) == 20


def test_counts_pairs_and_says_that_it_is_no_verdict() -> None:
    tally = Tally([PRIMARY], ["a", "b"], "a")
    for seed, (base, other) in enumerate([(0.5, 0.6), (0.5, 0.4), (0.5, 0.5 + 1e-13)]):
        tally.add(a_cell("a", seed), {PRIMARY: base, "test/spearman_8": 9.0})
        tally.add(a_cell("b", seed), {PRIMARY: other})
    assert tally.lines() == [f"so far, not a verdict: {PRIMARY}: b ahead of a in 1 of 3 pairs, 1 tied"]


def test_a_cell_without_its_partner_is_no_pair() -> None:
    tally = Tally([PRIMARY], ["a", "b"], "a")
    tally.add(a_cell("a", 0), {PRIMARY: 0.5})
    tally.add(a_cell("b", 1), {PRIMARY: 0.6})
    assert tally.lines() == []
    tally.add(a_cell("b", 0), {PRIMARY: 0.6})
    assert tally.lines() == [f"so far, not a verdict: {PRIMARY}: b ahead of a in 1 of 1 pair"]


def test_settings_and_endpoints_and_treatments_stand_apart() -> None:
    tally = Tally([PRIMARY, "test/pearson_64"], ["a", "b", "c"], "a")
    for setting in ("x", "y"):
        for variant, score in (("a", 0.5), ("b", 0.6), ("c", 0.4)):
            tally.add(a_cell(variant, 0, setting), {PRIMARY: score})
    assert tally.lines() == [
        f"so far, not a verdict: {PRIMARY}: b ahead of a in 2 of 2 pairs",
        f"so far, not a verdict: {PRIMARY}: c ahead of a in 0 of 2 pairs",
    ]


def test_a_repeated_cell_counts_as_it_is_now() -> None:
    tally = Tally([PRIMARY], ["a", "b"], "a")
    tally.add(a_cell("a", 0), {PRIMARY: 0.5})
    tally.add(a_cell("b", 0), {PRIMARY: 0.4})
    tally.add(a_cell("b", 0), {PRIMARY: 0.6})
    assert tally.lines() == [f"so far, not a verdict: {PRIMARY}: b ahead of a in 1 of 1 pair"]


def test_the_tally_begins_with_the_finished_runs_of_the_study(tmp_path: Path) -> None:
    study = load_study(studies.write(tmp_path, studies.noop(analysis={"primary": [PRIMARY]})))
    pair = [a_cell("a", 0), a_cell("b", 0)]
    other = [a_cell("a", 1), a_cell("b", 1)]
    runs = [replace(a_run(cell, "FINISHED"), metrics={PRIMARY: 0.5}) for cell in pair]
    runs += [replace(a_run(cell, "KILLED"), metrics={PRIMARY: 0.5}) for cell in other]
    gone = replace(a_run(a_cell("b", 7), "FINISHED"), metrics={PRIMARY: 0.5})
    tally = tally_of(study, KIND_CELL, [*pair, *other], [*runs, gone])
    assert tally.lines() == [f"so far, not a verdict: {PRIMARY}: b ahead of a in 0 of 1 pair, 1 tied"]
    assert tally_of(study, KIND_SEARCH, [*pair, *other], runs).lines() == []
