"""Generate the reference page of CEL functions, from their declarations."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from policyd.cel.describe import FunctionEntry, describe, summaries
from policyd.cel.environments import base_environment, extended_environment
from policyd.cel.estimate import estimates
from policyd.cel.functions import Overload
from policyd.cel.lib.authorizer import JSON_PATCHES
from policyd.dialects.kyverno.environments import kyverno_environment
from policyd.engine.model.functions import expression_environment

NEWEST = (1, 37)

COSTS = {
    estimates.traverse: "length/10",
    estimates.traverse_part: "length/10",
    estimates.traverse_twice: "length/5",
    estimates.encode: "length/10",
    estimates.decode: "length/10",
    estimates.quote: "length/10",
    estimates.template: "length/10",
    estimates.search: "length/10 * part/10",
    estimates.search_pattern: "length/10 * pattern/4",
    estimates.find: "length/10 * pattern/4",
    estimates.each: "elements, a tenth of strings",
    estimates.look: "elements",
    estimates.replace: "length/5",
    estimates.split: "length/5",
    estimates.join: "length/5 of the result",
    estimates.contains_address: "bytes/5",
    estimates.contains_network: "1 + bytes/5 + bytes/10",
    estimates.validate: "length/10 * pattern/4",
    estimates.selector: "10 + length/10 + 25 * length",
    estimates.product: "1 + n * m",
    estimates.product_twice: "1 + 2 * n * m",
    estimates.reverse: "11 + elements",
    estimates.take: "11 + elements",
    estimates.count_up: "11 + elements",
    estimates.flatten: "11 + depth * elements",
    estimates.compare_all: "11 + 2 * elements²",
    estimates.distinct: "11 + 2 * elements²",
}
OPERATOR_COSTS = {
    "_+_": "1; of strings length/10",
    "@in": "elements; of maps 1",
    **dict.fromkeys(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"), "shorter length/10"),
}


def functions_page(table) -> str:
    sections = "\n\n".join(_section(name, rows, table) for name, rows in _sections().items())
    return f"""\
# CEL functions

This page lists the operators, functions and macros that policies can use.
`policyd cel functions NAME` prints the same in a terminal; `--env` selects another version or
environment.

*Since* is the version of Kubernetes that introduced the function; if it is empty, all versions from
1.30 have it.
*Where* is empty if the API server has the function. "Kyverno" means Kyverno's policies only, which
have all other functions too, in every version; "policyd" means policies of kind `Policy`.
*Cost* is in the units of the API server, rounded up; a length is the length of the first text.
A call whose result would be too large fails before the result is built.

{sections}
"""


def _sections() -> dict[str, list[tuple[FunctionEntry, str]]]:
    sections: dict[str, list[tuple[FunctionEntry, str]]] = {}
    seen = set()
    for where, environment in _environments():
        for entry in describe(environment):
            if entry.name not in seen:
                seen.add(entry.name)
                sections.setdefault(entry.section, []).append((entry, where))
    return sections


def _environments():
    yield "", base_environment(NEWEST).with_mutation({}, JSON_PATCHES)
    yield "policyd", expression_environment()
    yield "Kyverno", kyverno_environment()


def _section(name: str, rows: Iterable[tuple[FunctionEntry, str]], table) -> str:
    columns = "Signature | Description | Cost | Since | Where"
    return f"## {name}\n\n{table(columns, _rows(rows))}"


def _rows(rows: Iterable[tuple[FunctionEntry, str]]) -> Iterator[tuple[str, ...]]:
    for entry, where in rows:
        written = "<br>".join(f"`{signature}`" for signature in _spelled_once(entry))
        yield written, entry.summary, _cost(entry), entry.since, where


def _spelled_once(entry: FunctionEntry) -> list[str]:
    """Leave out other spellings, and operators' longest lists of types."""
    others = [spelling for spelling, name in summaries().aliases.items() if name == entry.name]
    written = [s for s in entry.signatures if not any(_is_call_of(s, each) for each in others)]
    return written if len(written) <= 8 else [*written[:7], "…"]


def _is_call_of(signature: str, name: str) -> bool:
    call = signature.partition("(")[0]
    return name in (call, call.rpartition(".")[2]) or signature.startswith(f"{name}(")


def _cost(entry: FunctionEntry) -> str:
    if entry.section == "Macros":
        return "that of its parts" if entry.name in ("has", "bind") else "that of its rounds"
    if entry.name in OPERATOR_COSTS:
        return OPERATOR_COSTS[entry.name]
    return "; ".join(dict.fromkeys(map(_cost_of, _overloads(entry.name))))


def _overloads(name: str) -> tuple[Overload, ...]:
    for environment in (kyverno_environment(mutation=True), _everything()):
        if name in environment.functions:
            return environment.functions[name]
    raise KeyError(name)


def _everything():
    environment = expression_environment()
    functions = {**environment.functions, **extended_environment().functions}
    functions |= base_environment(NEWEST).functions
    return replace(environment, functions=functions)


def _cost_of(overload: Overload) -> str:
    if isinstance(overload.cost, int):
        return f"{overload.cost:,}"
    estimate = overload.estimate or estimates.COUNTERPARTS[overload.cost]
    return COSTS[estimate]
