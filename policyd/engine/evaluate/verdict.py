"""Build a decision: the answer of each policy, by its enforcement."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import Enforcement, Reason
from policyd.cel import CelError
from policyd.engine.evaluate.conditions import Invocation, failed_expression
from policyd.engine.evaluate.patches import UndecodablePatchError
from policyd.engine.evaluate.rollout import ROLLED_OUT, RolloutEnforcement
from policyd.engine.model.compiled import (
    MUTATING,
    VALIDATING,
    CompiledBinding,
    CompiledPolicy,
    CompiledValidation,
)
from policyd.engine.model.decision import Decision, Denial, Failure
from policyd.errors import PolicydError
from policyd.patch.operations import Operation

MUTATED_BY = "mutated-by"
"""Key of the audit annotation that names the policies that changed the object."""

LIFTED_BY = "lifted-by"
"""Key of the audit annotation that lists exceptions and their reasons."""

VALIDATION_FAILURE = "validation.policy.admission.k8s.io/validation_failure"
"""Key of the audit annotation for failures of the API server's own policies."""

MOST_FAILURES = 50
"""Failures that this annotation names at most."""

MOST_REASONS = 100
"""Objections and failures of a request that are kept, besides the first ones of each policy."""

MOST_VIOLATED = 1_000
"""Validations that are listed for reports as not true of a request."""

_Effects = tuple[Enforcement, ...] | Literal["ignored", "denied"]
_Source = tuple[str, _Effects]

CATCHABLE = (PolicydError, RecursionError)
"""The exceptions that a hostile object may cause in a policy; any other is a bug."""

_FORBIDDEN = 403


