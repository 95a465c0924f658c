"""The variables that an expression of a rule sees, and texts with `{{ }}` in them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from policyd.api.meta import Json
from policyd.cel.syntax.literals import text_literal
from policyd.migrate.cel_values import (
    CelTerm,
    OutsideError,
    Untranslatable,
    as_json_value,
    element_of,
    literal,
    member,
)
from policyd.migrate.jmespath import split_variables, value_of

REQUEST: Final[Mapping[str, str]] = {
    "request.operation": "string",
    "request.namespace": "string",
    "request.name": "string",
    "request.userInfo.username": "string",
    "request.userInfo.groups": "list",
    "request.userInfo.uid": "string",
    "request.userInfo.extra": "map",
    "request.kind.kind": "string",
    "request.kind.group": "string",
    "request.kind.version": "string",
    "request.subResource": "string",
    "request.dryRun": "bool",
}
"""The variables of the request that CEL has by the same name, and their kinds."""

USER: Final = CelTerm(
    text=(
        "{'username': dyn(request.userInfo.username),"
        " ?'uid': request.userInfo.?uid.optMap(v, dyn(v)),"
        " ?'groups': request.userInfo.?groups.optMap(v, dyn(v)),"
        " ?'extra': request.userInfo.?extra.optMap(v, dyn(v))}"
    ),
    kind="map",
)
"""Who made the request, as an object."""

_DEEPEST: Final = 8
_IMAGES: Final = re.compile(
    r"images\.(?P<list>containers|initContainers|ephemeralContainers)\."
    r"(?:\*|\"?\{\{\s*(?P<element>element)\.name\s*\}\}\"?)\."
    r"(?P<part>registry|path|name|tag|digest)"
)
_ALL_IMAGES: Final = re.compile(
    r"images\.\[(?P<lists>[\w, ]+)\]\[\]\.\*\.(?P<part>registry|path|name|tag|digest)(?:\[\])?"
)
_CONFIGURATION: Final = re.compile(r"(?<=\.)configData\b")
"""The field of an image's data that Kyverno's CEL calls `config`; no object has one."""

_PARTS: Final = {
    "registry": "{0}.registry().replace('index.docker.io', 'docker.io')",
    "path": (
        "{0}.repository().replace('library/', '', {0}.repository().startsWith('library/') ? 1 : 0)"
    ),
    "tag": "{0}.tag()",
    "digest": "{0}.digest()",
    "name": "{0}.repository().split('/').last().value()",
}
"""Parts of the image `{0}`, as Kyverno names them: the registry of Docker's is `docker.io` there,
and its official images have no `library/`."""


def _image_name(found: re.Match[str]) -> str:
    """Name the variable for a part of images, which JMESPath reads from a map of them."""
    element = "_of_element" if found["element"] else ""
    return f"images_{found['list']}_{found['part']}{element}"


def _each_image(found: re.Match[str]) -> str:
    """Return the parts of the images of several lists, as one list."""
    each = (f"images.{name.strip()}.*.{found['part']}" for name in found["lists"].split(","))
    return f"[{', '.join(each)}][]"


def with_images(scope: "ExpressionScope") -> "ExpressionScope":
    """Return a scope with the parts of images, which Kyverno's function `image` gives."""
    if not scope.kyverno:
        return scope
    roots, spec = {}, member(scope.subject, "spec")
    for name in ("containers", "initContainers", "ephemeralContainers"):
        listed = member(spec, name).listed()
        for part, form in _PARTS.items():
            text = f"{listed}.map(c, {form.format('image(c.image)')})"
            roots[f"images_{name}_{part}"] = CelTerm(text=text, kind="list", element="string")
            one = CelTerm(text=form.format("image(container.image)"), kind="string")
            roots[f"images_{name}_{part}_of_element"] = one
    return scope.with_roots(**roots)


