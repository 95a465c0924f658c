"""Export mutations as a MutatingAdmissionPolicy; `inject` becomes one JSON patch."""

from functools import partial
from typing import Final

import msgspec

from policyd.api.inject import InjectedResources
from policyd.api.kueue.names import MIN_PARALLELISM, POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT
from policyd.api.meta import Json
from policyd.api.policy import Mutation
from policyd.engine.export.affinity import affinity
from policyd.engine.export.expressions import NotExportableError, Scope
from policyd.engine.export.inject import CREATED, WRITERS, ExportedField, Write, named
from policyd.engine.export.patch import PatchText, at
from policyd.engine.export.places import PodPlace, both
from policyd.engine.export.target import Exporter
from policyd.engine.inject.operations import InjectedField
from policyd.engine.inject.templates import set_fields
from policyd.patch.operations import pointer


def resources(injection: ExportedField, patch: PatchText, given: InjectedResources) -> None:
    """Set the requests and limits of containers whose authors left them out."""
    whole = at(patch.base, "spec", "resources")
    for field in ("initContainers", "containers"):
        containers = f"{at(patch.base, 'spec', field)}.orValue([])"
        path = f"{patch.path} + '/spec/{field}/' + string(i)"
        inner = PatchText("c", path)
        for name, amount in given.requests.items():
            _request(injection, inner, name, amount, whole)
        for name, amount in given.limits.items():
            _limit(injection, inner, name, amount, whole)
        loop = f"{containers}.transformList(i, c, {inner.text()}).flatten()"
        patch.include(f"({injection.when} ? {loop} : [])" if injection.when else loop)


def _request(
    injection: ExportedField, inner: PatchText, name: str, amount: object, whole: str
) -> None:
    others = [at("c", "resources", "limits", name)]
    others += [f"{whole}{at('', side, name)}" for side in ("requests", "limits")]
    stated = " || ".join(f"{other}.hasValue()" for other in others)
    steps = ("resources", "requests", name)
    value = _amount(injection, amount)
    if injection.override:
        inner.put(value, *steps)
        return
    inner.put(value, *steps, when=f"!({stated})", absent=injection.missing(inner, *steps))


def _limit(
    injection: ExportedField, inner: PatchText, name: str, amount: object, whole: str
) -> None:
    value = _amount(injection, amount)
    steps = ("resources", "limits", name)
    if injection.override:
        inner.put(value, *steps)
        return
    unstated = f"!{whole}{at('', 'limits', name)}.hasValue()"
    request = at("c", "resources", "requests", name)
    # The API server takes `[?name].orValue('0')` for a string with any value, except for `dyn`.
    stated = f"quantity(string({request}.orValue(dyn('0'))))"
    larger = f"{stated}.isGreaterThan(quantity(string({value})))"
    value = f"({larger} ? {request}.value() : dyn({value}))"
    inner.put(value, *steps, when=unstated, absent=injection.missing(inner, *steps))


def _amount(injection: ExportedField, amount: object) -> str:
    if isinstance(amount, msgspec.Struct):
        raise NotExportableError("a computed amount cannot be exported")
    return injection.certain(amount)


def _gang_of_pods(injection: ExportedField, patch: PatchText, gang: msgspec.Struct) -> None:
    """Make a plain pod a member of a group; without a name, only if it is in one already."""
    injection.refuse_override()
    fields = set_fields(gang)
    label = ("metadata", "labels", POD_GROUP_NAME)
    annotations = ("metadata", "annotations")
    names = (at(patch.base, *label), at(patch.base, *annotations, POD_GROUP_NAME))
    given = " || ".join(f"{name}.orValue('') != ''" for name in names)
    named = ""
    if "name" in fields:
        name = injection.certain(fields["name"])
        when = both(injection.when, f"{name} != ''", f"{names[1]}.orValue('') == ''")
        patch.put(name, *label, when=when, absent=f"{names[0]}.orValue('') == ''")
        named = f"{name} != '' || "
    size = f"string({injection.certain(fields['minMember'])})"
    absent = injection.missing(patch, *annotations, POD_GROUP_TOTAL_COUNT)
    when = both(injection.when, f"{named}{given}")
    patch.put(size, *annotations, POD_GROUP_TOTAL_COUNT, when=when, absent=absent)


