"""Export one policy for kinds that have their pods in the same place."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import ExceptionTerms
from policyd.cel import Program, compile_expression
from policyd.cel.syntax.literals import json_literal
from policyd.cel.types import Type
from policyd.engine.export.expressions import NotExportableError, Scope
from policyd.engine.export.patch import as_json
from policyd.engine.export.places import PodPlace, both, places_of
from policyd.engine.export.rules import ExportTarget
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.dialects import DEFAULT_DIALECT, own_environments
from policyd.patch.operations import Path

_NO_POD = "dyn({})"
"""The pod of an object that has no pods."""


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
        """Whether it reads the namespace, which conditions of the API server do not see."""
        return "namespaceObject" in self.used


@dataclass(frozen=True)
class Exporter:
    """Exports one policy for one target; `problems` names the parts that cannot be exported.

    Attributes:
        policy: The policy.
        target: The kinds that it is written for.
        problems: Parts that cannot be written.
    """

    policy: CompiledPolicy
    target: ExportTarget
    problems: list[Problem] = field(default_factory=list)

    def shared(self) -> dict[str, Json]:
        """Return the fields that validating and mutating policies share."""
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
    def workload(self) -> str:
        """The CEL of the object: on deletion, the old one."""
        operations = {op for rule in self.target.rules for op in rule.operations}
        if operations == {"DELETE"}:
            return "oldObject"
        deleted = operations & {"DELETE", "*"}
        return "(object == null ? oldObject : object)" if deleted else "object"

    @cached_property
    def places(self) -> tuple[PodPlace, ...]:
        """The locations of the pods."""
        return places_of(self.target.kind, self.workload)

    @cached_property
    def several(self) -> bool:
        """Whether there may be several pod templates."""
        return len(self.places) > 1 or any(place.loop for place in self.places)

    @cached_property
    def scope(self) -> Scope:
        """The scope of expressions that are not about one pod template."""
        if self.several:
            return Scope(self.workload, self.places, variables=self.asking, kind=self.target.kind)
        pod = self.places[0].pod if self.places else _NO_POD
        return Scope(self.workload, self.places, pod, kind=self.target.kind)

    def at(self, place: PodPlace) -> Scope:
        """Return the scope of expressions about one of several templates."""
        return Scope(self.workload, self.places, place.pod, self.asking, self.target.kind)

    @cached_property
    def asking(self) -> dict[str, str]:
        """The variables that ask about one of several pods, by name."""
        if not self.several:
            return {}
        return {
            variable.name: variable.expression
            for variable in self.policy.policy.spec.variables
            if self.asks(self.policy.variables[variable.name].variables_used)
        }

    def asks(self, used: frozenset[str]) -> bool:
        """Tell whether names that are used come to `pod`, directly or by a variable."""
        named = [name.removeprefix("variables.") for name in used if name.startswith("variables.")]
        programs = self.policy.variables
        return "pod" in used or any(self.asks(programs[name].variables_used) for name in named)

    @cached_property
    def asked(self) -> list[_Condition]:
        """The conditions of the policy, and that none of its exceptions applies."""
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
        for index, source in self.lifting(""):
            path = ("spec", "exceptions", index)
            name = f"exceptions-{index}"
            asked.append(_Condition(path, name, f"!({source})", self.uses(source)))
        return asked

    def lifting(self, validation: str) -> Iterator[tuple[int, str]]:
        """Yield the CEL of the exceptions from a validation, or from all if none is named."""
        for index, exception in enumerate(self.policy.policy.spec.exceptions):
            if (validation in exception.validations) if validation else not exception.validations:
                yield index, _exempting(exception)

    @cached_property
    def _conditions(self) -> list[Json]:
        """Return the match conditions; conditions on the namespace are evaluated later."""
        asked: list[Json] = []
        for condition in self.asked:
            if not condition.late and condition not in self.of_pods:
                text = self.attempt(condition.path, partial(self._rewritten, condition))
                asked.append({"name": condition.name, "expression": text})
        if self.of_pods:
            path, name = self.of_pods[0].path, self.of_pods[0].name
            text = self.attempt(path, lambda: self._any(self.chosen))
            asked.append({"name": name, "expression": text})
        return asked

    def _rewritten(self, condition: _Condition) -> str:
        return self.scope.rewrite(condition.expression)

    @cached_property
    def of_pods(self) -> list[_Condition]:
        """The conditions on one of several pods."""
        found = [c for c in self.asked if self.several and "pod" in c.used]
        if any(condition.late for condition in found):
            raise NotExportableError("a condition on one of several pods cannot see the namespace")
        return found

    def chosen(self, place: PodPlace) -> str:
        """Return the CEL that tells whether the conditions hold for a template."""
        return both(*(self.at(place).rewrite(c.expression) for c in self.of_pods))

    def _any(self, condition: Callable[[PodPlace], str]) -> str:
        return " || ".join(place.exists(condition(place)) for place in self.places)

    def late(self, expression: str, otherwise: str) -> str:
        """Add the conditions on the namespace's labels, which match conditions do not see."""
        late = [condition for condition in self.asked if condition.late]
        if not late:
            return expression
        asked = both(*map(self._rewritten, late))
        return f"({asked}) ? ({expression}) : {otherwise}"

    def _variables(self) -> list[Json]:
        variables: list[Json] = []
        for index, variable in enumerate(self.policy.policy.spec.variables):
            if variable.name in self.asking:
                continue
            path = ("spec", "variables", index)
            text = self.attempt(path, partial(self.scope.rewrite, variable.expression))
            variables.append({"name": variable.name, "expression": text})
        return variables

    def attempt(self, path: Path, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - the result of `make`
        """Return the result of `make`; None, and a problem noted, if it cannot be exported."""
        try:
            return make()
        except NotExportableError as error:
            self.problems.append(Problem(path, str(error)))
            return None

    def type_of(self, source: str) -> Type:
        """Return the type of an expression of the policy."""
        return self._compiled(source).result_type

    def uses(self, source: str) -> frozenset[str]:
        """Return the variables that an expression of the policy names."""
        return self._compiled(source).variables_used

    def _compiled(self, source: str) -> Program:
        environments = own_environments(
            DEFAULT_DIALECT, self.policy.policy.spec.param_kind is not None
        )
        types = {name: program.result_type for name, program in self.policy.variables.items()}
        return compile_expression(source, environments.with_variables(types).expressions)


def _exempting(exception: ExceptionTerms) -> str:
    """Return the CEL that tells whether an exception matches a request.

    Raises:
        NotExportableError: If it ends at some time, as the API server's policies have no clock, or
            exempts only some containers.
    """
    if exception.until:
        raise NotExportableError(
            "an exception that ends cannot be exported: the API server's expressions have no clock"
        )
    if exception.containers:
        raise NotExportableError("an exception for some containers cannot be exported")
    users, groups, namespaces = (
        json_literal(list(names))
        for names in (exception.users, exception.groups, exception.namespaces)
    )
    given = {
        f"request.userInfo.?username.orValue('') in {users}": exception.users,
        f"request.userInfo.?groups.orValue([]).exists(g, g in {groups})": exception.groups,
        f"request.?namespace.orValue('') in {namespaces}": exception.namespaces,
        exception.expression.strip(): exception.expression,
    }
    return both(*(text for text, wanted in given.items() if wanted)) or "true"
