"""Run mutations in order, each on the result of the one before, until nothing changes."""

from collections.abc import Collection, Sequence

from policyd.api.meta import Json
from policyd.cel import CelError, CelTimeError
from policyd.cel.cost import WORK_LIMIT, WORK_UNITS, deep_size, extent
from policyd.cel.values import Optional
from policyd.engine.evaluate.conditions import (
    BindingError,
    EvaluationError,
    Invocation,
    Match,
    failed_expression,
    invocations,
    make_match,
    matches,
    object_of,
    sees_as_sent,
    variables_of,
)
from policyd.engine.evaluate.patches import POD, mutated
from policyd.engine.evaluate.verdict import CATCHABLE, VerdictBuilder
from policyd.engine.inject.operations import InjectedField, InjectionTarget, apply_step
from policyd.engine.inject.templates import ABSENT
from policyd.engine.model.compiled import MUTATING, CompiledMutation, CompiledPolicy
from policyd.engine.model.deadline import OutOfTimeError
from policyd.engine.model.facts import Facts
from policyd.engine.model.reads import EVERYTHING
from policyd.engine.objects.equivalents import restore
from policyd.engine.objects.extracts import in_template
from policyd.engine.objects.workloads import value_at
from policyd.patch.builtin_views import type_of
from policyd.patch.defaults import as_written
from policyd.patch.draft import Draft
from policyd.patch.operations import Operation, difference, same_json

_Edit = tuple[InjectedField, InjectionTarget, Json]
"""A change: the field, its path and its value."""

_LOOKS = 2
"""How often a mutation by CEL has each value of the object read: to read its result, and to
compare that with the object before."""

_ENCODED = 8
"""Bytes of JSON that are taken for a value, about half of what they are in most objects."""

_LARGE = 256 * 1024
"""Bytes of JSON of an object whose values are counted from the first look on."""

_GUESSED = 8
"""The look with which the values of any object are counted: few mutations change an object, and
counting takes as long as one of them."""

_SHORT = 100
"""Letters of a text that take as much as one value to write."""

_MOVED = 700
"""Values of a list that move aside in one unit."""

_MOST_SOUGHT = 1_000_000
"""Units for finding the places of one JSON patch: a tenth of a second."""

_MERGED = 100
_CHECKED = 45
_MOST_MERGED = 2_000_000
"""Units for an item of a list that an apply configuration has, and that the object has: items are
distinguished by their keys. One apply configuration may take a fifth of a second."""

_PLACES = ("path", "from")


def mutate(
    policies: Sequence[CompiledPolicy], facts: Facts, verdict: VerdictBuilder, *, twice: bool = True
) -> list[Operation]:
    """Let policies change the object, and return how; `facts.object` is the result.

    A policy that cannot be applied changes nothing. All run once, and if anything was changed
    `twice`, those that want to.
    """
    mutation = _Mutation(facts, verdict)
    mutation.choose(policies)
    for policy in policies:
        mutation.apply(policy)
    if twice and mutation.changed:
        again = [p for p in policies if p.policy.spec.reinvocation_policy != "Never"]
        mutation.choose_again(again)
        for policy in again:
            mutation.apply_again(policy)
    return mutation.operations


