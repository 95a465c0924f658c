"""Compute the statuses of Kyverno's policies, in the form in which Kyverno writes them.

Tools wait for `status.conditionStatus.ready`, and show `status.autogen`: the policy as Kyverno
rewrites it for the controllers of pods. policyd evaluates the policy as it is; what it shows there
is for readers.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import MatchResources
from policyd.dialects.kyverno import cluster_policies
from policyd.dialects.kyverno.autogen import CONTROLLERS, is_for_pods
from policyd.engine.objects.workloads import value_at

WEBHOOK_CONFIGURED: Final = "WebhookConfigured"
"""The condition that the API server asks the webhooks about the policy's requests."""

PERMISSIONS_GRANTED: Final = "RBACPermissionsGranted"
"""The condition that existing objects can be read for reports."""

_CONFIGURED: Final = "Webhook configured."
_NOT_CONFIGURED: Final = "Policy is not configured in the webhook."
_REPORTING: Final = "Policy is ready for reporting."
_NOT_REPORTING: Final = "Policy is not ready for reporting, missing permissions: "

LONGEST_SPEC: Final = 128 * 1024
"""Characters of a spec that is rewritten for controllers; of a longer one, nothing is shown."""

_KEPT_CONDITIONS: Final = 8
_TEMPLATES: Final[Mapping[str, str]] = {
    "defaults": "spec.template",
    "cronjobs": "spec.jobTemplate.spec.template",
}
"""The pod template of the controllers of each rewritten policy."""

_KINDS: Final[Mapping[str, str]] = {
    "cronjobs": "CronJob",
    "daemonsets": "DaemonSet",
    "deployments": "Deployment",
    "jobs": "Job",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
}


def conditions_in(status: Json) -> list[dict[str, str]]:
    """Return the conditions of a status; those that are not understood are left out."""
    found = value_at(status, ("conditionStatus", "conditions")) or value_at(status, ("conditions",))
    kept = [
        {name: str(each.get(name, "")) for name in ("type", "status", "lastTransitionTime")}
        for each in (found if isinstance(found, list) else ())[:_KEPT_CONDITIONS]
        if isinstance(each, dict)
    ]
    return [each for each in kept if all(each.values())]


def policy_status(
    policy: Json,
    before: Sequence[Mapping[str, str]],
    *,
    now: float,
    fault: str = "",
    at_admission: bool = True,
) -> Json:
    """Return the status of a policy.

    Args:
        policy: The policy.
        before: The conditions that it has, as `conditions_in` returns them.
        now: Seconds since the epoch, for a condition that changes.
        fault: Why the policy is not in force; empty if it is.
        at_admission: Whether the policy concerns requests at all.
    """
    condition = _conditions(before, now)
    if policy["kind"] in cluster_policies.KINDS:
        ready = condition("Ready", fault or "Ready", holds=not fault)
        return {"ready": not fault, "conditions": [ready], "autogen": {}}
    configs = _configs(policy)
    conditions = [condition(PERMISSIONS_GRANTED, _REPORTING)]
    if at_admission or fault:
        message = _NOT_CONFIGURED if fault else _CONFIGURED
        conditions.insert(0, condition(WEBHOOK_CONFIGURED, message, holds=not fault))
    return {
        "conditionStatus": {"ready": not fault, "message": fault, "conditions": conditions},
        "autogen": {"configs": configs} if configs else {},
        "generated": False,
    }


def background_status(  # noqa: PLR0913 - what the status says
    policy: Json,
    before: Sequence[Mapping[str, str]],
    *,
    now: float,
    fault: str = "",
    missing: Sequence[str] = (),
    note: str = "",
) -> Json:
    """Return the status of a policy that acts by itself, without when it was carried out.

    The messages are Kyverno's, also of what needs no webhook here: tools wait for them.

    Args:
        policy: The policy.
        before: The conditions that it has, as `conditions_in` returns them.
        now: Seconds since the epoch, for a condition that changes.
        fault: Why the policy is not acted on; empty if it is.
        missing: The rights that the account lacks for it.
        note: The message of a policy that is ready.
    """
    condition = _conditions(before, now)
    lacking = f"{_NOT_REPORTING}{', '.join(missing)}." if missing else _REPORTING
    conditions = [condition(PERMISSIONS_GRANTED, lacking, holds=not missing)]
    if not policy["kind"].endswith("DeletingPolicy"):
        message = _NOT_CONFIGURED if fault else _CONFIGURED
        conditions.insert(0, condition(WEBHOOK_CONFIGURED, message, holds=not fault))
    message = fault or (lacking if missing else note)
    ready = not fault and not missing
    return {"conditionStatus": {"ready": ready, "message": message, "conditions": conditions}}


