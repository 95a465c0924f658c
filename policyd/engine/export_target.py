"""One policy for one place of the pods, as the specs of the API server's own policies."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import Mutation, Validation
from policyd.cel import Program, compile_expression
from policyd.cel.types import Type
from policyd.engine.compiled import CompiledPolicy
from policyd.engine.dialects import DEFAULT_DIALECT, own_places
from policyd.engine.export_exceptions import exempting
from policyd.engine.export_expressions import NotExportableError, Scope
from policyd.engine.export_inject import (
    CREATED,
    WRITERS,
    Injection,
    Write,
    gang_of_job,
    gang_of_pods,
)
from policyd.engine.export_parts import affinity, resources
from policyd.engine.export_patch import PatchText, as_json, literal
from policyd.engine.export_places import PodPlace, both, places_of
from policyd.engine.export_rules import Target
from policyd.engine.inject import Step
from policyd.engine.templates import set_fields
from policyd.patch.operations import Path, pointer

_NO_POD = "dyn({})"
"""What `pod` is in what makes no pods."""

_IN_PARTS: Final[dict[str, Write]] = {"resources": resources, "affinity": affinity}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that cannot be exported, and where it is in the policy."""

    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition: where it is in the policy, and which variables it names."""

    path: Path
    name: str
    expression: str
    used: frozenset[str]

    @property
    def late(self) -> bool:
        """Whether it asks about the namespace, which the API server shows to no condition."""
        return "namespaceObject" in self.used


@dataclass(frozen=True)
class Exporter:
    """Writes one policy for one target; what it cannot write is in `problems`."""

    policy: CompiledPolicy
    target: Target
    problems: list[Problem] = field(default_factory=list)

    def validating(self) -> dict[str, Json]:
        """Return the spec of a ValidatingAdmissionPolicy, empty if there is nothing to validate."""
        spec = self.policy.policy.spec
        if not spec.validations and not spec.audit_annotations:
            return {}
        validations = [
            self._attempt(("spec", "validations", i), partial(self._validation, v, i))
            for i, v in enumerate(spec.validations)
        ]
        annotations = [
            self._attempt(("spec", "auditAnnotations", i), partial(self._annotation, a))
            for i, a in enumerate(spec.audit_annotations)
        ]
        return {
            **self._shared(),
            **({"validations": validations} if validations else {}),
            **({"auditAnnotations": annotations} if annotations else {}),
        }

    def mutating(self) -> dict[str, Json]:
        """Return the spec of a MutatingAdmissionPolicy, empty if there is nothing to change."""
        spec = self.policy.policy.spec
        injected = self._injected() if self.policy.steps else ""
        mutations = [_json_patch(self._late(injected, "[]"))] if injected else []
        for index, mutation in enumerate(spec.mutations):
            path = ("spec", "mutations", index)
            made = self._attempt(path, partial(self._mutation, mutation))
            mutations += [made] if made else []
        if not mutations:
            return {}
        return {
            **self._shared(),
            "reinvocationPolicy": spec.reinvocation_policy,
            "mutations": mutations,
        }

    # --- what both have

    def _shared(self) -> dict[str, Json]:
        spec = self.policy.policy.spec
        constraints = msgspec.structs.replace(
            spec.match_constraints, resource_rules=self.target.rules
        )
        shared: dict[str, Any] = {"matchConstraints": as_json(constraints)}
        conditions = self._conditions
        if conditions:
            shared["matchConditions"] = conditions
        variables = self._variables()
        if variables:
            shared["variables"] = variables
        if spec.param_kind is not None:
            shared["paramKind"] = as_json(spec.param_kind)
        return {**shared, "failurePolicy": spec.failure_policy}

    @cached_property
    def _workload(self) -> str:
        """What stands for the object: on deletion, the one that was."""
        operations = {op for rule in self.target.rules for op in rule.operations}
        if operations == {"DELETE"}:
            return "oldObject"
        deleted = operations & {"DELETE", "*"}
        return "(object == null ? oldObject : object)" if deleted else "object"

    @cached_property
    def _places(self) -> tuple[PodPlace, ...]:
        return places_of(self.target.kind, self._workload)

    @cached_property
    def _several(self) -> bool:
        """Whether there may be several pod templates."""
        return len(self._places) > 1 or any(place.loop for place in self._places)

    @cached_property
    def _scope(self) -> Scope:
        """What names stand for where no template is looked at in particular."""
        if self._several:
            return Scope(self._workload, self._places, variables=self._asking)
        pod = self._places[0].pod if self._places else _NO_POD
        return Scope(self._workload, self._places, pod)

    def _at(self, place: PodPlace) -> Scope:
        """Return what names stand for at one of several templates."""
        return Scope(self._workload, self._places, place.pod, self._asking)

    @cached_property
    def _asking(self) -> dict[str, str]:
        """The variables that ask about one of several pods, by name."""
        if not self._several:
            return {}
        return {
            variable.name: variable.expression
            for variable in self.policy.policy.spec.variables
            if self._asks(self.policy.variables[variable.name].variables_used)
        }

    def _asks(self, used: frozenset[str]) -> bool:
        """Tell whether names that are used come to `pod`, directly or by a variable."""
        named = [name.removeprefix("variables.") for name in used if name.startswith("variables.")]
        programs = self.policy.variables
        return "pod" in used or any(self._asks(programs[name].variables_used) for name in named)

    @cached_property
    def _asked(self) -> list[_Condition]:
        """The conditions of the policy, and that none of its exceptions lifts it."""
        compiled = dict(self.policy.conditions)
        asked = [
            _Condition(
                ("spec", "matchConditions", index),
                condition.name,
                condition.expression,
                compiled[condition.name].variables_used,
            )
            for index, condition in enumerate(self.policy.policy.spec.match_conditions)
        ]
        for index, source in self._lifting(""):
            path = ("spec", "exceptions", index)
            name = f"exceptions-{index}"
            asked.append(_Condition(path, name, f"!({source})", self._uses(source)))
        return asked

    def _lifting(self, validation: str) -> Iterator[tuple[int, str]]:
        """Yield what tells whether an exception lifts a validation, or all if none is named."""
        for index, exception in enumerate(self.policy.policy.spec.exceptions):
            if (validation in exception.validations) if validation else not exception.validations:
                yield index, exempting(exception)

    @cached_property
    def _conditions(self) -> list[Json]:
        """The conditions that the API server can ask; what needs the namespace is asked later."""
        asked: list[Json] = []
        for condition in self._asked:
            if not condition.late and condition not in self._of_pods:
                text = self._attempt(condition.path, partial(self._rewritten, condition))
                asked.append({"name": condition.name, "expression": text})
        if self._of_pods:
            path, name = self._of_pods[0].path, self._of_pods[0].name
            text = self._attempt(path, lambda: self._any(self._chosen))
            asked.append({"name": name, "expression": text})
        return asked

    def _rewritten(self, condition: _Condition) -> str:
        return self._scope.rewrite(condition.expression)

    @cached_property
    def _of_pods(self) -> list[_Condition]:
        """The conditions on one of several pods."""
        found = [c for c in self._asked if self._several and "pod" in c.used]
        if any(condition.late for condition in found):
            raise NotExportableError("a condition on one of several pods cannot see the namespace")
        return found

    def _chosen(self, place: PodPlace) -> str:
        """Return what tells whether the conditions hold for a template."""
        return both(*(self._at(place).rewrite(c.expression) for c in self._of_pods))

    def _any(self, condition: Callable[[PodPlace], str]) -> str:
        return " || ".join(place.exists(condition(place)) for place in self._places)

    def _late(self, expression: str, otherwise: str) -> str:
        """Ask what the API server shows no match condition: labels of the namespace."""
        late = [condition for condition in self._asked if condition.late]
        if not late:
            return expression
        asked = both(*map(self._rewritten, late))
        return f"({asked}) ? ({expression}) : {otherwise}"

    def _variables(self) -> list[Json]:
        variables: list[Json] = []
        for index, variable in enumerate(self.policy.policy.spec.variables):
            if variable.name in self._asking:
                continue
            path = ("spec", "variables", index)
            text = self._attempt(path, partial(self._scope.rewrite, variable.expression))
            variables.append({"name": variable.name, "expression": text})
        return variables

    def _attempt(self, path: Path, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - what `make` does
        """Return what `make` does; None if it cannot be exported, which is noted."""
        try:
            return make()
        except NotExportableError as error:
            self.problems.append(Problem(path, str(error)))
            return None

    # --- validations

    def _validation(self, validation: Validation, index: int) -> dict[str, Json]:
        compiled = self.policy.validations[index]
        expression = self._demanded(validation, compiled.program.variables_used)
        for _, lifting in self._lifting(compiled.place):
            expression = f"({self._scope.rewrite(lifting)}) || ({expression})"
        written: dict[str, Json] = {"expression": self._late(expression, "true")}
        remedy = validation.remedy if isinstance(validation.remedy, str) else ""
        message = " ".join(compiled.message.split())
        written["message"] = f"{message}; {remedy}" if remedy else message
        computed = self._message(validation, index)
        if computed:
            written["messageExpression"] = computed
        return {**written, "reason": validation.reason}

    def _demanded(self, validation: Validation, used: frozenset[str]) -> str:
        if not self._several or not self._asks(used):
            return self._scope.rewrite(validation.expression)
        return " && ".join(
            place.all(self._unless_left_out(place, validation.expression)) for place in self._places
        )

    def _unless_left_out(self, place: PodPlace, source: str) -> str:
        demanded, chosen = f"({self._at(place).rewrite(source)})", self._chosen(place)
        return f"(!({chosen}) || {demanded})" if chosen else demanded

    def _message(self, validation: Validation, index: int) -> str:
        """Return what computes the message and the remedy, empty if both are written out."""
        compiled = self.policy.validations[index]
        remedy = validation.remedy
        if not validation.message_expression and isinstance(remedy, str):
            return ""
        source = validation.message_expression or literal(" ".join(compiled.message.split()))
        if isinstance(remedy, str):
            parts = [source, *([literal(f"; {remedy}")] if remedy else [])]
        else:
            parts = [source, "'; '", f"string({remedy.expression})"]
        source = " + ".join(f"({part})" for part in parts) if len(parts) > 1 else parts[0]
        if not self._several or not self._asks(self._uses(source)):
            return self._scope.rewrite(source)
        failing = [
            place.gather(
                both(self._chosen(place), f"!({self._at(place).rewrite(validation.expression)})"),
                self._at(place).rewrite(source),
            )
            for place in self._places
        ]
        return f"({' + '.join(failing)})[0]"

    def _annotation(self, annotation: Any) -> dict[str, Json]:  # noqa: ANN401 - of the policy
        if any(condition.late for condition in self._asked):
            raise NotExportableError("an annotation under a condition on the namespace")
        text = self._scope.rewrite(annotation.value_expression)
        return {"key": annotation.key, "valueExpression": text}

    # --- mutations

    def _mutation(self, mutation: Mutation) -> dict[str, Json]:
        if self._of_pods:
            raise NotExportableError("a mutation for some of several pods")
        if mutation.json_patch is not None:
            return _json_patch(
                self._late(self._scope.rewrite(mutation.json_patch.expression), "[]")
            )
        given = mutation.apply_configuration
        assert given is not None, "a mutation that compiled has one of the two"
        text = self._late(self._scope.rewrite(given.expression), "Object{}")
        return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}

    def _injected(self) -> str:
        whole = PatchText(self._workload, "''")
        queued = self.target.kind.queued if self.target.kind else ()
        held = (
            PatchText(".".join((self._workload, *map(str, queued))), f"'{pointer(queued)}'")
            if queued
            else whole
        )
        for step in self.policy.steps:
            if step.level == "object" or (
                self.target.kind is None and step.level == "pods-metadata"
            ):
                self._write(step, whole, self._scope)
            elif step.level == "workload" and self.target.kind is not None:
                self._write(step, held, self._scope)
        patches = [whole.text(), held.text() if held is not whole else ""]
        patches += [self._of_place(place) for place in self._places]
        return " + ".join(filter(None, patches))

    def _of_place(self, place: PodPlace) -> str:
        patch = PatchText(place.pod, place.path)
        scope = self._at(place)
        for step in self.policy.steps:
            if step.level in ("pods", "pods-metadata"):
                self._write(step, patch, scope)
        text = patch.text()
        if not text or not self._several:
            return text
        chosen = self._attempt(("spec", "matchConditions"), lambda: self._chosen(place)) or ""
        gathered = place.gather(chosen, f"({text})")
        return f"{gathered}.flatten()"

    def _write(self, step: Step, patch: PatchText, scope: Scope) -> None:
        """Add to a patch what a step sets, under the conditions of its level."""
        inject = self.policy.policy.spec.inject
        assert inject is not None, "a policy with steps injects something"
        injection = Injection(
            scope=scope, type_of=self._type_of, override=step.override, when=self._when(step)
        )
        write = self._writer(step)
        value = set_fields(inject)[step.field]
        if write is not None:
            self._attempt(("spec", "inject", step.field), lambda: write(injection, patch, value))

    def _writer(self, step: Step) -> Write | None:
        if step.field == "gang":
            name = self.target.kind.kind if self.target.kind else ""
            return {"Pod": gang_of_pods, "Job": gang_of_job}.get(name)
        return WRITERS.get(step.field) or _IN_PARTS[step.field]

    def _when(self, step: Step) -> str:
        kind = self.target.kind
        changeable = step.level == "object" or (
            step.level == "pods-metadata" and kind is not None and kind.kind == "Pod"
        )
        return CREATED if self.target.guarded and not changeable else ""

    def _type_of(self, source: str) -> Type:
        return self._compiled(source).result_type

    def _uses(self, source: str) -> frozenset[str]:
        return self._compiled(source).variables_used

    def _compiled(self, source: str) -> Program:
        places = own_places(DEFAULT_DIALECT, self.policy.policy.spec.param_kind is not None)
        types = {name: program.result_type for name, program in self.policy.variables.items()}
        return compile_expression(source, places.with_variables(types).expressions)


def _json_patch(text: str) -> dict[str, Json]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}
