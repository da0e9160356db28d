"""`analysis ...`: parse, call, print. What was asked goes alone to stdout, notices to stderr."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from analysis.errors import AnalysisError

if TYPE_CHECKING:
    from analysis.report.report import Format, Report

FORMAT_CHOICES = ("text", "markdown", "html", "json", "latex")


class Commands(click.Group):
    """A group whose known errors are one line and exit code 2, and which an interrupt ends with 130."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except AnalysisError as error:
            raise _OneLine(str(error)) from None
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _OneLine(f"{error.filename or 'file'}: {error.strerror or error}") from None


class _OneLine(click.ClickException):
    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"analysis: {self.message}", file=file, err=file is None)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"pairsweep {metadata.version('pairsweep')}")
        ctx.exit()


def _split_at_commas(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for text in given for part in text.split(",") if part.strip())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Show the version.")
def main() -> None:
    """From recorded results to a verdict: is variant B better than A, at every embedding size?

    \b
    Example:
      analysis report studies/toy.yaml
    """


@main.command()
@click.argument("study", required=False)
@click.option(
    "--tracking-uri", metavar="URI", help="MLflow store; default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."
)
@click.option(
    "--results",
    "results_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read a .parquet (from `analysis export`) or .csv file instead of MLflow.",
)
@click.option("--variant", "variant_column", metavar="COLUMN",
              help="Of a table: the column that tells variants apart, such as params.loss.")  # fmt: skip
@click.option("--seed", "seed_column", metavar="COLUMN", help="Of a table: the column of the seeds.")
@click.option("--setting", "settings", metavar="COLUMN", multiple=True, callback=_split_at_commas,
              help="Of a table: a column that is part of the setting; may be repeated.")  # fmt: skip
@click.option("--metric", "metrics", metavar="COLUMN", multiple=True, callback=_split_at_commas,
              help="Of a table: a column of scores, the primary one first; may be repeated.")  # fmt: skip
@click.option("--dim", metavar="REGEX|COLUMN",
              help="Of a table: the column of dims, or what takes it out of a metric's name: '_(\\d+)$'.")  # fmt: skip
@click.option("--average-over", metavar="COLUMN", multiple=True, callback=_split_at_commas,
              help="Of a table: average a seed's rows over this column, such as episode or fold.")  # fmt: skip
@click.option("--baseline", metavar="VARIANT", help="Compare with this variant instead of the declared baseline.")
@click.option("--variants", multiple=True, callback=_split_at_commas, metavar="V,...",
              help="Only these; mine@1 is revision 1 of mine. Default: all, as the study file means them.")  # fmt: skip
@click.option(
    "--primary",
    multiple=True,
    callback=_split_at_commas,
    metavar="ENDPOINT",
    help="Primary endpoint, such as test/spearman_256; may be repeated. Default: the declared ones.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMAT_CHOICES),
    default="text",
    show_default=True,
    help="What goes to stdout.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also write the report in every format, and its figures (PNG, SVG), into this folder.",
)
@click.option(
    "--allow-unverified",
    is_flag=True,
    help="Use pairs whose fingerprints are absent or disagree; the report says so on top.",
)
@click.option("--lower-is-better", multiple=True, callback=_split_at_commas, metavar="METRIC",
              help="A metric of which less is better, such as test/loss; may be repeated.")  # fmt: skip
@click.option("--all-pairs", is_flag=True, help="With three variants or more: also compare all pairs (Holm).")
@click.option("--full", is_flag=True, help="Text only: every table, as in the other formats.")
@click.option("--log", "attach", is_flag=True, help="Attach the report's files to the study run in MLflow.")
def report(
    study: str | None,
    tracking_uri: str | None,
    results_file: Path | None,
    kind: Format,
    output: Path | None,
    full: bool,
    attach: bool,
    variant_column: str | None,
    seed_column: str | None,
    settings: tuple[str, ...],
    metrics: tuple[str, ...],
    dim: str | None,
    average_over: tuple[str, ...],
    **asked: Any,
) -> None:
    """Compare the variants of STUDY (a study file or an experiment's name) and say what was found.

    \b
    Examples:
      analysis report studies/toy.yaml
      analysis report my-study --format html > report.html
      analysis report --results scores.csv --baseline chunked --output report/
      analysis report --results runs.csv --variant params.loss --seed params.seed --metric metrics.test_acc
    """
    from analysis.report.report import Question, note, report_on_results, report_on_study
    from analysis.results.column_map import ColumnMap
    from analysis.results.load import STUDY_SUFFIXES, load_file, meant_by, study_name

    question = Question(**asked)
    columns = ColumnMap(
        variant=variant_column,
        seed=seed_column,
        settings=settings,
        metrics=metrics,
        dim=dim,
        average_over=average_over,
    )
    _one_source(study, results_file, tracking_uri)
    if columns and results_file is None:
        raise click.UsageError("--variant, --seed and the like say what a table's columns are: give --results FILE.")
    if results_file is not None:
        if attach:
            raise click.UsageError("--log attaches to an MLflow study; it does not go with --results.")
        name = None if study is None else study_name(study)
        made = report_on_results(load_file(results_file, name, columns), question)
    else:
        meant = meant_by(str(study))
        made = report_on_study(study_name(study or ""), question, tracking_uri, _progress, meant=meant)
        if Path(str(study)).suffix.lower() in STUDY_SUFFIXES:
            made = made.beside_file(Path(str(study)))
    _print_report(made, kind, full=full)
    if made.origin is not None and (moved := made.origin.moved()):
        click.echo(f"note: {moved}", err=True)
    if output is not None:
        written = made.write(output)
        click.echo(f"wrote {len(written)} files to {output}", err=True)
    if made.origin is not None:
        sys.stdout.flush()
        try:
            note(made, attach=attach)
        except AnalysisError as error:
            click.echo(f"this report could not be noted on the study run: {error}", err=True)


