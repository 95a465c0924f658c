"""Each folder says what is in it, what it imports and where to start, and is in the map."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
FOLDERS = sorted(
    {
        path.parent.relative_to(PROJECT)
        for top in ("policyd", "webhooks")
        for path in (PROJECT / top).rglob("*.py")
    }
)
EACH = pytest.mark.parametrize("folder", [pytest.param(each, id=str(each)) for each in FOLDERS])


@EACH
def test_a_folder_says_what_is_in_it_what_it_imports_and_where_to_start(folder):
    tree = ast.parse((PROJECT / folder / "__init__.py").read_text())
    docstring = " ".join((ast.get_docstring(tree) or "").split())
    start = re.search(r"Start with (.*)", docstring)

    assert not docstring.startswith(("Imports", "Start"))
    assert re.search(r"\bImports\b", docstring), "what it may import is missing"
    assert start, "where to start is missing"
    first = re.match(r"`(\w+)`", start[1])
    assert first, "where to start is not a name in backticks"
    path = PROJECT / folder / first[1]
    assert path.is_dir() or path.with_suffix(".py").exists(), first[1]


CONTRACTS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
PURE = next(each for each in CONTRACTS["contracts"] if each["name"].startswith("The pure folders"))
TOPS = {folder.parts[1] for folder in FOLDERS if len(folder.parts) > 1} | {"webhooks"}
ALL_IMPORT = {"api"}
"""What nearly all folders import need not be named."""


def top_of(module: str) -> str:
    """Return the folder of a module of the product, directly below `policyd`; `webhooks` is one."""
    product, *rest = module.split(".")
    return {"webhooks": "webhooks", "policyd": next(iter(rest), "")}.get(product, "")


def imported(folder: Path, pattern: str) -> set[str]:
    """Return the other folders that the files of a folder import."""
    own = top_of(".".join(folder.parts))
    modules = {
        name
        for file in (PROJECT / folder).glob(pattern)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [f"{node.module}.{each.name}" for each in node.names]
            if isinstance(node, ast.ImportFrom)
            else [each.name for each in node.names]
        )
    }
    return {top_of(name) for name in modules} & TOPS - {own}


@EACH
def test_a_folder_imports_what_it_says_and_says_what_it_imports(folder):
    tree = ast.parse((PROJECT / folder / "__init__.py").read_text())
    docstring = " ".join((ast.get_docstring(tree) or "").split())
    (sentence,) = re.findall(r"\bImports\b.*?\.(?=\s|$)", docstring)
    words = re.findall(r"`(?:policyd\.)?(\w+)[^`]*`", sentence)
    named = set(words) & TOPS
    if "every folder" in sentence:
        covered = TOPS
    elif "the pure folders" in sentence:
        covered = named | {top_of(module) for module in PURE["source_modules"]}
    else:
        covered = named
    inside = {path.name for path in (PROJECT / folder.parent).iterdir()} | {*folder.parts}

    assert imported(folder, "*.py") <= covered | ALL_IMPORT
    assert named - inside <= imported(folder, "**/*.py")


MAP = re.findall(
    r"^\| ([^|]+) \| `([^|`]+)` \| ([^|]+) \| ([^|]+) \|$",
    (PROJECT / "CONTRIBUTING.md").read_text(),
    re.MULTILINE,
)


def test_the_map_has_each_folder_once():
    mapped = [folder for _, folder, _, _ in MAP]

    assert sorted(set(mapped)) == sorted(mapped)
    assert set(mapped) == {str(folder) for folder in FOLDERS} | {"policies", "charts"}


def test_the_map_names_tests_and_targets_that_exist():
    targets = re.findall(r"^([a-z0-9-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)

    for _, folder, _, run in MAP:
        for command in re.findall(r"`([^`]+)`", run):
            program, _, rest = command.partition(" ")
            known = rest.split()[0] in targets if program == "make" else program == "policyd"
            assert known or (PROJECT / command).exists(), f"{folder}: {command}"


def homes(folder: Path) -> dict[str, set[Path]]:
    """Return where modules and folders of a name are, below a folder of the product."""
    found: dict[str, set[Path]] = {}
    for path in folder.rglob("*"):
        if path.is_dir() and path.name != "__pycache__":
            found.setdefault(path.name, set()).add(path.relative_to(folder))
        elif path.suffix == ".py":
            found.setdefault(path.stem, set()).add(path.parent.relative_to(folder))
    return found


def test_tests_of_a_module_are_in_the_folder_of_the_same_name():
    misplaced = []
    for top in sorted(TOPS):
        product = PROJECT / ("webhooks" if top == "webhooks" else f"policyd/{top}")
        known = homes(product)
        for file in (PROJECT / "tests" / top).rglob("test_*.py"):
            inside = file.parent.relative_to(PROJECT / "tests" / top)
            places = known.get(file.stem.removeprefix("test_"), set())
            below = {place for place in places if inside in place.parents}
            if len(places) == 1 and below:
                misplaced.append(f"{file.name} belongs into {top}/{below.pop()}")

    assert misplaced == []
