"""The `sweep` command: parse, call, print. Whatever is heavy is imported by the command that needs it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analysis.showing import hide_credentials
from sweep.console import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from sweep.study import Study

URI_HELP = "MLflow tracking store. Default: MLFLOW_TRACKING_URI, else mlflow.db in the current folder."

study_argument = click.argument("study", metavar="STUDY", type=click.Path(path_type=Path))
uri_option = click.option("--tracking-uri", metavar="URI", help=URI_HELP)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")


def seeds_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--seeds 7` or `--seeds 0,1,5`."""
    text = "How many seeds, or a list such as 0,1,5; instead of the study file's."
    return click.option("--seeds", metavar="N", callback=_read_seeds, help=text)(function)


def _read_seeds(context: click.Context, option: click.Parameter, value: str | None) -> int | list[int] | None:
    if value is None:
        return None
    try:
        numbers = [int(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not valid; expected a count, such as 7, or a list, such as 0,1,5"
        ) from None
    if "," not in value:
        if numbers[0] < 1:
            raise click.BadParameter(f"{value!r} is not valid; expected at least one seed")
        return numbers[0]
    return numbers


def launch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a launch, here or on a cluster; none of them changes what a cell is."""
    for option in reversed(
        (
            seeds_option,
            click.option("--max-concurrent", metavar="K", type=click.IntRange(1), help="At most K cells at once."),
            click.option("--retries", metavar="R", type=click.IntRange(0), default=2, show_default=True,
                         help="Retries of a cell that the infrastructure lost."),
            click.option("--retry-failed", is_flag=True, help="Train again what failed by itself."),
            click.option("--accept-changes", is_flag=True, help="Extend a study although recorded cells changed."),
            click.option("--rerun", metavar="CELL", multiple=True, help="Train this cell again; may be repeated."),
            uri_option,
        )
    ):  # fmt: skip
        function = option(function)
    return function


def _study(path: Path, seeds: int | Sequence[int] | None = None) -> Study:
    from sweep.study import load_study

    study = load_study(path)
    if seeds is None:
        return study
    try:
        chosen = study.with_seeds(seeds)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--seeds") from None
    if study.search is not None and (shared := sorted(set(study.search.seeds) & set(chosen.seeds))):
        allowed = f"the search uses seed {shared[0]}; the comparison needs seeds that it has not seen"
        raise click.BadParameter(allowed, param_hint="--seeds")
    return chosen


def _uri(given: str | None) -> str:
    from sweep.record.tracking_uri import default_uri

    return given or default_uri()


def _notice(lines: Sequence[str], prefix: str = "warning: ") -> None:
    for line in lines:
        click.echo(hide_credentials(f"{prefix}{line}"), err=True)


class _Commands(click.Group):
    """Turns what users can do wrong into one line and an exit code; lists commands in the order of their use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        from sweep.errors import SweepError

        try:
            return super().main(*args, **kwargs)
        except SweepError as error:
            click.echo(_told(error), err=True)
            sys.exit(error.exit_code)
        except Exception as error:
            if not _is_input_error(error):
                raise
            click.echo(_told(error), err=True)
            sys.exit(2)


def _told(error: Exception) -> str:
    from sweep.files import home_hint

    return hide_credentials(f"sweep: {error}{home_hint(str(error))}")


def _is_input_error(error: Exception) -> bool:
    """Errors about the user's input that come from the other packages, told without importing these."""
    errors = [getattr(sys.modules.get(module), name, None) for module, name in _INPUT_ERRORS]
    return isinstance(error, tuple(kind for kind in errors if isinstance(kind, type)))


_INPUT_ERRORS = (("trainables.errors", "InputError"), ("analysis.errors", "AnalysisError"))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="pairsweep", message="pairsweep %(version)s")
def main() -> None:
    """Run a study: every variant x seed x setting is one cell, trained and recorded once.

    \b
    Example:
      sweep init --name my-study
      sweep plan my-study.yaml
      sweep run my-study.yaml
      analysis report my-study.yaml
    """


@main.command(short_help="Write a commented study file from flags.")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="Name of the study. Default: the file's name.")
@click.option("--model", default="toy", show_default=True, help="Hub id, local folder, toy or toy-random.")
@click.option("--data", default="toy", show_default=True, help="jsts, stsb-en, toy, or a hub dataset.")
@click.option("--train", metavar="FILE", help="Your own training pairs, instead of --data.")
@click.option("--validation", metavar="FILE", help="Your own validation pairs.")
@click.option("--test", metavar="FILE", help="Your own test pairs.")
@click.option("--columns", metavar="OURS=YOURS,...", help="Such as sentence1=a,sentence2=b,label=score.")
@click.option("--label-range", metavar="LOW,HIGH", help="Lowest and highest label of your own data, such as 0,5.")
@click.option(
    "--variants",
    "--variant",
    multiple=True,
    metavar="V,...",
    help="chunked, interleaved, interleaved_swapped, cosent, cosine, or LABEL=LOSS. "
    "Default: chunked,interleaved. The first is the baseline.",
)
@click.option("--dims", metavar="D,...", help="Embedding sizes. Default: 16,32,64 for toy, else 32,64,128,256.")
@click.option("--seeds", type=click.IntRange(1, 10_000), default=6, show_default=True, help="How many seeds.")
@click.option("--cpus", type=click.IntRange(1), default=1, show_default=True, help="Processor cores of a cell.")
@click.option(
    "--gpus", type=click.FloatRange(0), default=0.0, show_default=True, help="GPUs of a cell; may be a fraction."
)
def init(file: Path | None, **flags: Any) -> None:
    """Write a commented study file to start from. Never overwrites a file.

    \b
    Example:
      sweep init --name my-study --model toy --data toy --variants chunked,interleaved,cosent
    """
    from sweep.study.template import Wanted, write_study_file

    path = write_study_file(file, Wanted(**flags))
    click.echo(str(path))
    click.echo(f"next: sweep plan {path}", err=True)