@dataclass(frozen=True)
class ExpressionScope:
    """What an expression sees.

    Attributes:
        roots: Values by the paths of Kyverno's variables.
        subject: The object that the rule is about: `object`, `pod`, or a part of `object`.
        taken: Names of variables of comprehensions around.
        operations: The operations of the requests that the rule concerns.
        listed: The list of the `foreach` around, in CEL.
        kyverno: Whether the functions that Kyverno adds to CEL may be used.
    """

    roots: Mapping[str, CelTerm]
    subject: CelTerm
    taken: tuple[str, ...] = ()
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    listed: str = ""
    kyverno: bool = False

    def value(self, given: Json) -> CelTerm:
        """Return a value of the policy: a literal, or what its `{{ }}` stand for.

        Raises:
            Untranslatable: If an expression in it has no counterpart in CEL.
        """
        if "{{" not in (given if isinstance(given, str) else json.dumps(given, default=str)):
            return literal(given)
        if not isinstance(given, str):
            return self._composed(given)
        parts = list(split_variables(given))
        if len(parts) == 3 and not parts[0].strip() and not parts[2].strip():
            return self.asked(parts[1])
        pieces = [
            self._piece(part) if index % 2 else text_literal(part)
            for index, part in enumerate(parts)
            if part
        ]
        return CelTerm(text=" + ".join(pieces), kind="string", loose=len(pieces) > 1)

    def _composed(self, given: Json) -> CelTerm:
        """Return a list or map of the policy that has variables in it."""
        if isinstance(given, Mapping):
            values = [(self.value(str(key)), self.value(part)) for key, part in given.items()]
            entries = (
                f"?{key.text}: {part.optional()}" if part.needs else f"{key.text}: {_any(part)}"
                for key, part in values
            )
            return CelTerm(text=f"{{{', '.join(entries)}}}", kind="map")
        parts = tuple(as_json_value(self.value(part)) for part in given)
        kinds = {part.kind for part in parts}
        items = (
            f"?{part.optional()}"
            if part.needs
            else (part.text if len(kinds) == 1 else f"dyn({part.text})")
            for part in parts
        )
        element = kinds.pop() if len(kinds) == 1 else "dyn"
        return CelTerm(text=f"[{', '.join(items)}]", kind="list", element=element, parts=parts)

    def asked(self, expression: str) -> CelTerm:
        """Return the value of a JMESPath expression.

        Raises:
            Untranslatable: If it has no counterpart in CEL.
        """
        expression = _ALL_IMAGES.sub(_each_image, expression)
        if _IMAGES.search(expression) and not self.kyverno:
            raise OutsideError("parts of images are read by a function of Kyverno")
        named = _IMAGES.sub(_image_name, expression)
        return self.translated(_CONFIGURATION.sub("config", named) if self.kyverno else named)

    def translated(self, expression: str, of: CelTerm | None = None) -> CelTerm:
        """Return the value of a JMESPath expression, asked of a value if one is given.

        Raises:
            Untranslatable: If it has no counterpart in CEL.
        """
        return value_of(expression, self.roots, scope=of, kyverno=self.kyverno)

    def _piece(self, expression: str) -> str:
        """Return the text of a variable in a text; nothing for null."""
        value = self.asked(expression)
        if value.kind == "string":
            text = value.otherwise("''")
            return text if value.needs or not value.loose else f"({text})"
        if value.kind in ("list", "map"):
            text = value.otherwise("[]" if value.kind == "list" else "{}")
            if value.kind == "list" and value.element == "string":
                return f"{text}.join(', ')"
            raise Untranslatable(f"`{expression}` is a {value.kind}, and stands in a text")
        return f"string({value.otherwise(repr(''))})"

    def deeper(self, of: CelTerm) -> tuple["ExpressionScope", CelTerm, str]:
        """Return the scope in a comprehension over a list, its element, and the variable's name.

        Raises:
            Untranslatable: If comprehensions are nested too deeply.
        """
        if len(self.taken) > _DEEPEST:
            raise Untranslatable("lists are nested too deeply")
        name = self.free(of.name)
        return replace(self, taken=(*self.taken, name)), element_of(of, name), name

    def free(self, wanted: str) -> str:
        """Return a name that no variable around has."""
        used = {*self.taken, "object", "oldObject", "request", "pod", "variables", "params"}
        used |= {"namespace", "namespaceObject", "workload", "maker", "queue", "cluster", "loop"}
        name, number = wanted, 2
        while name in used:
            name, number = f"{wanted}{number}", number + 1
        return name

    def with_roots(self, **roots: CelTerm) -> "ExpressionScope":
        """Return the scope with further variables."""
        return replace(self, roots={**self.roots, **roots})


def _any(value: CelTerm) -> str:
    return f"dyn({as_json_value(value).text})"


def known(value: CelTerm) -> CelTerm:
    """Return a value whose presence is known."""
    return replace(value, needs=(), itself=False)
