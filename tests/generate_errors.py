"""Generate the page of messages: errors and findings, extracted from the code.

A message is the text in the code where an error is raised or a finding is created; values that are
filled in are shown as `…`. Messages that differ only in these are listed once.
"""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import policyd
import webhooks
from policyd.api import causes
from policyd.api.causes import UnevaluatedCause
from policyd.engine.documents.findings import RULES
from policyd.errors import PolicydError

ROOT = Path(policyd.__file__).parents[1]

AREAS = {
    "policyd/cli": ("Commands", "Wrong usage of a command: the exit code is 2."),
    "policyd/engine": ("Policies", "Errors and warnings about a policy, a case or a request."),
    "policyd/dialects": (
        "Policies of other engines",
        "Errors in a policy or test of Kyverno, Gatekeeper or kat.",
    ),
    "policyd/cel": ("Expressions", "Errors in a CEL expression, and failures of its evaluation."),
    "policyd/api": ("Objects", "An object, a quantity or a review that cannot be read."),
    "policyd/patch": ("Patches", "A change by a policy that cannot be applied to an object."),
    "policyd/jobs": ("Jobs", "A job that cannot be queued or started."),
    "policyd/simulate": ("Simulations", "Errors in a scenario."),
    "policyd/kube": ("The API server", "The API server cannot be reached, or refused a request."),
    "policyd/certificates": ("Certificates", "Errors in a certificate."),
    "policyd/controller": ("The controller", "The controller cannot start, or cannot continue."),
    "policyd/local": (
        "The embedded cluster",
        "Requests that it refuses or does not support.",
    ),
    "webhooks": ("The webhooks", "The webhooks cannot start, or are not ready."),
    "policyd": ("Settings", "Errors in settings."),
}
"""The folders whose messages are listed, subfolders first, with a title and a description."""

MAKERS = frozenset(
    {"finding", "Finding", "LintWarning", "Denial", "UsageError", "BadParameter", "ClickException"}
)
"""Functions and classes, besides errors, whose first argument is a message."""

YIELDING = frozenset({"check.py", "refused.py"})
"""Modules of the engine that yield messages, each with its place and a hint."""

Message = tuple[str, str]


def error_names() -> frozenset[str]:
    """Return the names of all errors that a person can cause."""
    for package in (policyd, webhooks):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found, new = set[type](), {PolicydError}
    while new:
        found |= new
        new = {sub for each in new for sub in each.__subclasses__()} - found
    return frozenset(each.__name__ for each in found)


@cache
def messages() -> dict[str, set[Message]]:
    """Return the messages of each area, with their hints."""
    names = error_names() | MAKERS
    found_messages: dict[str, set[Message]] = {}
    for folder in ("policyd", "webhooks"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            area = next(a for a in AREAS if file.is_relative_to(ROOT / a))
            tree = ast.parse(file.read_text())
            found_messages.setdefault(area, set()).update(_of_module(tree, names, file.name))
    return found_messages


def _of_module(tree: ast.AST, names: frozenset[str], file: str) -> Iterator[Message]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            texts = _assigned(function)
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and _name(node.func) in names:
                    yield from _of_call(node, texts)
                if isinstance(node, ast.Yield) and file in YIELDING:
                    yield from _of_yield(node, texts)


def _assigned(function: ast.AST) -> dict[str, str]:
    """Return the texts that a function gives names to."""
    return {
        node.targets[0].id: text
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        for text in [_text(node.value, {})]
        if text
    }


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _of_call(call: ast.Call, texts: dict[str, str]) -> Iterator[Message]:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    argument = given.get("message", call.args[0] if call.args else None)
    message = _text(argument, texts)
    if _is_sentence(message):
        yield message, _text(given.get("hint"), texts) or _advice(call)


def _advice(call: ast.Call) -> str:
    """Return the advice of the cause that an error about a review is given."""
    names = (each.id for each in call.args if isinstance(each, ast.Name))
    found = (getattr(causes, name, None) for name in names)
    return next((each.advice for each in found if isinstance(each, UnevaluatedCause)), "")


def _of_yield(node: ast.Yield, texts: dict[str, str]) -> Iterator[Message]:
    if isinstance(node.value, ast.Tuple) and node.value.elts:
        message = _text(node.value.elts[0], texts)
        if _is_sentence(message):
            yield message, _text(node.value.elts[-1], texts)


def _is_sentence(message: str) -> bool:
    return " " in message.replace("…", "") and any(letter.isalpha() for letter in message)


def _text(node: ast.expr | None, texts: dict[str, str]) -> str:
    """Return a text as it is written, with `…` for what is filled in; empty if it is none."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(p, texts) if isinstance(p, ast.Constant) else "…" for p in parts)
        case ast.Name(id=name):
            return texts.get(name, "")
        case ast.BoolOp(values=values):
            return next((found for value in values if (found := _text(value, texts))), "")
        case ast.IfExp(body=body, orelse=other):
            return _text(body, texts) or _text(other, texts)
        case _:
            return ""


def errors_page(table: Callable[..., str]) -> str:
    """Return the page: the rules of findings, and the messages of each area."""
    lines = [
        "# Errors and findings",
        "",
        inspect.cleandoc("""
            This page lists the messages of policyd, with hints on how to resolve them.
            A message is one sentence in lower case, with your own words in backticks; `…` stands
            for a value that is filled in.
            A finding about a file begins with its place, `file:line:column`. A hint can follow.
        """),
        "",
        "## Rules of findings",
        "",
        "Each finding has a rule, which SARIF and JUnit reports name.",
        "`policyd check` exits with 1 if a finding is an error.",
        "",
        table("Rule | Subject", ((f"`{name}`", text) for name, text in RULES.items())),
    ]
    listed = messages()
    for area, (title, about) in AREAS.items():
        rows = sorted(listed.get(area, ()), key=lambda row: (row[0].lower(), row[1]))
        if rows:
            cells = ((_cell(message), _cell(hint)) for message, hint in rows)
            lines += ["", f"## {title}", "", about, "", table("Message | Hint", cells)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    escaped = " ".join(text.split())
    for sign in "\\<>*_{}[]":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped
