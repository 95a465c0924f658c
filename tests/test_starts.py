"""A start imports what it needs: the rest comes with its first use, or once all is ready."""

import subprocess
import sys

import pytest

RARE = (
    "policyd.cli.questions",
    "policyd.cli.operating",
    "policyd.cli.planning",
    "policyd.cli.doctor",
)
FORECASTS = ("policyd.forecast", "policyd.simulate")
ANSWERS = ("policyd.admission.verdicts", "policyd.snapshot.dry_run", "policyd.snapshot.facts")
BIG = ("kubernetes", "matplotlib", "numpy", "ortools", "pandas", "pygments", "ray")
LATER = (*RARE, *FORECASTS, *ANSWERS, *BIG)


@pytest.mark.parametrize(
    ("program", "later"),
    [
        pytest.param(
            "webhooks.__main__",
            (
                *LATER,
                "rich",
                "policyd.alloc.state",
                "policyd.controller",
                "policyd.local",
                "policyd.optimize",
            ),
            id="webhooks",
        ),
        pytest.param(
            "policyd.cli.controller",
            (*LATER, "rich", "policyd.cel", "policyd.engine.compile", "policyd.local", "webhooks"),
            id="controller",
        ),
        pytest.param("policyd.cli.up", LATER, id="up"),
        *(
            pytest.param(
                f"policyd.cli.questions.{question}",
                ("policyd.cel", "policyd.dialects", "policyd.engine.compile", "uvicorn", *BIG),
                id=question,
            )
            for question in ("queue", "quota", "why", "job", "priority", "events", "top")
        ),
    ],
)
def test_a_start_does_not_import_what_is_needed_later(program, later):
    script = f"import sys, {program}; print(*sys.modules)"
    listed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()

    assert program in listed
    assert [name for name in listed if f"{name}.".startswith(tuple(f"{m}." for m in later))] == []
