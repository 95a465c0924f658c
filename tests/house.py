"""`make house`: figures of the product's shape, each with its target.

Read from the sources, and, for the ways of a review, a Workload and a Job, counted while one goes
its way (`house_ways`, `house_loops`). Nothing is timed.
"""

import argparse
import ast
import asyncio
import json
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

import structlog
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("policyd", "webhooks")

SMALL_LINES = 100
"""A file of fewer lines that one other imports may belong into that one."""

DATA_LINES = 40
"""A literal of a module that is longer than this is data, and not code."""

FOLDERS = {"policyd/engine": (15, 60), "policyd/controller": (22, 70), "webhooks": (18, 42)}
"""How many files, and imports among them, may be directly in the folders that were too full."""

WAYS = {
    "review": ("house_ways", {"files": 35, "calls": 1_200}),
    "workload": ("house_loops", {"files that it leads through": 20}),
    "job": ("house_loops", {"files that it leads through": 20}),
}
"""Where the way of a pod's review, of a Workload and of a Job is counted, and its targets."""


@dataclass(frozen=True)
class Module:
    """One file of the product."""

    name: str
    path: Path
    lines: int
    code_lines: int
    functions: int
    classes: tuple[str, ...]
    imports: frozenset[str]
    data_lines: int

    @property
    def folder(self):
        return str(self.path.parent)


@dataclass(frozen=True)
class Figure:
    """One figure, and the most that it may be; `None` where there is no target or no count."""

    name: str
    now: int | None
    target: int | None = None
    place: str = ""

    @property
    def met(self):
        return None if None in (self.now, self.target) else self.now <= self.target


def modules(root=ROOT):
    """Return the modules of the product by their dotted names."""
    paths = [path for top in PRODUCT for path in sorted((root / top).rglob("*.py"))]
    names = {_name(path.relative_to(root)): path for path in paths}
    return {name: _module(name, path, root, names) for name, path in names.items()}


def _name(path):
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _module(name, path, root, known):
    text = path.read_text()
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    return Module(
        name=name,
        path=path.relative_to(root),
        lines=text.count("\n"),
        code_lines=len(_code_lines(nodes)),
        functions=sum(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) for n in nodes),
        classes=tuple(
            n.name for n in tree.body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")
        ),
        imports=frozenset(_imported(nodes, known) - {name}),
        data_lines=sum(_data_lines(n) for n in tree.body),
    )


