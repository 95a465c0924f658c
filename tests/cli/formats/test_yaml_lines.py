"""YAML of answers: any value is read back as it was, and simple ones look as PyYAML's."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from policyd.cli.formats.yaml_lines import yaml_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["", "yes", "NULL", "~", "-", "=", "<<", "1e3", "0x1f", "1_000", "12:30", ".inf", "a: b",
     "a #b", "- a", "2026-01-01T00:00:00Z", "it's", " a", "a ", "a\nb", "\u2028", "\x85", "---",
     "? a", "&a", "*a", "!a", "%a", "@a", "`a", "{a}", "[a]",
     "team-a/x", "nvidia.com/gpu", "1 of 2 pods"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_is_read_back(value):
    for loader in (yaml.CSafeLoader, yaml.SafeLoader):
        assert yaml.load(yaml_text(value), Loader=loader) == value


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([{"name": "a", "of": {"x": 1, "z": [1.5, None]}}, {"name": "b"}], id="rows"),
        pytest.param({"a": [[1, 2], [], [{}]], "b": {}, "c": [], "d": True}, id="nested"),
        pytest.param({"at": "2026-01-01T00:00:00Z", "yes": "no", "2": "12"}, id="quoted"),
        pytest.param({"message": "Previously: x", "empty": ""}, id="single-quotes"),
        pytest.param({"a": (1, (2, {"b": ()})), "c": ({"d": ("e",)},)}, id="tuples"),
        pytest.param("alone", id="a-string"),
    ],
)
def test_simple_values_look_as_pyyaml_writes_them(value):
    expected = yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False).removesuffix("...\n")

    assert yaml_text(value) == expected
