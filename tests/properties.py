"""Try what must always hold of the core with many examples each, on every processor.

    python -m tests.properties 10000 [WORDS]

Prints a line for each property, and what fails; ends with 1 if one fails or tried too few examples.
"""

import os
import re
import sys
import time

import pytest

FOLDERS = ("tests/alloc", "tests/optimize", "tests/simulate")
_STYLE = "-o console_output_style=classic"
_TRIED = re.compile(r"(\d+) passing, (\d+) failing")


class Table:
    """What has become of every property, told as soon as it is known."""

    def __init__(self, wanted):
        self.wanted, self.properties, self.examples, self.wrong = wanted, 0, 0, 0
        self._outcomes = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report):
        """Leave out the dot."""
        return (report.outcome, "", "") if report.when == "call" else None

    def pytest_runtest_logreport(self, report):
        if report.when == "call":
            self._outcomes[report.nodeid] = report
        if report.when == "teardown":
            self._print_outcome(self._outcomes[report.nodeid], *tried(report))

    def _print_outcome(self, report, passing, failing):
        found = "ok"
        if not report.passed:
            found = "FAILED"
        elif passing < self.wanted:
            found = "TOO FEW"
        self.properties += 1
        self.examples += passing + failing
        self.wrong += found != "ok"
        print(
            f"{found:8}{passing + failing:7} examples {failing:3} failures"
            f" {report.duration:6.0f} s  {report.nodeid.replace('tests/', '', 1)}",
            flush=True,
        )


def tried(report):
    """Return how many examples passed and failed, by Hypothesis' own statistics."""
    phases = _TRIED.findall(vars(report).get("_hypothesis_stats", ""))
    return sum(int(passing) for passing, _ in phases), sum(int(failing) for _, failing in phases)


def main(arguments):
    wanted, words = int(arguments[0]), " ".join(arguments[1:])
    os.environ["EXAMPLES"] = str(wanted)  # for the profile, in every process
    table, started = Table(wanted), time.monotonic()
    options = f"-m hypothesis --hypothesis-profile=thorough -n auto --maxschedchunk=1 -q {_STYLE}"
    code = pytest.main([*FOLDERS, *options.split(), "-k", words], plugins=[table])
    print(
        f"{table.properties} properties, {table.examples} examples,"
        f" {time.monotonic() - started:.0f} s: {table.wrong} wrong"
    )
    return 1 if table.wrong or code else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
