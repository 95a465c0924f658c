"""Where a character of a YAML scalar's value stands in the file.

Block scalars lose their indentation, folded ones their line breaks, quoted ones their escapes. So
the value is laid beside its source and both are walked together.
"""

import yaml

from policyd.engine.documents.findings import Position


def source_position(node: yaml.ScalarNode, text: str, *, line: int, column: int) -> Position:
    """Return the place in `text` of what is at `line` and `column` of the scalar's value.

    All count from 1. A place beyond the end is the end.
    """
    wanted = _offset(node.value, line, column)
    index = _aligned(node, text, wanted)
    before = text[:index]
    return Position(before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)


def _offset(value: str, line: int, column: int) -> int:
    """Return the index in `value` of a line and column."""
    start = 0
    for _ in range(line - 1):
        newline = value.find("\n", start)
        if newline < 0:
            return len(value)
        start = newline + 1
    return min(start + column - 1, len(value))


def _aligned(node: yaml.ScalarNode, text: str, wanted: int) -> int:
    """Walk value and source together; return the source's index of `wanted` in the value."""
    index, end = _content(node, text)
    for position, character in enumerate(node.value):
        index = _skip_to(character, text, index=index, end=end)
        if position == wanted:
            return index
        index = min(index + _width(text, index, style=node.style), end)
    return index


def _content(node: yaml.ScalarNode, text: str) -> tuple[int, int]:
    """Return where the source of the content begins and ends, headers and quotes left out."""
    start, end = node.start_mark.index, node.end_mark.index
    if node.style in ("|", ">"):
        newline = text.find("\n", start)
        return (newline + 1 if newline >= 0 else end), end
    if node.style in ("'", '"'):
        return start + 1, end - 1
    return start, end


def _skip_to(character: str, text: str, *, index: int, end: int) -> int:
    """Return the next index of the source that can stand for `character` of the value."""
    while index < end:
        here = text[index]
        if here == character or not here.isspace() or character.isspace():
            return index
        index += 1
    return index


def _width(text: str, index: int, *, style: str | None) -> int:
    """Return how many characters of the source one character of the value takes."""
    here = text[index : index + 2]
    if style == "'" and here == "''":
        return 2
    if style == '"' and here.startswith("\\"):
        return {"x": 4, "u": 6, "U": 10}.get(here[1:], 2)
    return 1
