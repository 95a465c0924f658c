"""The index of architecture decisions lists every page, and says what superseded it."""

import re

import pytest

from tests.docs.pages import LINK, PROJECT

FOLDER = PROJECT / "docs" / "adr"
DECISIONS = sorted(FOLDER.glob("0*.md"))
ROW = re.compile(r"^\| (\d+) \| \[([^\]]+)\]\((\S+)\) \| (.+?) \| (.+?) \|$", re.MULTILINE)
SUPERSEDES = re.compile(r"^Supersedes (.+)$", re.MULTILINE)


def rows():
    """The index's rows by file: number, title, status."""
    found = ROW.findall((FOLDER / "index.md").read_text())
    return {file: (int(number), title, status) for number, title, file, status, _ in found}


def superseded_by(decision):
    """The pages that say that they supersede a decision, wholly or in part."""
    return {
        page.name
        for page in DECISIONS
        for line in SUPERSEDES.findall(page.read_text())
        if decision.name in LINK.findall(line)
    }


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda page: page.stem)
def test_the_index_lists_it_as_the_page_is_named(decision):
    number, title, _ = rows()[decision.name]

    assert number == int(decision.name[:4])
    assert decision.read_text().startswith(f"# {number}. {title}\n")


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda page: page.stem)
def test_its_status_says_what_superseded_it(decision):
    status = rows()[decision.name][2]

    assert status == "Accepted" or status.startswith("Superseded ")
    assert set(LINK.findall(status)) == superseded_by(decision)


def test_the_index_lists_each_page_once_and_nothing_else():
    listed = [file for _, _, file, _, _ in ROW.findall((FOLDER / "index.md").read_text())]

    assert listed == [page.name for page in DECISIONS]
