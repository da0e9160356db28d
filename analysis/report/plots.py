"""Figures: each function takes computed results and an Axes, draws, and returns the Axes. Computes no statistic.

Okabe-Ito colours, told apart without colour too: every variant has its own marker and line style.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from analysis.comparing.findings import AcrossEndpoint, EndpointFinding
from analysis.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
HATCHES = ("", "////", "....")
GREY = "#666666"
DPI = 160
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "svg.fonttype": "path",
    "svg.hashsalt": "pairsweep",
}


@dataclass(frozen=True, kw_only=True)
class VariantScores:
    """One variant's scores of one metric in one setting."""

    variant: str
    dims: tuple[int, ...]
    scores: tuple[tuple[float, ...], ...]
    """Per dim, one score per seed."""
    means: tuple[float, ...]
    sds: tuple[float, ...]
    """0 where a single seed has no spread."""


@dataclass(frozen=True, kw_only=True)
class PowerCurve:
    """Power against the number of seeds for one assumed effect."""

    label: str
    seeds: tuple[int, ...]
    power: tuple[float, ...]


def new_figure(
    *, columns: int = 1, rows: int = 1, width: float = 4.4, height: float = 3.3
) -> tuple[Figure, list[Axes]]:
    """A figure of our style with rows x columns Axes; no global state of matplotlib is touched.

    Args:
        columns: Axes side by side.
        rows: Axes above each other.
        width: Inches per Axes.
        height: Inches per Axes.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def score_by_dim(series: Sequence[VariantScores], metric: str, ax: Axes) -> Axes:
    """Score against dim: every seed a small point, the mean a line, one sd a band, per variant."""
    dims = sorted({dim for one in series for dim in one.dims})
    place = {dim: position for position, dim in enumerate(dims)}
    for number, one in enumerate(series):
        colour, marker, line = _look(number)
        shift = 0.12 * (number - (len(series) - 1) / 2)
        x = [place[dim] for dim in one.dims]
        low = [mean - sd for mean, sd in zip(one.means, one.sds, strict=True)]
        high = [mean + sd for mean, sd in zip(one.means, one.sds, strict=True)]
        ax.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
        for edge in (low, high):
            ax.plot(x, edge, color=colour, linewidth=0.5, linestyle=line, alpha=0.7)
        ax.plot(
            x, one.means, color=colour, linestyle=line, linewidth=1.6, marker=marker, markersize=5, label=one.variant
        )
        for position, scores in zip(x, one.scores, strict=True):
            spread = [position + shift] * len(scores)
            ax.plot(spread, scores, marker, color=colour, markersize=2.6, alpha=0.75, markeredgewidth=0)
    _dim_axis(ax, dims)
    ax.set_ylabel(metric)
    ax.legend(frameon=False, loc="best")
    return ax


def paired_differences(endpoints: Sequence[EndpointFinding], treatment: str, baseline: str, ax: Axes) -> Axes:
    """Difference against dim: every seed a point, the mean with its 95% interval beside them.

    The interval is the crossed one (thick) where there is one, else that of the t test (thin, said in the legend).
    """
    dims = [found.dim for found in endpoints]
    ax.axhline(0, color=GREY, linewidth=0.8)
    said: set[str] = set()
    for position, found in enumerate(endpoints):
        up = [value for value in found.differences if value > 0]
        down = [value for value in found.differences if value <= 0]
        for values, colour, marker, label in (
            (up, COLOURS[1], MARKERS[1], f"seed, favours {treatment}"),
            (down, COLOURS[0], MARKERS[0], f"seed, favours {baseline} (or tie)"),
        ):
            named = label if values and label not in said else None
            said |= {label} if values else set()
            ax.plot([position - 0.12] * len(values), values, marker, color=colour, markersize=4, alpha=0.8, label=named)
        if found.mean_difference is None:
            continue
        crossed = found.crossed_ci95
        bounds, label = (crossed, "mean, crossed 95%") if crossed else (found.t_ci95, "mean, 95% by t (seeds only)")
        if bounds is not None:
            ax.plot([position + 0.12] * 2, bounds, color="black", linewidth=2 if crossed else 1, solid_capstyle="butt")
        label = label if bounds is not None else "mean"
        named = None if label in said else label
        said.add(label)
        ax.plot(position + 0.12, found.mean_difference, "D", color="black", markersize=4.5, label=named)
    _dim_axis(ax, dims)
    ax.set_ylabel(f"{treatment} - {baseline}")
    ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.19), fontsize=7.5)  # clear of the points
    return ax


def forest(across: AcrossEndpoint, treatment: str, baseline: str, ax: Axes) -> Axes:
    """Every setting's mean difference with its 95% interval, and their unweighted mean as a diamond below."""
    rows = [row for row in across.rows if row.mean_difference is not None]
    ax.axvline(0, color=GREY, linewidth=0.8)
    for position, row in enumerate(rows):
        bounds = row.crossed_ci95 or row.t_ci95
        if bounds is not None:
            style = "-" if row.crossed_ci95 else ":"
            ax.plot(bounds, [position] * 2, color=COLOURS[0], linewidth=1.4, linestyle=style)
        ax.plot([row.mean_difference or 0.0], [position], MARKERS[1], color=COLOURS[0], markersize=5)
    labels = [f"{row.setting}  ({row.wins}/{row.losses}/{row.ties})" for row in rows]
    bounds = across.crossed.ci95 if across.crossed else across.settings_t_ci95
    if across.mean_difference is not None:
        y, middle = len(rows), across.mean_difference
        low, high = bounds or (middle, middle)
        ax.fill([low, middle, high, middle], [y, y - 0.28, y, y + 0.28], color="black")
        if bounds is None:
            ax.plot(middle, y, "D", color="black", markersize=6)
        labels.append("unweighted mean")
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_xlabel(f"{treatment} - {baseline}, {across.endpoint}\n(solid: crossed 95% interval; dotted: 95% by t)")
    return ax


