"""The `variables` of a policy: evaluated when they are first used, once for each request."""

from collections.abc import Mapping
from typing import Any

from policyd.cel.compile.program import Program
from policyd.cel.cost import Budget
from policyd.cel.errors import CelCostError, CelError, CelInternalError


class LazyVariables(dict[str, Any]):
    """Values of variables by name; errors are remembered like values.

    Put it into the variables of an evaluation under the name `variables`. A variable may use those
    declared before it: a policy's types make sure that there are no cycles.
    """

    __slots__ = ("_activation", "_budget", "_failed", "_programs")

    def __init__(
        self, programs: Mapping[str, Program], activation: Mapping[str, object], budget: Budget
    ) -> None:
        """Prepare the variables of one request.

        Args:
            programs: The expression of each variable.
            activation: What the expressions may use, `variables` aside.
            budget: What the expressions of the policy may still cost.
        """
        super().__init__()
        self._programs = programs
        self._activation = dict(activation)
        self._budget = budget
        self._failed: dict[str, str] = {}

    def __missing__(self, name: str) -> object:
        program = self._programs.get(name)
        if program is None:
            raise CelError(f"no such key: {name}")
        if name in self._failed:
            raise CelError(self._failed[name])
        try:
            value = self._evaluate(program)
        except (CelCostError, CelInternalError):
            raise
        except CelError as error:
            message = f'composited variable "{name}" fails to evaluate: {error.message}'
            self._failed[name] = message
            raise CelError(message) from error
        self[name] = value
        return value

    def _evaluate(self, program: Program) -> object:
        """Evaluate a variable, which sees those before it while it is evaluated."""
        seen = self._activation
        if seen.get("variables") is self:
            return program.evaluate(seen, self._budget)
        seen["variables"] = self
        try:
            return program.evaluate(seen, self._budget)
        finally:
            # A cycle would keep the object until the garbage is collected.
            del seen["variables"]

    def __contains__(self, name: object) -> bool:
        """Tell whether there is a variable; in the API server, one that fails is none to ask for.

        Raises:
            CelError: If it cannot be evaluated.
        """
        if not isinstance(name, str) or name not in self._programs:
            return False
        _ = self[name]
        return True
