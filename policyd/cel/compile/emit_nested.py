"""Generate a fast second version of nested loops, for the usual values.

This function moves constant parts out of inner loops, looks a value up instead of
looping for it, and charges the common cost of all rounds at once. It gives up if something is out
of the ordinary: a field that is missing, a value that is neither an integer nor a text, an element
for which `all` does not hold, a cost that is not small. It has no effects, so that the function in
full, which is compiled when it is first needed, can begin from the start then.

In the generated source `c` holds the cost so far, `m` the limit, `A` the variables, `B` the budget.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from policyd.cel import cost
from policyd.cel.check.checked import CheckedExpression, VariableReference
from policyd.cel.compile.generator import SETTLE, SPEND
from policyd.cel.syntax import ast


class NestedLoop:
    """A loop, or the whole function.

    Attributes:
        parent: The loop around it.
        home: The loop in whose rounds the list to loop over changes. If that is not the parent,
            rows of the needed parts of each element are made there.
        element: The name of an element.
        row: Lines that need the element, and nothing else that changes.
        body: Lines that need more.
        counted: Further costs of a round, by names of `row`.
        fixed: Further costs of each round, by names from before the loop.
        is_in_place: Whether there are no rows, and all rounds are charged before the first.
    """

    def __init__(
        self, parent: "NestedLoop | None", home: "NestedLoop | None", element: str
    ) -> None:
        self.parent = parent
        self.home = home
        self.element = element
        self.row: list[str] = []
        self.body: list[str] = []
        self.counted: list[str] = []
        self.fixed: list[str] = []
        self.is_in_place = False

    def columns(self) -> str:
        """Return the names of `row` that `body` needs, or that of the element."""
        needed = {word for line in self.body for word in _words(line)}
        assigned = [self.element, *(line.partition(" = ")[0] for line in self.row)]
        return ", ".join(name for name in assigned if name in needed) or self.element

    @property
    def depth(self) -> int:
        """The number of loops, down to this one."""
        return 1 + self.parent.depth if self.parent else 0


class NestedValue(NamedTuple):
    """A name or literal of the generated source, and the loop in whose rounds it changes."""

    code: str
    loop: NestedLoop
    literal: object = None


def _words(line: str) -> list[str]:
    return "".join(letter if letter.isalnum() else " " for letter in line).split()


def indented(lines: list[str]) -> list[str]:
    """Return lines one level deeper."""
    return [f" {line}" for line in lines]


def fields_of(node: ast.ExpressionNode, variable: str) -> tuple[str, ...] | None:
    """Return the fields that are selected from a variable; None if it is not that."""
    fields: tuple[str, ...] = ()
    while isinstance(node, ast.Select) and not node.optional:
        fields = (node.field, *fields)
        node = node.operand
    found = isinstance(node, ast.Identifier) and node.name == variable and not node.absolute
    return fields if found else None


def mentions(node: ast.ExpressionNode, variable: str) -> bool:
    """Tell whether a name stands anywhere in an expression."""
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Identifier) and part.name == variable:
            return True
        pending += ast.children(part)
    return False


_ACCUMULATOR: Final = cost.IDENTIFIER
_EQUALITIES: Final = {"_==_": "==", "_!=_": "!="}
# The cost of each round of a loop besides its body.
_ROUNDS: Final = {"all": 2 + _ACCUMULATOR, "exists": 3 + _ACCUMULATOR}
_CHECK: Final = "if c > m: R_give_up()"
_MOST_LINES: Final = 300
# Loops in loops, and indents; CPython nests 20 loops.
_DEEPEST: Final = 12


def write_nested(checked: CheckedExpression) -> str | None:
    """Return the source of a fast function `cel` for usual values; None if there is none.

    It calls `R_whole` if it gives up.
    """
    if not isinstance(checked.tree, ast.Comprehension | ast.Logic):
        return None
    try:
        return _Writer(checked).source()
    except _UnsupportedError:
        return None


class _UnsupportedError(Exception):
    """An expression has a part that only the function in full can evaluate."""


class _Writer:
    """Writes the lines of one function."""

    def __init__(self, checked: CheckedExpression) -> None:
        self.checked = checked
        self.root = self.loop = NestedLoop(None, None, "")
        self.out = self.root.body
        self.scope: dict[str, NestedLoop] = {}
        self.known: dict[str, str] = {}
        self.charged = 0
        self.if_true: dict[str, int] = {}
        self.deepest = 0
        self.temporaries = 0

    def source(self) -> str:
        """Return the source of the whole function."""
        result = self.test(self.checked.tree)
        self._charge_if_true(result)
        lines = ["m = B.limit - B.spent", "if m > SHORT: m = SHORT", f"c = {self.charged}"]
        lines += [*self.root.row, *self.root.body, _CHECK, f"r = {result}"]
        deep = not 1 < self.deepest <= _DEEPEST or any(line[:_DEEPEST].isspace() for line in lines)
        if deep or len(lines) > _MOST_LINES:
            raise _UnsupportedError
        body = "\n".join(f"  {line}" for line in lines)
        done = f" else:\n  {SPEND}\n  {SETTLE}\n  return r"
        return f"def cel(A, B):\n try:\n{body}\n except ANY: pass\n{done}\n return R_whole(A, B)"

    def temporary(self) -> str:
        """Return an unused name."""
        self.temporaries += 1
        return f"t{self.temporaries}"

    def once(self, loop: NestedLoop, code: str) -> str:
        """Assign a value that depends on an element alone, once for each, and return its name."""
        if code not in self.known:
            name = self.known[code] = self.temporary()
            loop.row.append(f"{name} = {code}")
        return self.known[code]

    def assign(self, code: str, target: str) -> str:
        """Write an assignment where the writer is, to a new name if there is none yet."""
        name = target or self.temporary()
        self.out.append(f"{name} = {code}")
        return name

    def _charge_if_true(self, result: str) -> None:
        """Charge the cost of a test that is true, unless it is charged elsewhere."""
        if result in self.if_true:
            self.out.append(f"if {result}: c += {self.if_true.pop(result)}")

    @contextmanager
    def block(self, header: str, price: int) -> Iterator[None]:
        """Write lines that run only sometimes, and charge only then, `price` to begin with."""
        outer, charged = self.out, self.charged
        self.out, self.charged = [], price
        yield
        self.out[:0] = [f"c += {self.charged}"] if self.charged else []
        outer += [header, *indented(self.out)]
        self.out, self.charged = outer, charged

    # --- values

    def value(self, node: ast.ExpressionNode) -> NestedValue:
        """Write an integer, a text, or a selection of fields."""
        if isinstance(node, ast.Literal):
            if type(node.value) is int or (type(node.value) is str and node.value):
                return NestedValue(repr(node.value), self.root, node.value)
        elif node in self.checked.references:
            return self._variable(self.checked.references[node])
        elif isinstance(node, ast.Identifier) and not node.absolute and node.name in self.scope:
            self.charged += cost.IDENTIFIER
            loop = self.scope[node.name]
            return NestedValue(loop.element, loop)
        elif isinstance(node, ast.Select | ast.Index):
            return self._field(self.value(node.operand), _field_of(node))
        raise _UnsupportedError

    def _variable(self, reference: object) -> NestedValue:
        # Variables of a policy are evaluated when they are read, which is an effect.
        if not isinstance(reference, VariableReference) or reference.name == "variables":
            raise _UnsupportedError
        self.charged += cost.IDENTIFIER
        found = NestedValue(self.once(self.root, f"A[{reference.name!r}]"), self.root)
        for name in reference.fields:
            found = self._field(found, name)
        return found

    def _field(self, value: NestedValue, name: str) -> NestedValue:
        if value.literal is not None:
            raise _UnsupportedError
        self.charged += cost.SELECT
        return value._replace(code=self.once(value.loop, f"{value.code}[{name!r}]"))

    def _items(self, node: ast.ExpressionNode) -> NestedValue:
        """Generate the range of a loop."""
        value = self.value(node)
        code = f"{value.code} if type({value.code}) is list else R_give_up()"
        return value._replace(code=self.once(value.loop, code))

    def _tenths(self, value: NestedValue) -> str:
        """Generate the extra cost of comparing a value, at most; refuse complex values."""
        code, literal = value.code, value.literal
        if literal is not None:
            return str((len(literal) - 1) // 10) if isinstance(literal, str) else "0"
        text = f"(len({code}) - 1) // 10 if type({code}) is str and {code} else R_give_up()"
        return self.once(value.loop, f"0 if type({code}) is int else {text}")

    # --- tests

    def test(self, node: ast.ExpressionNode, target: str = "") -> str:
        """Generate a test; return the name of the result, or `True` if it is constant."""
        if isinstance(node, ast.Logic):
            return self._logic(node, target)
        if isinstance(node, ast.Comprehension) and len(node.variables) == 1:
            return self._comprehension(node, target)
        if isinstance(node, ast.Call) and node.function in _EQUALITIES:
            return self._equality(node, target)
        raise _UnsupportedError

    def _logic(self, node: ast.Logic, target: str) -> str:
        result = ""
        for operand in node.operands:
            if result:
                price = self.if_true.pop(result, 0)
                # Charged at first as if it were true, and given back if it is not.
                self.charged += 0 if node.conjunction else price
                header, price = ("if", price) if node.conjunction else ("if not", -price)
                with self.block(f"{header} {result}:", price):
                    if self.test(operand, result) == "True":
                        self.assign("True", result)
                    self._charge_if_true(result)
                continue
            code = self.test(operand, target)
            if code != "True":
                result = code
            elif not node.conjunction:
                break
        return result or "True"

    def _equality(self, node: ast.Call, target: str) -> str:
        left, right = map(self.value, node.arguments)
        self.charged += 1
        a, b = self._tenths(left), self._tenths(right)
        result = self.assign(f"{left.code} {_EQUALITIES[node.function]} {right.code}", target)
        if "0" not in (a, b):
            self.out.append(f"if {a} and {b}: c += {a} if {a} < {b} else {b}")
        return result

    def _comprehension(self, node: ast.Comprehension, target: str) -> str:
        items = self._items(node.range)
        if node.kind == "exists_one":
            return self._exists_one(node, items, target)
        if node.kind not in _ROUNDS:
            raise _UnsupportedError
        self.charged += _ACCUMULATOR
        result = self.assign("False", target) if node.kind == "exists" else "True"
        loop = NestedLoop(self.loop, items.loop, self.temporary())
        loop.is_in_place = node.kind == "all" and loop.home is loop.parent
        self.deepest = max(self.deepest, loop.depth)
        price = self._body(loop, node, result)
        self._loop(loop, items.code, price + _ROUNDS["all"] if node.kind == "all" else 0)
        return result

    def _body(self, loop: NestedLoop, node: ast.Comprehension, result: str) -> int:
        """Generate a round, and return the part of its cost that is the same in all rounds."""
        outer = self.loop, self.out, self.charged, self.scope
        self.loop, self.out, self.charged = loop, loop.body, 0
        self.scope = {**self.scope, node.variables[0]: loop}
        test = self.test(node.result)
        if node.kind == "exists":
            spent = " + ".join((str(_ROUNDS["exists"] + self.charged), *loop.counted))
            loop.body.insert(0, f"c += {spent}")
            price = 3 + self.if_true.pop(test, 0)
            loop.body += [f"if {test}:", f" c += {price}", f" {result} = True", " break"]
        elif test != "True":
            loop.body.append(f"if not {test}: R_give_up()")
        charged = self.charged + self.if_true.pop(test, 0)
        self.loop, self.out, self.charged, self.scope = outer
        return charged

    def _loop(self, loop: NestedLoop, items: str, price: int) -> None:
        """Write a loop over elements, or rows of them; without a price its rounds charge."""
        each = [f"for {loop.element} in {items}:", *indented(loop.row)]
        counted = " + ".join(loop.counted) if price else ""
        if loop.home is loop.parent:
            each += [f" c += {counted}"] if counted else []
            fixed = " + ".join((str(price), *loop.fixed))
            self.out += [f"c += ({fixed}) * len({items})", _CHECK, *each, *indented(loop.body)]
            return
        assert loop.home, "only the function is at home nowhere"
        total, rows, columns = self.temporary(), self.temporary(), loop.columns()
        each += [f" {total} += {counted}"] if counted else []
        loop.home.row += [f"{total} = {price} * len({items})", f"{rows} = []", *each]
        loop.home.row.append(f" {rows}.append(({columns}))")
        parent = self.loop
        if self.out is parent.body and parent.is_in_place:
            parent.fixed.append(total)
        else:
            self.out += [f"c += {total}", _CHECK]
        self.out += [f"for {columns} in {rows}:", *indented(loop.body)]

    def _exists_one(self, node: ast.Comprehension, items: NestedValue, target: str) -> str:
        """Write `x.exists_one(y, y.a == b)`: a look into the set of all `y.a`."""
        result, variable = node.result, node.variables[0]
        if not (isinstance(result, ast.Call) and result.function == "_==_"):
            raise _UnsupportedError
        sides = [(fields_of(part, variable), part) for part in result.arguments]
        sides.sort(key=lambda side: side[0] is None)
        (fields, _), (other, wanted) = sides
        if fields is None or other is not None or mentions(wanted, variable):
            raise _UnsupportedError
        self.deepest = max(self.deepest, self.loop.depth + 1)
        charged, self.charged = self.charged, 0
        value = self.value(wanted)
        round_ = self.charged + cost.IDENTIFIER + cost.SELECT * len(fields) + 1
        self.charged = charged + _ACCUMULATOR + 1
        selected = "".join(f"[{name!r}]" for name in fields)
        values = self.once(items.loop, f"{{e{selected} for e in {items.code}}}")
        check = f"len({values}) == len({items.code}) and R_plain({values})"
        odd = f"R_distinct({values}, {items.code})"
        found = self.once(items.loop, f"{values} if {check} else {odd}")
        self._count(items.loop, f"{round_} * len({found})")
        longest = self._tenths(value)
        is_there = self.assign(f"{value.code} in {found}", target)
        if longest != "0":
            self.out.append(f"if {longest}: c += R_tenths({found}, {longest})")
        self.if_true[is_there] = _ACCUMULATOR + 1
        return is_there

    def _count(self, loop: NestedLoop, price: str) -> None:
        """Charge for all rounds of a loop that is not written."""
        if loop is self.loop is not self.root and self.out is loop.body:
            loop.counted.append(price)
        else:
            self.out.append(f"c += {price}")


def _field_of(node: ast.Select | ast.Index) -> str:
    """Return the field that is selected, which may be written as a key."""
    key = node.field if isinstance(node, ast.Select) else getattr(node.index, "value", None)
    if node.optional or not isinstance(key, str):
        raise _UnsupportedError
    return key
