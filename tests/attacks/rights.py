"""Who has taken over one of policyd's processes writes as its account to a real API server."""

import atexit
import copy
import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from policyd.api.kueue.names import MANAGED
from policyd.registration.atoms import RuleAtom
from policyd.registration.exclusions import LEFT_OUT
from tests.attacks.figures import Attack, Figures
from tests.charts import release
from tests.charts.illegal import illegal
from tests.charts.legal import legal
from tests.charts.release import CHART, CONTROLLER, NAMESPACE, WEBHOOKS
from tests.charts.writes import (
    EXEMPT,
    IMAGE,
    JSON,
    REGISTRATION,
    TEMPLATES,
    Write,
    added,
    path_of,
    prepare,
    replaced,
    rule,
    webhook,
)
from tests.controlplane.programs import API_SERVER, CONTROLLER_MANAGER, ETCD
from tests.controlplane.server import ControlPlane
from tests.scenarios.api import Api, Refused, eventually

Apis = Mapping[str, Api]

KEEPING = {CONTROLLER_MANAGER: ["--controllers=*,-garbage-collector-controller"]}
BY_SERVER = ("generation", "managedFields", "resourceVersion")
OF_A_START = (
    ("metadata", ("labels", "annotations")),
    ("spec", ("nodeSelector", "tolerations", "schedulingGates")),
)
KINDS = (*TEMPLATES, "TrainJob", "Job", "Pod")
POD_FIELDS: Mapping[str, Any] = {
    "activeDeadlineSeconds": 1,
    "affinity": {},
    "automountServiceAccountToken": True,
    "dnsPolicy": "None",
    "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["a"]}],
    "hostIPC": True,
    "hostNetwork": True,
    "hostPID": True,
    "initContainers": [{"name": "first", "image": IMAGE}],
    "nodeName": "node",
    "overhead": {"cpu": "1"},
    "priorityClassName": "system-node-critical",
    "resourceClaims": [{"name": "a", "resourceClaimName": "a"}],
    "runtimeClassName": "other",
    "schedulerName": "other",
    "securityContext": {"runAsUser": 0},
    "serviceAccountName": "admin",
    "shareProcessNamespace": True,
    "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
}
"""What nobody but the author of a pod says of it, and what it might be changed to."""


@cache
def server() -> tuple[ControlPlane, Apis]:
    """Return an API server with the chart's accounts, which all attacks are made on."""
    stack = ExitStack()
    atexit.register(stack.close)
    parts = (ETCD, API_SERVER, CONTROLLER_MANAGER)
    found = stack.enter_context(ControlPlane(components=parts, flags=KEEPING))
    found.kubectl("apply", "-f", str(CHART / "crds"))
    release.accounts(found, port=443, webhooks__serveV1beta1=True)
    prepare(Api(found.kubeconfig))
    apis = {name: Api(release.account_kubeconfig(found, name)) for name in (CONTROLLER, WEBHOOKS)}
    eventually(lambda: not _refused(apis), what="the API server knows roles and policies")
    return found, apis


@contextmanager
def powerful() -> Iterator[Apis]:
    """Somebody has let the accounts do everything."""
    found, apis = server()
    subjects = [f"--serviceaccount={NAMESPACE}:{name}" for name in apis]
    role = ("clusterrolebinding", "everything")
    found.kubectl("create", *role, "--clusterrole=cluster-admin", *subjects)
    for api in apis.values():
        eventually(lambda api=api: api.find("Secret", NAMESPACE), what="they may do all")
    yield apis
    found.kubectl("delete", *role)


def _refused(apis: Apis) -> list[str]:
    return [write.id for write in legal() if write.refusal(apis[write.account]) is not None]


def known() -> Figures:
    """Try what no process writes, with the roles of the chart, and with all rights there are."""
    _, apis = server()
    writes = list(illegal())
    taken = _taken(apis, writes)
    with powerful():
        by_policies = [write for write in writes if not write.by_roles]
        taken += [f"{each} if all is allowed" for each in _taken(apis, by_policies)]
        taken += [f"{name} is refused, and needed" for name in _refused(apis)]
    return _figures(len(writes) + len(by_policies), taken)


def _taken(apis: Apis, writes: list[Write]) -> list[str]:
    return [write.id for write in writes if write.refusal(apis[write.account]) is None]


def every_field() -> Figures:
    """Change each field of a pod and of a job of each kind, and add those that there might be."""
    tried, taken = 0, []
    with powerful() as apis:
        for kind in KINDS:
            path = path_of(kind, "held" if kind == "Pod" else kind.lower())
            now = apis[CONTROLLER].call("GET", path)
            for change in _changes(now):
                tried += 1
                if _gets_through(apis[CONTROLLER], path, now, change):
                    taken.append(f"{kind}: {change[0]['op']} {change[0]['path']}")
    return _figures(tried, taken)


def _gets_through(api: Api, path: str, now: Any, change: list[Any]) -> bool:
    try:
        after = api.call("PATCH", path, change, content_type=JSON, dryRun="All")
    except Refused:
        return False
    return bool(_kept(after) != _kept(now))


