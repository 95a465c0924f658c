r"""Compile the templates of Kyverno's GeneratingPolicies: YAML with `(( … ))` in CEL.

A text that is one placeholder becomes its value, whatever its type; in a longer text, each
placeholder becomes text. `\((` stands for the two brackets themselves.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from policyd.api.meta import Json
from policyd.cel import Budget, CelError, Program
from policyd.cel.lib.standard import double_text
from policyd.cel.values import UInt
from policyd.engine.documents.reading import read_documents
from policyd.engine.evaluate.patches import to_json
from policyd.engine.model.background import ObjectCollector
from policyd.errors import PolicydError

_OPEN, _CLOSE, _ESCAPED = "((", "))", "\\(("
_MARK: Final = re.compile(r"\\?\(\(")

_MOST_VALUES: Final = 10_000
"""Values and names of fields in one document of a template."""

CompilePlaceholder = Callable[[str, int], Program | None]
"""Compiles a placeholder, which begins at an index of the template; None if it cannot be."""

_Render = Callable[[Mapping[str, object], Budget], Json]


class TemplateError(PolicydError):
    """A template cannot be read; `offset` is where in its text, or -1."""

    def __init__(self, message: str, offset: int = -1) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class _Placeholder:
    expression: str


def compile_template(
    text: str, *, interpolated: bool, compile_: CompilePlaceholder
) -> Callable[[Mapping[str, object], Budget, ObjectCollector], None]:
    """Return a function that renders a template, and has the generator take its objects.

    Raises:
        TemplateError: If it is not YAML, or has no object.
    """
    documents, findings = read_documents(text, "template", most=_MOST_VALUES)
    if findings:
        raise TemplateError(f"the template is not YAML: {findings[0].message}")
    compiler = _TemplateCompiler(text, compile_) if interpolated else None
    renders: list[_Render] = []
    for document in documents:
        render = _constant(document.value) if compiler is None else compiler.node(document.value)
        if not isinstance(document.value, dict) and not isinstance(document.value, str):
            raise TemplateError("a document of the template is not an object")
        renders.append(render)
    if not renders:
        raise TemplateError("the template has no object")

    def produce(
        variables: Mapping[str, object], budget: Budget, generator: ObjectCollector
    ) -> None:
        objects = [render(variables, budget) for render in renders]
        for obj in objects:
            if not isinstance(obj, dict):
                raise CelError("a document of the template is not an object")
        generator.take(None, objects)

    return produce


def _constant(value: Json) -> _Render:
    return lambda _variables, _budget: value


class _TemplateCompiler:
    """Turns a value with placeholders into a function."""

    def __init__(self, text: str, compile_: CompilePlaceholder) -> None:
        self._text = text
        self._compile = compile_

    def node(self, value: Json) -> _Render:
        """Return a function that renders a value."""
        if isinstance(value, dict):
            for key in value:
                if _OPEN in str(key).replace(_ESCAPED, ""):
                    message = f"`{key}` is the name of a field: placeholders are for values"
                    raise TemplateError(message, self._text.find(str(key)))
            fields = {key: self.node(each) for key, each in value.items()}
            return lambda variables, budget: {k: f(variables, budget) for k, f in fields.items()}
        if isinstance(value, list):
            items = [self.node(each) for each in value]
            return lambda variables, budget: [f(variables, budget) for f in items]
        return self._scalar(value) if isinstance(value, str) else _constant(value)

    def _scalar(self, text: str) -> _Render:
        parts = list(_parts(text))
        if not any(isinstance(part, _Placeholder) for part in parts):
            return _constant("".join(map(str, parts)))
        programs = [self._program(part) for part in parts]
        (first, *others) = programs
        if isinstance(first, Program) and not others:
            return partial(_as_json, first)
        return lambda variables, budget: "".join(
            part if isinstance(part, str) else _as_text(part, variables, budget)
            for part in programs
        )

    def _program(self, part: str | _Placeholder) -> Program | str:
        """Return the program of a placeholder; nothing for one with an error, which is reported."""
        if isinstance(part, str):
            return part
        offset = max(self._text.find(part.expression), 0)
        return self._compile(part.expression, offset) or ""


def _as_json(program: Program, variables: Mapping[str, object], budget: Budget) -> Json:
    value = program.evaluate(variables, budget)
    budget.charge_walk(value)
    return to_json(value)


def _as_text(program: Program, variables: Mapping[str, object], budget: Budget) -> str:
    value = program.evaluate(variables, budget)
    budget.charge_walk(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, int | UInt):
        return str(int(value))
    raise CelError(f"`(( {program.source} ))` stands in a text, and is not a scalar")


def _parts(text: str) -> Iterator[str | _Placeholder]:
    """Yield the literal parts and the placeholders of a text, in order."""
    literal, index = "", 0
    while (found := _MARK.search(text, index)) is not None:
        literal += text[index : found.start()]
        if found[0] == _ESCAPED:
            literal += _OPEN
            index = found.end()
            continue
        if literal:
            yield literal
        literal, end = "", _end(text, found.end())
        expression = text[found.end() : end].strip()
        if not expression:
            raise TemplateError("a placeholder `(( ))` is empty")
        yield _Placeholder(expression)
        index = end + len(_CLOSE)
    if literal or index < len(text):
        yield literal + text[index:]


def _end(text: str, start: int) -> int:
    """Return the index of the brackets that close a placeholder; those of its texts aside."""
    depth, quote, index = 0, "", start
    while index < len(text):
        letter = text[index]
        if quote:
            index += letter == "\\"
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "(":
            depth += 1
        elif letter == ")" and depth:
            depth -= 1
        elif letter == ")":
            if text.startswith(_CLOSE, index):
                return index
            break
        index += 1
    raise TemplateError(f"`{text[start - 2 : start + 40]}` does not end in `))`")
