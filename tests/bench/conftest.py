"""At the end of a benchmark run, all its figures as one line of JSON."""

import dataclasses
import json

from tests.bench.report import FIGURES


def pytest_terminal_summary(terminalreporter):
    if FIGURES:
        terminalreporter.section("figures")
        for figure in FIGURES:
            terminalreporter.line(figure.row())
        terminalreporter.line(json.dumps([dataclasses.asdict(figure) for figure in FIGURES]))
