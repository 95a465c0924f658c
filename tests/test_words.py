"""The project's words: those of the glossary and of the field, and no private ones."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("policyd", "webhooks")
TEXTS = (*PRODUCT, "charts/policyd", "docs", "policies")
SUFFIXES = {".json", ".md", ".py", ".tpl", ".txt", ".yaml"}

FORMER_NAME = "the name that both webhook configurations had before is known for one release"
PHRASES = {
    r"door\.policyd\.io": "admission.policyd.io",
    r"bench[-_]door": "bench-webhooks",
    r"\b[Tt]he doors?\b": "the admission webhooks",
    r"\bdoor_(opened|closing|closed|rules)\b|\brun_door\b": "webhooks_started, run_webhooks, …",
    r"\bmend(s|ed|ing)?\b|_mend(able|ed)\b": "fix",
    r"\b[Ss]tand[-_]ins?\b": "placeholder",
    r"\bchances?\b": "jitter, volatile inputs",
    r"\b[Tt]akes? notice\b": "note",
    r"\bl(ead|eads|ed) astray\b": "mislead",
    r"\bfits nobody\b": "fits no pending workload",
    r"\bwho waits\b": "pending workloads",
    r"\bis there stays\b": "existing ones are kept",
    r"\blengths? of time\b": "duration",
    r"\bare no cases\b": "invalid, not found",
    r"\bpolic(y|ies) fine\b": "valid",
    r"\banswer(ed)? otherwise\b": "differ",
    r"\b([Ss]aid|[Tt]old|[Ss]poken|[Ww]hom)\b": "message, reported, the noun",
    r"(?<![Tt]here )\b(is|are) no (address|count|day|duration|file|known|list|map|name|number|"
    r"object|registry|resource|weight)\b": "is not a …",
}
"""What is not written, and what is instead."""

PHRASE_EXCEPTIONS = {
    ("charts/policyd/templates/_names.tpl", r"door\.policyd\.io"): FORMER_NAME,
    ("docs/guides/install-with-helm.md", r"door\.policyd\.io"): FORMER_NAME,
    ("docs/guides/run-on-a-cluster.md", r"door\.policyd\.io"): FORMER_NAME,
    ("policyd/registration/configurations.py", r"door\.policyd\.io"): FORMER_NAME,
}

ALLOCATOR = {
    "crowd": "occupy",
    "crowds": "occupants",
    "crowded": "occupied",
    "crowding": "occupancy",
    "demand": "requests",
    "demands": "requests",
    "ground": "ledger",
    "ladder": "cohort heap",
    "offer": "flavor option",
    "offers": "flavor options",
    "parked": "inadmissible",
    "patience": "budget",
    "survey": "feasibility",
}

IDENTIFIERS = {
    "policyd/alloc": {**ALLOCATOR, "line": "pending index", "lines": "pending indexes"},
    "policyd/optimize": ALLOCATOR,
    "policyd/simulate": ALLOCATOR,
    "policyd/registration": {
        "cell": "rule atom",
        "cells": "rule atoms",
        "demand": "interest",
        "demands": "interests",
    },
    "policyd/controller": {
        **ALLOCATOR,
        "announcements": "events",
        "ears": "hooks",
        "news": "events",
        "standings": "counts",
    },
    "policyd/kube": ALLOCATOR,
    "policyd/workload": ALLOCATOR,
    "policyd/engine": {
        "doubt": "warning",
        "doubts": "warnings",
        "lift": "exempt",
        "lifts": "exempts",
    },
    "policyd/snapshot": {
        "outlook": "dry run",
        "picture": "full snapshot",
        "pictures": "full snapshots",
        "prospect": "result of a dry run",
    },
    "policyd": {
        "tallies": "counts",
        "tally": "counts",
        "tallying": "admission reports",
    },
    "webhooks": {
        "outside": "external data",
        "tally": "counts",
        "tallying": "admission reports",
    },
}
"""Parts of names that are not used in a folder, and what is used instead."""

EVERYWHERE = {
    "chance": "jitter, volatile, a random number generator is rng",
    "door": "webhooks",
    "happened": "events",
    "heard": "received, reported",
    "lack": "shortfall, missing",
    "lacks": "shortfalls, missing",
    "meant": "intended, resolved",
    "said": "message, reason, text",
    "say": "describe, report",
    "saying": "with a message",
    "says": "message, describe",
    "spoken": "reported",
    "standing": "order, reasons",
    "standings": "priorities",
    "tell": "report, describe",
    "tells": "reports",
    "told": "reported, described",
}
"""Parts of names that are not used anywhere, neither in the product nor in tests."""

CLASS_WORDS = {
    "asked": "requested, a query, options",
    "asking": "options",
    "authors": "requesters",
    "coming": "a forecast workload",
    "doubt": "warning",
    "gathering": "changed, read",
    "lacked": "shortfall",
    "lacking": "shortfall",
    "outlook": "dry run",
    "picture": "snapshot",
    "pictures": "snapshots",
    "seat": "parent",
    "stay": "period, times",
    "taker": "usage",
    "try": "attempt, what if",
    "wish": "request",
}
"""Parts of names that no public class has."""

CLASS_EXCEPTIONS = {"SnapshotTaker": "it takes snapshots"}

SENTENCES = {"said", "spoken", "standings", "tell", "tells", "told"}
"""The parts of these that the names of tests, which are sentences, do not have either."""

PRONOUNS = r"(?i)\b(whoever|nobody|somebody|anybody|everybody)\b"
"""Stand for the noun that a sentence is about."""

CLASSES: dict[str, str] = {
    "Head": "of an HTTP message, and what is read of a review before the rest",
    "Owners": "each side of the wall between controller and webhooks looks owners up by itself",
}
"""Public classes that two modules define, and why; at most five."""


@cache
def texts() -> dict[str, str]:
    """Return the files that people read, but for those that other projects wrote."""
    files = [
        file
        for folder in TEXTS
        for file in sorted((ROOT / folder).rglob("*"))
        if file.suffix in SUFFIXES and "crds" not in str(file) and not _linked(file)
    ]
    return {str(file.relative_to(ROOT)): file.read_text() for file in files}


def _linked(file: Path) -> bool:
    return any(each.is_symlink() for each in (file, *file.parents))


@cache
def sources(folder: str) -> dict[str, ast.Module]:
    """Return the modules below a folder, by file."""
    prefix = f"{folder}/"
    found = {name: text for name, text in texts().items() if name.startswith(prefix)}
    return {name: ast.parse(text) for name, text in found.items() if name.endswith(".py")}


@pytest.mark.parametrize("phrase", PHRASES)
def test_no_private_phrase_is_written(phrase):
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts().items()
        if (name, phrase) not in PHRASE_EXCEPTIONS and re.search(phrase, text)
        for number, line in enumerate(text.splitlines(), start=1)
        if re.search(phrase, line)
    ]

    assert found == [], f"write {PHRASES[phrase]}"


@pytest.mark.parametrize("folder", [*PRODUCT, "docs"])
def test_sentences_name_what_they_are_about(folder):
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts().items()
        if name.startswith(f"{folder}/")
        for number, line in enumerate(text.splitlines(), start=1)
        if re.search(PRONOUNS, line)
    ]

    assert found == [], "write the noun"


def test_each_exception_is_needed():
    for name, phrase in PHRASE_EXCEPTIONS:
        assert re.search(phrase, texts()[name]), f"{name} has no {phrase} any more"


def parts(name: str) -> set[str]:
    """Return the words of a name in snake or camel case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def names(tree: ast.Module) -> Iterator[str]:
    """Yield what a module names: classes, functions, arguments, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


@pytest.mark.parametrize("folder", [*PRODUCT, "tests"])
def test_names_are_nouns_and_verbs_of_the_field(folder):
    found = [
        f"{file.relative_to(ROOT)}: {name}: say {EVERYWHERE[word]}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for name in {file.stem, *names(ast.parse(file.read_text()))}
        for word in (name.split("_") if name.startswith("test_") else parts(name))
        if word in (SENTENCES if name.startswith("test_") else EVERYWHERE)
    ]

    assert sorted(found) == []


@pytest.mark.parametrize("folder", IDENTIFIERS)
def test_no_private_word_is_part_of_a_name(folder):
    banned = IDENTIFIERS[folder]
    found = [
        f"{file}: {name}: say {banned[word]}"
        for file, tree in sources(folder).items()
        for name in {Path(file).stem, *names(tree)}
        for word in parts(name) & banned.keys()
    ]

    assert sorted(found) == []


@pytest.mark.parametrize("folder", PRODUCT)
def test_classes_are_named_by_nouns_of_the_field(folder):
    found = [
        f"{file}: {node.name}: say {CLASS_WORDS[word]}"
        for file, tree in sources(folder).items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and node.name not in CLASS_EXCEPTIONS
        for word in parts(node.name) & CLASS_WORDS.keys()
    ]

    assert found == []


def test_a_public_class_name_has_one_meaning():
    defined = defaultdict(list)
    for folder in PRODUCT:
        for file, tree in sources(folder).items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    defined[node.name].append(file)
    several = {name: files for name, files in defined.items() if len(files) > 1}

    assert several.keys() <= CLASSES.keys(), several
    assert {len(files) for files in several.values()} <= {2}, several
    assert len(CLASSES) <= 5
    assert CLASSES.keys() <= several.keys(), "an exception that nothing needs"