def _gang_of_job(injection: ExportedField, patch: PatchText, gang: msgspec.Struct) -> None:
    """Let a Job start with fewer pods than it wants, but no fewer than the gang."""
    size = injection.certain(set_fields(gang)["minMember"])
    fewer = f"int({size}) < {at(patch.base, 'spec', 'parallelism')}.orValue(0)"
    steps = ("metadata", "annotations", MIN_PARALLELISM)
    absent = injection.missing(patch, *steps)
    patch.put(f"string({size})", *steps, when=both(injection.when, fewer), absent=absent)


_IN_PARTS: Final[dict[str, Write]] = {"resources": resources, "affinity": affinity}


class MutationExporter(Exporter):
    """Exports the mutations of a policy."""

    def spec(self) -> dict[str, Json]:
        """Return the spec of a MutatingAdmissionPolicy, empty if there is nothing to change."""
        spec = self.policy.policy.spec
        injected = self._injected() if self.policy.steps else ""
        mutations = [_json_patch(self.late(injected, "[]"))] if injected else []
        for index, mutation in enumerate(spec.mutations):
            path = ("spec", "mutations", index)
            made = self.attempt(path, partial(self._mutation, mutation))
            mutations += [made] if made else []
        if not mutations:
            return {}
        return {
            **self.shared(),
            "reinvocationPolicy": spec.reinvocation_policy,
            "mutations": mutations,
        }

    def _mutation(self, mutation: Mutation) -> dict[str, Json]:
        if self.of_pods:
            raise NotExportableError("a mutation for some of several pods")
        if mutation.json_patch is not None:
            return _json_patch(self.late(self.scope.rewrite(mutation.json_patch.expression), "[]"))
        given = mutation.apply_configuration
        assert given is not None, "a mutation that compiled has one of the two"
        text = self.late(self.scope.rewrite(given.expression), "Object{}")
        return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}

    def _injected(self) -> str:
        whole = PatchText(self.workload, "''")
        queued = self.target.kind.queued if self.target.kind else ()
        held = (
            PatchText(".".join((self.workload, *map(str, queued))), f"'{pointer(queued)}'")
            if queued
            else whole
        )
        for step in self.policy.steps:
            if step.level == "object" or (
                self.target.kind is None and step.level == "pods-metadata"
            ):
                self._write(step, whole, self.scope)
            elif step.level == "workload" and self.target.kind is not None:
                self._write(step, held, self.scope)
        patches = [whole.text(), held.text() if held is not whole else ""]
        patches += [self._of_place(place) for place in self.places]
        return " + ".join(filter(None, patches))

    def _of_place(self, place: PodPlace) -> str:
        patch = PatchText(place.pod, place.path)
        scope = self.at(place)
        for step in self.policy.steps:
            if step.level in ("pods", "pods-metadata"):
                self._write(step, patch, scope)
        text = patch.text()
        if not text or not self.several:
            return text
        chosen = self.attempt(("spec", "matchConditions"), lambda: self.chosen(place)) or ""
        gathered = place.gather(chosen, f"({text})")
        return f"{gathered}.flatten()"

    def _write(self, step: InjectedField, patch: PatchText, scope: Scope) -> None:
        """Add the writes of a step to a patch, under the conditions of its level."""
        inject = self.policy.policy.spec.inject
        assert inject is not None, "a policy with steps injects something"
        injection = ExportedField(
            scope=scope, type_of=self.type_of, override=step.override, when=self._when(step)
        )
        write = self._writer(step)
        value = set_fields(inject)[step.field]
        if write is not None:
            self.attempt(("spec", "inject", step.field), lambda: write(injection, patch, value))

    def _writer(self, step: InjectedField) -> Write | None:
        if step.field == "gang":
            name = self.target.kind.kind if self.target.kind else ""
            return {"Pod": _gang_of_pods, "Job": _gang_of_job}.get(name)
        write = WRITERS.get(step.field) or _IN_PARTS.get(step.field)
        return write or partial(named, field=step.field)

    def _when(self, step: InjectedField) -> str:
        kind = self.target.kind
        changeable = step.level == "object" or (
            step.level == "pods-metadata" and kind is not None and kind.kind == "Pod"
        )
        return CREATED if self.target.guarded and not changeable else ""


def _json_patch(text: str) -> dict[str, Json]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}
