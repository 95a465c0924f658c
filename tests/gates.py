"""Which feature gates tests flip: those that a test is marked with, `pytest.mark.gate(NAME)`."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
_ABBREVIATIONS = re.compile(r"(TAS|DRA|LWS|CQ)(?=[A-Z])")


@cache
def flipped() -> dict[str, list[str]]:
    """Return the names of the tests that flip a gate, by gate."""
    found = defaultdict(list)
    for path in sorted(FOLDER.rglob("test_*.py")):
        text = path.read_text()
        if "mark.gate(" in text:
            for gate, test, _ in marks(ast.parse(text), text):
                found[gate].append(test)
    return dict(found)


def unfounded() -> list[str]:
    """Return marks of tests that say nothing of the gate that they are marked with."""
    return [
        f"{path.name}: {test} says nothing of {gate}"
        for path in sorted(FOLDER.rglob("test_*.py"))
        if "mark.gate(" in (text := path.read_text())
        for gate, test, source in marks(ast.parse(text), text)
        if not re.search(rf"\b({gate}|{field_of(gate)})\b", source)
    ]


def marks(tree, text):
    """Yield the gate, the test, and what the test says with the constants that it names."""
    constants = {
        target.id: ast.get_source_segment(text, node)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if ast.unparse(mark).startswith("pytest.mark.gate("):
                    rest = [each for each in node.decorator_list if each is not mark]
                    source = "\n".join(map(ast.unparse, (*rest, *node.args.defaults, *node.body)))
                    names = set(re.findall(r"\w+", source))
                    source += "".join(constants[name] for name in sorted(names & constants.keys()))
                    for gate in mark.args:
                        yield gate.value, node.name, source


def field_of(gate):
    """Return the name of a gate as a field: words in lower case, joined by `_`."""
    words = _ABBREVIATIONS.sub(lambda found: found[1].capitalize(), gate)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", words).lower()
