"""CEL environments of a policy's expressions, by the part of the policy that they are in."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from policyd.cel import Environment, Program
from policyd.cel.types import Type
from policyd.engine.model.functions import with_variables

PolicyPart = Literal["conditions", "expressions", "mutations", "messages"]
"""The part of a policy that an expression is in."""

REQUEST_OBJECTS: Final = frozenset({"object", "oldObject"})
"""The variables that Kyverno also has as fields of `request`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEnvironments:
    """The CEL environment of each part of a policy."""

    conditions: Environment
    expressions: Environment
    mutations: Environment
    messages: Environment
    one_line: bool = True
    """Whether the expression is put on one line where it replaces a missing message."""
    open_conditions: bool = False
    """Whether match conditions see the policy's variables, and the namespace."""
    request_objects: bool = False
    """Whether `request` has the fields `object` and `oldObject`."""
    values: Mapping[str, object] = field(default_factory=dict)
    """The values of variables that only these environments have, where the caller gives none."""

    def of(self, part: PolicyPart) -> Environment:
        """Return the environment of a part."""
        environment: Environment = getattr(self, part)
        return environment

    def read_by(self, program: Program) -> frozenset[str]:
        """Return the variables that a program reads, be it as fields of `request`."""
        named = program.variables_used
        return named | REQUEST_OBJECTS if self.request_objects and "request" in named else named

    def with_variables(self, types: Mapping[str, Type]) -> "PolicyEnvironments":
        """Let `variables` have these fields, and no others, wherever they are seen."""
        conditions = self.conditions
        return replace(
            self,
            conditions=with_variables(conditions, types) if self.open_conditions else conditions,
            expressions=with_variables(self.expressions, types),
            mutations=with_variables(self.mutations, types),
            messages=with_variables(self.messages, types),
        )

    def failed_message(self, expression: str) -> str:
        """Return the message of a validation that has none."""
        shown = " ".join(expression.split()) if self.one_line else expression.strip()
        return f"failed expression: {shown}"
