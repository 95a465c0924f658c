r"""Write out the references of a rule to itself: `$(./../limits/memory)`.

A reference is a path from the text that it is in, or from the root of its document, as of files. It
stands for the text at that path of the rule, which Kyverno puts in its place before it looks at an
object; anchors of the path do not count. With an operator before the path, it stands for the
operator and the text or number. `\$(` is a `$(` that is no reference.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from policyd.api.meta import Json
from policyd.migrate.kyverno.leaves import plain_alternatives
from policyd.migrate.kyverno.patterns import ANCHOR
from policyd.migrate.kyverno.rules import UnconvertibleRuleError
from policyd.patch.operations import Path

_REFERENCE: Final = re.compile(r"(?<!\\)\$\(.[^ ]*\)")
_ESCAPED: Final = re.compile(r"\\(\$\(.[^ ]*\))")
_OPERATOR: Final = re.compile(r"[<>]=?|!|")
_WORKS: Final = ("validate", "mutate")


def written_out(rule: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a rule without references, and what is to be noted of these.

    Raises:
        UnconvertibleRuleError: If a reference stands for no text.
    """
    made, notes = dict(rule), dict[str, None]()
    if isinstance(rule.get("generate"), Mapping):  # Kyverno takes all of it for one document
        document = _Document(("generate",), dict(_texts(rule["generate"])), notes)
        made["generate"] = document.written(rule["generate"])
    for work in _WORKS:
        if isinstance(rule.get(work), Mapping):
            made[work] = {}
            for name, part in rule[work].items():
                document = _Document((work, name), dict(_texts(part)), notes)
                made[work][name] = document.written(part)
    return made, list(notes)


def _texts(part: Json, place: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the places of what is in a part of a rule and has no parts itself, without anchors."""
    if isinstance(part, Mapping):
        for key, inner in part.items():
            yield from _texts(inner, f"{place}/{_step(key)}")
    elif isinstance(part, list):
        for index, inner in enumerate(part):
            yield from _texts(inner, f"{place}/{index}")
    else:
        yield place, part


def _step(key: object) -> str:
    anchor = ANCHOR.fullmatch(str(key))
    return (anchor["key"] if anchor else str(key)).replace("/", r"\/")


@dataclass(frozen=True)
class _Document:
    """A part of a rule that references are about.

    Attributes:
        root: Where it is in the rule.
        texts: What it has, by places as references name them.
        notes: What is to be noted of the references.
    """

    root: Path
    texts: Mapping[str, Json]
    notes: dict[str, None]

    def written(self, part: Json, path: Path = ()) -> Json:
        """Return a part of the document without references."""
        if isinstance(part, Mapping):
            for key in filter(_REFERENCE.search, map(str, part)):
                self._refuse((*path, key), f"the reference in the key `{key}` has no counterpart")
            return {key: self.written(inner, (*path, str(key))) for key, inner in part.items()}
        if isinstance(part, list):
            return [self.written(inner, (*path, index)) for index, inner in enumerate(part)]
        if not isinstance(part, str) or "$(" not in part:
            return part
        text = _REFERENCE.sub(lambda found: self._referred(found[0], path), part)
        return _ESCAPED.sub(r"\1", text)

    def _referred(self, reference: str, path: Path) -> str:
        """Return the text that a reference stands for."""
        asked = reference.strip("$()")
        operator = _OPERATOR.match(asked)
        assert operator is not None, "it matches nothing, too"
        own = "".join(f"/{_step(each)}" for each in path)
        place = posixpath.normpath(posixpath.join(own, asked[operator.end() :]))
        text = self.texts.get(place)
        if operator[0] and isinstance(text, int | float) and not isinstance(text, bool):
            return f"{operator[0]}{text}"
        if not isinstance(text, str) or _REFERENCE.search(text):
            self._refuse(path, f"the reference `{reference}` is to no text of the rule")
        if plain_alternatives(text) != [text]:
            note = f"`{reference}` is the text `{text}` of the rule, and no value of an object"
            self.notes[note] = None
        return f"{operator[0]}{text}"

    def _refuse(self, path: Path, reason: str) -> NoReturn:
        raise UnconvertibleRuleError(
            reason,
            (*self.root, *path),
            r"compare fields by a condition of `deny`; for a plain `$(`, write `\$(`",
        )
