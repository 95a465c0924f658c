"""The places in a source file where a small error can be made, and the errors."""

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

FOLDERS = ("policyd/alloc", "policyd/workload", "policyd/jobs", "policyd/controller")

COMPARED = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
COMPUTED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Div: "*"}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
UNREAD = {"annotation", "returns", "decorator_list", "type_params", "exc", "cause", "msg"}
"""Parts of nodes without effect on what is decided: types, and texts of errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One error.

    Attributes:
        path: The file, within the project.
        line: Where the error is, from 1.
        was: The text before.
        now: The text in its place.
        source: The whole file with the error.
    """

    path: str
    line: int
    was: str
    now: str
    source: str

    def __str__(self) -> str:
        was, now = (" ".join(text.split())[:60] for text in (self.was, self.now))
        return f"{self.path}:{self.line}: `{was}` became `{now}`"


class Source:
    """A source file, and the texts of its nodes."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._text = path.read_bytes()
        self._starts = [0]
        for line in self._text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def __getitem__(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return self._text[begin:end].decode()

    def mutants(self) -> Iterator[Mutant]:
        """Yield all errors that can be made."""
        for node in nodes(ast.parse(self._text)):
            for now in errors(node, self):
                begin, end = self._span(node)
                source = (self._text[:begin] + now.encode() + self._text[end:]).decode()
                yield Mutant(
                    path=self.name, line=node.lineno, was=self[node], now=now, source=source
                )

    def _span(self, node: ast.AST) -> tuple[int, int]:
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[node.end_lineno - 1] + node.end_col_offset


def chosen(root: Path, count: int, seed: int, only: str = "") -> list[Mutant]:
    """Choose mutants at random, of all folders that are looked at; each of them compiles.

    Args:
        root: The project.
        count: How many.
        seed: Which; the same seed of the same source chooses the same.
        only: Beginning of the paths of files; all if left out.
    """
    files = sorted(
        path
        for folder in FOLDERS
        for path in (root / folder).rglob("*.py")
        if str(path.relative_to(root)).startswith(only)
    )
    found = [m for path in files for m in Source(path, str(path.relative_to(root))).mutants()]
    random.Random(seed).shuffle(found)
    return list(islice(filter(_compiles, found), count))


def _compiles(mutant: Mutant) -> bool:
    try:
        compile(mutant.source, mutant.path, "exec")
    except SyntaxError:
        return False
    return True


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions and statements of a tree that decide something."""
    for field, value in ast.iter_fields(node):
        of_class = field == "keywords" and isinstance(
            node, ast.ClassDef
        )  # frozen=True and its like
        if field in UNREAD or of_class or isinstance(node, ast.Assert):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                if isinstance(child, ast.expr | ast.stmt):
                    yield child
                yield from nodes(child)


def errors(node: ast.AST, text: Source) -> Iterator[str]:
    """Yield what a node may become."""
    now = ERRORS.get(type(node), lambda *_: None)(node, text)
    if now is not None:
        yield now


def compared(node: ast.Compare, text: Source) -> str | None:
    if len(node.ops) > 1:
        return None
    return f"({text[node.left]} {COMPARED[type(node.ops[0])]} {text[node.comparators[0]]})"


def joined(node: ast.BoolOp, text: Source) -> str:
    word = " or " if isinstance(node.op, ast.And) else " and "
    return "(" + word.join(f"({text[value]})" for value in node.values) + ")"


def constant(node: ast.Constant, _text: Source) -> str | None:
    if isinstance(node.value, bool):
        return str(not node.value)
    return str(node.value + 1) if isinstance(node.value, int) else None


def computed(node: ast.BinOp, text: Source) -> str | None:
    operator = COMPUTED.get(type(node.op))
    return operator and f"({text[node.left]} {operator} {text[node.right]})"


def returned(node: ast.Return, _text: Source) -> str | None:
    return None if node.value is None or isinstance(node.value, ast.Constant) else "return None"


def left_out(node: ast.Expr, _text: Source) -> str | None:
    called = isinstance(node.value, ast.Call | ast.Await)
    return "pass" if called and not is_log(node.value) else None


ERRORS: dict[type, Callable[..., str | None]] = {
    ast.Compare: compared,
    ast.BoolOp: joined,
    ast.UnaryOp: lambda node, text: (
        f"({text[node.operand]})" if isinstance(node.op, ast.Not) else None
    ),
    ast.Constant: constant,
    ast.BinOp: computed,
    ast.IfExp: lambda node, text: (
        f"({text[node.orelse]} if {text[node.test]} else {text[node.body]})"
    ),
    ast.Name: lambda node, _text: CALLED.get(node.id),
    ast.Return: returned,
    ast.Expr: left_out,
    ast.Continue: lambda *_: "break",
}


def is_log(call: ast.expr) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log"))):
            return True
        case _:
            return False
