"""Turn the text of an expression into its tree.

Operators are parsed by precedence in a loop with two stacks (Pratt's way, without its recursion).
After a mistake, parsing goes on behind the next comma, bracket or logical operator, to say in one
go all that is wrong.
"""

from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from policyd.cel import ast
from policyd.cel.errors import CelCompileError, Issue, issue_at
from policyd.cel.lexer import KEYWORDS, RESERVED, Token, tokenize
from policyd.cel.macros import ALL_MACROS, MacroError, expand
from policyd.cel.recursion import deep_recursion
from policyd.cel.values import INT_MAX, UInt

MAX_DEPTH: Final = 250
"""Levels of nesting cel-go allows."""
MAX_CODE_POINTS: Final = 100_000
"""Length of the longest expression cel-go reads."""
_MAX_ISSUES: Final = 20

T = TypeVar("T")

_LEVELS: Final = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), 3),
    **dict.fromkeys("+-", 4),
    **dict.fromkeys("*/%", 5),
}
_FUNCTIONS: Final = {text: f"_{text}_" for text in _LEVELS} | {"in": "@in"}
_OPERAND: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, "
    "STRING, BYTES, IDENTIFIER}"
)


class _UnexpectedError(Exception):
    """The text cannot go on like this; the issue is recorded already."""


def parse(source: str, *, macros: frozenset[str] = ALL_MACROS) -> ast.Node:
    """Parse one expression.

    Args:
        source: The text.
        macros: Names of the macros to recognise; the others are taken for functions.

    Raises:
        CelCompileError: If `source` is no expression, or exceeds cel-go's limits.
    """
    parser = _Parser(source, macros)
    with deep_recursion():
        tree = parser.parse()
    if tree is None or parser.issues:
        raise CelCompileError(parser.issues)
    return tree