def _code_lines(nodes):
    """Return the lines on which a statement or an expression begins that is no docstring."""
    prose = [n for n in nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    lines = {n.lineno for n in nodes if isinstance(n, ast.expr | ast.stmt)}
    return lines - {n.lineno for n in prose}


def _imported(nodes, known):
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names
            if names - known.keys():
                found.add(node.module)
    return found & known.keys()


def _data_lines(node):
    """Return how many lines an assignment has, if it is long and computes nothing."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return 0
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    lines = node.end_lineno - node.lineno + 1
    computing = ast.Call | ast.Lambda | ast.comprehension
    code = any(isinstance(n, computing) for n in ast.walk(node.value))
    exports = any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets)
    return 0 if code or exports or lines <= DATA_LINES else lines


def doubles(found):
    """Return the public names of classes that more than one module defines, with the modules."""
    where = defaultdict(list)
    for module in found.values():
        for name in module.classes:
            where[name].append(module.name)
    return {name: places for name, places in sorted(where.items()) if len(places) > 1}


def small_files(found):
    """Return the paths of small files that one neighbour alone imports."""
    importers = Counter(other for module in found.values() for other in module.imports)
    return [
        str(module.path)
        for module in found.values()
        if module.lines < SMALL_LINES
        and module.path.name != "__init__.py"
        and importers[module.name] == 1
    ]


def folders(found):
    """Return the figures of each folder's own files, by folder."""
    inside = defaultdict(list)
    for module in found.values():
        inside[module.folder].append(module)
    return {folder: _folder(inside[folder]) for folder in sorted(inside)}


def _folder(inside):
    names = {m.name for m in inside}
    return {
        "files": sum(m.path.name != "__init__.py" for m in inside),
        "imports": sum(len(m.imports & names) for m in inside),
        "lines": sum(m.lines for m in inside),
        "code lines": sum(m.code_lines for m in inside),
        "functions": sum(m.functions for m in inside),
    }


def figures(found):
    """Return the figures that are read from the sources."""
    rows = folders(found)
    totals = {key: sum(row[key] for row in rows.values()) for key in ("code lines", "functions")}
    most = max(rows, key=lambda folder: rows[folder]["files"])
    alloc = sum(m.lines for m in found.values() if m.name.startswith("policyd.alloc"))
    return [
        Figure("folders", len(rows)),
        Figure("files", len(found)),
        Figure("lines of the product", sum(m.lines for m in found.values()), 85_000),
        *(Figure(name, count) for name, count in totals.items()),
        Figure("lines of alloc", alloc, 7_900),
        *_full_folders(rows),
        Figure("files in one folder, at most", rows[most]["files"], 30, most),
        Figure("class names that two modules define", len(doubles(found)), 5),
        Figure(f"files under {SMALL_LINES} lines with one importer", len(small_files(found)), 20),
        Figure("lines of Python that are data", sum(m.data_lines for m in found.values()), 0),
    ]


def _full_folders(rows):
    for folder, (files, imports) in FOLDERS.items():
        yield Figure(f"files directly in {folder}", rows[folder]["files"], files)
        yield Figure(f"imports among files of {folder}", rows[folder]["imports"], imports)


def ways():
    """Yield how far one object travels, each way: what its module counts, with the targets."""
    for name, (module, targets) in WAYS.items():
        counting = import_module(f"tests.{module}")
        found = asyncio.run(getattr(counting, f"{name}_way")())
        for what, now in counting.figures(found).items():
            yield Figure(f"way of a {name}: {what}", now, targets.get(what))


def main():
    """Print the figures as tables, and as JSON if asked; return 1 if strict and one is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="list all names and files, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    given = parser.parse_args()
    structlog.configure(processors=[_drop])  # the ways run webhooks and controller, which log
    found = modules()
    counted = [*figures(found), *ways()]
    console = Console()
    console.print(_folder_table(folders(found)))
    console.print(_figure_table(counted))
    if given.all:
        for name, places in doubles(found).items():
            console.print(f"two modules define {name}: {', '.join(places)}", highlight=False)
        for path in small_files(found):
            console.print(f"small, with one importer: {path}", highlight=False)
        for module in found.values():
            if module.data_lines:
                console.print(f"data: {module.path}: {module.data_lines}", highlight=False)
    if given.json:
        figures_ = [asdict(figure) | {"met": figure.met} for figure in counted]
        given.json.write_text(
            json.dumps({"folders": folders(found), "figures": figures_}, indent=1)
        )
    return int(given.strict and any(figure.met is False for figure in counted))


def _drop(_logger, _method, _event):
    raise structlog.DropEvent


def _folder_table(rows):
    table = Table("folder", title="files directly in each folder")
    for column in next(iter(rows.values())):
        table.add_column(column, justify="right")
    for folder, row in rows.items():
        table.add_row(folder, *(f"{count:,}" for count in row.values()))
    return table


def _figure_table(counted):
    table = Table("figure", title="figures")
    for column in ("now", "target", "met"):
        table.add_column(column, justify="right")
    for each in counted:
        name = f"{each.name} ({each.place})" if each.place else each.name
        now = "not counted" if each.now is None else f"{each.now:,}"
        target = "" if each.target is None else f"{each.target:,}"
        table.add_row(name, now, target, {None: "", True: "yes", False: "no"}[each.met])
    return table


if __name__ == "__main__":
    sys.exit(main())
