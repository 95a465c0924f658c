"""Read YAML documents, and remember the position of each value.

A file is cut at its `---` lines first (YAML allows such a line nowhere else), so that an error in
one document leaves the others readable. Values become JSON values; the reading of scalars
follows the API server's tools rather than YAML 1.1 where the two differ (dates stay text).
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Final

import yaml

from policyd.api.meta import Json
from policyd.engine.documents.findings import Finding, Position, field_path
from policyd.engine.documents.nodes import MERGE, Mark, UnreadableError, build, compose
from policyd.engine.documents.plain_yaml import (
    NotPlainError,
    PlainItems,
    is_list,
    read_plain,
    read_plain_items,
)
from policyd.patch.operations import Path


def _source_position(node: yaml.ScalarNode, text: str, *, line: int, column: int) -> Position:
    """Return the position in `text` of a `line` and `column` of the scalar's value.

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
    """Return the next index of the source that can be `character` of the value."""
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


LARGE: Final = 256 * 1024
"""Bytes of a text whose values are not kept: ten times as many."""

MOST_DOCUMENTS: Final = 20_000
"""Documents of one text, the empty ones included."""

_MARKER = re.compile(r"---(?=\s|$)")
_EMPTY = re.compile(r"(?:---)?(?:\s|#[^\n]*)*\Z")


