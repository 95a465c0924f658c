"""Parse the text of an expression to its tree.

Operators are parsed by precedence in a loop with two stacks (Pratt's way, without its recursion).
After a mistake, parsing goes on behind the next comma, bracket or logical operator, to say in one
go all that is wrong.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from policyd.cel.errors import CelCompileError
from policyd.cel.recursion import deep_recursion
from policyd.cel.syntax import ast
from policyd.cel.syntax.lexer import KEYWORDS, RESERVED, Token
from policyd.cel.syntax.macros import ALL_MACROS, MacroError, expand, is_macro
from policyd.cel.syntax.nesting import MAX_DEPTH, Nesting, OperatorChain, TooDeepError, is_too_deep
from policyd.cel.syntax.tokens import Tokens, UnexpectedError, begins_operand
from policyd.cel.values import INT_MAX, UInt

T = TypeVar("T")


class _Brackets:
    """Reads elements and groups; each mistake in them is reported by itself."""

    def __init__(self, tokens: Tokens, nesting: Nesting) -> None:
        self._tokens = tokens
        self._nesting = nesting

    def enclosed(self, close: str, read: Callable[[], ast.ExpressionNode]) -> ast.ExpressionNode:
        """Read one expression, and the bracket behind it."""
        tokens, state = self._tokens, self._nesting.state()
        position = tokens.current.position
        tokens.closing.append(close)
        try:
            tree = read()
            tokens.expect(close)
        except UnexpectedError:
            self._nesting.restore(state)
            tokens.skip_to(close)
            tokens.expect(close)
            tree = ast.Literal(position, None)
        finally:
            tokens.closing.pop()
        return tree

    def elements(self, close: str, read: Callable[[], T], *, trailing: bool = True) -> list[T]:
        """Read elements with commas between them, and the bracket behind them.

        Args:
            close: The bracket.
            read: Reads one element.
            trailing: Whether a comma may stand behind the last element.
        """
        tokens = self._tokens
        if trailing and tokens.at(",") and tokens.following.text == close:
            tokens.place += 1
        if tokens.accept(close):
            return []
        tokens.closing.append(close)
        try:
            return self._some(close, read, trailing=trailing)
        finally:
            tokens.closing.pop()

    def _some(self, close: str, read: Callable[[], T], *, trailing: bool) -> list[T]:
        tokens, state = self._tokens, self._nesting.state()
        found: list[T] = []
        while True:
            try:
                found.append(read())
                if not tokens.at(","):
                    tokens.expect(close, or_comma=trailing)
                    return found
            except UnexpectedError:
                self._nesting.restore(state)
                tokens.skip_to(",", close)
            if not tokens.accept(",") or (trailing and tokens.at(close)):
                tokens.expect(close)
                return found


_LEVELS: Final = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), 3),
    **dict.fromkeys("+-", 4),
    **dict.fromkeys("*/%", 5),
}
"""The operators with two operands, by how strongly they bind."""
_FUNCTIONS: Final = {text: f"_{text}_" for text in _LEVELS} | {"in": "@in"}


def _fold(operands: list[ast.ExpressionNode], operator: Token) -> None:
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


_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_OPERAND: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, "
    "STRING, BYTES, IDENTIFIER}"
)


def parse(source: str, *, macros: frozenset[str] = ALL_MACROS) -> ast.ExpressionNode:
    """Parse one expression.

    Args:
        source: The text.
        macros: Names of the macros to recognise; the others are taken for functions.

    Raises:
        CelCompileError: If `source` is not an expression, or exceeds cel-go's limits.
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
        self.nesting = Nesting()
        self.brackets = _Brackets(self.tokens, self.nesting)
        self.macros = macros
        self.openings = {"(": self._group, "[": self._list, "{": self._map, ".": self._absolute}

    def parse(self) -> ast.ExpressionNode | None:
        try:
            tree = self._recovering()
            too_deep = tree is not None and self.tokens.place > MAX_DEPTH and is_too_deep(tree)
        except TooDeepError:
            tree, too_deep = None, True
        if too_deep:
            message = f"expression recursion limit exceeded: {MAX_DEPTH}"
            self.tokens.issue(self.tokens.current.position, message)
        self.tokens.issues.sort(key=lambda issue: (issue.line, issue.column))
        return tree

    def _recovering(self) -> ast.ExpressionNode | None:
        """Read the expression; behind a mistake, go on at the next logical operator."""
        while self.tokens.readable:
            self.nesting.restore((0, 0, 0, 0))
            try:
                return self._whole()
            except UnexpectedError:
                if not self.tokens.behind_logical_operator():
                    break
        return None

    def _whole(self) -> ast.ExpressionNode:
        tree = self.expression()
        if self.tokens.current.kind != "end":
            self.tokens.unexpected("<EOF>", extraneous=self.tokens.following.kind == "end")
        return tree

    # --- operators

    def expression(self) -> ast.ExpressionNode:
        self.nesting.enter_expression()
        tree = self._disjunction()
        if self.tokens.at("?"):
            position = self.tokens.expect("?")
            then = self._disjunction()
            self.tokens.expect(":")
            tree = ast.Conditional(position, tree, then, self.expression())
        self.nesting.expression -= 1
        return tree

    def _disjunction(self) -> ast.ExpressionNode:
        """Read operands with operators other than `? :` between them."""
        chain = OperatorChain(self.nesting)
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
            chain.behind(level)
            operands.append(self._operand())
        chain.end()
        return operands[0]

    def _operand(self) -> ast.ExpressionNode:
        token = self.tokens.current
        if not begins_operand(token):
            self.tokens.skip_unwanted(_OPERAND, begins_operand)
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

    def _negated(self, minus: Token, count: int) -> ast.ExpressionNode:
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

    def _member(self, operand: ast.ExpressionNode) -> ast.ExpressionNode:
        """Read the selections from a value."""
        outer = self.nesting.member
        self.nesting.member += 1
        while self.tokens.current.kind == "operator":
            position = self.tokens.current.position
            if self.tokens.accept("."):
                self.nesting.enter_member()
                operand = self._selected(operand, position)
            elif self.tokens.accept("["):
                self.nesting.enter_member()
                optional = self.tokens.accept("?")
                index = self.brackets.enclosed("]", self.expression)
                operand = ast.Index(position, operand, index, optional)
            elif self.tokens.at("{") and (name := ast.qualified_name(operand)):
                self.tokens.place += 1
                operand = self._struct(".".join(name), position)
            else:
                break
        self.nesting.member = outer
        return operand

    def _selected(self, operand: ast.ExpressionNode, position: int) -> ast.ExpressionNode:
        optional = self.tokens.accept("?")
        token = self.tokens.current
        if token.kind == "quoted":
            self.tokens.place += 1
            return ast.Select(position, operand, token.text, optional)
        self._expect_name(position)
        opening = self.tokens.current.position
        if not optional and self.tokens.accept("("):
            return self._call(token.text, operand, opening)
        return ast.Select(position, operand, token.text, optional)

    def _expect_name(self, dot: int) -> None:
        """Go on behind the name that follows a dot."""
        token = self.tokens.current
        if token.kind == "name" and token.text not in KEYWORDS:
            self.tokens.place += 1
        elif token.text in _CONSTANTS and token.kind == "name":
            self.tokens.unexpected("IDENTIFIER")
        else:
            self.tokens.not_viable(dot)

    def _call(
        self, function: str, target: ast.ExpressionNode | None, opening: int
    ) -> ast.ExpressionNode:
        mistakes = len(self.tokens.issues)
        arguments = tuple(self.brackets.elements(")", self.expression, trailing=False))
        call = ast.Call(opening, function, target, arguments)
        # Arguments with a mistake get no further findings.
        if not is_macro(call, self.macros) or len(self.tokens.issues) > mistakes:
            return call
        try:
            return expand(call)
        except MacroError as error:
            self.tokens.issue(error.position, error.message)
            return call

    def _struct(self, name: str, position: int) -> ast.ExpressionNode:
        return ast.StructLiteral(position, name, tuple(self.brackets.elements("}", self._field)))

    def _field(self) -> ast.Field:
        optional = self.tokens.accept("?")
        token = self.tokens.current
        if token.kind not in ("name", "quoted"):
            self.tokens.unexpected("IDENTIFIER")
        self.tokens.place += 1
        position = self.tokens.expect(":")
        return ast.Field(position, token.text, self.expression(), optional)

    # --- primaries

    def _primary(self) -> ast.ExpressionNode:
        self.nesting.enter_member()
        token = self.tokens.current
        self.tokens.place += 1
        if token.kind == "name":
            tree = self._name(token)
        elif token.kind in ("number", "literal"):
            tree = self._literal(token)
        else:
            read = self.openings.get(token.text) if token.kind == "operator" else None
            if read is None:
                self.tokens.place -= 1
                self.tokens.unexpected(_OPERAND)
            tree = read(token)
        self.nesting.member -= 1
        return tree

    def _literal(self, token: Token) -> ast.ExpressionNode:
        value = token.value
        if type(value) is int and value > INT_MAX:
            self.tokens.issue(token.position, "invalid int literal")
        return ast.Literal(token.position, value)

    def _name(self, token: Token) -> ast.ExpressionNode:
        if token.text in _CONSTANTS:
            return ast.Literal(token.position, _CONSTANTS[token.text])
        opening = self.tokens.current.position
        if token.text in RESERVED:
            self.tokens.issue(token.position, f"reserved identifier: {token.text}")
        if self.tokens.accept("("):
            return self._call(token.text, None, opening)
        return ast.Identifier(token.position, token.text)

    def _absolute(self, dot: Token) -> ast.ExpressionNode:
        token = self.tokens.current
        self._expect_name(dot.position)
        opening = self.tokens.current.position
        if self.tokens.accept("("):
            return self._call(token.text, None, opening)
        return ast.Identifier(dot.position, token.text, absolute=True)

    def _group(self, _opening: Token) -> ast.ExpressionNode:
        return self.brackets.enclosed(")", self.expression)

    def _list(self, opening: Token) -> ast.ExpressionNode:
        optionals: set[int] = set()
        elements: list[ast.ExpressionNode] = []

        def element() -> None:
            if self.tokens.accept("?"):
                optionals.add(len(elements))
            elements.append(self.expression())

        self.brackets.elements("]", element)
        return ast.ListLiteral(opening.position, tuple(elements), frozenset(optionals))

    def _map(self, opening: Token) -> ast.ExpressionNode:
        return ast.MapLiteral(opening.position, tuple(self.brackets.elements("}", self._entry)))

    def _entry(self) -> ast.MapEntry:
        optional = self.tokens.accept("?")
        key = self.expression()
        position = self.tokens.expect(":")
        return ast.MapEntry(position, key, self.expression(), optional)
