"""The rules of a container that users meet."""

from collections.abc import Iterator, Set

from policyd.api.meta import Json
from policyd.api.quantity import parse_quantity
from policyd.local.apiserver.checks import metadata
from policyd.local.apiserver.status import (
    Cause,
    Object,
    duplicate,
    json_text,
    not_supported,
    required,
    wrong,
)

NOT_NEGATIVE = "must be greater than or equal to 0"
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
PROTOCOLS = ("SCTP", "TCP", "UDP")
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
HANDLERS = frozenset({"exec", "grpc", "httpGet", "tcpSocket"})

OVERCOMMITTABLE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources of which a container may use more than it requests."""

LONGEST_PORT_NAME = 15
HIGHEST_PORT = 65535

SOURCES = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
ENVIRONMENT_NAME_RULE = (
    "a valid environment variable name must consist only of printable ASCII characters other"
    " than '='"
)


def check_container(
    container: Object, path: str, *, seen: set[str], volumes: Set[str]
) -> Iterator[Cause]:
    """Check a container.

    Args:
        container: The container.
        path: Where it stands.
        seen: The names of containers before it; its own is added.
        volumes: The names of the pod's volumes.
    """
    yield from _check_name(container.get("name", ""), f"{path}.name", seen)
    image = container.get("image", "")
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield wrong(f"{path}.image", image, "must not have leading or trailing whitespace")
    for name in PROBES:
        if name in container and not HANDLERS & set(container[name]):
            yield required(f"{path}.{name}", "must specify a handler type")
    yield from _check_words(container, path)
    for index, port in enumerate(container.get("ports", ())):
        yield from _check_port(port, f"{path}.ports[{index}]")
    for index, variable in enumerate(container.get("env", ())):
        yield from _check_variable(variable, f"{path}.env[{index}]")
    for index, mount in enumerate(container.get("volumeMounts", ())):
        yield from _check_mount(mount, f"{path}.volumeMounts[{index}]", volumes)
    yield from check_resources(container.get("resources", {}), f"{path}.resources")


def _check_name(name: str, path: str, seen: set[str]) -> Iterator[Cause]:
    if not name:
        yield required(path)
    elif name in seen:
        yield duplicate(path, name)
    else:
        yield from (wrong(path, name, line) for line in metadata.label(name))
    seen.add(name)


def _check_words(container: Object, path: str) -> Iterator[Cause]:
    for field, words in (
        ("terminationMessagePolicy", MESSAGE_POLICIES),
        ("imagePullPolicy", PULL_POLICIES),
    ):
        if container.get(field) not in words:
            yield not_supported(f"{path}.{field}", container.get(field), words)


def _check_port(port: Object, path: str) -> Iterator[Cause]:
    name, number = port.get("name", ""), port.get("containerPort", 0)
    if len(name) > LONGEST_PORT_NAME:
        what = f"must be no more than {LONGEST_PORT_NAME} characters"
        yield wrong(f"{path}.name", name, what)
    if any(not (sign.islower() or sign.isdecimal() or sign == "-") for sign in name):
        what = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
        yield wrong(f"{path}.name", name, what)
    if not number:
        yield required(f"{path}.containerPort")
    elif not 0 < number <= HIGHEST_PORT:
        what = f"must be between 1 and {HIGHEST_PORT}, inclusive"
        yield wrong(f"{path}.containerPort", number, what)
    if port.get("protocol") not in PROTOCOLS:
        yield not_supported(f"{path}.protocol", port.get("protocol"), PROTOCOLS)


def _check_variable(variable: Object, path: str) -> Iterator[Cause]:
    name = variable.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif "=" in name or not (name.isascii() and name.isprintable()):
        yield wrong(f"{path}.name", name, ENVIRONMENT_NAME_RULE)
    source = variable.get("valueFrom")
    if source is None:
        return
    if not source:
        yield wrong(f"{path}.valueFrom", "", f"must specify one of: {SOURCES}")
    elif variable.get("value"):
        yield wrong(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
    elif len(source) > 1:
        yield wrong(f"{path}.valueFrom", "", "may not have more than one field specified at a time")


def _check_mount(mount: Object, path: str, volumes: Set[str]) -> Iterator[Cause]:
    name = mount.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif name not in volumes:
        yield not_found(f"{path}.name", name)
    if not mount.get("mountPath"):
        yield required(f"{path}.mountPath")


def not_found(path: str, value: Json, detail: str = "") -> Cause:
    """Return the error of a field that refers to something that does not exist."""
    more = f": {detail}" if detail else ""
    return Cause("FieldValueNotFound", f"Not found: {json_text(value)}{more}", path)


def check_resources(resources: Object, path: str) -> Iterator[Cause]:
    """Check the requests and limits of a container."""
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _check_amount(name, amount, f"{path}.{part}[{name}]")
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None:
            if name not in OVERCOMMITTABLE:
                what = "Limit must be set for non overcommitable resources"
                yield required(f"{path}.limits", what)
        elif name not in OVERCOMMITTABLE and parse_quantity(amount) != parse_quantity(limit):
            yield wrong(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")
        elif parse_quantity(amount) > parse_quantity(limit):
            what = f"must be less than or equal to {name} limit of {limit}"
            yield wrong(f"{path}.requests", amount, what)


def _check_amount(name: str, amount: str, path: str) -> Iterator[Cause]:
    found = metadata.qualified_name(name)
    yield from (wrong(path, name, line) for line in found)
    if "/" not in name and name not in OVERCOMMITTABLE and not name.startswith("hugepages-"):
        yield wrong(path, name, "must be a standard resource type or fully qualified")
        yield wrong(path, name, "must be a standard resource for containers")
    elif found:
        yield wrong(path, name, "doesn't follow extended resource name standard")
    quantity = parse_quantity(amount)
    if quantity.sign() < 0:
        yield wrong(path, amount, NOT_NEGATIVE)
    elif "/" in name and quantity.milli() % 1000:
        yield wrong(path, amount, "must be an integer")
