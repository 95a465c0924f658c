"""Write what overlays replace as a whole as JSON patches: apply configurations cannot set it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policyd.api.kinds import FieldType, fields
from policyd.api.meta import Json
from policyd.cel.syntax.literals import text_literal
from policyd.migrate.cel_values import CelTerm, Untranslatable, member
from policyd.migrate.kyverno.json_patches import joined_text, json_value
from policyd.migrate.kyverno.patterns import ANCHOR
from policyd.migrate.kyverno.scopes import ExpressionScope


@dataclass
class Overlay:
    """An overlay in the making.

    Attributes:
        scope: What its expressions see.
        conditions: Conditions without which nothing is changed.
        listed: The list of a `foreach` in CEL; empty if there is none.
        element: Its element.
        chosen: The condition of elements that are changed.
        used: Whether the element has been put in its place.
        patches: What an apply configuration cannot set: lists of operations in CEL.
        mixed: Whether a map has literals and computed values, whose types CEL tells apart.
        base: The element of a list that it is about; None for the object.
        typed: The type of that in CEL.
        pointer: Pieces of the text of a JSON pointer to it.
    """

    scope: ExpressionScope
    conditions: list[str] = field(default_factory=list)
    listed: str = ""
    element: CelTerm | None = None
    chosen: str = ""
    used: bool = False
    patches: list[str] = field(default_factory=list)
    mixed: bool = False
    base: CelTerm | None = None
    typed: str = "Object"
    pointer: tuple[str, ...] = ()

    def pointer_to(self, typed: str) -> tuple[str, ...]:
        """Return pieces of the text of a JSON pointer to a field."""
        rest = typed.removeprefix(self.typed).replace(".", "/")
        return (*self.pointer, text_literal(rest))

    def of_element(
        self, scope: ExpressionScope, typed: str, element: CelTerm, index: str
    ) -> "Overlay":
        """Return the overlay of each element of a list, by the variable of its index."""
        return Overlay(
            scope,
            listed=self.listed,
            element=self.element,
            used=self.used,
            base=element,
            typed=typed,
            pointer=(*self.pointer_to(typed), "'/'", f"string({index})"),
        )

    def patch(self, operations: Sequence[str]) -> None:
        """Add operations; an object that several fields are in is added once."""
        self.patches += [each for each in operations if each not in self.patches]


def _types_of(value: CelTerm, key: str) -> list[FieldType]:
    """Return the types of a field in the structs that a value may be."""
    structs = [fields(shape[1]) for shape in value.shapes if shape[0] == "struct"]
    return [struct[key] for struct in structs if key in struct]


def is_replaced(value: CelTerm, key: str, wanted: Json, *, whole: bool = False) -> bool:
    """Tell whether an apply configuration may not set a field, for it is replaced as a whole."""
    return any(_has_atomic(of, wanted, inside=whole) for of in _types_of(value, key))


def _has_atomic(of: FieldType, wanted: Json, *, inside: bool = False) -> bool:
    if isinstance(wanted, list):
        if any(isinstance(each, Mapping) and any(map(ANCHOR.fullmatch, each)) for each in wanted):
            return False
        element = of.element
        atomic = of.shape == "list" and (of.list_type == "atomic")
        return atomic or (
            element is not None and any(_has_atomic(element, each, inside=True) for each in wanted)
        )
    if not isinstance(wanted, Mapping):
        return False
    if of.atomic and (inside or not any(map(ANCHOR.fullmatch, wanted))):
        return True
    if of.shape != "struct" or of.struct is None or not inside:
        return False
    inner = fields(of.struct)
    return any(
        key in inner and _has_atomic(inner[key], part, inside=True) for key, part in wanted.items()
    )


def _parents(overlay: Overlay, typed: str) -> list[str]:
    """Return operations that add the objects that a field is in, where they are absent."""
    of, made = overlay.base, []
    if of is None:
        of = CelTerm(text="object", shapes=overlay.scope.roots["request.object"].shapes)
        if overlay.scope.subject.text != "object":
            of = CelTerm(text="object")
    path = overlay.typed
    for name in typed.removeprefix(f"{overlay.typed}.").split(".")[:-1]:
        of, path = member(of, name), f"{path}.{name}"
        there = of.present()
        if there and not overlay.scope.subject.text.startswith(of.text) and name != "spec":
            made.append(f"({there} ? [] : [{_add(overlay, path, '{}')}])")
    return made


def replacing(
    overlay: Overlay, wanted: Json, typed: str, found: CelTerm, value: CelTerm
) -> list[str]:
    """Return operations that set a field as a whole; elements of other keys stay."""
    _check_is_of_element(overlay, typed)
    text = json_value(without_anchors(wanted), overlay.scope)
    (of, *_) = _types_of(value, typed.rpartition(".")[2])
    key = of.patch_merge_key
    if isinstance(wanted, list) and "merge" in of.patch_strategies and key:
        names = ", ".join(json_value(each.get(key), overlay.scope) for each in wanted)
        element = overlay.scope.free(found.name)
        others = f"{found.listed()}.filter({element}, !({element}.{key} in [{names}]))"
        text = f"{text} + {others}"
    return [*_parents(overlay, typed), f"[{_add(overlay, typed, text)}]"]


def _check_is_of_element(overlay: Overlay, typed: str) -> None:
    """Check that the overlay of a `foreach` replaces no part of the object for each element.

    Raises:
        Untranslatable: If it does.
    """
    if overlay.element is not None and overlay.base is None:
        what = typed.removeprefix("Object.")
        raise Untranslatable(f"the overlay of the `foreach` replaces `{what}` for each element")


def _add(overlay: Overlay, typed: str, text: str) -> str:
    path = joined_text(overlay.pointer_to(typed))
    return f"JSONPatch{{op: 'add', path: {path}, value: {text}}}"


def added(overlay: Overlay, wanted: Json, typed: str, found: CelTerm) -> list[str]:
    """Return operations that set a field where it is absent."""
    _check_is_of_element(overlay, typed)
    text = _add(overlay, typed, json_value(wanted, overlay.scope))
    there = found.present() or "true"
    return [*_parents(overlay, typed), f"({there} ? [] : [{text}])"]


def without_anchors(pattern: Json) -> Json:
    """Return a pattern without anchors: what is added as a whole."""
    if isinstance(pattern, Mapping):
        keys = {key: (m["key"] if (m := ANCHOR.fullmatch(key)) else key) for key in pattern}
        return {keys[key]: without_anchors(part) for key, part in pattern.items()}
    return [without_anchors(part) for part in pattern] if isinstance(pattern, list) else pattern
