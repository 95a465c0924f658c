"""Cases of policies: one case as a request, asked of the engine that ships, in each dialect."""

import time
from dataclasses import dataclass

import msgspec

from policyd.api.admission import (
    NO_OBJECT,
    AdmissionRequest,
    GroupVersionKind,
    GroupVersionResource,
    UserInfo,
)
from policyd.cel.lib.authorizer import Authorization as PermissionDecision
from policyd.dialects.registry import dialect_of
from policyd.engine.compile.load import gather, load_document
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.review import refusal
from policyd.engine.model.dialects import Dialect, Volatile
from policyd.engine.model.params import StoredParams
from policyd.engine.model.surroundings import PolicyContext, deny_all_permissions
from policyd.engine.objects.match import labels_of
from policyd.engine.offline.requests import namespace_lookup
from policyd.patch.builtin_types import MistypedError
from policyd.patch.builtin_views import type_of, typed_view
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import same_json


@dataclass(frozen=True)
class Mode:
    """How the API server was asked: a version's dialect, and whether it knew the object's type."""

    name: str
    dialect: Dialect
    typed: bool = False


CLOCK = Volatile(now=time.time_ns)
"""Kyverno's tests look at the clock on the wall."""

MODES = (
    Mode("1.36", dialect_of(volatile=CLOCK)),
    Mode("1.36-typed", dialect_of(volatile=CLOCK), typed=True),
    Mode("cel-go-0.29", dialect_of(cel_go=(0, 29), volatile=CLOCK)),
)


@dataclass(frozen=True)
class CaseResult:
    """What came of a case: the decision, the object in the end, and what was not loaded."""

    decision: object
    result: object
    request: AdmissionRequest
    findings: tuple
    policies: tuple


def documents(case):
    """Return every policy and binding of a case."""
    policies = case.get("policies") or [case["policy"]]
    return [*policies, *(case.get("bindings") or [])]


def ask(case, mode, *, given=None, extra=None):
    """Ask the engine what it makes of a case."""
    given = documents(case) if given is None else given
    loaded = gather(load_document(Document(value, "case"), mode.dialect) for value in given)
    request = request_of(case, typed=mode.typed)
    surroundings = PolicyContext(
        namespaces=_namespaces(case),
        params=StoredParams(case.get("params") or ()),
        authorize=_allow_all if case.get("authorizer") == "allow-all" else deny_all_permissions,
        typed=mode.typed,
        **({} if extra is None else {"extra": extra}),
    )
    policies = PolicySet(
        loaded.policies,
        bindings=loaded.bindings,
        exceptions=loaded.exceptions,
        surroundings=surroundings,
    )
    decision = policies.review(request)
    obj = msgspec.json.decode(request.object)
    result = apply_json_patch(obj, decision.operations) if decision.operations else obj
    errors = tuple(f for f in loaded.findings if f.severity == "error")
    return CaseResult(decision, result, request, errors, loaded.policies)


def request_of(case, *, typed=False):
    """Build the request of a case."""
    given = case["request"]
    obj, old = case.get("resource"), case.get("oldResource")
    operation = given.get("operation") or case.get("operation")
    if operation == "DELETE" and old is None:
        obj, old = None, obj
    if typed:
        obj, old = _typed(obj), _typed(old)
    kind = GroupVersionKind(**given["kind"])
    resource = GroupVersionResource(**given["resource"])
    user = case.get("userInfo") or {}
    return AdmissionRequest(
        uid="case",
        kind=kind,
        resource=resource,
        operation=operation,
        sub_resource=given.get("subResource", ""),
        name=given.get("name", ""),
        namespace=given.get("namespace", ""),
        user_info=msgspec.convert(user, UserInfo),
        object=_raw(obj),
        old_object=_raw(old),
    )


def _typed(obj):
    struct = type_of(obj)
    if struct is None:
        return obj
    try:
        return typed_view(obj, struct)[0]
    except MistypedError:
        return obj


def _raw(obj):
    return NO_OBJECT if obj is None else msgspec.Raw(msgspec.json.encode(obj))


def _namespaces(case):
    given = case.get("namespaceObject")
    labels = labels_of(given) if given else {}
    return namespace_lookup([given] if given else [], labels)


def _allow_all(_user, _permission):
    return PermissionDecision(allowed=True)


def result_of(asked):
    """Say in a word what came of a case."""
    decision = asked.decision
    if asked.findings or any(denial.failed for denial in decision.denials):
        return "error"
    if any(failure.ignored for failure in decision.failures):
        return "error"
    if decision.denials or decision.warnings or _audited(decision):
        return "fail"
    return "pass" if decision.matched else "skip"


def _audited(decision):
    return any(key.endswith("/validation_failure") for key in decision.audit_annotations)


def difference(asked, expected):
    """Say how an answer differs from the API server's; empty if it does not."""
    if asked.findings:
        return _quarantine_difference(asked, expected)
    decision = asked.decision
    if decision.allowed != expected["allowed"]:
        shown = "; ".join(map(str, decision.denials)) or "allowed"
        return f"allowed should be {expected['allowed']}: {shown}"
    if "patched" in expected:
        same = same_json(asked.result, expected["patched"])
        return "" if same else f"patched {asked.result} != {expected['patched']}"
    return _verdict_difference(asked, expected)


def _quarantine_difference(asked, expected):
    """Compare where a policy is not even loaded.

    An API server that has it refuses each request that it concerns, unless failures are ignored.
    """
    if expected["allowed"] and expected["result"] in ("error", "skip"):
        return ""
    message = str(asked.findings[0].message)
    wanted = str(expected.get("message", ""))
    if expected["result"] == "error" and not expected["allowed"] and message in wanted:
        return ""
    return f"not loaded: {asked.findings[0]}"


def _verdict_difference(asked, expected):
    decision, wanted = asked.decision, expected["result"]
    if result_of(asked) != wanted and not (wanted == "skip" and not decision.matched):
        return f"result {result_of(asked)}, expected {wanted}"
    if list(decision.warnings) != expected.get("warnings", []):
        return f"warnings {decision.warnings} != {expected.get('warnings')}"
    return "" if decision.allowed else _refusal_difference(asked, expected)


def _refusal_difference(asked, expected):
    status = refusal(asked.request, asked.decision)
    if (status.code, status.reason) != (expected["code"], expected["reason"]):
        return f"{status.code} {status.reason} != {expected['code']} {expected['reason']}"
    native = asked.policies[0].kind.endswith("AdmissionPolicy")
    if native and not status.message.startswith(expected["message"]):
        return f"{status.message} != {expected['message']}"
    messages = [denial.message for denial in asked.decision.denials]
    if not native:
        messages = [message.partition(" resulted in error: ")[2] or message for message in messages]
    denied = [d["message"] for d in expected.get("decisions", ()) if d["action"] == "deny"]
    if not native:
        denied = [message.partition(" resulted in error: ")[2] or message for message in denied]
    unique = list(dict.fromkeys(denied))
    if denied and messages not in (denied, unique):
        return f"denials {messages} != {denied}"
    return ""


def expected_in(case, mode):
    """Return what the API server answers in a mode; answers that are the same are given once."""
    answers = case.get("apiserver")
    return answers.get(mode.name, answers["1.36"]) if answers else None