class _Condition(Protocol):
    def __call__(self, kind: str, message: str, *, holds: bool = True) -> dict[str, str]: ...


def _conditions(before: Sequence[Mapping[str, str]], now: float) -> _Condition:
    """Return a function that makes conditions, with their times if they were so before."""
    since = {(each["type"], each["status"]): each["lastTransitionTime"] for each in before}

    def condition(kind: str, message: str, *, holds: bool = True) -> dict[str, str]:
        status = "True" if holds else "False"
        made = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "type": kind,
            "status": status,
            "reason": "Succeeded" if holds else "Failed",
            "message": message,
            "lastTransitionTime": since.get((kind, status), made),
        }

    return condition


def _configs(policy: Json) -> dict[str, Json]:
    """Return the policy as it is rewritten for controllers."""
    spec = policy.get("spec")
    chosen = _controllers(spec) if isinstance(spec, dict) else ()
    made: dict[str, Json] = {}
    for name, template in _TEMPLATES.items():
        targets = [each for each in chosen if (each == "cronjobs") == (name == "cronjobs")]
        if targets:
            made[name] = _rewritten(spec, template, targets)
    return made


def _controllers(spec: Json) -> tuple[str, ...]:
    """Return the controllers that a policy is rewritten for, in order."""
    try:
        constraints = msgspec.convert(spec.get("matchConstraints"), MatchResources)
    except msgspec.ValidationError:
        return ()
    if not is_for_pods(constraints) or len(json.dumps(spec)) > LONGEST_SPEC:
        return ()
    named = value_at(spec, ("autogen", "podControllers", "controllers"))
    wanted = named if isinstance(named, list) else CONTROLLERS
    return tuple(sorted({each for each in wanted if isinstance(each, str) and each in CONTROLLERS}))


def _rewritten(spec: Json, template: str, controllers: Iterable[str]) -> Json:
    given = spec["matchConstraints"]
    operations = given["resourceRules"][0].get("operations")
    targets = [
        {"group": CONTROLLERS[each], "version": "v1", "resource": each, "kind": _KINDS[each]}
        for each in controllers
    ]
    targets.sort(key=lambda each: (each["group"], each["resource"]))
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "resources": [each["resource"] for each in targets if each["group"] == group],
            **({"operations": operations} if operations else {}),
        }
        for group in dict.fromkeys(each["group"] for each in targets)
    ]
    kept = {name: given[name] for name in ("namespaceSelector",) if name in given}
    made = {**spec, "matchConstraints": {**kept, "resourceRules": rules}}
    if isinstance(spec.get("mutations"), list):
        made["mutations"] = [_mutation(each, template) for each in spec["mutations"]]
    else:
        made = json.loads(_of_template(json.dumps(made), template))
    return {"spec": made, "targets": targets}


def _of_template(text: str, template: str) -> str:
    """Return text with the pod's fields in their place in the template."""
    for field in ("spec", "metadata"):
        for name in ("object", "oldObject"):
            text = text.replace(f"{name}.{field}", f"{name}.{template}.{field}")
    return text


def _mutation(mutation: Json, template: str) -> Json:
    """Return a mutation of pods as one of a pod template."""
    expression = value_at(mutation, ("applyConfiguration", "expression"))
    if not isinstance(expression, str):
        return mutation
    text = expression.strip()
    for name in ("object", "Object"):
        text = text.replace(f"{name}.spec", f"{name}.{template}.spec")
    if text.startswith("Object{"):
        steps = template.split(".")
        paths = [".".join(("Object", *steps[:end])) for end in range(1, len(steps) + 1)]
        opened = "".join(f"{step}: {path}{{" for step, path in zip(steps, paths, strict=True))
        end = _closing(text, len("Object"))
        text = f"Object{{{opened}{text[len('Object{') : end]}{'}' * len(steps)}{text[end:]}"
    return {**mutation, "applyConfiguration": {"expression": text}}


def _closing(text: str, opening: int) -> int:
    """Return the place of the brace that closes the one at `opening`; the end if none does."""
    depth = 0
    for place in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return place
    return len(text)