class Tree:
    """The nodes of a text, which are looked for only when a place is asked for: few ever are."""

    def __init__(self, find: Callable[[], yaml.Node | None]) -> None:
        """Remember the function that finds the node of the document."""
        self._find = find

    @cached_property
    def node(self) -> yaml.Node | None:
        """The node of the document."""
        return self._find()

    def item(self, index: int) -> "Tree":
        """Return the tree of an item of a List."""

        def find() -> yaml.Node | None:
            listed = None if self.node is None else _child(self.node, "items")
            return None if listed is None else listed[1].value[index]

        return Tree(find)


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its value, and the positions of its parts in the text."""

    value: Json
    source: str
    text: str = ""
    tree: "Tree | None" = None
    first_line: int = 0

    @property
    def node(self) -> yaml.Node | None:
        """The node that it was read from; None if it was read from no text."""
        return None if self.tree is None else self.tree.node

    def position(self, path: Path, *, of_key: bool = False) -> Position | None:
        """Return where the value at `path` begins, or the nearest parent that exists.

        With `of_key`, a field's name is pointed at instead of its value. None if the document was
        not read from a text.
        """
        if self.node is None:
            return None
        node, key = self.node, None
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            key, node = found
        mark = key.start_mark if key is not None and of_key else node.start_mark
        return Position(self.first_line + mark.line + 1, mark.column + 1)

    def position_within(self, path: Path, line: int, column: int) -> Position | None:
        """Return the position in the file of line `line`, column `column` of the text at `path`."""
        node = self.node
        for step in path:
            found = _child(node, step) if node is not None else None
            node = found[1] if found else None
        if not isinstance(node, yaml.ScalarNode):
            return self.position(path)
        place = _source_position(node, self.text, line=line, column=column)
        return Position(self.first_line + place.line, place.column)

    def finding(
        self,
        message: str,
        path: Path = (),
        *,
        hint: str | None = None,
        of_key: bool = False,
        at: Position | None = None,
    ) -> Finding:
        """Make a finding about the value at `path`, or at the given position."""
        place = at or self.position(path, of_key=of_key) or Position(0, 0)
        return Finding(
            source=self.source,
            message=message,
            line=place.line,
            column=place.column,
            field=field_path(path),
            hint=hint,
            excerpt=self._line(place.line),
        )

    def _line(self, number: int) -> str:
        lines = _lines(self.text)
        index = number - self.first_line - 1
        return lines[index] if 0 <= index < len(lines) else ""


@dataclass(frozen=True, slots=True)
class LazyItems:
    """The items of a List of one text, which are decoded each time they are asked for."""

    items: PlainItems
    source: str
    content: bytes

    def document(self, index: int) -> Document:
        """Return an item as a document."""
        text = self.content.decode()
        tree = Tree(lambda: compose(text, sys.maxsize)[0]).item(index)
        return Document(self.items.value(index), self.source, text, tree)


@lru_cache(maxsize=4)
def _lines(text: str) -> tuple[str, ...]:
    """Return the lines of a document, of which every finding shows one."""
    return tuple(text.splitlines())


def read_documents(
    text: str | bytes, source: str, *, most: int = sys.maxsize
) -> tuple[list[Document], list[Finding]]:
    """Read every document of a text, and report the unreadable parts.

    Empty documents are left out; a `List` is taken apart into its items. `source` names the text
    in findings; `most` is how many values and names of fields a document may have.
    """
    documents: list[Document] = []
    findings: list[Finding] = []
    for read in each_document(text, source, most=most):
        if isinstance(read, Finding):
            findings.append(read)
        else:
            documents.append(read)
    return documents, findings


def each_kept(text: bytes, source: str) -> Iterator[Document | LazyItems | Finding]:
    """Yield every document as `each_document` does, but the items of a large List together.

    A List is taken together if it is JSON as programs write it.
    """
    items = read_plain_items(text) if len(text) >= LARGE else None
    if items is None:
        yield from each_document(text, source)
    else:
        yield LazyItems(items, source, text)


def each_document(
    text: str | bytes, source: str, *, most: int = sys.maxsize
) -> Iterator[Document | Finding]:
    """Yield every document of a text as it is read, and findings for the unreadable parts."""
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text.lstrip("\ufeff")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        message = f"not UTF-8: byte 0x{error.object[error.start]:02x}"
        yield _unreadable(Finding(source=source, message=message, line=line, column=1))
        return
    for index, (first_line, chunk) in enumerate(_chunks(decoded)):
        if index >= MOST_DOCUMENTS:
            yield _unreadable(_one_too_many(source, first_line + 1))
            return
        if _EMPTY.match(chunk):
            continue
        read = _read_document(Document(None, source, chunk, None, first_line), most)
        if isinstance(read, Finding):
            yield _unreadable(read)
        elif read.value is not None:
            yield from _items(read)


def is_blank(text: bytes) -> bool:
    """Tell whether a text has no document, not even a `List` without items."""
    return all(_EMPTY.match(chunk) for _, chunk in _chunks(text.decode("utf-8-sig", "replace")))


def _unreadable(finding: Finding) -> Finding:
    return replace(finding, rule="unreadable")


def _one_too_many(source: str, line: int) -> Finding:
    message = f"more than {MOST_DOCUMENTS:,} documents: the rest is not read"
    hint = "split the file"
    return Finding(source=source, message=message, line=line, column=1, hint=hint)


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    """Cut a text at its document markers, each chunk with the number of lines before it."""
    starts = chain([0], _markers(text), [len(text)])
    line = 0
    for start, end in pairwise(starts):
        chunk = text[start:end]
        yield line, chunk
        line += chunk.count("\n")


def _markers(text: str) -> Iterator[int]:
    """Yield where markers begin; a text is searched for lines that begin so, not line by line."""
    at = 0 if text.startswith("---") else text.find("\n---") + 1 or -1
    while at >= 0:
        if _MARKER.match(text, at):
            yield at
        at = text.find("\n---", at) + 1 or -1


def _read_document(unread: Document, most: int) -> Document | Finding:
    if most == sys.maxsize:
        with suppress(NotPlainError):
            value = read_plain(unread.text)
            return replace(unread, value=value, tree=Tree(lambda: compose(unread.text, most)[0]))
    try:
        node, shared = compose(unread.text, most)
        value = None if node is None else build(node, shared)
    except UnreadableError as error:
        return unread.finding(str(error), hint=error.hint, at=_place(error.mark, unread))
    except yaml.MarkedYAMLError as error:
        place = _place(error.problem_mark or error.context_mark, unread)
        return unread.finding(_yaml_message(error), hint=_yaml_hint(error), at=place)
    except yaml.YAMLError as error:
        return unread.finding(f"not YAML: {error}", at=Position(unread.first_line + 1, 1))
    return replace(unread, value=value, tree=Tree(lambda: node))


def _place(mark: Mark | None, document: Document) -> Position:
    """Return the position of a mark; the end of the text belongs to the last line."""
    lines = _lines(document.text)
    if mark is None:
        return Position(document.first_line + 1, 1)
    if mark.line >= len(lines):
        return Position(document.first_line + len(lines), len(lines[-1]) + 1)
    return Position(document.first_line + mark.line + 1, mark.column + 1)


def _yaml_message(error: yaml.MarkedYAMLError) -> str:
    problem = (error.problem or "cannot be read").rstrip(".")
    return f"not YAML: {problem} {error.context}" if error.context else f"not YAML: {problem}"


def _yaml_hint(error: yaml.MarkedYAMLError) -> str | None:
    problem = error.problem or ""
    if "cannot start any token" in problem and "\\t" in problem:
        return "indent with blanks, not with tabs"
    if "mapping values are not allowed" in problem:
        return "quote a string that contains `: `"
    return None


def _items(document: Document) -> list[Document]:
    """Split a List into its items; return any other document as it is."""
    value = document.value
    if not isinstance(value, dict) or not is_list(value):
        return [document]
    items = value.get("items")
    if not isinstance(items, list) or document.tree is None:
        return [document]
    tree = document.tree
    return [
        Document(item, document.source, document.text, tree.item(index), document.first_line)
        for index, item in enumerate(items)
    ]


def _child(node: yaml.Node, step: str | int) -> tuple[yaml.Node | None, yaml.Node] | None:
    """Return the key (in a mapping) and the node that `step` leads to."""
    if isinstance(node, yaml.SequenceNode):
        if isinstance(step, int) and 0 <= step < len(node.value):
            return None, node.value[step]
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    merged = None
    for key, value in node.value:
        if key.value == str(step):
            return key, value
        if key.tag == MERGE:
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                merged = merged or _child(source, step)
    return merged
