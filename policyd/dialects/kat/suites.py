"""Run kat's tests: each evaluates the policy that it names, and no other.

Strictly: a request that no rule of the policy names fails, unless the test's name says `skip`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from policyd.api.admission import AdmissionRequest, UserInfo
from policyd.api.meta import Json
from policyd.api.policy import ParamRef
from policyd.cel.lib.authorizer import Authorization as PermissionDecision
from policyd.cel.lib.authorizer import AuthorizedAction
from policyd.dialects.kat.layout import KatTest, TestRequest, merged, name_of, request_of
from policyd.engine.compile.load import Loaded
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.bindings import NEEDS_BINDING
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy
from policyd.engine.model.decision import Decision
from policyd.engine.objects.equivalents import equivalent_match
from policyd.engine.objects.match import attributes_of, rule_names
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.cases import Case, CaseOutcome, Expectation, Permission, difference
from policyd.engine.offline.ordering import without_empty
from policyd.engine.offline.requests import namespace_lookup, offline_set
from policyd.errors import PolicydError
from policyd.patch.json_patch import apply_json_patch


class Mocked(Permission, frozen=True):
    """The answers of the authorizer."""

    decision: str = "allow"


def run_test(test: KatTest, loaded: Loaded) -> CaseOutcome:
    """Evaluate the policy that a test names, and compare the decision with the expected one."""
    policy = _policy_of(test, loaded.policies)
    if policy is None:
        names = ", ".join(sorted(policy.name for policy in loaded.policies))
        return _failed(test, f"its name must begin with a policy's name: {names}")
    try:
        request = merged(test)
        return _run(test, policy, loaded, request)
    except PolicydError as error:
        return _failed(test, str(error))
    except msgspec.ValidationError as error:
        return _failed(test, f"cannot be read: {error}")


def _run(test: KatTest, policy: CompiledPolicy, loaded: Loaded, given: TestRequest) -> CaseOutcome:
    asked = replace(
        loaded, policies=(policy,), bindings=tuple(_bindings(policy, loaded.bindings, given.params))
    )
    known = [given.namespace_object] if given.namespace_object else []
    policy_set = offline_set(
        asked,
        namespace_lookup(known, {}),
        objects=_params(policy, asked.bindings, given),
        authorize=_authorize(msgspec.convert(test.files.get("authorizer") or [], list[Mocked])),
    )
    request = request_of(given)
    decision = policy_set.review(request)
    problems = [*_unnamed(test, policy_set, request), *_problems(test, decision)]
    lines: list[str] = []
    if decision.allowed:
        result = apply_json_patch(given.object, decision.operations)
        gold = test.files.get("gold")
        lines = (
            []
            if gold is None or without_empty(gold) == without_empty(result)
            else difference(gold, result)
        )
        problems += ["the resulting object differs"] if lines else []
        if gold is None and decision.operations:
            problems.append("changed, but there is no .gold.yaml")
    violated = frozenset((denial.origin, denial.validation) for denial in decision.objections)
    return CaseOutcome(_as_case(test, given.object), tuple(problems), tuple(lines), violated)


def _policy_of(test: KatTest, policies: Sequence[CompiledPolicy]) -> CompiledPolicy | None:
    named = [policy for policy in policies if test.name.startswith(f"{policy.name}.")]
    if named:
        return max(named, key=lambda policy: len(policy.name))
    return policies[0] if len(policies) == 1 else None


def _bindings(
    policy: CompiledPolicy, bindings: Iterable[CompiledBinding], params: Json
) -> Iterator[CompiledBinding]:
    """Yield the policy's bindings; if it has none, one that denies, with the given params."""
    own = [b for b in bindings if (b.policy_kind, b.policy) == (policy.kind, policy.name)]
    yield from own
    if own or policy.kind not in NEEDS_BINDING:
        return
    ref = None
    if params is not None and policy.policy.spec.param_kind is not None:
        ref = ParamRef(name=name_of(params) or "params", parameter_not_found_action="Deny")
    yield CompiledBinding(
        name=f"{policy.name}-binding", policy=policy.name, policy_kind=policy.kind, param_ref=ref
    )


