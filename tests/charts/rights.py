"""Which rights the chart gives, and which of them were used, by the API server's audit log."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.charts.release import NAMESPACE, objects
from tests.controlplane.server import ControlPlane

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{NAMESPACE}"]},
        {"level": "None"},
    ],
}


class Right(NamedTuple):
    """One verb on one resource, subresource included."""

    group: str
    resource: str
    verb: str


def audit_flags(folder: Path) -> list[str]:
    """Return the API server's flags that have it log who did what, and write their file."""
    policy = folder / "audit-policy.json"
    policy.write_text(json.dumps(AUDIT_POLICY))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={folder / 'audit.log'}"]


def given(control_plane: ControlPlane, account: str) -> set[Right]:
    """Return every right that the roles of an account have."""
    roles = [
        *objects(control_plane, "clusterroles"),
        *objects(control_plane, "roles", "-n", NAMESPACE),
    ]
    return {
        Right(group, resource, verb)
        for role in roles
        if role["metadata"]["name"] == account
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(folder: Path, account: str, *, allowed: bool = True) -> set[Right]:
    """Return the rights that an account used, or was refused."""
    return {
        right(entry["objectRef"], entry["verb"])
        for entry in entries(folder, account)
        if (entry["responseStatus"]["code"] != 403) is allowed
    }


def right(reference: dict[str, Any], verb: str) -> Right:
    parts = [reference["resource"], reference.get("subresource", "")]
    return Right(reference.get("apiGroup", ""), "/".join(filter(None, parts)), verb)


def entries(folder: Path, account: str) -> Iterator[dict[str, Any]]:
    """Yield what was logged of an account; requests outside of resources are everybody's."""
    for line in (folder / "audit.log").read_text().splitlines():
        entry = json.loads(line)
        name = entry["user"]["username"]
        if name.endswith(f":{account}") and "objectRef" in entry and "responseStatus" in entry:
            yield entry