class VerdictBuilder:
    """Collects the results of policies for one request."""

    def __init__(self) -> None:
        self._denials: dict[Denial, None] = {}
        self._objections: list[Denial] = []
        self._violated: set[tuple[str, str]] = set()
        self._warnings: dict[str, None] = {}
        self._kept = 0
        self._objecting: set[_Source] = set()
        self._further = 0
        self._further_ignored: Counter[str] = Counter()
        self._audit: dict[str, str] = {}
        self._published: dict[str, dict[str, None]] = {}
        self._audited: list[dict[str, Json]] = []
        self._failures: list[Failure] = []
        self._matched: dict[str, None] = {}
        self._mutated: dict[str, None] = {}
        self.failed: set[str] = set()
        """The ids of policies that could not be evaluated."""
        self._staged: dict[str, tuple[RolloutEnforcement, ...]] = {}

    def stage(self, policy: CompiledPolicy, staged: tuple[RolloutEnforcement, ...]) -> None:
        """Note how strictly a policy is enforced that is being rolled out."""
        self._staged[policy.name] = staged

    def matched(self, policy: CompiledPolicy) -> None:
        """Note that a policy concerns the request."""
        self._matched[policy.name] = None

    def mutated(self, policy: CompiledPolicy) -> None:
        """Note that a policy changed the object."""
        self._mutated[policy.name] = None

    def has_room(self, policy: CompiledPolicy, actions: _Effects) -> bool:
        """Tell whether another objection is kept: always the first of a policy with an effect.

        So the decision is the same as if all were kept, and its first denial too.
        """
        return self._kept < MOST_REASONS or (policy.id, actions) not in self._objecting

    def _keeps(self, policy: CompiledPolicy, actions: _Effects) -> bool:
        room = self.has_room(policy, actions)
        self._objecting.add((policy.id, actions))
        self._kept += room
        return room

    def leave_out(
        self,
        policy: CompiledPolicy,
        binding: CompiledBinding,
        violated: CompiledValidation | None = None,
    ) -> None:
        """Count an objection, or without a violated validation a failure, that has no room."""
        if violated is None and policy.ignores_failures:
            self._further_ignored[policy.name] += 1
            return
        self._further += 1
        if violated is None or len(self._objections) >= MOST_VIOLATED:
            return
        key = policy.id, violated.place
        if key not in self._violated:
            self._violated.add(key)
            objection = Denial(
                policy=policy.name,
                validation=violated.place,
                message=violated.message,
                origin=policy.id,
                actions=binding.actions,
            )
            self._objections.append(objection)

    def object_to(self, policy: CompiledPolicy, denial: Denial, binding: CompiledBinding) -> None:
        """Take a policy's objection as its enforcement says: refuse, warn, or note for audits.

        There must be room for it.
        """
        self._keeps(policy, binding.actions)
        self._object(policy, denial, binding)

    def _object(self, policy: CompiledPolicy, denial: Denial, binding: CompiledBinding) -> None:
        if not policy.own:
            denial = replace(denial, lead=lead(policy, binding), kind=policy.kind)
        self._violated.add((policy.id, denial.validation))
        self._objections.append(replace(denial, origin=policy.id, actions=binding.actions))
        self._enforce(policy, denial, binding)

    def _enforce(self, policy: CompiledPolicy, denial: Denial, binding: CompiledBinding) -> None:
        if "Deny" in binding.actions:
            self._denials[denial] = None
        if "Warn" in binding.actions:
            warning = str(denial) if policy.own else _warning(policy, binding, denial)
            self._warnings[warning] = None
        if "Audit" in binding.actions:
            if policy.own:
                self.annotate(policy.name, denial.message)
            elif len(self._audited) < MOST_FAILURES:
                self._audited.append(_audited(policy, binding, denial))

    def fail(
        self,
        policy: CompiledPolicy,
        error: Exception,
        binding: CompiledBinding | None = None,
        *,
        configuration: bool = False,
    ) -> None:
        """Record that a policy could not be evaluated, and follow its failurePolicy.

        An error of `configuration` refuses with any actions of the binding, as it does in the
        API server.
        """
        self.failed.add(policy.id)
        # An error that is one in the API server too refuses regardless of the policy's settings.
        internal = isinstance(error, UndecodablePatchError) and not policy.own
        ignored = policy.ignores_failures and not internal
        known = binding or policy.bindings[0]
        denies = configuration or (bool(policy.mutations) and not policy.own)
        effects = effects_of_failure(policy, known, denies=denies)
        if not internal and not self._keeps(policy, effects):
            self.leave_out(policy, known)
            return
        text = "the object is nested too deep" if isinstance(error, RecursionError) else str(error)
        self._failures.append(Failure(policy=policy.name, message=text, ignored=ignored))
        if ignored:
            self.annotate(policy.name, f"ignored, as it could not be evaluated: {text}")
            return
        if internal:
            self._fail_internally(policy, text)
        elif not policy.own:
            self._fail_foreign(policy, text, binding, configuration=configuration)
        else:
            self._fail_own(policy, error, text, known)

    def _fail_internally(self, policy: CompiledPolicy, text: str) -> None:
        denial = Denial(policy=policy.name, message=text, kind=policy.kind, failed=True)
        self._denials[replace(denial, reason="InternalError")] = None

    def _fail_own(
        self, policy: CompiledPolicy, error: Exception, text: str, binding: CompiledBinding
    ) -> None:
        hint = getattr(error, "hint", None) or ""
        message = f"cannot be evaluated: {text}"
        denial = Denial(policy=policy.name, message=message, remedy=hint, reason="Forbidden")
        self._object(policy, replace(denial, failed=True), binding)

    def fail_annotation(self, invocation: Invocation, message: str) -> None:
        """Refuse a request for which an audit annotation could not be computed."""
        policy, binding = invocation.policy, invocation.binding
        self.failed.add(policy.id)
        if not self._keeps(policy, effects_of_failure(policy, binding, denies=True)):
            self.leave_out(policy, binding)
            return
        ignored = policy.ignores_failures
        self._failures.append(Failure(policy=policy.name, message=message, ignored=ignored))
        if not ignored:
            denial = _failed(policy, message, binding)
            self._denials[replace(denial, lead="") if policy.own else denial] = None

    def _fail_foreign(
        self,
        policy: CompiledPolicy,
        text: str,
        binding: CompiledBinding | None,
        *,
        configuration: bool,
    ) -> None:
        known = binding or policy.bindings[0]
        denial = _failed(policy, text, binding if configuration else known)
        if policy.mutations:
            reason: Reason = "Forbidden" if configuration else "Invalid"
            denial = replace(denial, status=_FORBIDDEN, reason=reason)
        if not configuration and not policy.mutations:
            self._object(policy, denial, known)
        else:
            self._denials[denial] = None

    def publish(self, key: str, text: str) -> None:
        """Add a policy's audit annotation; equal values of several bindings are listed once."""
        self._published.setdefault(key, {})[text] = None

    def annotate(self, key: str, text: str) -> None:
        """Add an audit annotation; values of the same key are joined."""
        before = self._audit.get(key)
        self._audit[key] = text if before is None else f"{before}; {text}"

    def decision(
        self,
        operations: Sequence[Operation] = (),
        *,
        obj: Json | msgspec.UnsetType = msgspec.UNSET,
        exempted: Sequence[str] = (),
    ) -> Decision:
        """Return the decision, denials ordered by policy; `obj` is the mutated object."""
        if self._mutated:
            self.annotate(MUTATED_BY, ", ".join(self._mutated))
        for key, number in self._further_ignored.items():
            self.annotate(key, f"{number} more failures are left out")
        for key, texts in self._published.items():
            self.annotate(key, ", ".join(texts))
        exempted = tuple(dict.fromkeys(exempted))
        for text in exempted:
            self.annotate(LIFTED_BY, text)
        for name, staged in self._staged.items():
            if name in self._matched:
                self.annotate(ROLLED_OUT, "; ".join(f"{name}: {each}" for each in staged))
        if self._audited:
            kept = msgspec.json.encode(self._audited).decode()
            self.annotate(VALIDATION_FAILURE, kept)
        return Decision(
            denials=tuple(sorted(self._denials, key=_rank)),
            warnings=tuple(self._warnings),
            further=self._further,
            audit_annotations=self._audit,
            operations=tuple(operations),
            matched=tuple(self._matched),
            changed=tuple(self._mutated),
            failures=tuple(self._failures),
            objections=tuple(self._objections),
            exempted=exempted,
            object=obj,
        )


