"""Each promise of the threat model names the test that holds policyd to it."""

import ast
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs" / "concepts" / "threat-model.md"
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE.read_text())))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_named_test_exists(file, name):
    tree = ast.parse((PROJECT / file).read_text())
    functions = {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    attacks = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }

    assert name in functions if name else "ATTACKS" in attacks


def test_each_promise_names_one():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    headings = ("| Promise", "| Attacker", "| Limit of a", "|---")
    promises = [row for row in rows if row[2].isupper() and not row.startswith(headings)]

    assert promises
    assert [row for row in promises if "`tests/" not in row] == []
