"""A simulation as a picture: GPUs over time, waits by size, and which GPUs each team held when."""

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from policyd.cli.planning.extras import extra
from policyd.errors import PolicydError
from policyd.simulate.trace_runs import TraceFigures, TraceRuns, bars, used_over_time

SUFFIXES: Final = frozenset({".svg", ".png"})

_PARTS: Final = 400
"""Points of the curve of used GPUs."""

_MOST_SHAPES: Final = 5_000
"""Bars that an SVG file has as shapes; more are an image in it."""

_HOUR: Final = 3_600


class ChartFile:
    """A picture in a file, drawn by matplotlib."""

    def __init__(self, file: str) -> None:
        """Prepare, so that errors come before the work that the picture shows.

        Args:
            file: Where to write it; its suffix is the format.

        Raises:
            PolicydError: If the format is unknown, or matplotlib is not installed.
        """
        self._file = Path(file)
        if self._file.suffix.lower() not in SUFFIXES:
            raise PolicydError(f"`{file}` is not a name of a chart", hint="it ends in .svg or .png")
        if not self._file.absolute().parent.is_dir():
            raise PolicydError(f"`{self._file.parent}` is not a folder")
        self._matplotlib = extra("matplotlib", "plots", "charts")
        # Names in charts are from others: a `$` in one begins no formula.
        self._matplotlib.rcParams["text.parse_math"] = False
        self._figure: Any = extra("matplotlib.figure", "plots", "charts").Figure

    def blank(self, width: float, height: float) -> Any:  # noqa: ANN401 - matplotlib has no types
        """Return a figure of a size in inches."""
        return self._figure(figsize=(width, height), layout="constrained")

    def write(self, figure: Any) -> None:  # noqa: ANN401
        """Write a figure; the same figure always gives the same file."""
        suffix = self._file.suffix.lower()[1:]
        metadata = {"Date": None} if suffix == "svg" else {}
        with self._matplotlib.rc_context({"svg.hashsalt": "policyd"}):
            figure.savefig(self._file, format=suffix, dpi=120, metadata=metadata)


class Chart(ChartFile):
    """A picture of a simulation."""

    def draw(self, runs: TraceRuns, found: TraceFigures) -> None:
        """Write the picture; the same simulation always gives the same file."""
        figure = self.blank(11, 10)
        used, waits, gantt = figure.subplots(3, height_ratios=(2, 2, 4))
        begin = min((run.job.at for run in runs.runs.values()), default=0.0)
        colors = self._colors(found.by_team)
        _draw_used(used, runs, found, begin)
        _draw_waits(waits, found)
        _draw_bars(gantt, runs, colors, begin)
        self.write(figure)

    def _colors(self, teams: Mapping[str, object]) -> dict[str, Any]:
        known = self._matplotlib.colormaps["tab20"].colors
        return dict(zip(teams, cycle(known), strict=False))


def _draw_used(axes: Any, runs: TraceRuns, found: TraceFigures, begin: float) -> None:  # noqa: ANN401
    until = max(runs.now, begin + 1.0)
    used = used_over_time(runs.runs.values(), until=until, parts=_PARTS, begin=begin)
    width = (until - begin) / _PARTS
    times = [(number + 0.5) * width / _HOUR for number in range(_PARTS)]
    axes.fill_between(times, used, step="mid", alpha=0.6, label="held")
    axes.axhline(found.gpus, color="black", linewidth=0.8, label="quota")
    axes.set(
        title=f"utilization {100 * found.utilization:.1f} %, load {100 * found.load:.1f} %",
        ylabel="GPUs",
        xlim=(0, (until - begin) / _HOUR),
        ylim=(0, None),
    )
    axes.legend(loc="upper right")


def _draw_waits(axes: Any, found: TraceFigures) -> None:  # noqa: ANN401
    parts = {"all": found.waits, **found.by_size}
    shown = {"mean": -0.25, "median": 0.0, "p90": 0.25}
    for name, shift in shown.items():
        places = [number + shift for number in range(len(parts))]
        heights = [(getattr(each, name) or 0.0) / _HOUR for each in parts.values()]
        axes.bar(places, heights, width=0.25, label=name)
    axes.set_xticks(
        range(len(parts)), [f"{name} GPUs" if name != "all" else name for name in parts]
    )
    axes.set(title="waits by size", ylabel="hours")
    axes.legend(loc="upper left")


def _draw_bars(axes: Any, runs: TraceRuns, colors: Mapping[str, Any], begin: float) -> None:  # noqa: ANN401
    found = list(bars(runs))
    image = len(found) > _MOST_SHAPES
    for team, color in colors.items():
        own = [bar for bar in found if bar.team == team]
        axes.barh(
            [bar.row + bar.rows / 2 for bar in own],
            [(bar.end - bar.begin) / _HOUR for bar in own],
            left=[(bar.begin - begin) / _HOUR for bar in own],
            height=[bar.rows for bar in own],
            color=color,
            edgecolor="none" if image else "white",
            linewidth=0.3,
            label=team,
            rasterized=image,
        )
    until = max(runs.now - begin, 1.0) / _HOUR
    axes.set(title="GPUs that each team held", xlabel="hours", ylabel="GPUs", xlim=(0, until))
    axes.legend(loc="upper right", fontsize="small", ncols=2)