def effects_of_failure(
    policy: CompiledPolicy, binding: CompiledBinding, *, denies: bool = False
) -> _Effects:
    """Return what it leads to that a policy cannot be evaluated; some failures always deny."""
    if policy.ignores_failures:
        return "ignored"
    return "denied" if denies else binding.actions


def _rank(denial: Denial) -> tuple[bool, bool, str]:
    """Order denials: the API server stops at an error of its own, and at a failed mutation."""
    return denial.reason != "InternalError", denial.kind != MUTATING, denial.policy


def _failed(policy: CompiledPolicy, text: str, binding: CompiledBinding | None) -> Denial:
    """Return the denial of a foreign policy that could not be evaluated."""
    text_before = lead(policy, binding)
    return Denial(policy=policy.name, message=text, lead=text_before, kind=policy.kind, failed=True)


def lead(policy: CompiledPolicy, binding: CompiledBinding | None) -> str:
    """Say in the API server's words which policy refuses."""
    if binding is None and policy.kind == MUTATING:
        return f'policy "{policy.name}" denied request'
    by = f" with binding '{binding.name}'" if binding and binding.name else ""
    kind = "policy" if policy.kind == MUTATING else policy.kind
    return f"{kind} '{policy.name}'{by} denied request"


def _warning(policy: CompiledPolicy, binding: CompiledBinding, denial: Denial) -> str:
    by = f" with binding '{binding.name}'" if binding.name else ""
    kind = policy.kind or VALIDATING
    return f"Validation failed for {kind} '{policy.name}'{by}: {denial.message}"


def _is_of(denial: Denial, validation: CompiledValidation) -> bool:
    """Tell whether a denial is from a validation, or from an error of its expression."""
    failed = failed_expression(validation.program.source, CelError(""))
    return denial.validation == validation.place or denial.message.startswith(failed)


def _audited(policy: CompiledPolicy, binding: CompiledBinding, denial: Denial) -> dict[str, Json]:
    index = next((i for i, v in enumerate(policy.validations) if _is_of(denial, v)), 0)
    return {
        "message": denial.message,
        "policy": policy.name,
        "binding": binding.name,
        "expressionIndex": index,
        "validationActions": list(binding.actions),
    }
