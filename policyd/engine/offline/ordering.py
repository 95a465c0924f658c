"""Find mutations whose order changes the result of a request.

The API server's own run in an order that is drawn anew each time, and policyd's by name where no
`priority` says otherwise. Two that change the same object and come to different ones are found by
letting them run the other way round.
"""

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import yaml

from policyd.api.admission import AdmissionRequest
from policyd.api.meta import Json
from policyd.engine.evaluate.mutation import mutate
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.verdict import VerdictBuilder
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.facts import Facts

_ONE_AFTER_THE_OTHER = "initContainers"
"""A list of objects whose order means something."""


@dataclass(frozen=True, slots=True)
class OrderMatters:
    """Two policies, and the objects that result from either order."""

    first: CompiledPolicy
    second: CompiledPolicy
    one_way: Json
    other_way: Json

    def __str__(self) -> str:
        names = f"`{self.first.name}` and `{self.second.name}`"
        return f"the order of {names} matters, and no `priority` says which goes first"

    @property
    def difference(self) -> list[str]:
        """The difference of the results, line by line."""
        first, second = (f"{policy.name} first" for policy in (self.first, self.second))
        return yaml_diff(self.one_way, self.other_way, first, second)


def order_matters(policies: PolicySet, request: AdmissionRequest) -> Iterator[OrderMatters]:
    """Yield the pairs of policies that come to another object if the order is another.

    Policies with different priorities have a chosen order.

    Args:
        policies: All policies, of which those that change the object alone are asked in pairs.
        request: The request.
    """
    changing = [p for p in policies.mutating if _changes(p, request, policies)]
    for one, other in combinations(changing, 2):
        if one.policy.spec.priority != other.policy.spec.priority:
            continue
        one_way, other_way = (
            _result(order, request, policies) for order in ((one, other), (other, one))
        )
        if one_way != other_way and _canonical(one_way) != _canonical(other_way):
            yield OrderMatters(one, other, one_way, other_way)


def _changes(policy: CompiledPolicy, request: AdmissionRequest, policies: PolicySet) -> bool:
    return bool(mutate([policy], Facts(request, policies.surroundings), VerdictBuilder()))


def _result(
    order: Sequence[CompiledPolicy], request: AdmissionRequest, policies: PolicySet
) -> Json:
    facts = Facts(request, policies.surroundings)
    mutate(order, facts, VerdictBuilder())
    return facts.object


def _canonical(value: Json, name: str = "") -> Any:  # noqa: ANN401 - any JSON
    """Sort the objects of lists: the order in which they were appended does not matter."""
    if isinstance(value, dict):
        return {key: _canonical(part, key) for key, part in value.items()}
    if not isinstance(value, list):
        return value
    parts = [_canonical(part) for part in value]
    unordered = name != _ONE_AFTER_THE_OTHER and all(isinstance(part, dict) for part in parts)
    return sorted(parts, key=lambda part: json.dumps(part, sort_keys=True)) if unordered else parts


def yaml_diff(one: Json, other: Json, one_name: str, other_name: str) -> list[str]:
    """Return a unified diff of two objects as YAML, fields in the order of their names."""
    mine, theirs = (yaml.safe_dump(value).splitlines() for value in (one, other))
    return list(difflib.unified_diff(mine, theirs, one_name, other_name, lineterm=""))


def without_empty(value: Json) -> Any:  # noqa: ANN401 - the rest of a value
    """Drop empty values: files may leave them out where the API server writes them."""
    if isinstance(value, dict):
        kept = {key: without_empty(part) for key, part in value.items()}
        return {key: part for key, part in kept.items() if part not in ({}, [], None)}
    return [without_empty(part) for part in value] if isinstance(value, list) else value
