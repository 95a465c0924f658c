"""Values of a policy's variables that many evaluations have in common.

A variable that reads nothing but the params has the same value for every object; one that reads
nothing but the pod has it for every policy that writes it in the same words.
"""

from collections.abc import Mapping
from typing import Final

from policyd.api.meta import Json
from policyd.cel import Budget, LazyVariables
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.facts import Facts, View

_MOST_PARAMS: Final = 1000
"""Params of a policy for which values are kept."""


Values = dict[str, tuple[object, int]]
"""Values, and what each cost: it costs the same each time that it is used."""


class KeptValues:
    """The values of one policy's variables, as far as others or later evaluations share them."""

    def __init__(self, policy: CompiledPolicy) -> None:
        """Begin with none.

        INVARIANT: the policy's expressions depend on nothing that changes during a scan.
        """
        self.policy = policy
        of_params: set[str] = set()
        of_pod: dict[str, str] = {}
        for name, program in policy.variables.items():
            used = program.variables_used
            if used <= {"params", *(f"variables.{known}" for known in of_params)}:
                of_params.add(name)
            elif used == {"pod"} and policy.own and not policy.templates:
                of_pod[name] = program.source
        self.of_params: frozenset[str] = frozenset(of_params)
        self.of_pod: Mapping[str, str] = of_pod
        """The expressions, by which policies share the values."""
        self._by_params: dict[int, tuple[Json, Values]] = {}

    def variables(
        self, given: Mapping[str, object], budget: Budget, *, params: Json, facts: Facts, view: View
    ) -> LazyVariables:
        """Return the policy's variables for a request.

        Args:
            given: The variables of expressions besides these.
            budget: The budget of the policy's expressions.
            params: Those of the invocation.
            facts: The request, whose object stays as it is.
            view: What of its pods is asked about.
        """
        if not self.of_params and not self.of_pod:
            return LazyVariables(self.policy.variables, given, budget)
        known = self._by_params.get(id(params))
        if known is None or known[0] is not params:
            known = params, {}
            if len(self._by_params) < _MOST_PARAMS:
                self._by_params[id(params)] = known
        return _KeptVariables(
            self, given, budget, known[1], facts.pod_values.setdefault(view.template, {})
        )


class _KeptVariables(LazyVariables):
    """Variables that look among the kept values first."""

    __slots__ = ("_kept", "_of_params", "_of_pod")

    def __init__(
        self,
        kept: KeptValues,
        given: Mapping[str, object],
        budget: Budget,
        of_params: Values,
        of_pod: Values,
    ) -> None:
        super().__init__(kept.policy.variables, given, budget)
        self._kept = kept
        self._of_params = of_params
        self._of_pod = of_pod

    def __missing__(self, name: str) -> object:
        kept = self._kept
        if name in kept.of_params:
            key, values = name, self._of_params
        elif name in kept.of_pod:
            key, values = kept.of_pod[name], self._of_pod
        else:
            return super().__missing__(name)
        budget = self._budget
        known = values.get(key)
        if known is not None and budget.spent + known[1] <= budget.limit:
            budget.spent += known[1]
            self[name] = known[0]
            return known[0]
        before = budget.spent
        value = super().__missing__(name)
        values[key] = value, budget.spent - before
        return value
