"""One request, asked of the engine and of a real API server.

The engine is shown the object as admission in the API server sees it: read, defaulted, and changed
by the plug-ins that are built in. So the API server is asked twice: before any policy is there, and
after. An object that it refuses by itself is completed with what it says is missing, if it can be.
"""

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from policyd.api.admission import UserInfo
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.decision import Decision, Denial
from policyd.engine.offline.requests import RequestCircumstances, request_for
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import same_json
from tests.live.server import Answer, Live, path_of, resource_of, without_system_fields

ROUNDS = 6
"""How often an object is completed: what is missing may hide something else."""

MISSING: dict[str, Any] = {
    "image": "example.com/app:1",
    "name": "main",
    "containers": [{"name": "main", "image": "example.com/app:1"}],
    "restartPolicy": "Never",
    "selector": {"matchLabels": {"app": "case"}},
    "labels": {"app": "case"},
    "subdomain": "case",
    "serviceName": "case",
    "schedule": "0 0 * * *",
    "ports": [{"port": 80}],
    "mountPath": "/mnt",
    "path": "/mnt",
    "medium": "",
}
"""What stands in for a field that the API server misses, by the field's name."""

OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
GENERATED = re.compile(r"-[a-z0-9]{5}\b")


@dataclass
class Trial:
    """A request; `refused` says why the API server refuses it without any policy."""

    name: str
    object: Any
    namespace: Any = None
    operation: str = "CREATE"
    old_object: Any = None
    user: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    decision: Decision | None = None
    request: Any = None
    expected: Answer | None = None

    @property
    def _namespace(self) -> str:
        return "" if self.namespace is None else self.namespace["metadata"]["name"]

    @property
    def cluster_wide(self) -> bool:
        """Whether the object is in no namespace."""
        return not resource_of(self.object)[1]

    def label(self, key: str, value: str) -> None:
        """Put a label on the object."""
        for obj in (self.object, self.old_object):
            if obj:
                metadata = obj["metadata"] = obj.get("metadata") or {}
                metadata["labels"] = {**(metadata.get("labels") or {}), key: value}

    def ask(self, live: Live, obj: Any = None) -> Answer:
        """Ask the API server by dry-run; about another object if one is given."""
        method, path, body = self._sent(self.object if obj is None else obj)
        return live.ask(method, path, body, query={"dryRun": "All"}, user=self.user)

    def ask_by(self, ask: Callable[[str, str, Any], Answer]) -> Answer:
        """Ask another server by dry-run, as its administrator."""
        method, path, body = self._sent(self.object)
        return ask(method, f"{path}?dryRun=All", body)

    def _sent(self, obj: Any) -> tuple[str, str, Any]:
        """Return method, path and body of the request."""
        name = obj["metadata"].get("name", "")
        create = self.operation == "CREATE"
        path = path_of(obj, "" if create else name, namespace=self._namespace)
        method = {"CREATE": "POST", "UPDATE": "PUT", "DELETE": "DELETE"}[self.operation]
        return method, path, None if self.operation == "DELETE" else obj

    def prepare(self, live: Live) -> None:
        """Ask the API server while it has no policies, and complete the object if need be."""
        self.object = _in_namespace(self.object, self._namespace)
        if self.operation != "CREATE":
            self._store(live)
            if self.refused:
                return
        stated = "status" in self.object
        answer = self._completed(live)
        if not answer.allowed:
            self.refused = answer.message
        elif self.operation != "DELETE":
            self.object = answer.object
            if self.operation == "CREATE" and not stated:
                self.object.pop("status", None)  # made up after mutation

    def _completed(self, live: Live) -> Answer:
        answer = self.ask(live)
        for _ in range(ROUNDS):
            if answer.allowed or not complete(self.object, answer.body):
                break
            answer = self.ask(live)
        return answer

    def _store(self, live: Live) -> None:
        """Create what is to be changed or deleted."""
        old = self.old_object if self.operation == "UPDATE" else self.object
        old = _in_namespace(old or self.object, self._namespace)
        creation = replace(self, object=old, operation="CREATE", user={})
        answer = creation._completed(live)
        if answer.allowed:
            answer = live.ask("POST", path_of(old, namespace=self._namespace), old)
        if not answer.allowed and answer.code != 409:
            self.refused = answer.message
            return
        stored = live.ask(
            "GET", path_of(old, old["metadata"]["name"], namespace=self._namespace)
        ).body
        self.old_object = without_system_fields(stored)
        if self.operation == "UPDATE":
            self.object["metadata"]["name"] = old["metadata"]["name"]

    def decide(self, live: Live, policies: PolicySet) -> None:
        """Ask the engine, and the API server what it would make of the engine's result."""
        groups = self.user.get("groups") or []
        given = UserInfo(username=self.user["username"], groups=(*groups, "system:authenticated"))
        circumstances = RequestCircumstances(
            operation=self.operation, user=given, namespace=self._namespace
        )
        request = request_for(self.object, circumstances, old_object=self.old_object)
        self.request = msgspec.structs.replace(
            request,
            resource=msgspec.structs.replace(
                request.resource, resource=resource_of(self.object)[0]
            ),
            options=msgspec.Raw(
                msgspec.json.encode(
                    {
                        "kind": OPTIONS[self.operation],
                        "apiVersion": "meta.k8s.io/v1",
                        "dryRun": ["All"],
                    }
                )
            ),
        )
        self.decision = policies.review(self.request)
        result = self.object
        if self.decision.operations:
            result = apply_json_patch(self.object, self.decision.operations)
        self.expected = self.ask(live, result)

    def difference(self, answer: Answer, message_of: Callable[[Denial], str]) -> str:
        """Say how the API server's answer differs from the engine's; empty if it does not.

        Args:
            answer: What the API server says with the policies in force.
            message_of: What a denial should read like there.
        """
        decision, expected = self.decision, self.expected
        assert decision is not None, "the engine was asked"
        assert expected is not None, "the engine was asked"
        if decision.denials:
            messages = [GENERATED.sub("-*", message_of(denial)) for denial in decision.denials]
            shown = GENERATED.sub("-*", answer.message)
            alike = not answer.allowed and any(shown.endswith(text) for text in messages)
            return "" if alike else f"ours: {messages[0]!r}, API server: {shown or 'allowed'!r}"
        if (answer.allowed, answer.code) != (expected.allowed, expected.code):
            ours, theirs = (one.message or "allowed" for one in (expected, answer))
            return f"ours: {ours!r}, API server: {theirs!r}"
        return self._other_difference(answer, expected, decision)

    def _other_difference(self, answer: Answer, expected: Answer, decision: Decision) -> str:
        """Compare what comes of a request that both allow."""
        changed = answer.allowed and self.operation != "DELETE"
        if changed and not same_json(answer.object, expected.object):
            return f"object {answer.object} != {expected.object}"
        failed = [text for text in answer.warnings if text.startswith("Validation failed for")]
        if len(failed) != len(decision.warnings):
            return f"warnings: ours {list(decision.warnings)}, API server {failed}"
        return ""


