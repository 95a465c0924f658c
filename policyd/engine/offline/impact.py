"""Sum up what policies would have refused and changed: the impact of a roll-out.

Each request is judged apart, anywhere; the verdicts are gathered in their order. The answer counts
objects, by team, owner, policy and rule, and the fields that would be changed.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from policyd.api.admission import AdmissionRequest, Operation, decode_object
from policyd.api.meta import Json, cut
from policyd.api.policy import MatchResources
from policyd.cel import Program
from policyd.engine.evaluate.policy_set import PHASES, PolicySet
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.decision import Decision
from policyd.engine.objects.match import selects_all
from policyd.engine.offline.audit_log import Gone, LoggedKey, LoggedRequest
from policyd.errors import PolicydError
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import difference

MOST_OBJECTS: Final = 200_000
"""Objects that would be refused, and that would be changed, that are kept by name."""

MOST_FIELDS: Final = 50
"""Fields of one object that are listed as changed."""

MOST_RULES: Final = 100
"""Rules that one object is kept with."""

LONGEST_MESSAGE: Final = 500
LONGEST_NAME: Final = 300
"""Bytes that are kept of a message, and of a name."""

_DEEPEST: Final = 20
_OLD: Final = re.compile(r"\boldObject\b")
_WITHOUT_OBJECT: Final = frozenset({"request", "namespaceObject", "params", "authorizer"})
_OF_ONE: Final = ("name", "generateName", "uid", "resourceVersion", "creationTimestamp")
_WORDS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Decide = Callable[[PolicySet, AdmissionRequest], Decision]


class RuleKey(NamedTuple):
    """A rule of a policy: a validation, or empty if the policy could not be evaluated."""

    policy: str
    rule: str
    enforcement: str
    """`Deny`, or what it does instead of refusing."""


class RequestVerdict(msgspec.Struct, frozen=True):
    """The verdict on one request; it is sent between processes.

    Attributes:
        refusals: The rules that refuse it, with messages.
        warnings: The rules that object without refusing it.
        fields: The fields of the object that would be changed.
        policies: The policies that change it.
        template: A digest of an object that is refused, without its names.
        error: Why it could not be judged; empty if it could.
    """

    refusals: tuple[tuple[RuleKey, str], ...] = ()
    warnings: tuple[tuple[RuleKey, str], ...] = ()
    fields: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    template: bytes = b""
    error: str = ""


def judge(
    request: AdmissionRequest, new: PolicySet, old: PolicySet | None, decide: Decide
) -> RequestVerdict:
    """Say what policies would do to a request.

    Args:
        request: The request; without `old`, its object has what was changed then.
        new: The policies to be.
        old: The policies that are: only what the new ones do otherwise counts.
        decide: Decides by policies, and by what else is to count.
    """
    try:
        decision = decide(new, request)
        before = Decision() if old is None else decide(old, request)
        refusals = _refusals(decision)
        if before.denials:
            refusals = ()
        known = {key for key, _ in _objections(before)}
        warnings = tuple(each for each in _objections(decision) if each[0] not in known)
        fields = () if decision.denials else _fields(request, decision, before)
        template = _template(request) if refusals else b""
    except PolicydError as error:
        return RequestVerdict(error=_shortened(str(error)))
    policies = decision.changed if fields else ()
    return RequestVerdict(refusals, warnings, fields, policies, template)


def _refusals(decision: Decision) -> tuple[tuple[RuleKey, str], ...]:
    found: dict[RuleKey, str] = {}
    for denial in decision.denials:
        key = RuleKey(_named(denial.policy), _named(denial.validation), "Deny")
        found.setdefault(key, _shortened(denial.advice))
    return tuple(found.items())[:MOST_RULES]


def _objections(decision: Decision) -> tuple[tuple[RuleKey, str], ...]:
    found: dict[RuleKey, str] = {}
    for each in decision.objections:
        if "Deny" not in each.actions:
            actions = "+".join(each.actions)
            key = RuleKey(_named(each.policy), _named(each.validation), actions)
            found.setdefault(key, _shortened(each.advice))
    return tuple(found.items())[:MOST_RULES]


def _fields(request: AdmissionRequest, decision: Decision, before: Decision) -> tuple[str, ...]:
    if not decision.operations and not before.operations:
        return ()
    obj = decode_object(request.object)
    one, other = (apply_json_patch(obj, list(each.operations)) for each in (before, decision))
    found: dict[str, None] = {}
    for operation in difference(one, other):
        steps = [
            step.replace("~1", "/").replace("~0", "~") for step in operation.path.split("/")[1:]
        ]
        value = None if operation.value is msgspec.UNSET else operation.value
        for text in _leaves(_written(steps), value, _DEEPEST):
            found[cut(text, LONGEST_NAME, end="…")] = None
            if len(found) >= MOST_FIELDS:
                return tuple(found)
    return tuple(found)


def _leaves(path: str, value: Json, deepest: int) -> Iterator[str]:
    """Yield the fields of a value; a list counts as one, and so does an item of it."""
    if isinstance(value, dict) and value and deepest and not path.endswith("[]"):
        for name, part in value.items():
            yield from _leaves(_joined(path, str(name)), part, deepest - 1)
    else:
        yield path


def _written(steps: Iterable[str]) -> str:
    text = ""
    for step in steps:
        text = f"{text}[]" if text and (step.isdecimal() or step == "-") else _joined(text, step)
    return text


def _joined(path: str, name: str) -> str:
    if not path:
        return name
    return f"{path}.{name}" if _WORDS.fullmatch(name) else f"{path}[{name}]"


def _template(request: AdmissionRequest) -> bytes:
    obj = decode_object(request.object)
    if not isinstance(obj, dict):
        return b""
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        kept = {key: value for key, value in metadata.items() if key not in _OF_ONE}
        kept.pop("managedFields", None)
        obj = {**obj, "metadata": kept}
    obj = {key: value for key, value in obj.items() if key != "status"}
    return blake2b(msgspec.json.encode(obj, order="deterministic"), digest_size=8).digest()


def _shortened(text: str) -> str:
    return cut(text, LONGEST_MESSAGE, end="…")


def _named(text: str) -> str:
    return cut(text, LONGEST_NAME, end="…")


def reads_old_object(policies: PolicySet, request: AdmissionRequest) -> bool:
    """Tell whether a policy may look at the object before a change.

    Args:
        policies: The policies.
        request: The resource and operation of the change.
    """
    concerned = {
        policy.id: policy for phase in PHASES for policy in policies.concerned(request, phase)
    }
    return any(_reads_old(policy, request.operation) for policy in concerned.values())


def _reads_old(policy: CompiledPolicy, operation: Operation) -> bool:
    constraints: list[MatchResources | None] = [each.constraints for each in policy.bindings]
    selectors = [policy.constraints.object_selector]
    selectors += [each.object_selector for each in constraints if each is not None]
    if policy.applies is not None or policy.exceptions or not all(map(selects_all, selectors)):
        return True
    if operation == "DELETE":
        own = policy.uses - _WITHOUT_OBJECT - policy.variables.keys() - {"variables"}
        if own or policy.staged or policy.by_template or policy.templates:
            return True
    return any(_OLD.search(program.source) for program in _programs(policy))


def _programs(policy: CompiledPolicy) -> Iterator[Program]:
    yield from policy.programs
    yield from policy.variables.values()
    yield from (program for _, program in policy.annotations)
    for validation in policy.validations:
        if validation.message_program is not None:
            yield validation.message_program


class ImpactSubject(NamedTuple):
    """An object that requests are about.

    Attributes:
        kind: Its kind, such as `Pod`.
        plural: Its resource, with `/` before a subresource.
        namespace: Its namespace; empty for objects of the cluster.
        name: Its name; with `*` at the end if the API server made it up and the log lacks it.
        team: Its team.
        owner: Kind and name of its topmost controller, or its own.
    """

    kind: str
    plural: str
    namespace: str
    name: str
    team: str
    owner: str


@dataclass(slots=True)
class AffectedObject:
    """An object that would be refused or changed.

    Attributes:
        subject: The object.
        version: The version of its resource.
        operations: The requests for it that are affected, by operation.
        exists: Whether it exists still, as far as is known; a pod that has ended does not.
        unknown: Whether that is not known, for want of a name.
        messages: The rules that object to it, with the first message.
        fields: The fields that would be changed.
        policies: The policies that change them.
        template: A digest of what a controller creates, without its names; empty for others.
    """

    subject: ImpactSubject
    version: str = ""
    operations: Counter[Operation] = field(default_factory=Counter)
    exists: bool = False
    unknown: bool = False
    messages: dict[RuleKey, str] = field(default_factory=dict)
    fields: dict[str, None] = field(default_factory=dict)
    policies: dict[str, None] = field(default_factory=dict)
    template: bytes = b""


class _Affected:
    """Objects of a kind of verdict, up to a number."""

    def __init__(self) -> None:
        self.objects: dict[LoggedKey, AffectedObject] = {}
        self.requests = 0
        self.left_out = 0
        self._unnamed = 0

    def take(self, logged: LoggedRequest, subject: ImpactSubject) -> AffectedObject | None:
        """Return the object of a request, which is affected once more."""
        self.requests += 1
        key = logged.key
        if logged.request.sub_resource:
            key = key._replace(resource=subject.plural)
        if not key.name:
            self._unnamed += 1
            key = key._replace(name=f"\0{self._unnamed}")
        found = self.objects.get(key)
        if found is None:
            if len(self.objects) >= MOST_OBJECTS:
                self.left_out += 1
                return None
            found = self.objects[key] = AffectedObject(subject, logged.request.resource.version)
        found.operations[logged.request.operation] += 1
        found.exists = logged.request.operation != "DELETE"
        found.unknown = not logged.key.name
        return found


class Impact:
    """Gathers verdicts in the order of their requests."""

    def __init__(self, team_of: Callable[[LoggedRequest], str]) -> None:
        """Take what tells the team of a request."""
        self._team_of = team_of
        self._refused = _Affected()
        self._changed = _Affected()
        self._warned = _Affected()
        self._places: dict[tuple[str, str], dict[LoggedKey, None]] = {}
        self._retries: Counter[tuple[str, str, bytes]] = Counter()
        self.judged = 0
        """Requests with a verdict."""
        self.refused_then = 0
        """Requests that the API server refused then; they count nowhere else."""
        self.refused_again = 0
        """Requests of these that would be refused by the policies."""
        self.dry_runs = 0
        """Requests that were dry runs; they count nowhere else."""
        self.errors: Counter[str] = Counter()
        """Why requests could not be judged."""

    @property
    def refused(self) -> Mapping[LoggedKey, AffectedObject]:
        """The objects that would be refused."""
        return self._refused.objects

    @property
    def changed(self) -> Mapping[LoggedKey, AffectedObject]:
        """The objects that would be changed."""
        return self._changed.objects

    @property
    def warned(self) -> Mapping[LoggedKey, AffectedObject]:
        """The objects that rules object to without refusing them."""
        return self._warned.objects

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests that would be refused, changed, and objected to."""
        return {
            "refused": self._refused.requests,
            "changed": self._changed.requests,
            "warned": self._warned.requests,
        }

    @property
    def left_out(self) -> int:
        """Requests for more objects than are kept; they count as requests only."""
        return sum(each.left_out for each in (self._refused, self._changed, self._warned))

    def take(self, logged: LoggedRequest, verdict: RequestVerdict) -> None:
        """Take the verdict on a request."""
        if verdict.error:
            known = len(self.errors) < MOST_RULES or verdict.error in self.errors
            self.errors[verdict.error if known else "other errors"] += 1
            return
        self.judged += 1
        if logged.refused:
            self.refused_then += 1
            self.refused_again += bool(verdict.refusals)
        elif logged.request.dry_run:
            self.dry_runs += 1
        elif verdict.refusals or verdict.warnings or verdict.fields:
            self._affect(logged, verdict)

    def _affect(self, logged: LoggedRequest, verdict: RequestVerdict) -> None:
        subject = self._subject(logged)
        if verdict.refusals:
            self._refuse(logged, subject, verdict)
        if verdict.warnings:
            found = self._warned.take(logged, subject)
            if found is not None:
                _note(found, verdict.warnings)
        if verdict.fields:
            found = self._changed.take(logged, subject)
            if found is not None and len(found.fields) < MOST_FIELDS:
                found.fields |= dict.fromkeys(verdict.fields)
                found.policies |= dict.fromkeys(map(_named, verdict.policies))

    def _refuse(
        self, logged: LoggedRequest, subject: ImpactSubject, verdict: RequestVerdict
    ) -> None:
        found = self._refused.take(logged, subject)
        if found is None:
            return
        _note(found, verdict.refusals)
        if logged.controlled and logged.request.operation == "CREATE" and verdict.template:
            found.template = verdict.template
            self._retries[subject.namespace, subject.owner, verdict.template] += 1
        key = logged.key
        if key.name:
            place = self._places.setdefault((key.resource, key.namespace), {})
            place[key] = None

    def gone(self, gone: Gone) -> None:
        """Note that objects are deleted, or have ended."""
        key = gone.key
        if key.name:
            self._end(key)
            return
        for (resource, namespace), keys in self._places.items():
            if key.resource in ("", resource) and (
                namespace == key.namespace or (key.resource and not key.namespace)
            ):
                for each in keys:
                    self._end(each)

    def _end(self, key: LoggedKey) -> None:
        found = self._refused.objects.get(key)
        if found is not None:
            found.exists = False

    def exist(self, keys: Callable[[LoggedKey], bool | None]) -> None:
        """Take from elsewhere whether refused objects exist; None if that is not known."""
        for key, found in self._refused.objects.items():
            known = None if found.unknown else keys(key)
            if known is not None:
                found.exists = known

    def is_retried(self, found: AffectedObject) -> bool:
        """Tell whether a controller created what would be refused more than once."""
        subject = found.subject
        key = (subject.namespace, subject.owner, found.template)
        return bool(found.template) and self._retries[key] > 1

    def _subject(self, logged: LoggedRequest) -> ImpactSubject:
        request = logged.request
        plural = request.resource.resource
        if request.sub_resource:
            plural = f"{plural}/{request.sub_resource}"
        return ImpactSubject(
            kind=_named(request.kind.kind or plural),
            plural=_named(plural),
            namespace=_named(logged.key.namespace),
            name=_named(logged.name),
            team=_named(self._team_of(logged)),
            owner=_named(" ".join(logged.owner)),
        )


def _note(found: AffectedObject, messages: Sequence[tuple[RuleKey, str]]) -> None:
    for key, message in messages:
        if len(found.messages) < MOST_RULES:
            found.messages.setdefault(key, message)
