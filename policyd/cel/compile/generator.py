"""Generate the Python function of an expression, one CEL operation a line.

Every value is held in a local variable or is a literal, so that each operand is evaluated once and
the number of a line says which part of the expression it is. No text of the expression gets into
the generated source but through `repr` of a string or a number; other values go in as globals.

Constant cost is summed up by block and charged where the block begins. `c` holds the cost so far,
`m` the limit, `w` work that is not charged yet, `A` the variables, `B` the budget.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from typing import Any, NamedTuple

from policyd.cel.check.checked import CheckedExpression
from policyd.cel.compile.lines import Block, Generated, Probe, SourceLine
from policyd.cel.cost import WORK_UNITS
from policyd.cel.environment import Environment
from policyd.cel.syntax import ast
from policyd.cel.types import DYN, Type
from policyd.cel.values import type_name

# CPython nests 20 loops and try blocks, and 100 indents; deeper parts become functions beside.
_BLOCKS_INLINE = 12
_INDENTS_INLINE = 40
# Lines that take no longer than a step of cost 1.
_LINES = 8
# Work that is charged together: a call for each step would take longer than most steps.
_CHARGE_WORK = "if w > 500: y = w; w = 0; B.charge_work(y)"
# The rest of it, in the end: too little to be over the limit by much.
_NOTE_WORK = f"if w: B.work += w; B.done += w; B.settle_at -= {WORK_UNITS} * w"

SPEND = "B.spent = c = B.spent + c"
# What was spent is charged to the request from time to time, and once it is over the limit.
SETTLE = "if c > B.settle_at: B.settle()"
_CHECK_COST = "if c > m: R_exceed()"
# The most that a function may cost that is checked only by `settle`, once it ran.
_MOST_UNCHECKED = 1_000


class Atom(NamedTuple):
    """The location of a value: a name or literal of the generated source.

    `kind` is the name of its type if the value is sure to have it, else `dyn`: an object may hold
    anything, regardless of the declared type. `value` is a constant's, wrapped in a tuple.
    """

    code: str
    kind: str = "dyn"
    value: tuple[Any] | None = None


class Local(NamedTuple):
    """A variable of a macro: how to read it, and the names of generated code that takes."""

    read: Callable[[], Atom]
    names: tuple[str, ...]


def local(atom: Atom) -> Local:
    """Return a variable that is in one of generated code."""
    return Local(lambda: atom, (atom.code,))


Emit = Callable[["Generator", Any], Atom]


def _charge(block: Block) -> str:
    charges = (f"c += {block.cost}", block.cost), (f"w += {block.work}", block.work)
    return "; ".join(text for text, amount in charges if amount)


class Generator:
    """Collects the lines of one function.

    Attributes:
        raising: Whether a line that may raise was written since a guard last cleared this.
    """

    def __init__(
        self,
        source: str,
        checked: CheckedExpression,
        environment: Environment,
        emitters: dict[type[ast.ExpressionNode], Emit],
    ) -> None:
        self.source = source
        self.checked = checked
        self.environment = environment
        self.emitters = emitters
        self.lines: list[SourceLine] = []
        self.constants: dict[str, Any] = {}
        self.roots: dict[str, str] = {}
        self.scope: dict[str, Local] = {}
        self.raising = False
        self._functions: list[SourceLine] = []
        self._used: set[str] = set()
        self._temporaries = 0
        self._indent = 2
        self._nesting = 0
        self._loops = 0
        self._blocks: list[Block] = []
        self._charged = 0
        self._bounded = 0
        self._checked = False

    def generate(self) -> Generated:
        """Write the whole function."""
        with self.block():
            result = self.emit(self.checked.tree)
        if self._charged + self._bounded > _MOST_UNCHECKED:
            self._checked = True
        if self._checked:
            self.line(_CHECK_COST)
        self.line(f"return {result.code}")
        return self._finished()

    def emit(self, node: ast.ExpressionNode) -> Atom:
        """Generate the evaluation of `node`."""
        if self._nesting > _BLOCKS_INLINE or self._indent > _INDENTS_INLINE:
            return self._emit_outlined(node)
        return self.emitters[type(node)](self, node)

    def emit_named(self, node: ast.ExpressionNode) -> Atom:
        """Generate the evaluation of `node` to a variable, not a literal."""
        return self.named(self.emit(node))

    def emit_bool(self, node: ast.ExpressionNode) -> Atom:
        """Generate the evaluation of `node`, and refuse a value that is not a bool."""
        atom = self.emit(node)
        if atom.kind == "bool":
            return atom
        atom = self.named(atom)
        test = f"{atom.code} is not True and {atom.code} is not False"
        self.line(f"if {test}: R_need_bool({atom.code})", node.position)
        return Atom(atom.code, "bool")

    # --- lines

    def line(self, text: str, position: int | None = None, probe: Probe | None = None) -> None:
        """Write a line; with a position if it may raise."""
        self.raising = self.raising or position is not None
        self.lines.append(SourceLine(self._indent, text, position, probe))

    def assign(self, value: str, kind: str = "dyn", position: int | None = None) -> Atom:
        """Write an assignment to a new variable, and return that."""
        atom = Atom(self.temporary(), kind)
        self.line(f"{atom.code} = {value}", position)
        return atom

    def temporary(self) -> str:
        """Return the name of an unused variable."""
        self._temporaries += 1
        return f"t{self._temporaries}"

    def constant(self, value: object) -> str:
        """Make a value known to the generated source, and return its name there."""
        name = f"K{len(self.constants)}"
        self.constants[name] = value
        return name

    def literal(self, value: object) -> Atom:
        """Return an atom for a constant."""
        plain = value is None or type(value) in (bool, int, str)
        plain = plain or (isinstance(value, float) and isfinite(value))
        code = repr(value) if plain else self.constant(value)
        return Atom(code, type_name(value), (value,))

    def named(self, atom: Atom) -> Atom:
        """Have a value in a variable or constant, to select from or to ask its type."""
        if atom.code[0] in "tgK" and atom.code != "True":
            return atom
        return Atom(self.assign(atom.code).code, atom.kind, atom.value)

    def root(self, name: str) -> Atom:
        """Return the variable that holds a variable of the environment."""
        code = self.roots.setdefault(name, f"g{len(self.roots)}")
        return Atom(code)

    def read(self, name: str) -> Atom:
        """Generate the read of a macro's variable."""
        variable = self.scope[name]
        self._used.update(variable.names)
        return variable.read()

    def kind_of(self, node: ast.ExpressionNode) -> Type:
        """Return the type the checker found."""
        return self.checked.types.get(node, DYN)

    # --- blocks

    def charge(self, cost: int, *, work: int = 0) -> None:
        """Add constant cost, and work, to the block being written.

        A constant cost is too little to matter outside of a loop.
        """
        self._charged += cost
        self._blocks[-1].cost += cost
        self._blocks[-1].work += work if self._loops else 0

    def charge_counted(
        self, price: str, position: int | None = None, *, condition: str = "", check: bool = True
    ) -> None:
        """Charge a cost that depends on values, given as an expression, and check the limit.

        Args:
            price: The expression.
            position: Its position if it may raise.
            condition: What must hold for it to be charged.
            check: Whether the limit is checked at once, as before a call that takes as long as it
                costs, rather than in the end.
        """
        self._checked = True
        self.line(f"{f'if {condition}: ' if condition else ''}c += {price}", position)
        if check:
            self.line(_CHECK_COST)

    def charge_bounded(self, price: str, most: int) -> None:
        """Charge a cost that depends on values, given as an expression, and is `most` at most."""
        self._bounded += most
        self.line(f"c += {price}")

    def charge_work(self, work: str, position: int) -> None:
        """Charge the work of the next line, given as an expression."""
        self.line(f"w += {work}")
        self.line(_CHARGE_WORK, position)

    @contextmanager
    def block(self, header: str = "", *, check: bool = False) -> Iterator[None]:
        """Write an indented block that has a cost of its own.

        Args:
            header: The line before it; none for the function's body.
            check: Whether the limit is checked on entry, as loops do.
        """
        if header:
            self.line(header)
            self._indent += 1
        line = SourceLine(self._indent, "")
        self.lines.append(line)
        self._blocks.append(Block(line))
        work = SourceLine(self._indent, "")
        if check:
            self._checked = True
            self.line(_CHECK_COST)
            self.lines.append(work)
        start = len(self.lines)
        yield
        charged = self._blocks.pop()
        work.text = _CHARGE_WORK if charged.work else ""
        empty = header and len(self.lines) == start and not check
        line.text = _charge(charged) or ("pass" if empty else "")
        if header:
            self._indent -= 1

    @contextmanager
    def loop(self, header: str) -> Iterator[None]:
        """Write a loop."""
        self._nesting += 1
        self._loops += 1
        lines, charged = len(self.lines), self._charged
        with self.block(header, check=True):
            yield
            # Free steps, such as logic, take time as well.
            free = (len(self.lines) - lines) // _LINES - (self._charged - charged)
            self.charge(0, work=max(free, 0))
        self._nesting -= 1
        self._loops -= 1

    @contextmanager
    def guard(
        self, result: str, error: str, neutral: str, *, latest: bool = False
    ) -> Iterator[None]:
        """Write lines whose errors are recorded in `error`, with `neutral` as the result then.

        The first of several errors is kept, or the latest.
        """
        before, self.raising = self.raising, False
        at = len(self.lines)
        self._indent += 1
        self._nesting += 1
        yield
        self._indent -= 1
        self._nesting -= 1
        if self.raising:
            self.lines.insert(at, SourceLine(self._indent, "try:"))
            self.line("except ERRORS as x:")
            known = None if latest else error
            self.lines.append(SourceLine(self._indent + 1, f"{error} = R_absorb(x, {known}, B)"))
            self.lines.append(SourceLine(self._indent + 1, f"{result} = {neutral}"))
        else:
            for line in self.lines[at:]:
                line.indent -= 1
        self.raising = self.raising or before

    @contextmanager
    def bound(self, variables: dict[str, Local]) -> Iterator[None]:
        """Bind names to local variables while the body is generated."""
        before = self.scope
        self.scope = {**before, **variables}
        yield
        self.scope = before

    def _emit_outlined(self, node: ast.ExpressionNode) -> Atom:
        """Generate a function that evaluates `node`, with the variables it reads as arguments."""
        outer = self.lines, self._indent, self._nesting, self._used
        self.lines, self._indent, self._nesting, self._used = [], 2, 0, set()
        with self.block():
            result = self.emitters[type(node)](self, node)
        self.line(f"return {result.code}")
        body, used = self.lines, self._used
        self.lines, self._indent, self._nesting, self._used = outer
        known = {name for variable in self.scope.values() for name in variable.names}
        parameters = ", ".join(sorted(used & known))
        self._used |= used & known
        name = self.temporary()
        self._functions += (
            SourceLine(1, f"def {name}({parameters}):"),
            SourceLine(2, "nonlocal c, w"),
            *body,
        )
        return self.assign(f"{name}({parameters})", result.kind, node.position)

    def _finished(self) -> Generated:
        works = any("w += " in line.text for line in (*self._functions, *self.lines))
        head = [
            SourceLine(0, "def cel(A, B):"),
            SourceLine(1, "c = w = 0" if works or self._functions else "c = 0"),
            SourceLine(1, "m = B.limit - B.spent" if self._checked else ""),
            SourceLine(1, "if m > LIMIT: m = LIMIT" if self._checked else ""),
            *self._functions,
            SourceLine(1, "try:"),
        ]
        for name, code in self.roots.items():
            head.append(SourceLine(2, f"{code} = A[{name!r}]", 0, Probe("A", name)))
        tail = [SourceLine(1, "finally:"), SourceLine(2, SPEND)]
        if works:
            tail.append(SourceLine(2, _NOTE_WORK))
        tail.append(SourceLine(2, SETTLE))
        lines = [line for line in (*head, *self.lines, *tail) if line.text]
        text = "\n".join(" " * line.indent + line.text for line in lines)
        return Generated(text, self.constants, lines, frozenset(self.roots))
