"""What the page on CEL says is true."""

import json
import re
from pathlib import Path

import pytest

from policyd.cel import (
    Budget,
    CelCompileError,
    CelError,
    admission_environment,
    compile_expression,
)

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "cel.md").read_text()
OBJECT = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
EXAMPLES = re.findall(r"```cel\n(.*?)\n// (.*?)\n```", PAGE, re.DOTALL)


def outcome(source):
    try:
        program = compile_expression(source, admission_environment(mutation=True))
    except CelCompileError as error:
        return f"refused: {error.issues[0].message}"
    try:
        return json.dumps(program.evaluate({"object": OBJECT}, Budget()))
    except CelError as error:
        return f"error: {error.message}"


def test_every_block_is_an_example():
    assert len(EXAMPLES) == PAGE.count("```cel") > 10


@pytest.mark.parametrize(("source", "expected"), EXAMPLES, ids=[source for source, _ in EXAMPLES])
def test_examples_evaluate_to_what_the_page_says(source, expected):
    assert outcome(source) == expected
