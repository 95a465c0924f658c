"""The kinds that have few defaults and rules."""

import base64
from collections.abc import Iterator
from itertools import chain

import msgspec

from policyd.api.selectors import LabelSelector
from policyd.engine.documents.reading import Document
from policyd.engine.export.refused import refused, refused_annotations
from policyd.local.apiserver.admission.loading import load_stored
from policyd.local.apiserver.admission.webhook import check_conditions
from policyd.local.apiserver.checks import metadata
from policyd.local.apiserver.status import Cause, Object, not_permitted, required, wrong
from policyd.local.apiserver.writing.deletion import NAMESPACE_FINALIZER
from policyd.patch.builtin_types import completed

NAMESPACE_NAME = "kubernetes.io/metadata.name"

NEEDED_KEYS = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
"""The keys that a secret of a type must have."""

CONFIG_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',"
    "  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def default_namespace(namespace: Object) -> None:
    """Label a namespace with its name, so that selectors can name it."""
    name = namespace["metadata"].get("name")
    if name:
        namespace["metadata"].setdefault("labels", {})[NAMESPACE_NAME] = name


def open_namespace(namespace: Object) -> None:
    """Begin a namespace's life."""
    spec = namespace.setdefault("spec", {})
    finalizers = spec.setdefault("finalizers", [])
    if NAMESPACE_FINALIZER not in finalizers:
        finalizers.append(NAMESPACE_FINALIZER)
    namespace["status"] = {"phase": "Active"}
    default_namespace(namespace)


def default_secret(secret: Object) -> None:
    """Set the type of a secret, and encode its plain-text data."""
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", {})
    for name, text in plain.items():
        secret.setdefault("data", {})[name] = base64.b64encode(text.encode()).decode()


def default_service(service: Object) -> None:
    """Fill in a service's spec."""
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def default_priority_class(priority_class: Object) -> None:
    """Fill in whether pods of the class preempt others."""
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def default_claim(claim: Object) -> None:
    """Fill in how many devices the requests of a claim are for."""
    _default_devices(claim.get("spec") or {})


def default_claim_template(template: Object) -> None:
    """Fill in how many devices the requests of a template of claims are for."""
    spec = template.get("spec") or {}
    spec.setdefault("metadata", {})
    _default_devices(spec.get("spec") or {})


def _default_devices(spec: Object) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        exactly = request.get("exactly")
        for asked in (*((exactly,) if exactly else ()), *(request.get("firstAvailable") or ())):
            if asked.setdefault("allocationMode", "ExactCount") == "ExactCount":
                asked.setdefault("count", 1)


def default_node(node: Object) -> None:
    """Set a node's allocatable resources to its capacity, unless they are given."""
    status = node.setdefault("status", {})
    completed(status, "core/v1.NodeStatus")
    if node.get("spec", {}).get("podCIDR"):
        node["spec"].setdefault("podCIDRs", [node["spec"]["podCIDR"]])
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))


def check_config_map(config_map: Object) -> Iterator[Cause]:
    """Check a config map or secret."""
    for key in {**config_map.get("data", {}), **config_map.get("binaryData", {})}:
        if not key or any(not (sign.isalnum() or sign in "-_.") for sign in key):
            yield wrong(f"data[{key}]", key, CONFIG_KEY_RULE)
        elif set(key) == {"."} and len(key) <= 2:
            yield wrong(f"data[{key}]", key, f"must not be '{key}'")
    for key in config_map.get("data", {}).keys() & config_map.get("binaryData", {}).keys():
        yield wrong(f"data[{key}]", key, "duplicate of key present in binaryData")
    for key in NEEDED_KEYS.get(config_map.get("type", ""), ()):
        if key not in config_map.get("data", {}):
            yield required(f"data[{key}]")


