"""Validation of objects beyond their schemas: pure functions from an object to field errors.

The rules, the paths and, where it states them, the words are Kueue's. Rules that are CEL in
Kueue's schemas are here as well, since ours are slim. Queues and workloads have their own modules.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from policyd.api.kueue.flavors import AdmissionCheck, ResourceFlavor, Topology
from policyd.api.kueue.multikueue import MultiKueueCluster, MultiKueueConfig
from policyd.api.meta import Json
from policyd.api.names import label_key_problems, label_value_problems
from policyd.api.pods import TAINT_EFFECTS, Taint, Toleration
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.api.schema import QuantityText
from policyd.api.selectors import LabelSelector, Requirement

Problem = Literal[
    "Invalid",
    "Required",
    "Duplicate",
    "NotSupported",
    "NotFound",
    "Forbidden",
    "Internal",
    "TooLong",
    "TooMany",
]

_WORDS: Final[dict[Problem, str]] = {
    "Invalid": "Invalid value",
    "Required": "Required value",
    "Duplicate": "Duplicate value",
    "NotSupported": "Unsupported value",
    "NotFound": "Not found",
    "Forbidden": "Forbidden",
    "Internal": "Internal error",
    "TooLong": "Too long",
    "TooMany": "Too many",
}

_WITHOUT_VALUE: Final = frozenset({"Required", "Forbidden", "Internal", "TooLong"})

IMMUTABLE: Final = "field is immutable"
_LEVELS: Final = (
    "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after"
    " the change"
)
NEGATIVE: Final = "must be greater than or equal to 0"

_HOSTNAME: Final = "kubernetes.io/hostname"
_MOST_ANNOTATION_BYTES: Final = 256 * 1024


class FieldError(NamedTuple):
    """Something wrong with one field.

    Attributes:
        path: The place, as `spec.resourceGroups[0].flavors[1].name`.
        value: The value there.
        message: The error.
        problem: The kind of mistake.
        schema: Whether Kueue's own schemas say so, and not its webhooks: such an object is
            invalid (422), and the others are forbidden (403).
    """

    path: str
    value: Json
    message: str
    problem: Problem = "Invalid"
    schema: bool = False

    @property
    def words(self) -> str:
        """The mistake as the API server would word it, the field left out."""
        parts = [_WORDS[self.problem]]
        if self.problem not in _WITHOUT_VALUE:
            parts.append(msgspec.json.encode(self.value).decode())
        return ": ".join([*parts, self.message] if self.message else parts)

    def __str__(self) -> str:
        return f"{self.path}: {self.words}"


def validate_resource_flavor(
    flavor: ResourceFlavor, old: ResourceFlavor | None = None
) -> list[FieldError]:
    """Return the errors in a ResourceFlavor, given the old one."""
    spec = flavor.spec
    errors = list(label_errors(spec.node_labels, "spec.nodeLabels"))
    if spec.topology_name and not spec.node_labels:
        message = "at least one nodeLabel is required when topology is set"
        errors.append(FieldError("spec.nodeLabels", {}, message, "Required", schema=True))
    errors.extend(_taints(spec.node_taints))
    errors.extend(toleration_errors(spec.tolerations, "spec.tolerations"))
    if old is not None and old.spec.topology_name not in {"", spec.topology_name}:
        errors.append(FieldError("spec.topologyName", spec.topology_name, IMMUTABLE, schema=True))
    return errors


def validate_topology(topology: Topology, old: Topology | None = None) -> list[FieldError]:
    """Return the errors in a Topology, given the old one."""
    labels = [level.node_label for level in topology.spec.levels]
    errors = []
    for index, label in enumerate(labels):
        path = f"spec.levels[{index}].nodeLabel"
        errors += [
            FieldError(path, label, problem, schema=True) for problem in label_key_problems(label)
        ]
        if label in labels[:index]:
            errors.append(FieldError(path, label, "must be unique", "Duplicate", schema=True))
        if label == _HOSTNAME and index < len(labels) - 1:
            message = "can only be used at the lowest level of topology"
            errors.append(FieldError(path, label, message, schema=True))
    before = labels if old is None else [level.node_label for level in old.spec.levels]
    # With nodes at the bottom, a level in between only describes nearness in another way.
    if before != labels and {_HOSTNAME} != {*before[-1:], *labels[-1:]}:
        errors.append(FieldError("spec.levels", labels, _LEVELS, schema=True))
    return errors


def validate_multi_kueue_cluster(cluster: MultiKueueCluster) -> list[FieldError]:
    """Return the errors in a MultiKueueCluster: it is reached in one way."""
    source = cluster.spec.cluster_source
    if (source.kube_config is None) is not (source.cluster_profile_ref is None):
        return []
    message = "exactly one of kubeConfig and clusterProfileRef must be set"
    given = msgspec.to_builtins(source)
    return [FieldError("spec.clusterSource", given, message, schema=True)]


def validate_multi_kueue_config(config: MultiKueueConfig) -> list[FieldError]:
    """Return the errors in a MultiKueueConfig: it names no cluster twice."""
    clusters = config.spec.clusters
    if len(set(clusters)) == len(clusters):
        return []
    return [FieldError("spec.clusters", list(clusters), "clusters must be unique", schema=True)]


def validate_admission_check(
    check: AdmissionCheck, old: AdmissionCheck | None = None
) -> list[FieldError]:
    """Return the errors in an AdmissionCheck, given the old one."""
    spec = check.spec
    errors = []
    if not spec.controller_name:
        errors.append(FieldError("spec.controllerName", "", "", "Required", schema=True))
    if old is not None and old.spec.controller_name != spec.controller_name:
        errors.append(
            FieldError("spec.controllerName", spec.controller_name, IMMUTABLE, schema=True)
        )
    if spec.parameters is not None:
        parts = {
            "apiGroup": spec.parameters.api_group,
            "kind": spec.parameters.kind,
            "name": spec.parameters.name,
        }
        errors += [
            FieldError(f"spec.parameters.{name}", "", "", "Required", schema=True)
            for name, value in parts.items()
            if not value
        ]
    return errors


def label_errors(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Yield the errors in labels."""
    for key, value in labels.items():
        for problem in label_key_problems(key):
            yield FieldError(path, key, problem)
        for problem in label_value_problems(value):
            yield FieldError(path, value, problem)


