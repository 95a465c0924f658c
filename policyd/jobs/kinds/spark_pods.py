"""The pods of a SparkApplication: their templates, made of the fields that say what they request.

The operator makes no templates: Spark makes pods of its own settings. A field of the application
wins over the same setting in `sparkConf`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from policyd.api.integers import whole_number
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json, Wire
from policyd.api.pods import Toleration
from policyd.api.quantity import QuantityError, parse_quantity

_MEMORY: Final = re.compile(r"([0-9]{1,18})(?:([kmgtp])b?|(b))?", re.ASCII | re.IGNORECASE)
"""An amount as Java writes it: a plain number means MiB."""
_LOCAL_DIRS: Final = "spark-local-dir-"
"""How the names of volumes begin that Spark mounts itself."""
INSTANCES: Final = "spark.executor.instances"
"""The setting that says how many executors there are, if the application does not."""
LEAST: Final = "spark.dynamicAllocation.minExecutors"
AT_FIRST: Final = "spark.dynamicAllocation.initialExecutors"
"""Likewise, how many there are at least, and at first, where the driver changes their number."""
LARGEST: Final = 2**31 - 1
_UNCOUNTED: Final = re.compile(
    r"spark\.(?:(?:streaming\.)?dynamicAllocation\.enabled"
    r"|(?:driver|executor)\.resource\..*"
    r"|kubernetes\.(?:driver|executor)\.podTemplateFile)",
    re.DOTALL,
)
"""Settings by which Spark would make more pods, or larger ones, than the application says."""


class Gpu(Wire, frozen=True):
    """Devices of one resource."""

    name: str = ""
    quantity: int = 0


class SparkRole(Wire, frozen=True):
    """The pods of one role: the driver's, or those of the executors."""

    instances: int | None = None
    cores: int | None = None
    core_request: str | None = None
    core_limit: str | None = None
    memory: str | None = None
    memory_overhead: str | None = None
    memory_limit: str | None = None
    gpu: Gpu = Gpu()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: Json = None
    priority_class_name: str = ""
    init_containers: tuple[Json, ...] = ()
    sidecars: tuple[Json, ...] = ()
    volume_mounts: tuple[dict[str, Any], ...] = ()
    template: Json = None


def template_of(
    role: SparkRole, name: str, conf: Mapping[str, str], volumes: tuple[dict[str, Any], ...]
) -> Json:
    """Return the template of the pods of a role.

    Args:
        role: Their fields.
        name: `driver` or `executor`.
        conf: Spark's own settings.
        volumes: Of the application; those are added that the role mounts.
    """
    template = dict(role.template or {})
    spec: Json = dict(template.get("spec") or {})
    containers = [dict(each) for each in spec.get("containers") or ()]
    own = f"spark-kubernetes-{name}"
    index = next((i for i, each in enumerate(containers) if each.get("name") == own), 0)
    if not containers:
        containers.append({"name": own})
    containers[index] = _filled(containers[index], role, name, conf)
    mounts, mounted = _mounts(role, volumes)
    if mounts:
        present = containers[index].get("volumeMounts") or ()
        containers[index]["volumeMounts"] = [*present, *mounts]
        spec["volumes"] = [*(spec.get("volumes") or ()), *mounted]
    spec["containers"] = [*containers, *role.sidecars]
    given = {
        "initContainers": [*(spec.get("initContainers") or ()), *role.init_containers],
        "nodeSelector": {**(spec.get("nodeSelector") or {}), **role.node_selector},
        "tolerations": [*(spec.get("tolerations") or ()), *map(_plain, role.tolerations)],
        "affinity": role.affinity,
        "priorityClassName": role.priority_class_name,
    }
    spec |= {key: value for key, value in given.items() if value}
    metadata = dict(template.get("metadata") or {})
    for section, values in (("labels", role.labels), ("annotations", role.annotations)):
        if values:
            metadata[section] = {**(metadata.get(section) or {}), **values}
    return {**template, "metadata": metadata, "spec": spec} if metadata else {"spec": spec}


def _plain(toleration: Toleration) -> Json:
    names = ("key", "operator", "value", "effect")
    found = {name: getattr(toleration, name) for name in names if getattr(toleration, name)}
    seconds = toleration.toleration_seconds
    return found if seconds is None else {**found, "tolerationSeconds": seconds}


