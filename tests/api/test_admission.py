"""How reviews are read."""

import pytest

from policyd.api.admission import nested_deeper


@pytest.mark.parametrize(
    ("text", "levels", "deeper"),
    [
        pytest.param(b"{}", 0, True, id="one-level"),
        pytest.param(b"{}", 1, False, id="just-as-deep"),
        pytest.param(b"[" * 501 + b"]" * 501, 500, True, id="too-deep"),
        pytest.param(b"[[],[],[],[]]", 2, False, id="wide-is-not-deep"),
        pytest.param(b'["[[[[", "\\"[[["]', 2, False, id="brackets-in-strings-do-not-count"),
        pytest.param(rb'["\n\"[\\",["]"]]', 2, False, id="escapes-before-quotes"),
        pytest.param(b"[[[[", 3, True, id="never-closed"),
        pytest.param(b'"' * 10_000 + b"[" * 10, 3, True, id="unbalanced-quotes"),
    ],
)
def test_nesting(text, levels, deeper):
    assert nested_deeper(text, levels) is deeper