@main.command()
@click.option(
    "--results",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Read a .parquet (from `analysis export`) or .csv file instead of MLflow; may be repeated.",
)
@click.option(
    "--tracking-uri", metavar="URI", help="MLflow store; default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."
)
@click.argument("studies", nargs=-1, metavar="[STUDY]...")
@click.option(
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="FILE.parquet (everything a report needs) or FILE.csv (scores only).",
)
def export(studies: tuple[str, ...], tracking_uri: str | None, files: tuple[Path, ...], output: Path) -> None:
    """Write the results of STUDY to a file that `analysis report --results` reads without MLflow.

    Several studies of the same variants are written together: what differs between them becomes a setting.

    \b
    Examples:
      analysis export my-study --output my-study.parquet
      analysis export on-jsts on-stsb --output both.parquet
    """
    from analysis.results.load import load
    from analysis.results.merging import together
    from analysis.results.parquet import export_results

    if not studies and not files:
        raise click.UsageError("Give STUDY (a study file or an experiment's name), or --results FILE.")
    if tracking_uri is not None and not studies:
        raise click.UsageError("--results reads a file and --tracking-uri a store: give one of them.")
    found = [load(study, tracking_uri=tracking_uri) for study in studies]
    found += [load(results=file) for file in files]
    for line in export_results(together(found), output):
        click.echo(line, err=True)


@main.command()
@click.option(
    "--win-rate",
    "win_rates",
    type=click.FloatRange(0.5, 1, min_open=True),
    multiple=True,
    help="Assumed share of seeds that the better variant wins; may be repeated.",
)
@click.option("--effect", type=float, help="Smallest difference that would matter, in units of the score.")
@click.option("--sd", type=click.FloatRange(0, min_open=True), help="Standard deviation of paired differences.")
@click.option("--shared-sd", type=click.FloatRange(0), default=0.0, help="Sd that the shared test examples add to it.")
@click.option("--pilot", metavar="STUDY|FILE", help="Take the sd from a recorded study or a results file.")
@click.option("--endpoints", type=click.IntRange(1), default=1, show_default=True, help="Primary endpoints.")
@click.option(
    "--comparisons", type=click.IntRange(1), default=1, show_default=True, help="Treatments compared with the baseline."
)
@click.option("--settings", type=click.IntRange(1), default=1, show_default=True, help="Settings (for the cost).")
@click.option("--alpha", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True,
              help="Error rate of the two-sided tests.")  # fmt: skip
@click.option(
    "--power",
    "wanted",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.8,
    show_default=True,
    help="Wanted power.",
)
@click.option("--cell-seconds", type=click.FloatRange(0, min_open=True), help="Seconds of one cell, for the cost.")
@click.option("--from", "times_from", metavar="STUDY|FILE", help="Take the cells' times from a recorded study.")
@click.option(
    "--devices",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Devices that one cell holds (may be a fraction).",
)
@click.option("--tracking-uri", metavar="URI", help="MLflow store of --pilot and --from.")
@click.option("--format", "kind", type=click.Choice(("text", "markdown", "json")), default="text", show_default=True,
              help="What goes to stdout.")  # fmt: skip
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the power curve (PNG, SVG) into this folder.",
)
def power(kind: str, output: Path | None, tracking_uri: str | None, **asked: Any) -> None:
    """Seeds needed before any are run: by win rate, by effect and spread, or from a pilot.

    \b
    Examples:
      analysis power
      analysis power --win-rate 0.9 --endpoints 5 --cell-seconds 1200
      analysis power --pilot my-study --effect 0.002
    """
    from analysis.power_report import PowerQuestion, answer

    found = answer(PowerQuestion(**asked), tracking_uri)
    click.echo(found.render(kind), nl=False)
    if output is not None:
        for path in found.write_figure(output):
            click.echo(f"wrote {path}", err=True)


def _one_source(study: str | None, results_file: Path | None, tracking_uri: str | None) -> None:
    if study is None and results_file is None:
        raise click.UsageError("Give STUDY (a study file or an experiment's name), or --results FILE.")
    if results_file is not None and tracking_uri is not None:
        raise click.UsageError("--results reads a file and --tracking-uri a store: give one of them.")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"{text} ...", err=True)


def _print_report(made: Report, kind: Format, *, full: bool) -> None:
    from analysis.report.text import wants_colour

    colour = kind == "text" and wants_colour()
    click.echo(made.render(kind, colour=colour, full=full), nl=False, color=colour or None)


if __name__ == "__main__":
    main()
