"""A decision in the making: what each policy says, weighed by its enforcement."""

from collections.abc import Sequence

import msgspec

from policyd.api.meta import Json
from policyd.engine.compile import CompiledPolicy
from policyd.engine.decision import Decision, Denial, Failure
from policyd.errors import PolicydError
from policyd.patch.operations import Operation

_LONGEST_KEY = 63
"""Letters that a key of an audit annotation may have."""

MUTATED_BY = "mutated-by"
"""Key of the audit annotation that names the policies that changed the object."""

CATCHABLE = (PolicydError, RecursionError)
"""What evaluating a policy on a hostile object may raise; anything else is a bug."""


class Verdict:
    """Gathers what policies say about one request."""

    def __init__(self) -> None:
        self._denials: list[Denial] = []
        self._warnings: list[str] = []
        self._audit: dict[str, str] = {}
        self._failures: list[Failure] = []
        self._matched: dict[str, None] = {}
        self._mutated: dict[str, None] = {}
        self._failed: set[str] = set()

    def matched(self, policy: CompiledPolicy) -> None:
        """Note that a policy concerns the request."""
        self._matched[policy.name] = None

    def mutated(self, policy: CompiledPolicy) -> None:
        """Note that a policy changed the object."""
        self._mutated[policy.name] = None

    def has_failed(self, policy: CompiledPolicy) -> bool:
        """Tell whether the policy could not be evaluated before."""
        return policy.name in self._failed

    def object_to(self, policy: CompiledPolicy, denial: Denial) -> None:
        """Take a policy's objection as its enforcement says: refuse, warn, or note for audits."""
        match policy.policy.spec.enforcement:
            case "Deny":
                if denial not in self._denials:
                    self._denials.append(denial)
            case "Warn":
                if str(denial) not in self._warnings:
                    self._warnings.append(str(denial))
            case "Audit":
                self.annotate(policy.name, denial.message)

    def fail(self, policy: CompiledPolicy, error: Exception) -> None:
        """Take note that a policy could not be evaluated, and do what its failurePolicy says."""
        self._failed.add(policy.name)
        ignored = policy.policy.spec.failure_policy == "Ignore"
        text = "the object is nested too deep" if isinstance(error, RecursionError) else str(error)
        self._failures.append(Failure(policy=policy.name, message=text, ignored=ignored))
        if ignored:
            self.annotate(policy.name, f"ignored, as it could not be evaluated: {text}")
            return
        hint = getattr(error, "hint", None) or ""
        message = f"cannot be evaluated: {text}"
        denial = Denial(policy=policy.name, message=message, remedy=hint, reason="Forbidden")
        self.object_to(policy, denial)

    def annotate(self, key: str, text: str) -> None:
        """Tell the audit log; what is said under the same key is joined."""
        key = key[:_LONGEST_KEY].rstrip("-.")
        said = self._audit.get(key)
        self._audit[key] = text if said is None else f"{said}; {text}"

    def decision(
        self,
        operations: Sequence[Operation] = (),
        *,
        obj: Json | msgspec.UnsetType = msgspec.UNSET,
    ) -> Decision:
        """Return the decision, denials ordered by policy; `obj` is what the operations made."""
        if self._mutated:
            self.annotate(MUTATED_BY, ", ".join(self._mutated))
        return Decision(
            denials=tuple(sorted(self._denials, key=lambda denial: denial.policy)),
            warnings=tuple(self._warnings),
            audit_annotations=self._audit,
            operations=tuple(operations),
            matched=tuple(self._matched),
            failures=tuple(self._failures),
            object=obj,
        )
