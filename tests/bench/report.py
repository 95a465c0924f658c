"""Figures of a benchmark run: a table row each as they come, and JSON of all at the end."""

from dataclasses import dataclass

FIGURES: list["Figure"] = []


@dataclass(frozen=True)
class Figure:
    """One measured number; `goal` is the most it should be, None if it is for information."""

    name: str
    value: float
    unit: str
    goal: float | None = None

    def row(self) -> str:
        goal = "" if self.goal is None else f"goal {self.goal:g} {self.unit}"
        verdict = "" if self.goal is None else ("ok" if self.value <= self.goal else "OVER")
        return f"{self.name:<58} {self.value:>12,.1f} {self.unit:<8} {goal:<18} {verdict}"


def report(name: str, value: float, unit: str, goal: float | None = None) -> Figure:
    """Print a table row, and keep the figure for the JSON at the end of the run."""
    figure = Figure(name, value, unit, goal)
    FIGURES.append(figure)
    print(figure.row())
    return figure