def variance_components(endpoints: Sequence[EndpointFinding], ax: Axes) -> Axes:
    """Variance of the mean difference by source, one bar per endpoint that has a crossed interval."""
    found = [(one.endpoint, one.crossed) for one in endpoints if one.crossed is not None]
    positions = range(len(found))
    interaction = [parts.interaction_variance_per_seed / parts.n_seeds for _, parts in found]
    # s^2/n holds the interaction as it was sampled; what is left of it is the seeds' own part.
    seeds = [max(parts.seed_variance_of_mean - part, 0.0) for (_, parts), part in zip(found, interaction, strict=True)]
    inside = [min(part, parts.seed_variance_of_mean) for (_, parts), part in zip(found, interaction, strict=True)]
    shared = [parts.shared_example_variance for _, parts in found]
    left = [0.0] * len(found)
    sources = ((shared, "test examples (more seeds do not help)"), (inside, "seed x example"), (seeds, "seeds"))
    for (values, label), colour, hatch in zip(sources, COLOURS[1::-1] + COLOURS[2:3], HATCHES, strict=True):
        ax.barh(positions, values, left=left, color=colour, alpha=0.85, hatch=hatch, edgecolor="white", label=label)
        left = [start + value for start, value in zip(left, values, strict=True)]
    ax.set_yticks(positions, [name for name, _ in found])
    ax.invert_yaxis()
    ax.set_xlabel("variance of the mean difference")
    ax.ticklabel_format(axis="x", style="sci", scilimits=(-3, 3))
    ax.set_ylim(len(found) - 0.4, -0.6)
    ax.figure.legend(frameon=False, loc="outside lower center", ncols=3, fontsize=8)
    return ax


def power_curve(curves: Sequence[PowerCurve], target: float, ax: Axes) -> Axes:
    """Power against the number of seeds, one line per assumed effect, with the wanted power as a line across."""
    for number, curve in enumerate(curves):
        colour, marker, line = _look(number)
        ax.plot(
            curve.seeds, curve.power, color=colour, linestyle=line, marker=marker, markersize=3.5, label=curve.label
        )
    ax.axhline(target, color=GREY, linewidth=0.8)
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel("seeds")
    ax.set_ylabel("power")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False, loc="best")
    return ax


def png(figure: Figure) -> bytes:
    """The figure as PNG; the same figure gives the same bytes."""
    return _rendered(figure, "png")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write `name.png` and `name.svg`.

    Raises:
        OSError: the folder cannot be written.
    """
    out = []
    for ending in ("png", "svg"):
        path = folder / f"{name}.{ending}"
        write_atomically(path, _rendered(figure, ending))
        out.append(path)
    return out


def _rendered(figure: Figure, ending: str) -> bytes:
    stream = io.BytesIO()
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a dollar sign in a name is a dollar sign
    metadata = {"Software": None} if ending == "png" else {"Date": None, "Creator": None}
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; the tables beside it have it in full.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(stream, format=ending, dpi=DPI, metadata=metadata)
    return stream.getvalue()


def _look(number: int) -> tuple[str, str, Any]:
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)], LINES[number % len(LINES)]


def _dim_axis(ax: Axes, dims: Sequence[int]) -> None:
    ax.set_xticks(range(len(dims)), [str(dim) if dim else "" for dim in dims])
    if any(dims):
        ax.set_xlabel("embedding size (dims)")
    ax.set_xlim(-0.4, len(dims) - 0.6)