def _kept(obj: Any) -> Any:
    """Return an object without what a start or an end may change, and what the server says."""
    rest = copy.deepcopy(obj)
    _strip(rest, (("metadata", (*OF_A_START[0][1], *BY_SERVER)), *OF_A_START[1:]))
    _strip_deep(rest)
    finalizers = rest["metadata"].get("finalizers", [])
    rest["metadata"]["finalizers"] = [each for each in finalizers if each != MANAGED]
    return rest


def _strip(obj: Any, fields: Any) -> None:
    for section, names in fields:
        for name in names:
            (obj.get(section) or {}).pop(name, None)
        if not obj.get(section):
            obj.pop(section, None)


def _strip_deep(value: Any) -> None:
    if isinstance(value, dict):
        value.pop("suspend", None)
        if "containers" in (value.get("spec") or {}):
            _strip(value, OF_A_START)
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            _strip_deep(each)


def _changes(obj: Any) -> Iterator[list[Any]]:
    """Yield patches of one field each: other values, fields that go, and fields that come."""
    for path, value in _leaves(obj):
        yield replaced(path, _another(value))
        yield [{"op": "remove", "path": path}]
    for path, value in _maps(obj):
        if "containers" in value:
            for name, wanted in POD_FIELDS.items():
                yield added(f"{path}/{name}", wanted)
            yield added(f"{path}/containers/-", {"name": "more", "image": IMAGE})
        yield added(f"{path}/unheardOf", "x")
    for name in ("ownerReferences", "finalizers"):
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}
        yield added(f"/metadata/{name}", [owner if name == "ownerReferences" else "example.com/a"])


def _maps(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and not path.startswith(("/metadata", "/status")):
        yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        if isinstance(each, dict | list):
            yield from _maps(each, f"{path}/{_escaped(key)}")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        where = f"{path}/{_escaped(key)}"
        if where.startswith("/metadata/managedFields"):
            continue
        if isinstance(each, dict | list) and each:
            yield from _leaves(each, where)
        else:
            yield where, each


def _escaped(key: object) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value}x"


SECRETS = RuleAtom("", "*", "*", "secrets", "*")
GROUPS = ([""], ["*"], ["apps"], ["apps", ""], ["rbac.authorization.k8s.io"])
RESOURCES = (
    ["*"],
    ["*/*"],
    ["pods", "secrets"],
    ["secrets/status"],
    ["*/status"],
    ["secrets/*", "pods"],
    ["pods/*"],
    ["deployments"],
)
CONDITIONS = (
    [],
    [{"name": "any", "expression": "true"}],
    *(
        [{"name": "almost", "expression": f"{each.condition} || true"}]
        for each in LEFT_OUT.values()
    ),
    [{"name": "secrets", "expression": LEFT_OUT["secrets"].condition}],
    [{"name": name, "expression": each.condition} for name, each in LEFT_OUT.items()],
)
SELECTORS = (
    {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": EXEMPT},
    {"key": "kubernetes.io/metadata.name", "operator": "In", "values": EXEMPT},
    {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": EXEMPT[1:]},
    {"key": "name", "operator": "NotIn", "values": EXEMPT},
)


def registrations() -> Figures:
    """Register the webhooks for whatever rules, conditions and selectors there are."""
    tried, taken = 0, []
    api = server()[1][WEBHOOKS]
    which = ("mutating", "validating")
    for each, groups, names, conditions, selector in itertools.product(
        which, GROUPS, RESOURCES, CONDITIONS, SELECTORS
    ):
        asked = rule("", "pods") | {"apiGroups": groups, "resources": names}
        body = {
            "rules": [asked],
            "matchConditions": conditions,
            "namespaceSelector": {"matchExpressions": [selector]},
        }
        path = f"{REGISTRATION}/{each}webhookconfigurations/admission.policyd.io"
        merge = {"content_type": "application/merge-patch+json", "method": "PATCH"}
        write = Write(
            id="", account=WEBHOOKS, path=path, body={"webhooks": [webhook(**body)]}, **merge
        )
        tried += 1
        if write.refusal(api) is None and _harms(each, asked, conditions, selector):
            taken.append(f"{each}: {groups} {names} {conditions} {selector}")
    return _figures(tried, taken)


def _harms(which: str, asked: Any, conditions: Any, selector: Any) -> bool:
    """Tell whether a webhook would be sent Secrets, roles to change, or kube-system's objects."""
    held = {each["expression"] for each in conditions}
    atoms = [RuleAtom(g, "*", "*", r, "*") for g in asked["apiGroups"] for r in asked["resources"]]
    secrets = any(c.overlaps(SECRETS) for c in atoms)
    roles = which == "mutating" and any(c.overlaps(LEFT_OUT["roles"].atom) for c in atoms)
    return (
        selector is not SELECTORS[0]
        or (secrets and LEFT_OUT["secrets"].condition not in held)
        or (roles and LEFT_OUT["roles"].condition not in held)
    )


def _figures(tried: int, taken: list[str]) -> Figures:
    return Figures(tried=tried, bypasses=len(taken), faults=tuple(taken))


ATTACKS: Mapping[str, Attack] = {
    "writes that no process makes": known,
    "every field of pods and jobs": every_field,
    "registrations": registrations,
}