def _params(
    policy: CompiledPolicy, bindings: Iterable[CompiledBinding], given: TestRequest
) -> Iterator[Json]:
    """Yield the given params where each binding looks for them, unless they say where they are."""
    kind = policy.policy.spec.param_kind
    if given.params is None or kind is None:
        return
    for binding in bindings:
        if binding.param_ref is None:
            continue
        ref = binding.param_ref
        place = {"name": ref.name or "params"}
        namespace = ref.namespace or given.namespace or _namespace(given)
        if namespace:
            place["namespace"] = namespace
        metadata = value_at(given.params, ("metadata",))
        metadata = {**place, **(metadata if isinstance(metadata, dict) else {})}
        common = {"apiVersion": kind.api_version, "kind": kind.kind}
        yield {**common, **given.params, "metadata": metadata}


def _namespace(given: TestRequest) -> str:
    obj = given.object if given.object is not None else given.old_object
    return str(value_at(obj, ("metadata", "namespace")) or "")


def _authorize(
    mocked: Sequence[Mocked],
) -> Callable[[UserInfo, AuthorizedAction], PermissionDecision]:
    def decide(_user: UserInfo, asked: AuthorizedAction) -> PermissionDecision:
        found = [one for one in mocked if one.allows(asked)]
        return PermissionDecision(allowed=bool(found) and found[0].decision.lower() == "allow")

    return decide


def _unnamed(test: KatTest, policies: PolicySet, request: AdmissionRequest) -> Iterator[str]:
    """Say that a test shows nothing, as the policy's rules do not name the request at all."""
    attributes = attributes_of(request)
    served = policies.surroundings.served
    named = any(
        any(rule_names(rule, attributes) for rule in policy.constraints.resource_rules)
        or equivalent_match(policy.constraints.resource_rules, attributes, served) is not None
        for policy in policies.policies
    )
    if named and "skip" in test.words:
        yield "a rule matches this request, but should not"
    if not named and "skip" not in test.words:
        what = f"{request.operation} of {request.resource.resource}"
        yield f"no rule matches {what}; add `skip` to the name if that is intended"


def _problems(test: KatTest, decision: Decision) -> Iterator[str]:
    messages = [denial.message for denial in decision.denials]
    if "deny" in test.words:
        yield from _denied(test, messages)
    elif messages:
        yield f"refused: {messages[0]}"
    wanted = _lines(test.files.get("warnings"))
    if wanted and not _are(wanted, decision.warnings):
        yield f"unexpected warnings: {'; '.join(decision.warnings) or 'none'}"
    for key, text in (test.files.get("annotations") or {}).items():
        came = _annotation(key, decision)
        if came != text:
            yield f"audit annotation `{key}` is {came!r}"


def _denied(test: KatTest, messages: Sequence[str]) -> Iterator[str]:
    message = str(test.files.get("message") or "").strip()
    if not messages:
        yield "allowed, but should not be"
    elif message and messages[0] != message:
        yield f"refused with another message: {messages[0]}"


def _lines(text: str | None) -> list[str]:
    return [line.strip() for line in (text or "").splitlines() if line.strip()]


def _are(wanted: Sequence[str], warnings: Sequence[str]) -> bool:
    """Tell whether warnings are the expected ones, in order; each begins with its policy."""
    return len(wanted) == len(warnings) and all(
        came == line or came.endswith(f": {line}")
        for line, came in zip(wanted, warnings, strict=True)
    )


def _annotation(key: str, decision: Decision) -> str | None:
    """Return an audit annotation; tests leave out the name of the policy before it."""
    annotations = decision.audit_annotations
    return next(
        (v for name, v in annotations.items() if key in (name, name.split("/", 1)[-1])), None
    )


def _failed(test: KatTest, problem: str) -> CaseOutcome:
    return CaseOutcome(_as_case(test, None), (problem,))


def _as_case(test: KatTest, obj: Json) -> Case:
    return Case(name=test.name, object=obj or {}, expect=Expectation())
