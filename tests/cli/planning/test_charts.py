"""Charts of simulations, and packages that only some commands need."""

import sys
import xml.etree.ElementTree as ET

import pytest

from tests.cli.planning.test_trace_command import CSV, simulate

INSTALL = "the extra `plots` is not installed: pip install 'policyd[plots]'"


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text(CSV)
    return file


def test_an_extra_that_is_not_installed_is_one_sentence(trace, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    done = simulate("--trace", trace, "--gpus", 8, "--chart", "a.svg")

    assert done.exit_code == 2
    assert done.output == "error: charts need the extra `plots`: pip install 'policyd[plots]'\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("a.pdf", "`a.pdf` is not a name of a chart", id="format"),
        pytest.param("no/where/a.svg", "`no/where` is not a folder", id="folder"),
    ],
)
def test_a_chart_that_cannot_be_written_is_refused_before_the_simulation(trace, name, message):
    done = simulate("--trace", trace, "--gpus", 8, "--chart", name)

    assert done.exit_code == 2
    assert message in done.stderr
    assert not done.stdout


def test_a_chart_shows_teams_and_sizes_and_is_always_the_same(trace, tmp_path):
    pytest.importorskip("matplotlib", reason=INSTALL)
    once, again = tmp_path / "once.svg", tmp_path / "again.svg"

    for file in (once, again):
        assert simulate("--trace", trace, "--gpus", 12, "--chart", file).exit_code == 0

    assert once.read_bytes() == again.read_bytes()
    svg = once.read_text()
    assert ET.fromstring(svg).tag.endswith("svg")
    assert all(f"<!-- {word} -->" in svg for word in ("vision", "speech", "8+ GPUs", "hours"))


def test_a_chart_may_be_an_image(trace, tmp_path):
    pytest.importorskip("matplotlib", reason=INSTALL)
    file = tmp_path / "a.png"

    assert simulate("--trace", trace, "--gpus", 12, "--chart", file).exit_code == 0
    assert file.read_bytes().startswith(b"\x89PNG")
