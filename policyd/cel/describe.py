"""Describe the functions and macros of an environment: names, signatures, summaries."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import msgspec

from policyd.api.data import packaged
from policyd.cel.environment import Environment
from policyd.cel.functions import OLDEST, Overload, Version
from policyd.cel.syntax.macros import TWO_VARIABLE_MACROS
from policyd.cel.types import Type


class Summaries(msgspec.Struct, frozen=True):
    """A summary of each operator, function and macro, from `summaries.json`.

    Functions that are declared with a summary of their own are left out.
    """

    functions: dict[str, dict[str, str]]
    """Sentences by name, in sections; a name with a newer and an older spelling stands once."""
    aliases: dict[str, str]
    """Other spellings of names."""
    macros: dict[str, tuple[str, str]]
    """The form of each macro, and its summary."""


@cache
def summaries() -> Summaries:
    """Return the summaries of functions for the reference and the help."""
    return msgspec.json.decode(packaged("policyd.cel", "summaries.json"), type=Summaries)


@dataclass(frozen=True, slots=True)
class FunctionEntry:
    """A function or macro.

    Attributes:
        name: Its name.
        section: Its subject.
        summary: Its effect.
        signatures: Its forms, with the types of results.
        since: The first version of Kubernetes that has it; empty if all known ones have it.
    """

    name: str
    section: str
    summary: str
    signatures: tuple[str, ...]
    since: str = ""


def describe(environment: Environment) -> Iterator[FunctionEntry]:
    """Yield everything an environment has, by sections."""
    known = summaries()
    for section, functions in known.functions.items():
        for name, summary in functions.items():
            spellings = [name, *(other for other, one in known.aliases.items() if one == name)]
            overloads = [o for each in spellings for o in environment.functions.get(each, ())]
            if overloads:
                since = _shown(min(overload.since for overload in overloads))
                yield FunctionEntry(name, section, summary, _signatures(overloads), since)
    for name, declared in environment.functions.items():
        first = declared[0]
        if first.summary:
            yield FunctionEntry(name, first.section, first.summary, _signatures(declared))
    for name, (form, summary) in known.macros.items():
        if name in environment.macros:
            yield FunctionEntry(name, "Macros", summary, (form,), _macro_since(name))


def _signatures(overloads: Iterable[Overload]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(signature, overloads)))


def _macro_since(name: str) -> str:
    if name in TWO_VARIABLE_MACROS:
        return "1.32"
    return "1.34" if name == "sortBy" else ""


def _shown(version: Version) -> str:
    return "" if version <= OLDEST else f"{version[0]}.{version[1]}"


_SYMBOLS = {"@in": "in"}


def signature(overload: Overload) -> str:
    """Write how an overload is called: `string.indexOf(string, int) -> int`."""
    kinds = [_kind(kind) for kind in overload.parameters]
    result = _kind(overload.result)
    name = overload.name
    if name.startswith(("_", "@", "!", "-")):
        symbol = _SYMBOLS.get(name, name.strip("_"))
        operands = f"{symbol}{kinds[0]}" if len(kinds) == 1 else f" {symbol} ".join(kinds)
        return f"{operands} -> {result}"
    if overload.member:
        return f"{kinds[0]}.{name}({', '.join(kinds[1:])}) -> {result}"
    return f"{name}({', '.join(kinds)}) -> {result}"


def _kind(kind: Type) -> str:
    shown = str(kind).replace("optional_type", "optional")
    for prefix in ("kubernetes.authorization.", "kubernetes.", "net.", "kyverno."):
        shown = shown.replace(prefix, "")
    return shown


def function_names() -> list[str]:
    """Return the names of all functions and macros that have a summary in `summaries.json`."""
    known = summaries()
    return [name for section in known.functions.values() for name in section] + list(known.macros)
