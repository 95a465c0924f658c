"""What a policy changes, as a MutatingAdmissionPolicy has it: `inject` becomes one JSON patch."""

from functools import partial
from typing import Final

from policyd.api.meta import Json
from policyd.api.policy import Mutation
from policyd.engine.export.affinity import affinity
from policyd.engine.export.expressions import NotExportableError, Scope
from policyd.engine.export.gangs import gang_of_job, gang_of_pods
from policyd.engine.export.inject import CREATED, WRITERS, ExportedField, Write
from policyd.engine.export.patch import PatchText
from policyd.engine.export.places import PodPlace
from policyd.engine.export.resources import resources
from policyd.engine.export.target import Exporter
from policyd.engine.inject.operations import InjectedField
from policyd.engine.inject.templates import set_fields
from policyd.patch.operations import pointer

_IN_PARTS: Final[dict[str, Write]] = {"resources": resources, "affinity": affinity}


class MutationExporter(Exporter):
    """Writes what a policy changes."""

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
        """Add to a patch what a step sets, under the conditions of its level."""
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
            return {"Pod": gang_of_pods, "Job": gang_of_job}.get(name)
        return WRITERS.get(step.field) or _IN_PARTS[step.field]

    def _when(self, step: InjectedField) -> str:
        kind = self.target.kind
        changeable = step.level == "object" or (
            step.level == "pods-metadata" and kind is not None and kind.kind == "Pod"
        )
        return CREATED if self.target.guarded and not changeable else ""


def _json_patch(text: str) -> dict[str, Json]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}