def _filled(container: Json, role: SparkRole, name: str, conf: Mapping[str, str]) -> Json:
    resources = container.get("resources") or {}
    requests, limits = (dict(resources.get(key) or {}) for key in ("requests", "limits"))
    amounts = {field: _amount(text) for field, text in _amounts(role, name, conf).items()}
    memory, overhead = amounts["memory"], amounts["memoryOverhead"]
    if memory and overhead:
        memory = str(parse_quantity(memory) + parse_quantity(overhead))
    requests |= {k: v for k, v in (("cpu", amounts["coreRequest"]), ("memory", memory)) if v}
    asked = (("cpu", amounts["coreLimit"]), ("memory", amounts["memoryLimit"]))
    limits |= {key: value for key, value in asked if value}
    if role.gpu.name and role.gpu.quantity > 0:
        limits[role.gpu.name] = str(role.gpu.quantity)
    found = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {**container, "resources": found} if found else container


def _amounts(role: SparkRole, name: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return what a role requests, by field, as it is written; empty texts for what it does not."""

    def setting(field: str | None, *keys: str) -> str:
        return field or next((conf[key] for key in keys if conf.get(key)), "")

    cores = "" if role.cores is None else str(role.cores)
    kubernetes, own = f"spark.kubernetes.{name}", f"spark.{name}"
    return {
        "coreRequest": setting(role.core_request, f"{kubernetes}.request.cores")
        or setting(cores, f"{own}.cores"),
        "coreLimit": setting(role.core_limit, f"{kubernetes}.limit.cores"),
        "memory": _in_java(setting(role.memory, f"{own}.memory")),
        "memoryOverhead": _in_java(setting(role.memory_overhead, f"{own}.memoryOverhead")),
        "memoryLimit": _in_java(role.memory_limit or ""),
    }


def _in_java(text: str) -> str:
    """Write an amount of memory as Kubernetes does; one that is not written as in Java stays."""
    found = _MEMORY.fullmatch(text.strip())
    if found is None:
        return text
    return found[1] if found[3] else f"{found[1]}{(found[2] or 'm').upper()}i"


def _amount(text: str) -> str:
    """Return an amount; empty for a text that is none, of which Spark makes no pod either."""
    try:
        return text if text and parse_quantity(text).nano > 0 else ""
    except QuantityError:
        return ""


def _mounts(
    role: SparkRole, volumes: tuple[dict[str, Any], ...]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the mounts of a role whose volumes there are, and those volumes, each once."""
    known = {each.get("name"): each for each in volumes}
    mounts = [
        each
        for each in role.volume_mounts
        if each.get("name") in known and not str(each["name"]).startswith(_LOCAL_DIRS)
    ]
    return mounts, [known[name] for name in dict.fromkeys(each["name"] for each in mounts)]


def role_mistakes(role: SparkRole, name: str, conf: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield the errors in what the pods of a role request: amounts that are none."""
    for field, text in _amounts(role, name, conf).items():
        if not text:
            continue
        try:
            parse_quantity(text)
        except QuantityError as error:
            yield FieldError(f"spec.{name}.{field}", text, str(error))


def number_in(conf: Mapping[str, str], key: str) -> int | None:
    """Return the number in a setting; None if it is not set. What is not a number never fits."""
    text = conf.get(key)
    if text is None:
        return None
    number = whole_number(text.strip(), bits=32)
    return LARGEST if number is None else number


def number_mistakes(conf: Mapping[str, str], keys: Iterable[str]) -> Iterator[FieldError]:
    """Yield that a number of executors is none: Spark could read it otherwise than the queue."""
    for key in keys:
        text = conf.get(key)
        if text is not None and whole_number(text.strip(), bits=32) is None:
            detail = "must be a whole number, such as `2`, or be left to fields of the application"
            yield FieldError(f"spec.sparkConf[{key}]", text, detail)


def conf_mistakes(conf: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield the settings by which Spark would request what the queue does not count."""
    for key in sorted(conf):
        if "=" in key:  # `spark-submit` reads what is before it as the key
            detail = "the key of a setting has no `=`"
            yield FieldError(f"spec.sparkConf[{key}]", conf[key], detail)
        elif _UNCOUNTED.fullmatch(key) and conf[key].strip().lower() not in {"", "false"}:
            detail = (
                "the queue does not count what it adds: use `dynamicAllocation`, `gpu` or"
                " `template` of the application instead"
            )
            yield FieldError(f"spec.sparkConf[{key}]", conf[key], detail, "Forbidden")
