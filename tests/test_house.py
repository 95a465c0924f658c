"""The figures of `make house`: how they are counted, and that those that are met stay met."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from policyd.api.quantity import parse_quantity
from tests import house, house_ways

UNMET = {
    "lines of the product",
}
"""What is not met yet. A figure that is met once leaves this list for good."""

SOURCES = {
    "policyd/engine/one.py": (
        '"""One."""\n\nimport policyd.engine.two\n\n\nclass Same:\n    """A class."""\n'
    ),
    "policyd/engine/two.py": "from policyd.engine import three\n\n\nclass Same:\n    x = 1\n",
    "policyd/engine/three.py": "NAMES = [\n" + '    "a",\n' * 50 + "]\n",
    "policyd/engine/__init__.py": "",
    "policyd/controller/__init__.py": "__all__ = [\n" + '    "a",\n' * 50 + "]\n",
    "policyd/alloc/core.py": "def f() -> int:\n    return len(\n        'a'\n    )\n",
    "webhooks/__init__.py": "from policyd.engine.three import NAMES\n",
}


def small_product(tmp_path):
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return house.modules(tmp_path)


def test_figures_are_read_from_the_sources(tmp_path):
    found = small_product(tmp_path)
    now = {figure.name: figure.now for figure in house.figures(found)}

    assert now == {
        "folders": 4,
        "files": 7,
        "lines of the product": 7 + 5 + 52 + 52 + 4 + 1,
        "code lines": 2 + 3 + 51 + 51 + 3 + 1,
        "functions": 1,
        "lines of alloc": 4,
        "files directly in policyd/engine": 3,
        "imports among files of policyd/engine": 2,
        "files directly in policyd/controller": 0,
        "imports among files of policyd/controller": 0,
        "files directly in webhooks": 0,
        "imports among files of webhooks": 0,
        "files in one folder, at most": 3,
        "class names that two modules define": 1,
        "files under 100 lines with one importer": 1,
        "lines of Python that are data": 52,
    }
    assert house.doubles(found) == {"Same": ["policyd.engine.one", "policyd.engine.two"]}
    assert house.small_files(found) == ["policyd/engine/two.py"]


def test_calls_are_counted_in_the_product_alone():
    with house_ways.travelled() as calls:
        house.Figure("a", 1, 2).place.strip()
        parse_quantity("1500m")

    assert {Path(name).name for name in calls} == {"quantity.py"}


def test_a_figure_that_is_not_counted_is_neither_met_nor_missed():
    assert [house.Figure("a", now, 2).met for now in (None, 2, 3)] == [None, True, False]


def test_figures_that_are_met_stay_met():
    missed = [
        f"{figure.name}: {figure.now}, at most {figure.target} {figure.place}"
        for figure in house.figures(house.modules())
        if figure.met is False and figure.name not in UNMET
    ]
    assert missed == []


ADRS = house.ROOT / "docs" / "adr"
ABOUT = 0.05
"""By which share a figure that a decision states may differ from what it is now."""


def about(stated, now):
    return abs(int(stated.replace(",", "")) - now) <= ABOUT * now


def test_each_figure_that_is_missed_is_in_the_decision_that_says_why():
    text = (ADRS / "0033-figures-that-stay.md").read_text().lower()

    for figure in house.figures(house.modules()):
        if figure.met is False:
            (stated,) = re.findall(rf"^\| {figure.name} \|.*\| ([\d,]+) \|$", text, re.MULTILINE)
            assert about(stated, figure.now), f"{figure.name}: {figure.now}, and not {stated}"


LAYERS = re.findall(
    r"^\| ([^|]*`[^|]*) \| ([\d,]+) \|",
    (ADRS / "0031-layers-of-our-own.md").read_text(),
    re.MULTILINE,
)


@pytest.mark.parametrize(("named", "stated"), LAYERS)
def test_the_layers_that_no_library_replaces_are_as_long_as_their_decision_states(named, stated):
    folder, lines = Path(), 0
    for name in re.findall(r"`([^`]+)`", named):
        folder = Path(name).parent if "/" in name else folder
        places = [top / folder / Path(name).name for top in (Path(), Path("policyd"))]
        files = {
            file
            for place in places
            for file in (house.ROOT / f"{place}.py", *(house.ROOT / place).glob("*.py"))
            if file.is_file()
        }
        assert files, f"there is no {name}"
        lines += sum(file.read_text().count("\n") for file in files)

    assert about(stated, lines), f"{lines:,} lines, and not {stated}"


def test_make_house_prints_each_figure(tmp_path):
    command = [sys.executable, "-c", "import tests.house as h; h.WAYS = {}; h.main()"]
    command += ["--all", "--json", tmp_path / "figures.json"]
    done = subprocess.run(command, cwd=house.ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "lines of the product" in done.stdout
    assert '"lines of alloc"' in (tmp_path / "figures.json").read_text()