class _Parser:
    def __init__(self, source: str, macros: frozenset[str]) -> None:
        self.source = source
        self.macros = macros
        self.issues: list[Issue] = []
        self.depth = 0
        self.next = 0
        self.tokens: list[Token] = []
        self.brackets = {"(": self._group, "[": self._list, "{": self._map, ".": self._absolute}

    def parse(self) -> ast.Node | None:
        if not self._readable():
            return None
        self.tokens = tokenize(self.source, self._issue)
        tree = self._recover(self._whole)
        while tree is None and self._behind_logical_operator():
            self._recover(self._whole)
        if tree is not None and _depth_exceeded(tree):
            self._issue(tree.position, f"expression recursion limit exceeded: {MAX_DEPTH}")
        self.issues.sort(key=lambda issue: (issue.line, issue.column))
        return tree

    def _readable(self) -> bool:
        size = len(self.source)
        if size > MAX_CODE_POINTS:
            wrong = f"size: {size}, limit: {MAX_CODE_POINTS}"
            self._issue(0, f"expression code point size exceeds limit: {wrong}")
        elif any("\ud800" <= character <= "\udfff" for character in self.source):
            self._issue(0, "Syntax error: the expression is not valid unicode")
        return not self.issues

    def _whole(self) -> ast.Node:
        tree = self.expression()
        if self.token.kind != "end":
            self._unexpected("<EOF>")
        return tree

    # --- tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.next]

    def _accept(self, text: str) -> bool:
        token = self.tokens[self.next]
        if token.text == text and token.kind == "operator":
            self.next += 1
            return True
        return False

    def _expect(self, text: str) -> int:
        position = self.token.position
        if not self._accept(text):
            self._unexpected(f"'{text}'")
        return position

    def _issue(self, position: int, message: str, hint: str | None = None) -> None:
        if len(self.issues) < _MAX_ISSUES:
            self.issues.append(issue_at(self.source, position, message, hint))

    def _unexpected(self, wanted: str) -> NoReturn:
        token = self.token
        word = "extraneous" if wanted == "<EOF>" else "mismatched"
        message = f"Syntax error: {word} input '{token.text}' expecting {wanted}"
        self._issue(token.position, message)
        raise _UnexpectedError

    # --- recovery

    def _recover(self, read: Callable[[], T]) -> T | None:
        depth = self.depth
        try:
            return read()
        except _UnexpectedError:
            self.depth = depth
            return None
        except RecursionError:
            self.depth = depth
            message = f"expression recursion limit exceeded: {MAX_DEPTH}"
            self._issue(self.token.position, message)
            self.next = len(self.tokens) - 1
            return None

    def _behind_logical_operator(self) -> bool:
        while self.token.kind != "end":
            self.next += 1
            if self.tokens[self.next - 1].text in ("&&", "||"):
                return True
        return False

    def _skip_element(self, close: str) -> None:
        """Go to the comma or the bracket that ends an element with a mistake in it."""
        level = 0
        while self.token.kind != "end":
            text = self.token.text if self.token.kind == "operator" else ""
            if level == 0 and text in (",", close):
                return
            level = max(0, level + (text in ("(", "[", "{")) - (text in (")", "]", "}")))
            self.next += 1
        raise _UnexpectedError

    # --- operators

    def expression(self, *, ternary: bool = True) -> ast.Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            message = f"expression recursion limit exceeded: {MAX_DEPTH}"
            self._issue(self.token.position, message)
            raise _UnexpectedError
        operands = [self._operand()]
        operators: list[tuple[int, Token]] = []
        while True:
            token = self.token
            level = _LEVELS.get(token.text, 0) if token.kind in ("operator", "name") else 0
            while operators and operators[-1][0] >= level:
                _fold(operands, operators.pop()[1])
            if not level:
                break
            self.next += 1
            operators.append((level, token))
            operands.append(self._operand())
        tree = operands[0]
        if ternary and self.token.text == "?" and self.token.kind == "operator":
            tree = self._conditional(tree)
        self.depth -= 1
        return tree

    def _conditional(self, condition: ast.Node) -> ast.Node:
        position = self._expect("?")
        then = self.expression(ternary=False)
        self._expect(":")
        return ast.Conditional(position, condition, then, self.expression())

    def _operand(self) -> ast.Node:
        token = self.token
        if token.kind != "operator" or token.text not in ("!", "-"):
            return self._member(self._primary())
        count = 0
        while self._accept(token.text):
            count += 1
        if self.token.kind == "number" and type(self.token.value) is not UInt:
            if token.text == "-":
                return self._negated(token, count)
        elif token.text == "!" and self.token.text == "-" and self.token.kind == "operator":
            minus = self.token
            self.next += 1
            return ast.Call(token.position, "!_", None, (self._negated(minus, 1),))
        operand = self._member(self._primary())
        if count % 2 == 0:
            return operand
        return ast.Call(token.position, f"{token.text}_", None, (operand,))

    def _negated(self, minus: Token, count: int) -> ast.Node:
        """Read a number behind minus signs; the nearest belongs to the number itself."""
        token = self.token
        value = token.value
        if token.kind != "number" or not isinstance(value, int | float):
            self._unexpected("{NUM_FLOAT, NUM_INT}")
        self.next += 1
        literal = ast.Literal(minus.position, -value)
        operand = self._member(literal)
        return operand if count % 2 else ast.Call(minus.position, "-_", None, (operand,))

    # --- members

    def _member(self, operand: ast.Node) -> ast.Node:
        while self.token.kind == "operator":
            position = self.token.position
            if self._accept("."):
                operand = self._selected(operand, position)
            elif self._accept("["):
                optional = self._accept("?")
                operand = ast.Index(position, operand, self.expression(), optional)
                self._expect("]")
            elif self.token.text == "{":
                name = ast.qualified_name(operand)
                if name is None:
                    break
                self.next += 1
                operand = self._struct(".".join(name), position)
            else:
                break
        return operand

    def _selected(self, operand: ast.Node, position: int) -> ast.Node:
        optional = self._accept("?")
        token = self.token
        if token.kind == "quoted":
            self.next += 1
            return ast.Select(position, operand, token.text, optional)
        if token.kind != "name" or token.text in KEYWORDS:
            self._unexpected("IDENTIFIER")
        self.next += 1
        opening = self.token.position
        if not optional and self._accept("("):
            return self._call(token.text, operand, opening)
        return ast.Select(position, operand, token.text, optional)

    def _call(self, function: str, target: ast.Node | None, opening: int) -> ast.Node:
        arguments = tuple(self._elements(")", self.expression))
        call = ast.Call(opening, function, target, arguments)
        if function not in self.macros:
            return call
        try:
            return expand(call)
        except MacroError as error:
            self._issue(error.position, error.message)
            return call

    def _struct(self, name: str, position: int) -> ast.Node:
        return ast.StructLiteral(position, name, tuple(self._elements("}", self._field)))

    def _field(self) -> ast.Field:
        optional = self._accept("?")
        token = self.token
        if token.kind not in ("name", "quoted"):
            self._unexpected("IDENTIFIER")
        self.next += 1
        position = self._expect(":")
        return ast.Field(position, token.text, self.expression(), optional)

    # --- primaries

    def _primary(self) -> ast.Node:
        token = self.token
        self.next += 1
        if token.kind == "name":
            return self._name(token)
        if token.kind in ("number", "literal"):
            return self._literal(token)
        read = self.brackets.get(token.text)
        if token.kind != "operator" or read is None:
            self.next -= 1
            self._unexpected(_OPERAND)
        return read(token)

    def _literal(self, token: Token) -> ast.Node:
        value = token.value
        if type(value) is int and value > INT_MAX:
            self._issue(token.position, "invalid int literal")
        return ast.Literal(token.position, value)

    def _name(self, token: Token) -> ast.Node:
        if token.text in _CONSTANTS:
            return ast.Literal(token.position, _CONSTANTS[token.text])
        opening = self.token.position
        if token.text == "in":
            self.next -= 1
            self._unexpected(_OPERAND)
        if token.text in RESERVED:
            self._issue(token.position, f"reserved identifier: {token.text}")
        if self._accept("("):
            return self._call(token.text, None, opening)
        return ast.Identifier(token.position, token.text)

    def _absolute(self, dot: Token) -> ast.Node:
        token = self.token
        if token.kind != "name" or token.text in KEYWORDS:
            self._unexpected("IDENTIFIER")
        self.next += 1
        opening = self.token.position
        if self._accept("("):
            return self._call(token.text, None, opening)
        return ast.Identifier(dot.position, token.text, absolute=True)

    def _group(self, _opening: Token) -> ast.Node:
        tree = self.expression()
        self._expect(")")
        return tree

    def _list(self, opening: Token) -> ast.Node:
        optionals: set[int] = set()
        elements: list[ast.Node] = []

        def element() -> None:
            if self._accept("?"):
                optionals.add(len(elements))
            elements.append(self.expression())

        self._elements("]", element)
        return ast.ListLiteral(opening.position, tuple(elements), frozenset(optionals))

    def _map(self, opening: Token) -> ast.Node:
        return ast.MapLiteral(opening.position, tuple(self._elements("}", self._entry)))

    def _entry(self) -> ast.Entry:
        optional = self._accept("?")
        key = self.expression()
        position = self._expect(":")
        return ast.Entry(position, key, self.expression(), optional)

    def _elements(self, close: str, read: Callable[[], T]) -> list[T]:
        elements: list[T] = []
        depth = self.depth
        while not self._accept(close):
            try:
                elements.append(read())
            except _UnexpectedError:
                self.depth = depth
                self._skip_element(close)
            if not self._accept(","):
                self._expect(close)
                break
        return elements


_CONSTANTS: Final = {"true": True, "false": False, "null": None}


def _fold(operands: list[ast.Node], operator: Token) -> None:
    """Replace the last two operands by the operation on them."""
    right = operands.pop()
    left = operands.pop()
    if operator.text not in ("&&", "||"):
        function = _FUNCTIONS[operator.text]
        operands.append(ast.Call(operator.position, function, None, (left, right)))
        return
    conjunction = operator.text == "&&"
    if isinstance(left, ast.Logic) and left.conjunction == conjunction:
        left.operands.append(right)
        operands.append(left)
    else:
        operands.append(ast.Logic(operator.position, conjunction, [left, right]))


def _depth_exceeded(tree: ast.Node) -> bool:
    """Tell whether the tree is deeper than cel-go allows; a chain like `a.b.c` is deep too."""
    level = [tree]
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return False
        level = [part for node in level for part in ast.children(node)]
    return True