@main.command(short_help="Validate a study file, its data, model and losses.")
@study_argument
@json_option
@uri_option
def check(study: Path, as_json: bool, tracking_uri: str | None) -> None:
    """Validate a study file, its data columns and labels, model configuration, losses and tracking store.

    \b
    Example:
      sweep check my-study.yaml
    """
    import json

    from sweep.errors import SweepError
    from sweep.run import preflight
    from sweep.study.warnings import study_warnings

    warnings: list[str] = []
    try:
        loaded = _study(study)
        warnings += study_warnings(loaded)
        warnings += preflight.check_study(loaded, on_progress=lambda line: None)
        warnings += preflight.unresolved_notices(preflight.planned_cells(loaded))
        preflight.check_tracking(_uri(tracking_uri))
    except SweepError as error:
        if not as_json:
            raise
        click.echo(json.dumps({"study": str(study), "valid": False, "error": str(error), "warnings": warnings}))
        sys.exit(error.exit_code)
    if as_json:
        click.echo(json.dumps({"study": loaded.name, "valid": True, "error": None, "warnings": warnings}))
        return
    _notice(warnings)
    cells = len(loaded.specs) * len(loaded.seeds)
    click.echo(f"{study}: valid, {cells} cells")


@main.command(short_help="Show cells, states, cost and warnings; runs nothing.")
@study_argument
@json_option
@launch_options
def plan(
    study: Path,
    seeds: int | Sequence[int] | None,
    as_json: bool,
    tracking_uri: str | None,
    rerun: tuple[str, ...],
    **checked: Any,
) -> None:
    """Show the cells in the order they would run, their states and cost, and what to know before. Runs nothing.

    Takes the options of `sweep run` and checks them alike.

    \b
    Example:
      sweep plan my-study.yaml
    """
    from sweep.run.preflight import check_tracking

    loaded = _study(study, seeds)
    check_tracking(_uri(tracking_uri))
    _show(loaded, tracking_uri, as_json, with_cost=True, rerun=rerun)


@main.command(short_help="Show how far a study is.")
@study_argument
@json_option
@uri_option
def status(study: Path, as_json: bool, tracking_uri: str | None) -> None:
    """Show how far a study is: finished, running, failed and why, stale, to run.

    \b
    Example:
      sweep status my-study.yaml
    """
    _show(_study(study), tracking_uri, as_json, with_cost=False)


def _show(study: Study, tracking_uri: str | None, as_json: bool, *, with_cost: bool, rerun: Sequence[str] = ()) -> None:
    from sweep.status import counts, print_table, status_json, study_status

    found = study_status(study, _uri(tracking_uri))
    if rerun:
        from sweep.run.launch import cells_to_rerun

        cells_to_rerun([status.cell for status in found.statuses], rerun)
    if as_json:
        click.echo(status_json(found))
        return
    print_table(found.study, found.statuses)
    click.echo(f"{study.name}: {counts(found.statuses)} (* baseline)")
    if found.sequential is not None:
        from sweep.run.sequential import state_lines

        for line in state_lines(found.study, found.sequential):
            click.echo(line)
    for line in found.cost.lines():
        click.echo(line)
    if with_cost:
        click.echo(str(found.cost))
        if found.disk_use is not None:
            click.echo(found.disk_use)
    _notice(found.warnings)


@main.command(short_help="Train and record the cells that are not finished yet.")
@study_argument
@launch_options
@click.option("--address", metavar="ADDRESS", help="Ray cluster to join. Default: RAY_ADDRESS, else this machine.")
def run(
    study: Path, seeds: int | Sequence[int] | None, tracking_uri: str | None, address: str | None, **options: Any
) -> None:
    """Train the cells that are not finished yet, and record them.

    The same command continues after anything: more seeds, a crash, Ctrl-C.
    Exit code: 0 all finished, 1 some cells failed, 2 wrong use or file, 130 interrupted.

    \b
    Example:
      sweep run my-study.yaml --seeds 7 --max-concurrent 2
    """
    from sweep.on_ray.ray_backend import RayBackend
    from sweep.run.launch import RunOptions
    from sweep.run.run_study import run_study

    how = RunOptions(tracking_uri=_uri(tracking_uri), **options)
    sys.exit(run_study(_study(study, seeds), RayBackend(address), how))


