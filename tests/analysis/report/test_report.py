"""The report as people and machines get it, from a plain CSV through the command."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import analysis
from analysis import schema
from analysis.cli import main
from analysis.comparing.angle_roles import bands, role, role_counts
from analysis.results.load import load

DIMS = (32, 64, 128, 256, 512)
PROMISED = {
    "endpoint", "primary", "n_pairs", "wins", "losses", "ties", "mean_difference", "sign_test_p", "p_floor",
    "sign_flip_p", "adjusted_p", "crossed_ci95",
}  # fmt: skip


def article(seeds: int = 5, treatment: str = "interleaved") -> str:
    """All seeds favour the treatment at 128 and up by about .0035; level below, but for Pearson at 32."""
    rng = random.Random(3)
    rows = ["variant,seed,metric,dim,value"]
    for seed in range(seeds):
        level = 0.0008 if seed % 2 else -0.0009
        for metric in ("spearman", "pearson"):
            for dim in DIMS:
                score = 0.7 + 0.0001 * dim + rng.gauss(0, 0.002)
                gain = 0.0035 + rng.uniform(-0.001, 0.001) if dim >= 128 else level
                if (metric, dim) == ("pearson", 32):
                    gain = -0.004 + rng.uniform(-0.001, 0.001)
                rows.append(f"chunked,{seed},test/{metric},{dim},{score:.6f}")
                rows.append(f"{treatment},{seed},test/{metric},{dim},{score + gain:.6f}")
    return "\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("article") / "article.csv"
    path.write_text(article())
    return path


def report(path: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["report", "--results", str(path), *words])


def test_the_articles_pattern_is_undecided(file: Path) -> None:
    found = json.loads(report(file, "--format", "json").stdout)
    (comparison,) = found["comparisons"]
    assert comparison["verdict"] == "undecided_underpowered"
    assert "5 of 5" in comparison["sentence"]
    assert "0.0625" in comparison["sentence"]
    assert "at least 6 seeds" in comparison["sentence"]
    assert (
        "undecided at 256 and 512 (5 of 5 seeds favour interleaved) and at 32 and 64 (3 of 5" in comparison["sentence"]
    )
    by_name = {row["endpoint"]: row for row in comparison["endpoints"]}
    assert by_name["test/spearman_256"]["wins"] == 5
    assert by_name["test/spearman_256"]["sign_test_p"] == pytest.approx(0.0625)
    assert by_name["test/pearson_32"]["losses"] == 5
    assert not by_name["test/pearson_32"]["primary"]


def test_json_keeps_the_promised_fields(file: Path) -> None:
    found = json.loads(report(file, "--format", "json").stdout)
    assert {"study", "comparisons", "across_settings"} <= found.keys()
    assert found["across_settings"] is None
    comparison = found["comparisons"][0]
    assert {"treatment", "baseline", "setting", "verdict", "sentence", "endpoints", "dropped"} <= comparison.keys()
    assert comparison["setting"] == "default"
    assert all(row.keys() >= PROMISED for row in comparison["endpoints"])
    assert "NaN" not in json.dumps(found)


def test_text_opens_with_the_verdict_and_fits_100_columns(file: Path) -> None:
    done = report(file)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Undecided: 5 of 5 seeds favour interleaved")
    assert "unverified" in " ".join(lines[:6])
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_text_is_brief_and_full_on_request(file: Path) -> None:
    short, full = report(file).stdout, report(file, "--full").stdout
    assert len(short.splitlines()) <= 50
    for text in (short, full, report(file, "--format", "markdown").stdout):
        assert all(table in text for table in ("test/spearman", "test/pearson"))
    assert "beside the verdict" in full
    assert "beside the verdict" not in short
    assert max(map(len, full.splitlines())) <= 100


def test_no_name_is_broken_and_long_ones_fit(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    settings = [f"model=some-organisation/a-model-with-a-long-name-{size},learning_rate=1e-05" for size in "ab"]
    lines = article(treatment="interleaved_swapped_and_scaled").splitlines()
    rows = [f'{row},"{setting}"' for setting in settings for row in lines[1:]]
    path.write_text("\n".join([lines[0] + ",setting", *rows]))
    for text in (report(path).stdout, report(path, "--full").stdout):
        assert max(map(len, text.splitlines())) <= 100
        table = text[text.index("In these settings") :]
        assert re.search(r"^test/spearman_512 \* ", table, re.MULTILINE)
        assert all(setting in text for setting in settings)


@pytest.mark.parametrize("kind", ["markdown", "html", "json", "latex"])
def test_the_format_goes_alone_to_stdout(file: Path, kind: str) -> None:
    done = report(file, "--format", kind)
    assert done.exit_code == 0
    opening = {"markdown": "**Undecided", "html": "<!doctype html>", "json": "{", "latex": "% Needs"}[kind]
    assert done.stdout.startswith(opening)
    assert done.stderr == ""


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_names_with_markup_are_shown_not_run(tmp_path: Path) -> None:
    name = "<script>alert(1)</script> $x_1$ | *b*"
    path = tmp_path / "x.csv"
    path.write_text(article(treatment=name))
    html = report(path, "--format", "html").stdout
    page = _Page()
    page.feed(html)
    assert page.open == []
    assert "script" not in {tag for tag, _ in page.tags}
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    markdown = report(path, "--format", "markdown").stdout
    assert "<script>" not in markdown
    assert r"\| \*b\*" in markdown
    assert r"\$x\_1\$" in report(path, "--format", "latex").stdout


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(article(treatment="in\x1b[31mred"))
    assert "\x1b" not in report(path).stdout


def test_html_needs_nothing_beside_it(file: Path) -> None:
    page = _Page()
    page.feed(report(file, "--format", "html").stdout)
    images = [attrs["src"] or "" for tag, attrs in page.tags if tag == "img"]
    assert len(images) == 2
    assert all(source.startswith("data:image/png;base64,") for source in images)
    assert not {"link", "script", "iframe"} & {tag for tag, _ in page.tags}


def test_output_writes_every_format_and_figure(file: Path, tmp_path: Path) -> None:
    done = report(file, "--output", str(tmp_path / "out"))
    assert done.exit_code == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    figures = {f"{name}.{end}" for name in ("score-by-dim", "paired-differences") for end in ("png", "svg")}
    assert names == {"report.txt", "report.md", "report.html", "report.json", "report.tex"} | figures
    linked = re.findall(r"\]\(([^)]+)\)", (tmp_path / "out" / "report.md").read_text())
    assert set(linked) == {"score-by-dim.png", "paired-differences.png"}


def test_latex_tables_are_balanced(file: Path) -> None:
    text = report(file, "--format", "latex").stdout
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len({line.count(" & ") for line in rows}) == 1


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        (article(1), "cannot_decide"),
        (article(3) + "chunked,0,test/spearman,512,0.1\n", "cannot_decide"),
        (article(3).replace(",0,test", ",7,test"), "undecided_underpowered"),
    ],
    ids=["one-seed", "conflict", "other-seeds"],
)
def test_too_little_is_an_honest_verdict(tmp_path: Path, content: str, verdict: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    done = report(path, "--format", "json", "--primary", "test/spearman_512")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["comparisons"][0]["verdict"] == verdict
    assert report(path).exit_code == 0


def test_one_variant_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("".join(line for line in article().splitlines(keepends=True) if "interleaved" not in line))
    done = report(path)
    assert done.exit_code == 0
    assert "variant" in done.stdout.splitlines()[0]


def test_a_nan_score_drops_its_seed_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(re.sub(r"(chunked,2,test/spearman,512),[\d.]+", r"\1,nan", article()))
    found = json.loads(report(path, "--format", "json", "--primary", "test/spearman_512").stdout)["comparisons"][0]
    assert found["endpoints"][0]["n_pairs"] == 4
    assert any(drop["seed"] == 2 for drop in found["dropped"])


def test_unknown_primary_says_which_exist(file: Path) -> None:
    done = report(file, "--primary", "test/spearman_999")
    assert done.exit_code == 2
    assert "test/spearman_512" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("command", ["report", "export", "power"])
def test_every_command_has_an_example(command: str) -> None:
    assert f"analysis {command}" in CliRunner().invoke(main, [command, "--help"]).stdout.split("Options")[0][30:]


def test_report_never_imports_torch_or_ray(file: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom analysis.cli import main\n"
        f"main(['report', '--results', {str(file)!r}, '--output', {str(tmp_path)!r}], standalone_mode=False)\n"
        "assert not {'torch', 'ray', 'mlflow', 'transformers'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_notebook_shows_the_page(file: Path) -> None:
    shown = analysis.compare(load(results=file))
    assert shown._repr_html_().startswith("<!doctype html>")
    assert shown.headline in str(shown).replace("\n", " ")
    assert set(analysis.__all__) == {"compare", "load"}
    assert callable(analysis.compare)


def test_a_frame_holds_the_reports_numbers(file: Path) -> None:
    results = load(results=file)
    shown = analysis.compare(results)
    frame = shown.to_frame()
    expected = [(c.treatment, e.endpoint, e.mean_difference) for c in shown.findings.comparisons for e in c.endpoints]
    assert [(row.treatment, row.endpoint, row.mean_difference) for row in frame.itertuples()] == expected
    assert {"adjusted_p", "verdict", "ci95_low", "crossed_ci95_high", "n_pairs", "setting"} <= set(frame.columns)
    assert frame[frame.primary].verdict.notna().all()
    assert [len(repr(one).splitlines()) for one in (shown, results)] == [3, 3]


def test_power_names_the_seeds_for_each_win_rate() -> None:
    found = json.loads(CliRunner().invoke(main, ["power", "--format", "json"]).stdout)
    assert [row["seeds"] for row in found["rows"]] == [9, 12, 20, 49]
    assert found["joint_minimum"] == 6


def test_power_from_a_pilot_uses_its_spread(file: Path, tmp_path: Path) -> None:
    words = ["power", "--pilot", str(file), "--effect", "0.002", "--cell-seconds", "3600", "--format", "json"]
    done = CliRunner().invoke(main, [*words, "--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)["rows"][0]
    assert row["device_hours"] == pytest.approx(row["cells"])
    assert (tmp_path / "power-curve.svg").exists()
    assert CliRunner().invoke(main, ["power", "--effect", "0.1"]).exit_code == 2


def test_a_pilots_note_is_said_once(file: Path) -> None:
    words = ["power", "--pilot", str(file), "--effect", "0.002"]
    text = " ".join(CliRunner().invoke(main, words).stdout.split())
    assert text.count("is itself uncertain") == 1


def test_interleaving_keeps_every_role_and_chunking_does_not() -> None:
    assert role("chunked", 20, 32) == ("imaginary", 4)
    assert role("chunked", 20, 64) == ("real", 52)
    assert {role("interleaved", 20, dim) for dim in (32, 64, 128)} == {("real", 21)}
    assert {role("interleaved_swapped", 20, dim) for dim in (32, 64, 128)} == {("imaginary", 21)}
    assert all(not (real and imaginary) for real, imaginary, _ in role_counts("interleaved", (32, 64, 128)))
    spans = [(band.first, band.last) for band in bands("chunked", (32, 64))]
    assert spans == [(0, 15), (16, 31), (32, 63)]


def test_schema_names_are_those_of_the_report(file: Path) -> None:
    found = json.loads(report(file, "--format", "json").stdout)
    for row in found["comparisons"][0]["endpoints"]:
        assert str(schema.parse_endpoint(row["endpoint"])) == row["endpoint"]
