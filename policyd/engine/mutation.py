"""Mutations in order, each on the result of the one before, until nothing changes any more."""

from collections.abc import Sequence
from typing import Final

from policyd.api.meta import Json
from policyd.engine.compile import CompiledPolicy
from policyd.engine.evaluate import Match, concerns, matches
from policyd.engine.facts import Facts
from policyd.engine.inject import Step, Target, apply_step
from policyd.engine.reads import EVERYTHING, meet
from policyd.engine.templates import ABSENT
from policyd.engine.verdict import CATCHABLE, Verdict
from policyd.patch.draft import Draft
from policyd.patch.json_patch import difference
from policyd.patch.operations import Operation

ROUNDS: Final = 2
"""How often mutations run: once, and once more for those that others changed something after."""


def mutate(policies: Sequence[CompiledPolicy], facts: Facts, verdict: Verdict) -> list[Operation]:
    """Let policies change the object, and return how; `facts.object` is the result.

    A policy that cannot be applied changes nothing.
    """
    mutation = _Mutation(facts, verdict)
    for policy in policies:
        mutation.apply(policy)
    for _ in range(ROUNDS - 1):
        for policy in policies:
            if mutation.may_change(policy):
                mutation.apply(policy)
    return mutation.operations


class _Mutation:
    """The object as the policies so far left it."""

    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        self._changes: list[frozenset[str]] = []
        self._changed: set[str] = set()
        self._seen: dict[str, int] = {}
        self._facts = facts
        self._verdict = verdict
        self._settled: list[Operation] = []
        self._draft: Draft | None = None
        self._original: Json = None

    @property
    def operations(self) -> list[Operation]:
        """All that was done, in order."""
        return self._settled + (self._draft.operations if self._draft else [])

    def may_change(self, policy: CompiledPolicy) -> bool:
        """Tell whether another policy changed what this one looks at, after it ran."""
        # Most policies look at nothing that any other changed.
        if policy.reads is not EVERYTHING and self._changed.isdisjoint(policy.reads):
            return False
        if self._verdict.has_failed(policy):
            return False
        later = self._changes[self._seen.get(policy.name, 0) :]
        return any(meet(changed, policy.reads) for changed in later)

    def apply(self, policy: CompiledPolicy) -> None:
        """Let one policy change the object, or leave it as it is if that fails."""
        self._apply(policy)
        self._seen[policy.name] = len(self._changes)

    def _apply(self, policy: CompiledPolicy) -> None:
        facts = self._facts
        try:
            if not concerns(policy, facts) or facts.object is None or facts.request.sub_resource:
                return
            found = matches(policy, facts)
            if not found:
                return
            self._verdict.matched(policy)
            edits = [
                edit
                for i, match in enumerate(found)
                for edit in self._edits(policy, match, first=i == 0)
            ]
        except CATCHABLE as error:
            self._verdict.fail(policy, error)
            return
        self._merge(policy, edits)

    def _edits(
        self, policy: CompiledPolicy, match: Match, *, first: bool
    ) -> list[tuple[Step, Target, Json]]:
        """Compute everything that is to be set, before anything is."""
        facts = self._facts
        facts.check_time()
        created = facts.request.operation == "CREATE"
        target = Target(facts.kind, match.view.paths, created)
        edits = []
        for step in policy.steps:
            # What belongs to the object as a whole is set once, whatever its templates are.
            if first or step.level in ("pods", "pods-metadata"):
                value = step.template.value(match.variables, match.budget)
                if value is not ABSENT and value:
                    edits.append((step, target, value))
        return edits

    def _merge(self, policy: CompiledPolicy, edits: list[tuple[Step, Target, Json]]) -> None:
        facts = self._facts
        before = facts.object
        if self._draft is None:
            self._draft = Draft(before)
            self._original = before if self._original is None else self._original
        draft = self._draft
        try:
            for step, target, value in edits:
                apply_step(step, value, target, draft)
        except CATCHABLE as error:
            self._verdict.fail(policy, error)
            self._undo(before)
            return
        after = draft.object
        if after is not before:
            self._changes.append(policy.writes)
            self._changed |= policy.writes
            facts.object = after
            self._verdict.mutated(policy)

    def _undo(self, before: Json) -> None:
        """Forget what a policy did before it failed; rare, so that a comparison is cheap enough."""
        self._settled = difference(self._original, before)
        self._draft = None
