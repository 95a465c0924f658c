"""The part of JSONPath that CustomResourceDefinitions use for printer columns."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from policyd.api.meta import Json
from policyd.local.apiserver.reading import cells


class _Step(NamedTuple):
    dotted: str | None
    quoted: str | None
    position: str | None
    key: str | None
    sign: str | None
    wanted: str | None


_STEP = re.compile(
    r"\.([\w-]+(?:\\\.[\w-]+)*)"  # .name, with escaped dots
    r"|\['([^']+)'\]"  # ['name']
    r"|\[(\d+|\*)\]"  # [0] or [*]
    r"|\[\?\(@\.([\w.]+)\s*([!=]=)\s*['\"]([^'\"]*)['\"]\)\]"  # [?(@.type=="Ready")]
)


@lru_cache(maxsize=1024)
def compile_path(path: str) -> Callable[[Json], Json]:
    """Compile a path; what comes of it returns the first value there, or None."""
    steps = [_Step(*match.groups()) for match in _STEP.finditer(path)]

    def find(value: Json) -> Json:
        found = [value]
        for step in steps:
            found = [inner for outer in found for inner in _follow(outer, step)]
        return found[0] if found else None

    return find


def _follow(value: Json, step: _Step) -> list[Json]:
    if isinstance(value, dict):
        name = (step.dotted or step.quoted or "").replace("\\.", ".")
        return [value[name]] if name in value else []
    if not isinstance(value, list):
        return []
    if step.key:
        there = [(item, cells.at(item, step.key, None)) for item in value]
        same = step.sign == "=="
        return [
            item
            for item, found in there
            if found is not None and (cells.text(found) == step.wanted) is same
        ]
    if step.position == "*":
        return value
    return value[int(step.position) :][:1] if step.position else []