class _Mutation:
    """The object as the policies so far left it."""

    def __init__(self, facts: Facts, verdict: VerdictBuilder) -> None:
        self._changes: list[frozenset[str]] = []
        self._changed: set[str] = set()
        self._seen: dict[str, int] = {}
        self._invoked: dict[int, int] = {}
        self._chosen: dict[str, list[Invocation]] = {}
        self._facts = facts
        self._verdict = verdict
        self._draft: Draft | None = None
        self._recorded = True
        self._original: Json = None
        self._written = 0
        self._size = 0
        self._looks = 0

    @property
    def operations(self) -> list[Operation]:
        """The operations that turn the original object into the current one."""
        if not self._recorded:
            return difference(self._original, self._facts.object)
        return self._draft.operations if self._draft else []

    @property
    def changed(self) -> bool:
        """Whether any policy changed the object."""
        return bool(self._changes)

    def choose(self, policies: Sequence[CompiledPolicy]) -> None:
        """Choose the API server's own policies that match the original object.

        So does the API server; its conditions are asked of the object as it is by then. On DELETE
        there is nothing to change, and nothing is asked.
        """
        for policy in policies:
            if policy.kind == MUTATING and self._facts.request.operation != "DELETE":
                self._choose(policy)

    def choose_again(self, policies: Sequence[CompiledPolicy]) -> None:
        """Choose which of the API server's own policies run again, by the current object."""
        for policy in policies:
            if policy.kind == MUTATING:
                chosen = self._chosen.pop(policy.id, ())
                ran = {_key(i) for i in chosen if id(i) in self._invoked}
                if ran:
                    self._choose(policy, among=ran)

    def _choose(
        self, policy: CompiledPolicy, among: Collection[tuple[Json, ...]] | None = None
    ) -> None:
        try:
            found = invocations(policy, self._facts)
            self._chosen[policy.id] = [i for i in found if among is None or _key(i) in among]
        except BindingError as error:
            self._verdict.fail(policy, error, error.binding, configuration=True)

    def apply(self, policy: CompiledPolicy) -> None:
        """Let one policy change the object, or leave it as it is if that fails.

        Policyd's own policies never change subresources. Those of others match the object as it is
        by then, as Kyverno's do.
        """
        if not policy.own:
            if policy.kind != MUTATING and self._facts.request.operation != "DELETE":
                self._choose(policy)
            for invocation in self._chosen.get(policy.id, ()):
                self._invoke(invocation)
            return
        facts = self._facts
        found: list[tuple[Invocation, Match]] = []
        try:
            asked = list(invocations(policy, facts))
            whole = facts.object is not None and not facts.request.sub_resource
            for invocation in asked if whole else ():
                for match in matches(invocation, facts):
                    found.append((invocation, match))  # noqa: PERF401 - a call less for each policy
        except CATCHABLE as error:
            self._verdict.fail(policy, error)
            found = []
        if found:
            self._apply(policy, found)
        self._seen[policy.id] = len(self._changes)

    def apply_again(self, policy: CompiledPolicy) -> None:
        """Let one policy change the object once more, if others changed it after it ran."""
        if not policy.own:
            self._invoke_again(policy)
            return
        # Most policies look at nothing that any other changed.
        reads = policy.reads
        if reads is not EVERYTHING and "*" not in self._changed and self._changed.isdisjoint(reads):
            return
        later = self._changes[self._seen.get(policy.id, 0) :]
        failed = policy.id in self._verdict.failed
        if later and not failed and meet(frozenset[str]().union(*later), reads):
            self.apply(policy)

    def _invoke_again(self, policy: CompiledPolicy) -> None:
        """Ask a policy of others again by those bindings and params by which it did run.

        It is asked for any change after each; one of the API server's own even if only its own
        change followed.
        """
        for invocation in self._chosen.get(policy.id, ()):
            seen = self._invoked.get(id(invocation), len(self._changes))
            if policy.kind == MUTATING or seen < len(self._changes):
                self._invoke(invocation)

    def _apply(self, policy: CompiledPolicy, found: list[tuple[Invocation, Match]]) -> None:
        """Let one policy of policyd's own change the object."""
        facts = self._facts
        self._verdict.matched(policy)
        edits: list[_Edit] = []
        try:
            for number, (_, match) in enumerate(found):
                edits += self._edits(policy, match, first=number == 0)
        except CATCHABLE as error:
            self._verdict.fail(policy, error)
            return
        before = facts.object
        try:
            changed = self._merge(edits)
            for invocation, match in found if policy.mutations else ():
                for mutation in policy.mutations:
                    changed = self._change(invocation, mutation, match) or changed
        except CATCHABLE as error:
            self._verdict.fail(policy, error)
            self._put(before)
            return
        if changed:
            self._note(policy)

    def _invoke(self, invocation: Invocation) -> None:
        """Let one policy of the API server's kinds change the object.

        A mutation that fails leaves the others of its policy alone.
        """
        policy, facts = invocation.policy, self._facts
        try:
            found = matches(invocation, facts)
        except CATCHABLE as error:
            self._verdict.fail(policy, error, invocation.binding)
            return
        if not found:
            return
        self._verdict.matched(policy)
        changed, asked = False, facts.object
        for match in found if asked is not None else ():
            for mutation in policy.mutations:
                fresh = mutation is policy.mutations[0] and facts.object is asked
                try:
                    changed = self._change(invocation, mutation, match, fresh=fresh) or changed
                except CATCHABLE as error:
                    self._verdict.fail(policy, error, invocation.binding)
        if changed:
            self._note(policy)
        self._invoked[id(invocation)] = len(self._changes)

    def _change(
        self,
        invocation: Invocation,
        mutation: CompiledMutation,
        match: Match,
        *,
        fresh: bool = False,
    ) -> bool:
        """Apply one mutation by CEL to the object as it is now; tell whether it changed it.

        Each mutation has a budget of its own. A `fresh` match is of the object as it is, and
        nothing was spent on it.

        Raises:
            PolicydError: If it fails.
        """
        facts = self._facts
        facts.check_time()
        if not fresh:
            match = self._seen_anew(invocation, match)
        value = _made_by(mutation, match)
        if value == [] and mutation.patch_type == "JSONPatch":
            return False
        plain = self._charge(invocation.policy, mutation, value)
        before = facts.object
        seen = object_of(invocation, facts, match.view)
        template = match.view.template if invocation.policy.templates else None
        struct = POD if template else type_of(seen)
        typed = facts.surroundings.typed
        if typed is None:
            typed = invocation.policy.own or invocation.policy.kind == MUTATING
        foreign = invocation.policy.kind == MUTATING
        sent = seen
        known = facts.surroundings
        if known.written and not template and sees_as_sent(invocation.policy, known):
            sent = facts.as_sent(seen)
        after = mutated(
            sent,
            mutation,
            value,
            struct,
            typed=typed,
            checked=foreign,
            plain=plain,
            custom=facts.surroundings.schemas,
        )
        if after is sent:
            return False
        if sent is not seen:
            after = as_written(seen, sent, after)
        if template:
            after = in_template(before, template, after)
        return self._replace(before, restore(after, before))

    def _seen_anew(self, invocation: Invocation, match: Match) -> Match:
        """Return the variables of a match for the current object, and its budget."""
        variables = variables_of(invocation, self._facts, match.view)
        if "exceptions" in match.variables:
            variables["exceptions"] = match.variables["exceptions"]
        return make_match(invocation.policy, match.view, variables, allowance=self._facts.allowance)

    def _replace(self, before: Json, after: Json) -> bool:
        """Put another object in the place of the one there was; tell whether it differs."""
        if before == after and same_json(before, after):  # 1 and 1.0 are equal, and not the same
            return False
        self._original = before if self._original is None else self._original
        self._put(after)
        return True

    def _edits(self, policy: CompiledPolicy, match: Match, *, first: bool) -> list[_Edit]:
        """Compute everything that is to be set, before anything is."""
        facts = self._facts
        facts.check_time()
        if facts.allowance.strained:
            match.budget.renew()
        created = facts.request.operation == "CREATE"
        target = InjectionTarget(facts.kind, match.view.paths, created)
        edits = []
        for step in policy.steps:
            # Fields of the object as a whole are set once, for any templates.
            if first or step.level in ("pods", "pods-metadata"):
                value = step.template.value(match.variables, match.budget)
                if value is not ABSENT and value:
                    if step.template.evaluate is not None:  # others are no longer than a policy
                        self._write(deep_size(value))
                    edits.append((step, target, value))
        return edits

    def _merge(self, edits: list[_Edit]) -> bool:
        """Set the injected fields; tell whether that changed anything."""
        facts = self._facts
        before = facts.object
        if self._draft is None:
            self._draft = Draft(before)
            self._original = before if self._original is None else self._original
        draft = self._draft
        for step, target, value in edits:
            apply_step(step, value, target, draft)
        facts.object = draft.object
        return facts.object is not before

    def _charge(self, policy: CompiledPolicy, mutation: CompiledMutation, value: Json) -> bool:
        """Charge a policy for what a mutation writes, and for its look at the whole object.

        Returns:
            Whether this is a JSON patch whose values are the same in JSON.

        Raises:
            PolicydError: If its budget or the time is used up, or it writes too much.
        """
        self._looks += 1
        if self._looks in (1, _GUESSED):
            self._size = self._object_size()
        if mutation.patch_type != "JSONPatch":
            self._write(deep_size(value))
            self._look(policy, self._units_of_merging(value))
            return False
        values, steps, plain = _extent(value)
        self._write(values)
        self._look(policy, self._units_of_finding(value, steps))
        return plain

    def _look(self, policy: CompiledPolicy, units: int) -> None:
        """Charge a policy for a look at the whole object, besides other units."""
        allowance = self._facts.allowance
        units += _LOOKS * WORK_UNITS * (self._size + self._written)
        if units > allowance.left(policy.id):
            raise EvaluationError(
                "its mutations would look at the object more often than there is time for",
                hint="make several mutations of a large object one",
            )
        try:
            allowance.take(policy.id, units)
        except CelTimeError:
            raise OutOfTimeError from None

    def _object_size(self) -> int:
        """Return how many values the object had; a guess for the first mutations of a small one."""
        encoded = len(self._facts.request.object)
        if encoded < _LARGE and self._looks < _GUESSED:
            return encoded // _ENCODED
        return deep_size(self._facts.object if self._original is None else self._original)

    def _units_of_merging(self, value: Json) -> int:
        """Return the units of merging a value into the object by the schema of its kind."""
        if self._size + self._written <= _MOST_MERGED // _MERGED:
            return 0
        units = _MERGED * _list_items(value) + _CHECKED * _list_items(self._facts.object)
        if units > _MOST_MERGED:
            raise EvaluationError(
                "the lists of the object, or of the change, have too many items to merge",
                hint="use a JSONPatch, or replace a list as a whole",
            )
        return units

    def _units_of_finding(self, operations: Json, steps: int) -> int:
        """Return the units of finding the places of a JSON patch, whose paths have so many steps.

        So many values as the object has may move aside in a list.
        """
        if not isinstance(operations, list):
            return 0
        number = len(operations)
        units = steps + number * (self._size // _MOVED)
        if units > _MOST_SOUGHT:
            raise EvaluationError(
                f"the {number} operations of a JSON patch have too far to go in the object",
                hint="replace a list or an object with a new one in one operation",
            )
        return units

    def _write(self, values: int) -> None:
        """Charge for values that are written to the object, each time they occur.

        Raises:
            PolicydError: If it is more than expressions may look at.
        """
        self._written += values
        if self._written > WORK_LIMIT:
            raise EvaluationError(
                f"mutations write more than {WORK_LIMIT:,} values into one object",
                hint="an object so large cannot be stored: write less",
            )

    def _note(self, policy: CompiledPolicy) -> None:
        self._changes.append(policy.writes)
        self._changed |= policy.writes
        self._verdict.mutated(policy)

    def _put(self, obj: Json) -> None:
        """Go on with an object that was not made by recorded changes."""
        self._draft, self._recorded = None, False
        self._facts.object = obj


def _extent(operations: Json) -> tuple[int, int, bool]:
    """Return how many values a JSON patch has, the steps of its paths, and whether it is plain."""
    if not isinstance(operations, list):
        return deep_size(operations), 0, False
    values, steps, plain = 1, 0, True
    for operation in operations:
        values += 1
        fields = operation if isinstance(operation, dict) else {"": operation}
        for name, part in fields.items():
            if type(part) is str:
                values += 1 + len(part) // _SHORT
                steps += part.count("/") if name in _PLACES else 0
            else:
                more, same = extent(part)
                values, plain = values + more, plain and same
        if values > WORK_LIMIT:
            break
    return values, steps, plain


def _list_items(value: object) -> int:
    """Return the number of items in all lists of a value, those in lists of items included."""
    count, pending = 0, [value]
    for part in pending:
        if isinstance(part, list):
            count += len(part)
            inner: Collection[object] = part
        elif isinstance(part, dict):
            inner = part.values()
        else:
            inner = (part.value,) if isinstance(part, Optional) and part.present else ()
        if not _SCALARS.issuperset(map(type, inner)):
            pending += [each for each in inner if type(each) not in _SCALARS]
    return count


_SCALARS = frozenset((str, int, float, bool, type(None)))


def meet(changed: frozenset[str], reads: frozenset[str]) -> bool:
    """Tell whether a change of the fields `changed` may affect a reader of `reads`."""
    return reads is EVERYTHING or "*" in changed or not changed.isdisjoint(reads)


def _made_by(mutation: CompiledMutation, match: Match) -> Json:
    """Evaluate the expression of a mutation.

    Raises:
        PolicydError: If it fails.
    """
    try:
        return mutation.program.evaluate(match.variables, match.budget)
    except CelTimeError:
        raise OutOfTimeError from None
    except CelError as error:
        raise EvaluationError(failed_expression(mutation.program.source, error)) from error


def _key(invocation: Invocation) -> tuple[Json, ...]:
    """Return the key of an invocation of a policy."""
    metadata = value_at(invocation.param, ("metadata",)) or {}
    return invocation.binding.name, metadata.get("namespace"), metadata.get("name")
