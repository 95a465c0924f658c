"""Read the YAML of usual manifests, some ten times as fast as a complete parser.

That is blocks of fields and items, one on a line, with scalars on the same line. Lines are alike by
the thousand, so the value of each line is cached. A text with anything else in it is recognized,
and left to a reader of all of YAML.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn

import msgspec
import yaml

from policyd.api.meta import Json
from policyd.engine.documents.nodes import UnreadableError, is_deeper, scalar

_DEEPEST: Final = 100
"""Blocks within each other; deeper ones are read with care."""

_MOST_LINES: Final = 50_000
"""Lines that are remembered."""

_LINE: Final = re.compile(
    r"(?P<before> *(?:- +)*)"
    r"(?:(?P<key>[A-Za-z0-9_][A-Za-z0-9_./-]*):(?= |$) *|(?P<dash>-$))?"
    r"(?P<value>[ -~]{0,1000})"
)
_PLAIN: Final = re.compile(r"(?:[A-Za-z0-9_./$(]|-(?! |$))(?:(?! #|: |:$| $)[ -~])*")
_QUOTED: Final = re.compile(r"'(?P<single>[ -&(-~]*)'|\"(?P<double>[ !#-\[\]-~]*)\"")
_SKIPPED: Final = re.compile(r" *(?:#[ -~]*)?")

_OPEN, _GIVEN, _MAP, _LIST = range(4)
"""The value of a step: none yet, a scalar, `{}`, or `[]`."""


class NotPlainError(Exception):
    """A text is to be read by a reader of all of YAML: it may be wrong, or merely unusual."""


class _Step(NamedTuple):
    """An item or a field: its column, its name (None for an item), and its value."""

    column: int
    key: str | None
    kind: int
    value: Json


class _Block(NamedTuple):
    """A list or an object whose items or fields start in one column."""

    column: int
    value: Any


def read_plain(text: str) -> Json:
    """Return the value of a document.

    Raises:
        NotPlainError: If it is not plain.
    """
    stripped = text.lstrip()
    if stripped.startswith("{"):
        return _read_json(stripped)
    reader = _Reader()
    lines = text.split("\n")
    if lines[0] == "---":
        del lines[0]
    for line in lines:
        for step in _steps(line):
            reader.take(step)
    return reader.root


class _Reader:
    """Puts steps together."""

    def __init__(self) -> None:
        self.root: Json = None
        self._blocks: list[_Block] = []
        self._column = -1
        self._value: Any = None
        self._awaits = True
        """Whether the last step, or the document, has no value yet."""

    def take(self, step: _Step) -> None:
        """Take the next step."""
        column, key, kind, value = step
        if (
            self._awaits
            or column != self._column
            or (key is None) is not (type(self._value) is list)
        ):
            self._enter(column, is_list=key is None)
        if kind > _GIVEN:
            value = {} if kind == _MAP else []
        if key is None:
            self._value.append(value)
        elif key in self._value:
            raise NotPlainError
        else:
            self._value[key] = value
        self._awaits = kind == _OPEN

    def _enter(self, column: int, *, is_list: bool) -> None:
        """Go to the block of a column, which may begin here."""
        if self._begins(column, is_list=is_list):
            made: Any = [] if is_list else {}
            self._attach(made)
            self._blocks.append(_Block(column, made))
            if len(self._blocks) > _DEEPEST:
                raise NotPlainError
        else:
            self._leave(column, is_list=is_list)
        self._column, self._value = self._blocks[-1]
        if self._column != column or (type(self._value) is list) is not is_list:
            raise NotPlainError

    def _begins(self, column: int, *, is_list: bool) -> bool:
        if not self._awaits:
            return False
        # The items of a field may start in the field's own column.
        return column > self._column or (
            is_list and column == self._column and type(self._value) is dict
        )

    def _attach(self, made: Json) -> None:
        if not self._blocks:
            self.root = made
        elif type(self._value) is list:
            self._value[-1] = made
        else:
            self._value[next(reversed(self._value))] = made

    def _leave(self, column: int, *, is_list: bool) -> None:
        blocks = self._blocks
        while blocks and blocks[-1].column > column:
            blocks.pop()
        if len(blocks) > 1 and not is_list and type(blocks[-1].value) is list:
            above = blocks[-2]
            if above.column == column and type(above.value) is dict:
                blocks.pop()
        if not blocks:
            raise NotPlainError


@lru_cache(maxsize=_MOST_LINES)
def _steps(line: str) -> tuple[_Step, ...]:
    """Parse a line.

    Raises:
        NotPlainError: If it says it in another way than most.
    """
    if _SKIPPED.fullmatch(line):
        return ()
    found = _LINE.fullmatch(line)
    if found is None:
        raise NotPlainError
    before, key, dash, text = found.group("before", "key", "dash", "value")
    columns = [column for column, character in enumerate(before) if character == "-"]
    if dash is not None:
        columns.append(len(before))
    if key is None and (not columns or bool(text) is (dash is not None)):
        raise NotPlainError
    kind, value = _value(text)
    opened = columns if key is not None else columns[:-1]
    steps = [_Step(column, None, _OPEN, None) for column in opened]
    last = len(before) if key is not None else columns[-1]
    return (*steps, _Step(last, key, kind, value))


def _value(text: str) -> tuple[int, Json]:
    if text in _EMPTY:
        return _EMPTY[text], None
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        return _GIVEN, quoted["single"] if quoted["double"] is None else quoted["double"]
    if _PLAIN.fullmatch(text) is None:
        raise NotPlainError
    return _GIVEN, _plain(text)


_EMPTY: Final = {"": _OPEN, "{}": _MAP, "[]": _LIST}
_resolve: Final[Callable[..., str]] = yaml.resolver.Resolver().resolve


def _plain(text: str) -> Json:
    tag = _resolve(yaml.ScalarNode, text, (True, False))
    try:
        return scalar(yaml.ScalarNode(tag, text))
    except UnreadableError as error:
        raise NotPlainError from error


def _read_json(text: str) -> Json:
    """Return the value of a text of JSON, where YAML reads it in the same way."""
    if not text.isascii():
        raise NotPlainError  # YAML rejects it
    value = _read_canonical(text.encode())
    if value is not None:
        return value
    if "\\u" in text:
        raise NotPlainError  # surrogates
    try:
        value = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise NotPlainError from error
    if is_deeper(value, _DEEPEST):
        raise NotPlainError
    return value


def _read_canonical(text: bytes) -> Json:
    """Return the value of JSON that is written as programs do, None if it is written otherwise.

    The text equals its value encoded again, except for blanks: so no field occurs twice. As Go has
    it, three letters may be escaped.
    """
    try:
        value = _CANONICAL.decode(text)
        written = msgspec.json.format(text, indent=-1)
    except (msgspec.MsgspecError, NotPlainError, ValueError, RecursionError):
        return None
    written = _in_go_letters(written)
    if _merges(written) or not _is_canonical(written):
        return None  # YAML may read it otherwise, or not at all
    return value if msgspec.json.encode(value) == written else None


class PlainItems(NamedTuple):
    """The items of a List in JSON as text, and the kind of each; empty if an item has none."""

    texts: Sequence[msgspec.Raw]
    kinds: Sequence[str]

    def value(self, index: int) -> Json:
        """Return the value of an item, decoded anew.

        Raises:
            NotPlainError: If the List is to be read by a reader of all of YAML after all.
        """
        text = bytes(self.texts[index])
        try:
            value = _CANONICAL.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise NotPlainError from error
        if msgspec.json.encode(value) != text or not _is_canonical(text, within=_OF_ITEMS):
            raise NotPlainError
        return value


class _Item(msgspec.Struct, gc=False):
    """An item of a List, as far as it says its kind."""

    kind: Json = None


def read_plain_items(text: bytes) -> PlainItems | None:
    """Return the items of a List in JSON that is written as programs do, None for any other text.

    No value is kept: each would take ten times the memory of its text. An item is looked at when
    its value is asked for.
    """
    if not (text[:_BLANKS].lstrip().startswith(b"{") and text.isascii()):
        return None
    try:
        return _plain_items(_in_go_letters(msgspec.json.format(text, indent=-1)))
    except (msgspec.MsgspecError, NotPlainError, ValueError, RecursionError):
        return None


def _plain_items(written: bytes) -> PlainItems | None:
    fields = _FIELDS.decode(written)
    if msgspec.json.encode(fields) != written or _merges(written):
        return None
    listed = fields.pop("items", None)
    own = {name: _read_canonical(bytes(text)) for name, text in fields.items()}
    if listed is None or None in own.values() or not is_list(own):
        return None
    kinds = [each.kind for each in _KINDS.decode(listed)]
    return PlainItems(_ITEMS.decode(listed), [k if type(k) is str else "" for k in kinds])


def is_list(value: Mapping[str, Json]) -> bool:
    """Tell whether an object is a List, such as a `PodList`, by its kind."""
    return str(value.get("kind", "")).endswith("List")


def _is_canonical(written: bytes, within: int = 0) -> bool:
    """Tell whether YAML reads JSON as JSON does, as far as its value does not tell."""
    quoted = _without_escapes(written) if b"\\" in written else written
    return not _may_have_long_number(quoted) and _is_shallow(quoted, within)


def _in_go_letters(written: bytes) -> bytes:
    """Return JSON without the escapes that Go writes for three letters."""
    if b"\\" in written and b"\\u00" in written:  # a search for one byte is much faster
        for escape, letter in _ESCAPES.items():
            written = written.replace(escape, letter)
    return written


def _merges(written: bytes) -> bool:
    """Tell whether JSON may have a field that YAML merges."""
    return b"<" in written and b"<<" in written


def _without_escapes(written: bytes) -> bytes:
    """Return JSON in which each quote begins or ends a text."""
    return written.replace(b"\\\\", b"").replace(b'\\"', b"")


def _brackets(quoted: bytes) -> bytes:
    """Return the brackets of JSON that are outside of texts.

    A text without brackets leaves two quotes side by side, so that few texts are left to cut out.
    """
    left = quoted.translate(None, _NO_BRACKETS).replace(b'""', b"")
    return b"".join(left.split(b'"')[::2])


def _may_have_long_number(quoted: bytes) -> bool:
    """Tell whether JSON could have a whole number of too many digits.

    One comes after the name of a field or as an item. Few texts have a comma before so many digits.
    A minus counts as a digit.
    """
    digits = quoted.translate(_DIGITS)
    return _LONG_NUMBER in digits and (
        b'":' + _LONG_NUMBER in digits or b"," + _LONG_NUMBER in digits
    )


def _is_shallow(quoted: bytes, within: int = 0) -> bool:
    """Tell whether JSON is nested no deeper than is read at once: all its brackets go in pairs.

    Each round takes out two levels at most. It may be in others, so many levels deep.
    """
    if len(quoted.translate(None, _NO_OPENING)) + within <= _DEEPEST:
        return True
    left = b"[" * within + _brackets(quoted) + b"]" * within
    for _ in range(_DEEPEST // 2):
        left = left.replace(b"{}", b"").replace(b"[]", b"")
        if not left:
            return True
    return not left


_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'{}[]"'))
_NO_OPENING: Final = bytes(set(range(256)) - set(b"{["))
_DIGITS: Final = bytes.maketrans(b"-123456789[", b"0000000000,")
_ESCAPES: Final = {b"\\u003c": b"<", b"\\u003e": b">", b"\\u0026": b"&"}


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs) or "<<" in found:
        raise NotPlainError
    return found


def _number(read: Callable[[str], Json]) -> Callable[[str], Json]:
    def number(text: str) -> Json:
        if len(text) > _LONGEST_NUMBER or "e" in text or "E" in text:
            raise NotPlainError
        return read(text)

    return number


_LONGEST_NUMBER: Final = 18
_LONG_NUMBER: Final = b"0" * (_LONGEST_NUMBER + 1)


def _refuse(_text: str) -> NoReturn:
    raise NotPlainError


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_number(int),
    parse_float=_number(float),
    parse_constant=_refuse,
)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_KINDS: Final = msgspec.json.Decoder(list[_Item])
_BLANKS: Final = 100
"""So many characters are looked at for the beginning of JSON."""
_OF_ITEMS: Final = 2
"""How deep the items of a List are."""
_CANONICAL: Final = msgspec.json.Decoder(float_hook=_number(float))