def annotation_errors(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Yield the errors in annotations."""
    for key in annotations:
        for problem in label_key_problems(key.lower()):
            yield FieldError(path, key, problem)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _MOST_ANNOTATION_BYTES:
        message = f"may not be more than {_MOST_ANNOTATION_BYTES} bytes"
        yield FieldError(path, None, message, "TooLong")


def selector_errors(selector: LabelSelector, path: str) -> Iterator[FieldError]:
    """Yield the errors in a label selector."""
    yield from label_errors(selector.match_labels, f"{path}.matchLabels")
    for index, requirement in enumerate(selector.match_expressions):
        yield from _requirement(requirement, f"{path}.matchExpressions[{index}]")


def toleration_errors(tolerations: tuple[Toleration, ...], path: str) -> Iterator[FieldError]:
    """Yield the errors in tolerations."""
    for index, toleration in enumerate(tolerations):
        where = f"{path}[{index}]"
        for problem in label_key_problems(toleration.key) if toleration.key else ():
            yield FieldError(f"{where}.key", toleration.key, problem)
        yield from _operator(toleration, f"{where}.operator")
        yield from _effect(toleration, f"{where}.effect")


def _operator(toleration: Toleration, path: str) -> Iterator[FieldError]:
    operator, known = toleration.operator, ("Equal", "Exists")
    if operator not in known:
        yield FieldError(path, operator, supported_values(known), "NotSupported", schema=True)
    elif not toleration.key and operator != "Exists":
        message = "operator must be Exists when `key` is empty, which means match all"
        yield FieldError(path, operator, message, schema=True)
    elif toleration.value and operator == "Exists":
        message = "value must be empty when `operator` is 'Exists'"
        yield FieldError(path, operator, message, schema=True)


def _effect(toleration: Toleration, path: str) -> Iterator[FieldError]:
    effect = toleration.effect
    if toleration.toleration_seconds is not None and effect != "NoExecute":
        message = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield FieldError(path, effect, message, schema=True)
    elif effect not in {"", *TAINT_EFFECTS}:
        yield FieldError(path, effect, supported_values(TAINT_EFFECTS), "NotSupported", schema=True)


def amount_errors(quantity: QuantityText, path: str) -> Iterator[FieldError]:
    """Yield the errors in an amount: it is invalid, or negative."""
    try:
        if parse_quantity(quantity).sign() < 0:
            yield FieldError(path, str(quantity), NEGATIVE)
    except QuantityError as error:
        yield FieldError(path, str(quantity), str(error))


def supported_values(names: Iterable[str]) -> str:
    """Say which values there are, for one that is none of them."""
    return "supported values: " + ", ".join(f'"{name}"' for name in sorted(names))


def _requirement(requirement: Requirement, path: str) -> Iterator[FieldError]:
    if requirement.operator in {"In", "NotIn"}:
        if not requirement.values:
            message = "must be specified when `operator` is 'In' or 'NotIn'"
            yield FieldError(f"{path}.values", "", message, "Required")
    elif requirement.values:
        message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield FieldError(f"{path}.values", "", message, "Forbidden")
    for problem in label_key_problems(requirement.key):
        yield FieldError(f"{path}.key", requirement.key, problem)
    for index, value in enumerate(requirement.values):
        for problem in label_value_problems(value):
            yield FieldError(f"{path}.values[{index}]", value, problem)


def _taints(taints: tuple[Taint, ...]) -> Iterator[FieldError]:
    seen = set()
    for index, taint in enumerate(taints):
        path = f"spec.nodeTaints[{index}]"
        for problem in label_key_problems(taint.key):
            yield FieldError(f"{path}.key", taint.key, problem)
        for problem in label_value_problems(taint.value):
            yield FieldError(f"{path}.value", taint.value, problem)
        if (taint.key, taint.effect) in seen:
            message = "taints must be unique by key and effect pair"
            yield FieldError(path, msgspec.to_builtins(taint), message, "Duplicate")
        seen.add((taint.key, taint.effect))