def _in_namespace(obj: Any, namespace: str) -> Any:
    """Put an object where it is to go, with a name."""
    obj = copy.deepcopy(obj)
    metadata = {
        k: v for k, v in (obj.get("metadata") or {}).items() if k not in ("uid", "resourceVersion")
    }
    if not metadata.get("name") and not metadata.get("generateName"):
        metadata["name"] = "case"
    if resource_of(obj)[1]:
        metadata["namespace"] = namespace
    return {**obj, "metadata": metadata}


def complete(obj: Any, status: Any) -> bool:
    """Fill in what the API server says is missing; tell whether anything was."""
    changed = False
    causes = (status.get("details") or {}).get("causes") or ()
    for cause in causes:
        reason, where = cause.get("reason"), cause.get("field", "")
        steps = [int(s) if s.isdigit() else s for s in re.findall(r"[^.\[\]]+", where)]
        if not steps:
            continue
        if "selector" in cause.get("message", "") and where.endswith("labels"):
            value = _selected(obj)
        elif reason in ("FieldValueRequired", "FieldValueNotSupported") and steps[-1] in MISSING:
            value = MISSING[steps[-1]]
        elif where == "spec.selector":
            value = MISSING["selector"]
        else:
            continue
        changed = _put(obj, steps, value) or changed
    return changed


def _selected(obj: Any) -> Any:
    labels = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels")
    return {
        **((obj["spec"].get("template") or {}).get("metadata") or {}).get("labels", {}),
        **(labels or {"app": "case"}),
    }


def _put(obj: Any, steps: list[Any], value: Any) -> bool:
    for step in steps[:-1]:
        if isinstance(obj, list):
            if not isinstance(step, int) or step >= len(obj):
                return False
            obj = obj[step]
        else:
            if not isinstance(obj.get(step), dict | list):
                obj[step] = {}
            obj = obj[step]
    if not isinstance(obj, dict) or obj.get(steps[-1]) == value:
        return False
    obj[steps[-1]] = copy.deepcopy(value)
    return True
