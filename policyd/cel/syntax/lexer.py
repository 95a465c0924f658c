"""Split the text of an expression into tokens, and decode its literals."""

import re
from collections.abc import Callable
from math import isinf
from typing import Final, Literal, NamedTuple

from policyd.cel.syntax.patterns import lazy_pattern
from policyd.cel.values import UInt

Kind = Literal["name", "quoted", "operator", "literal", "number", "end"]
Fail = Callable[[int, str, str | None], None]
"""Reports something wrong at a position, with a hint; scanning goes on after it."""

RESERVED: Final = frozenset(
    (
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let"),
        *("loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
KEYWORDS: Final = frozenset(("in", "true", "false", "null"))


class Token(NamedTuple):
    """A word of the expression; `value` is that of a literal."""

    kind: Kind
    text: str
    position: int
    value: object = None


_TOKEN = lazy_pattern(
    r"""
 (?P<space>(?:[\t\n\f\r\ ]+|//[^\n]*)+)
|(?P<string>(?:[rR][bB]?|[bB][rR]?)?(?:\"{3}|'{3}|"|'))
|(?P<double>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
|(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
|(?P<int>0x[0-9a-fA-F]+|[0-9]+)
|(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
|(?P<quoted>`[a-zA-Z0-9_.\-/ ]+`)
|(?P<operator>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])
""",
    re.VERBOSE,
)
_BODY: Final = {
    '"""': lazy_pattern(r'(?:[^"\\]|\\.|"(?!""))*', re.DOTALL),
    "'''": lazy_pattern(r"(?:[^'\\]|\\.|'(?!''))*", re.DOTALL),
    '"': lazy_pattern(r'(?:[^"\\\r\n]|\\.)*'),
    "'": lazy_pattern(r"(?:[^'\\\r\n]|\\.)*"),
}
_RAW_BODY: Final = {
    '"""': lazy_pattern(r'(?:(?!""").)*', re.DOTALL),
    "'''": lazy_pattern(r"(?:(?!''').)*", re.DOTALL),
    '"': lazy_pattern(r'[^"\r\n]*'),
    "'": lazy_pattern(r"[^'\r\n]*"),
}
_ESCAPE = lazy_pattern(
    r"""\\(?:([abfnrtv\\?"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})"""
    r"""|([0-3][0-7]{2})|(.?))""",
    re.DOTALL,
)
_SIMPLE: Final = dict(zip("abfnrtv\\?\"'`", "\a\b\f\n\r\t\v\\?\"'`", strict=True))
_HALVES: Final = {half: f"did you mean `{half}{half}`?" for half in "&|="}
"""Halves of operators: cel-go's lexer has read one character more when it gives up."""
# Python refuses to convert longer texts; no 64-bit integer needs them.
_LONGEST_INTEGER: Final = 100
_SHOWN: Final = 60


def tokenize(source: str, fail: Fail) -> list[Token]:
    """Split `source` into tokens, the last of kind `end`; report and skip invalid text."""
    tokens: list[Token] = []
    position = 0
    while position < len(source):
        found = _TOKEN.match(source, position)
        if found is None:
            end = position + (2 if source[position] in _HALVES else 1)
            fail(position, _unrecognised(source[position:end]), _HALVES.get(source[position]))
            position = end
        elif found.lastgroup == "string":
            token, position = _read_string(source, found[0], position, fail)
            tokens.append(token)
        else:
            if found.lastgroup != "space":
                tokens.append(_read_token(str(found.lastgroup), found[0], position, fail))
            position = found.end()
    tokens.append(Token("end", "<EOF>", len(source)))
    return tokens


def _read_token(group: str, text: str, position: int, fail: Fail) -> Token:
    match group:
        case "name" | "operator":
            return Token("name" if group == "name" else "operator", text, position)
        case "quoted":
            return Token("quoted", text[1:-1], position)
        case "double":
            return Token("number", text, position, _read_double(text, position, fail))
        case _:
            return Token("number", text, position, _read_integer(group, text, position, fail))


def _read_double(text: str, position: int, fail: Fail) -> float:
    value = float(text)
    if isinf(value):
        fail(position, "invalid double literal", None)
    return value


def _read_integer(group: str, text: str, position: int, fail: Fail) -> int:
    digits = text.rstrip("uU")
    if len(digits) > _LONGEST_INTEGER:
        fail(position, f"invalid {group} literal", None)
        return 0
    value = int(digits, 16) if digits.startswith("0x") else int(digits)
    # 2**63 is let through here, since a minus may precede it; the parser looks at that.
    if value > (2**64 - 1 if group == "uint" else 2**63):
        fail(position, f"invalid {group} literal", None)
        return 0
    return UInt(value) if group == "uint" else value


def _read_string(source: str, head: str, position: int, fail: Fail) -> tuple[Token, int]:
    quote = head[-3:] if head[-3:] in _BODY else head[-1]
    prefix = head[: -len(quote)].lower()
    start = position + len(head)
    body = (_RAW_BODY if "r" in prefix else _BODY)[quote].match(source, start)
    assert body is not None, "the pattern of a string's body matches the empty string"
    end = body.end() + len(quote)
    text = source[position:end]
    if source[body.end() : end] != quote:
        end = len(source) if len(quote) == 3 else body.end() + 1
        fail(position, _unrecognised(source[position:end]), "the string does not end")
        return Token("literal", text, position, ""), end
    value = _read_body(body[0], prefix, lambda message: fail(position, message, None))
    return Token("literal", text, position, value), end


def _unrecognised(text: str) -> str:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    for character, escape in ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"):
        shown = shown.replace(character, escape)
    return f"Syntax error: token recognition error at: '{shown}'"


def _read_body(body: str, prefix: str, fail: Callable[[str], None]) -> str | bytes:
    body = body.replace("\r\n", "\n").replace("\r", "\n")
    if "b" in prefix:
        return body.encode() if "r" in prefix else _unescape_bytes(body, fail)
    return body if "r" in prefix else _unescape(body, fail)


def _unescape(body: str, fail: Callable[[str], None]) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[1]:
            return _SIMPLE[found[1]]
        digits = found[2] or found[3] or found[4]
        if not digits and not found[5]:
            fail(f"Syntax error: invalid escape sequence `{found[0]}`")
            return ""
        code = int(digits, 16) if digits else int(found[5], 8)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            fail(f"Syntax error: invalid unicode code point `{found[0]}`")
            return ""
        return chr(code)

    return _ESCAPE.sub(replace, body)


def _unescape_bytes(body: str, fail: Callable[[str], None]) -> bytes:
    parts = bytearray()
    last = 0
    for found in _ESCAPE.finditer(body):
        parts += body[last : found.start()].encode()
        last = found.end()
        if found[1]:
            parts += _SIMPLE[found[1]].encode()
        elif found[2] or found[5]:
            parts.append(int(found[2], 16) if found[2] else int(found[5], 8))
        else:
            fail(f"Syntax error: invalid escape sequence `{found[0]}` in bytes")
    return bytes(parts + body[last:].encode())