@main.command(short_help="Run a study as a job on a Ray cluster.")
@study_argument
@click.option("--address", metavar="URL", help="Dashboard of the cluster, such as http://HOST:8265.")
@click.option("--list", "only_list", is_flag=True, help="Show what would leave this machine, and send nothing.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Follow the job until it ends.")
@launch_options
def submit(study: Path, address: str | None, only_list: bool, wait: bool, **options: Any) -> None:
    """Run a study as a job on a Ray cluster, and follow it.

    The tracking store is the one that the cluster's head knows, unless --tracking-uri names another.

    \b
    Example:
      sweep submit my-study.yaml --address http://localhost:8265 --no-wait
      sweep submit my-study.yaml --list
    """
    loaded = _study(study, options["seeds"])
    if only_list:
        from sweep.on_ray.shipping import shipment_of

        shipment = shipment_of(loaded)
        for line in shipment.lines():
            click.echo(line)
        _notice(shipment.left_out, prefix="not shipped: ")
        return
    if address is None:
        raise click.UsageError("Missing option '--address'.")
    from sweep.on_ray.submit import submit_study

    sys.exit(submit_study(loaded, address=address, wait=wait, run_options=_as_arguments(options)))


def _as_arguments(options: dict[str, Any]) -> list[str]:
    """Options of a launch as the arguments that give them again."""
    out: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            out.append(flag)
        elif isinstance(value, tuple):
            out += [part for one in value for part in (flag, one)]
        elif value is not None and value is not False:
            out += [flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return out


@main.command(short_help="Take recorded cells out of sight, or bring them back.")
@study_argument
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--undo", is_flag=True, help="Bring retired cells back; without NAME all of them.")
@uri_option
def retire(study: Path, names: tuple[str, ...], undo: bool, tracking_uri: str | None) -> None:
    """Take recorded cells out of sight: of a revision (mine@1), a variant (mine) or one seed (mine:3).

    Reports, status and sweeps then act as if they had never run. MLflow keeps them among its deleted runs.

    \b
    Example:
      sweep retire my-study.yaml mine@1
      sweep retire my-study.yaml --undo
    """
    from sweep.retire import retire as retire_cells

    if not names and not undo:
        raise click.UsageError("Give what to retire, such as mine@1, or --undo.")
    for line in retire_cells(_study(study), names, tracking_uri=_uri(tracking_uri), undo=undo):
        click.echo(line)


@main.command(short_help="Search with the same budget for every variant.")
@study_argument
@click.option("--max-concurrent", metavar="K", type=click.IntRange(1), help="At most K trainings at once.")
@click.option("--retries", metavar="R", type=click.IntRange(0), default=2, show_default=True,
              help="Retries of a training that the infrastructure lost.")  # fmt: skip
@click.option("--address", metavar="ADDRESS", help="Ray cluster to join. Default: RAY_ADDRESS, else this machine.")
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path),
              help="The frozen study. Default: x.tuned.yaml beside x.yaml.")  # fmt: skip
@uri_option
def tune(study: Path, tracking_uri: str | None, address: str | None, **options: Any) -> None:
    """Search training fields for every variant with the same budget, then freeze the chosen settings.

    The same command continues after anything. Exit code: 0 frozen, 1 a training could not be done or all trials of a
    variant failed, 2 wrong use or file, 130 interrupted.

    \b
    Example:
      sweep tune my-study.yaml
      sweep run my-study.tuned.yaml
    """
    from sweep.on_ray.ray_backend import RayBackend
    from sweep.tune.tune import tune as search

    sys.exit(search(_study(study), RayBackend(address), tracking_uri=_uri(tracking_uri), **options))


@main.command(short_help="Remove scratch files of finished cells.")
@study_argument
@uri_option
def clean(study: Path, tracking_uri: str | None) -> None:
    """Remove scratch files of finished cells. Records are kept.

    \b
    Example:
      sweep clean my-study.yaml
    """
    from sweep.clean import clean_study

    sys.exit(clean_study(_study(study), tracking_uri=_uri(tracking_uri)))


@main.command(short_help="Mend a study whose folder was moved or copied.")
@study_argument
@click.option("--artifacts", metavar="FOLDER", type=click.Path(file_okay=False, exists=True, path_type=Path),
              help="Where the runs' files lie now. Default: mlruns beside the database.")  # fmt: skip
@uri_option
def relocate(study: Path, artifacts: Path | None, tracking_uri: str | None) -> None:
    """Record where the files of a study's runs lie now, in a SQLite store that was moved or copied.

    `sweep run` does this by itself where they lie beside the database.

    \b
    Example:
      sweep relocate my-study.yaml
      sweep relocate my-study.yaml --artifacts /backup/mlruns
    """
    from sweep.record.relocate import relocate as record_place

    click.echo(record_place(_study(study).name, _uri(tracking_uri), artifacts), err=True)


if __name__ == "__main__":
    main()