def check_config_map_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a config map or secret, which may have been declared final."""
    if new.get("type") != old.get("type"):
        yield wrong("type", new.get("type"), "field is immutable")
    if old.get("immutable"):
        if not new.get("immutable"):
            yield not_permitted("immutable", "field is immutable when `immutable` is set")
        for field in ("data", "binaryData"):
            if new.get(field) != old.get(field):
                yield not_permitted(field, "field is immutable when `immutable` is set")


def default_webhooks(configuration: Object) -> None:
    """Set the defaults that both webhook configurations have in common."""
    for webhook in configuration.get("webhooks", ()):
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        for rule in webhook.get("rules", ()):
            rule.setdefault("scope", "*")
        service = webhook.get("clientConfig", {}).get("service")
        if service is not None:
            service.setdefault("port", 443)


def default_mutating_webhooks(configuration: Object) -> None:
    """Fill in a mutating webhook configuration."""
    default_webhooks(configuration)
    for webhook in configuration.get("webhooks", ()):
        webhook.setdefault("reinvocationPolicy", "Never")


def check_webhooks(configuration: Object) -> Iterator[Cause]:
    """Check a webhook configuration."""
    for index, webhook in enumerate(configuration.get("webhooks", ())):
        path = f"webhooks[{index}]"
        if webhook.get("name", "").count(".") < 2:
            why = "should be a domain with at least three segments separated by dots"
            yield wrong(f"{path}.name", webhook.get("name", ""), why)
        client = webhook.get("clientConfig", {})
        if ("url" in client) == ("service" in client):
            yield required(f"{path}.clientConfig", "exactly one of url or service is required")
        if not 1 <= webhook["timeoutSeconds"] <= 30:
            why = "the timeout value must be between 1 and 30 seconds"
            yield wrong(f"{path}.timeoutSeconds", webhook["timeoutSeconds"], why)
        if webhook.get("sideEffects") not in {"None", "NoneOnDryRun"}:
            yield required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
        yield from _check_reach(webhook, path)
        yield from check_conditions(webhook, path)


def _check_reach(webhook: Object, path: str) -> Iterator[Cause]:
    """Check where a webhook is, and which objects it selects."""
    service = webhook.get("clientConfig", {}).get("service", {})
    for field in ("namespace", "name") if service else ():
        if not service.get(field):
            yield required(f"{path}.clientConfig.service.{field}")
    for name in ("namespaceSelector", "objectSelector"):
        try:
            msgspec.convert(webhook[name], LabelSelector)
        except msgspec.ValidationError as error:
            yield wrong(f"{path}.{name}", webhook[name], str(error))


def check_admission_policy(value: Object) -> Iterator[Cause]:
    """Check a policy or a binding: every expression has to compile."""
    document = Document(value, value["metadata"].get("name", ""))
    stored = load_stored(value)
    of_values = chain.from_iterable(map(refused_annotations, stored.policies))
    for finding in (*stored.findings, *refused(document), *of_values):
        if finding.severity == "error":
            yield Cause("FieldValueInvalid", f"Invalid value: {finding.message}", finding.field)


TYPES = ("Normal", "Warning")
LONGEST = {"action": 128, "message": 1024, "reason": 128, "reportingInstance": 128}
"""Letters of each text."""

FINAL = (
    ("involvedObject", "involvedObject"),
    ("reason", "reason"),
    ("action", "action"),
    ("message", "message"),
    ("type", "type"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
)
"""The immutable fields, with their names in messages."""


def check_event(event: Object) -> Iterator[Cause]:
    """Check an event that is created; one with a time of its own is of the newer kind."""
    about = event.get("involvedObject", {}).get("namespace", "")
    namespace = event["metadata"].get("namespace", "")
    if namespace != (about or "default"):
        yield wrong("involvedObject.namespace", about, "does not match event.namespace")
    if _is_new(event):
        yield from _check_new(event)


def _is_new(event: Object) -> bool:
    return bool(event.get("eventTime"))


def _check_new(event: Object) -> Iterator[Cause]:
    controller = event.get("reportingComponent", "")
    if not controller:
        yield required("reportingController")
    for line in metadata.qualified_name(controller):
        yield wrong("reportingController", controller, line)
    for field in ("reportingInstance", "action", "reason"):
        if not event.get(field):
            yield required(field)
    for field, longest in LONGEST.items():
        if len(event.get(field, "")) > longest:
            yield wrong(field, "", f"can have at most {longest} characters")
    if event.get("type") not in TYPES:
        yield wrong("type", "", f"has invalid value: {event.get('type', '')}")


def check_event_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of an event, of which only its series goes on."""
    if not _is_new(old):
        return
    for field, shown in FINAL:
        if new.get(field) != old.get(field):
            yield wrong(shown, new.get(field), "field is immutable")
