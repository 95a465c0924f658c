"""Split the rules of a policy by where the kinds they name have their pods."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Final

import msgspec

from policyd.api.admission import Operation, Rule
from policyd.engine.export.expressions import NotExportableError
from policyd.engine.export.places import has_templates
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.objects.workloads import KINDS, WorkloadKind

MUTABLE: tuple[Operation, ...] = ("CREATE", "UPDATE")
"""The operations that there is something to change in."""

_TEMPLATE = ("spec", "template")

_SAME_OBJECT = frozenset({"ephemeralcontainers", "resize", "status"})
"""Subresources that carry the whole object."""


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """Kinds that are alike in all that a policy asks about them, and the rules that name them.

    `kind` is one of them, None for kinds that make no pods; `suffix` distinguishes the target from
    others of its policy. `guarded` tells that their pods can be changed at creation only, and that
    the rules name other operations too.
    """

    kind: WorkloadKind | None
    rules: tuple[Rule, ...]
    suffix: str = ""
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Needs:
    """The features that distinguish kinds.

    Attributes:
        pods: Where the pods are.
        counts: Their numbers.
        workload: The queued object.
        gang: The form of a gang.
        changes: Whether they can be changed once they exist.
    """

    pods: bool = False
    counts: bool = False
    workload: bool = False
    gang: bool = False
    changes: bool = False

    @property
    def nothing(self) -> bool:
        """Whether no feature distinguishes kinds."""
        return not (self.pods or self.counts or self.workload or self.gang)


_COUNTED: Final = frozenset({"gpus", "claims", "claimedDevices"})


def needs_of(policy: CompiledPolicy, methods: frozenset[str]) -> Needs:
    """Return the features of kinds that a policy depends on; `methods` are those that it calls."""
    levels = {step.level for step in policy.steps}
    return Needs(
        pods="pod" in policy.uses
        or bool(levels & {"pods", "pods-metadata"} or methods & {*_COUNTED, "devices"}),
        counts=bool(methods & {*_COUNTED, "pods"}),
        workload="workload" in levels,
        changes=bool(levels - {"object"}),
        gang=any(step.field == "gang" for step in policy.steps),
    )


def targets_of(rules: Iterable[Rule], needs: Needs) -> list[ExportTarget]:
    """Group the kinds of the rules by the features that the policy depends on."""
    rules = tuple(rules)
    if needs.nothing:
        return [ExportTarget(None, rules)]
    kinds: dict[object, list[WorkloadKind | None]] = {}
    grouped: dict[object, list[Rule]] = {}
    for kind, rule in _by_kind(rules):
        key = _likeness(kind, rule, needs)
        kinds.setdefault(key, []).append(kind)
        grouped.setdefault(key, []).append(rule)
    single, taken = len(kinds) == 1, set[str]()
    return [
        ExportTarget(
            alike[0],
            _joined(grouped[key]),
            "" if single else _unique(_suffix(alike), grouped[key][0], taken),
            guarded=_is_guarded(alike[0], grouped[key][0]),
        )
        for key, alike in kinds.items()
    ]


def _by_kind(rules: Iterable[Rule]) -> Iterator[tuple[WorkloadKind | None, Rule]]:
    """Yield each resource that the rules name by itself, with its kind."""
    for rule in rules:
        for group in rule.api_groups:
            for resource in rule.resources:
                yield from _named(rule, group, resource)


def _named(rule: Rule, group: str, resource: str) -> Iterator[tuple[WorkloadKind | None, Rule]]:
    plural, _, part = resource.partition("/")
    found = [kind for kind in KINDS if group in ("*", kind.group) and plural in ("*", kind.plural)]
    if "*" in (group, plural):
        raise NotExportableError("a rule with `*` cannot be split by kind: name the kinds")
    other = bool(part) and part not in _SAME_OBJECT
    if not found or other:
        # `batch` and `pods` beside `jobs`: no such resource exists.
        elsewhere = any(k.plural == plural and k.group in rule.api_groups for k in KINDS)
        if not elsewhere or other:
            yield None, _only(rule, group, resource)
        return
    for kind in found:
        yield kind, _only(rule, kind.group, f"{kind.plural}/{part}" if part else kind.plural)


def _only(rule: Rule, group: str, resource: str) -> Rule:
    return msgspec.structs.replace(rule, api_groups=(group,), resources=(resource,))


def _likeness(kind: WorkloadKind | None, rule: Rule, needs: Needs) -> object:
    """Return the common features of kinds that are exported together."""
    if kind is None:
        return None
    guarded = needs.changes and _is_guarded(kind, rule)
    counts = tuple(place.count for place in kind.places) if needs.counts else ()
    queued = kind.queued if needs.workload else ()
    gang = kind.kind if needs.gang and kind.kind in ("Pod", "Job") else ""
    places = tuple(place.path for place in kind.places)
    return places, has_templates(kind), counts, queued, gang, guarded


def _is_guarded(kind: WorkloadKind | None, rule: Rule) -> bool:
    return kind is not None and kind.frozen and set(rule.operations) != {"CREATE"}


def _suffix(kinds: list[WorkloadKind | None]) -> str:
    """Name a group of kinds; the first one tells where their pods are."""
    first = kinds[0]
    if first is None:
        return "others"
    alike = {kind.plural for kind in kinds if kind}
    by_template = any(place.path == _TEMPLATE for place in first.places[:1]) and len(alike) > 1
    return "templates" if by_template else first.plural


def _unique(suffix: str, rule: Rule, taken: set[str]) -> str:
    """Return a suffix that no other target has: the kinds of one may be split by operations."""
    operations = "-".join(operation.lower() for operation in rule.operations)
    names = chain([suffix, f"{suffix}-{operations}"], (f"{suffix}-{n}" for n in count(2)))
    found = next(name for name in names if name not in taken)
    taken.add(found)
    return found


def _joined(rules: list[Rule]) -> tuple[Rule, ...]:
    """Put rules together that differ in their resources only."""
    joined: dict[Rule, list[str]] = {}
    for rule in rules:
        resources = joined.setdefault(msgspec.structs.replace(rule, resources=()), [])
        resources += [name for name in rule.resources if name not in resources]
    return tuple(
        msgspec.structs.replace(rule, resources=tuple(resources))
        for rule, resources in joined.items()
    )


def changing(target: ExportTarget) -> ExportTarget | None:
    """Return a target with only those operations in which an object can be changed."""
    rules = tuple(rule for given in target.rules if (rule := _changing(given)).operations)
    return replace(target, rules=rules) if rules else None


def _changing(rule: Rule) -> Rule:
    everything = "*" in rule.operations
    kept = tuple(op for op in MUTABLE if everything or op in rule.operations)
    return msgspec.structs.replace(rule, operations=kept)
