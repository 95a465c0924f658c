"""Turn the text of an expression into its tree.

Operators are parsed by precedence in a loop with two stacks (Pratt's way, without its recursion).
After a mistake, parsing goes on behind the next comma, bracket or logical operator, to say in one
go all that is wrong.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from policyd.cel import ast
from policyd.cel.errors import CelCompileError
from policyd.cel.lexer import KEYWORDS, RESERVED, Token
from policyd.cel.macros import ALL_MACROS, MacroError, expand
from policyd.cel.recursion import deep_recursion
from policyd.cel.tokens import MAX_DEPTH, Tokens, UnexpectedError
from policyd.cel.values import INT_MAX, UInt

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
    if tree is None or parser.tokens.issues:
        raise CelCompileError(parser.tokens.issues)
    return tree


class _Parser:
    def __init__(self, source: str, macros: frozenset[str]) -> None:
        self.tokens = Tokens(source)
        self.macros = macros
        self.depth = 0
        self.brackets = {"(": self._group, "[": self._list, "{": self._map, ".": self._absolute}

    def parse(self) -> ast.Node | None:
        if not self.tokens.readable:
            return None
        tree = self.tokens.recover(self._whole)
        while tree is None and self.tokens.behind_logical_operator():
            self.depth = 0
            self.tokens.recover(self._whole)
        if tree is not None and ast.is_deeper(tree, MAX_DEPTH):
            self.tokens.issue(tree.position, f"expression recursion limit exceeded: {MAX_DEPTH}")
        self.tokens.issues.sort(key=lambda issue: (issue.line, issue.column))
        return tree

    def _whole(self) -> ast.Node:
        tree = self.expression()
        if self.tokens.current.kind != "end":
            self.tokens.unexpected("<EOF>")
        return tree

    # --- operators

    def expression(self, *, ternary: bool = True) -> ast.Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            message = f"expression recursion limit exceeded: {MAX_DEPTH}"
            self.tokens.issue(self.tokens.current.position, message)
            raise UnexpectedError
        operands = [self._operand()]
        operators: list[tuple[int, Token]] = []
        while True:
            token = self.tokens.current
            level = _LEVELS.get(token.text, 0) if token.kind in ("operator", "name") else 0
            while operators and operators[-1][0] >= level:
                _fold(operands, operators.pop()[1])
            if not level:
                break
            self.tokens.place += 1
            operators.append((level, token))
            operands.append(self._operand())
        tree = operands[0]
        if ternary and self.tokens.at("?"):
            tree = self._conditional(tree)
        self.depth -= 1
        return tree

    def _conditional(self, condition: ast.Node) -> ast.Node:
        position = self.tokens.expect("?")
        then = self.expression(ternary=False)
        self.tokens.expect(":")
        return ast.Conditional(position, condition, then, self.expression())

    def _operand(self) -> ast.Node:
        token = self.tokens.current
        if token.kind != "operator" or token.text not in ("!", "-"):
            return self._member(self._primary())
        count = 0
        while self.tokens.accept(token.text):
            count += 1
        if self.tokens.current.kind == "number" and type(self.tokens.current.value) is not UInt:
            if token.text == "-":
                return self._negated(token, count)
        elif (
            token.text == "!"
            and self.tokens.current.text == "-"
            and self.tokens.current.kind == "operator"
        ):
            minus = self.tokens.current
            self.tokens.place += 1
            return ast.Call(token.position, "!_", None, (self._negated(minus, 1),))
        operand = self._member(self._primary())
        if count % 2 == 0:
            return operand
        return ast.Call(token.position, f"{token.text}_", None, (operand,))

    def _negated(self, minus: Token, count: int) -> ast.Node:
        """Read a number behind minus signs; the nearest belongs to the number itself."""
        token = self.tokens.current
        value = token.value
        if token.kind != "number" or not isinstance(value, int | float):
            self.tokens.unexpected("{NUM_FLOAT, NUM_INT}")
        self.tokens.place += 1
        literal = ast.Literal(minus.position, -value)
        operand = self._member(literal)
        return operand if count % 2 else ast.Call(minus.position, "-_", None, (operand,))

    # --- members

    def _member(self, operand: ast.Node) -> ast.Node:
        while self.tokens.current.kind == "operator":
            position = self.tokens.current.position
            if self.tokens.accept("."):
                operand = self._selected(operand, position)
            elif self.tokens.accept("["):
                optional = self.tokens.accept("?")
                operand = ast.Index(position, operand, self.expression(), optional)
                self.tokens.expect("]")
            elif self.tokens.current.text == "{":
                name = ast.qualified_name(operand)
                if name is None:
                    break
                self.tokens.place += 1
                operand = self._struct(".".join(name), position)
            else:
                break
        return operand

    def _selected(self, operand: ast.Node, position: int) -> ast.Node:
        optional = self.tokens.accept("?")
        token = self.tokens.current
        if token.kind == "quoted":
            self.tokens.place += 1
            return ast.Select(position, operand, token.text, optional)
        if token.kind != "name" or token.text in KEYWORDS:
            self.tokens.unexpected("IDENTIFIER")
        self.tokens.place += 1
        opening = self.tokens.current.position
        if not optional and self.tokens.accept("("):
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
            self.tokens.issue(error.position, error.message)
            return call

    def _struct(self, name: str, position: int) -> ast.Node:
        return ast.StructLiteral(position, name, tuple(self._elements("}", self._field)))

    def _field(self) -> ast.Field:
        optional = self.tokens.accept("?")
        token = self.tokens.current
        if token.kind not in ("name", "quoted"):
            self.tokens.unexpected("IDENTIFIER")
        self.tokens.place += 1
        position = self.tokens.expect(":")
        return ast.Field(position, token.text, self.expression(), optional)

    # --- primaries

    def _primary(self) -> ast.Node:
        token = self.tokens.current
        self.tokens.place += 1
        if token.kind == "name":
            return self._name(token)
        if token.kind in ("number", "literal"):
            return self._literal(token)
        read = self.brackets.get(token.text)
        if token.kind != "operator" or read is None:
            self.tokens.place -= 1
            self.tokens.unexpected(_OPERAND)
        return read(token)

    def _literal(self, token: Token) -> ast.Node:
        value = token.value
        if type(value) is int and value > INT_MAX:
            self.tokens.issue(token.position, "invalid int literal")
        return ast.Literal(token.position, value)

    def _name(self, token: Token) -> ast.Node:
        if token.text in _CONSTANTS:
            return ast.Literal(token.position, _CONSTANTS[token.text])
        opening = self.tokens.current.position
        if token.text == "in":
            self.tokens.place -= 1
            self.tokens.unexpected(_OPERAND)
        if token.text in RESERVED:
            self.tokens.issue(token.position, f"reserved identifier: {token.text}")
        if self.tokens.accept("("):
            return self._call(token.text, None, opening)
        return ast.Identifier(token.position, token.text)

    def _absolute(self, dot: Token) -> ast.Node:
        token = self.tokens.current
        if token.kind != "name" or token.text in KEYWORDS:
            self.tokens.unexpected("IDENTIFIER")
        self.tokens.place += 1
        opening = self.tokens.current.position
        if self.tokens.accept("("):
            return self._call(token.text, None, opening)
        return ast.Identifier(dot.position, token.text, absolute=True)

    def _group(self, _opening: Token) -> ast.Node:
        tree = self.expression()
        self.tokens.expect(")")
        return tree

    def _list(self, opening: Token) -> ast.Node:
        optionals: set[int] = set()
        elements: list[ast.Node] = []

        def element() -> None:
            if self.tokens.accept("?"):
                optionals.add(len(elements))
            elements.append(self.expression())

        self._elements("]", element)
        return ast.ListLiteral(opening.position, tuple(elements), frozenset(optionals))

    def _map(self, opening: Token) -> ast.Node:
        return ast.MapLiteral(opening.position, tuple(self._elements("}", self._entry)))

    def _entry(self) -> ast.Entry:
        optional = self.tokens.accept("?")
        key = self.expression()
        position = self.tokens.expect(":")
        return ast.Entry(position, key, self.expression(), optional)

    def _elements(self, close: str, read: Callable[[], T]) -> list[T]:
        elements: list[T] = []
        depth = self.depth
        while not self.tokens.accept(close):
            try:
                elements.append(read())
            except UnexpectedError:
                self.depth = depth
                self.tokens.skip_element(close)
            if not self.tokens.accept(","):
                self.tokens.expect(close)
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
