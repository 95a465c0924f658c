"""Pods of a SparkApplication, which has no templates of them: the most that Spark may make."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from policyd.api.meta import Json

UNBOUNDED: Final = 2**31 - 1
"""The executors that Spark makes at most where dynamic allocation has no bound."""

_OF_SPARK: Final = 2
"""The executors that Spark makes where nothing says how many."""

_ALLOCATION: Final = "dynamicAllocation"
_DYNAMIC: Final = f"spark.{_ALLOCATION}"
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_DEVICES: Final = re.compile(r"spark\.(driver|executor)\.resource\.([^.]{1,100})\.amount")


def spark_pods(obj: Json) -> Iterator[tuple[int, Json]]:
    """Yield how many pods of each role there are at most, and a pod with what they ask for.

    Args:
        obj: A SparkApplication, which may be misshapen.
    """
    spec = _object(_object(obj).get("spec"))
    conf = {key: text for key, text in _object(spec.get("sparkConf")).items() if type(text) is str}
    for role, count in (("driver", 1), ("executor", _executors(spec, conf))):
        yield count, _pod(_object(spec.get(role)), role, conf)


def _executors(spec: Mapping[str, Any], conf: Mapping[str, str]) -> int:
    dynamic = _object(spec.get("dynamicAllocation"))
    of_executor = _object(spec.get("executor"))
    counts = _counts(of_executor.get("instances"), conf.get("spark.executor.instances"))
    if _is_true(conf.get(f"spark.streaming.{_ALLOCATION}.enabled")) or _has_options(spec):
        return UNBOUNDED
    if dynamic.get("enabled") is not True and not _is_true(conf.get(f"{_DYNAMIC}.enabled")):
        return max(counts, default=_OF_SPARK)
    most = _counts(dynamic.get("maxExecutors"), conf.get(f"{_DYNAMIC}.maxExecutors"))
    # Spark begins with the largest of these numbers, even if it is above the most.
    for name in ("initialExecutors", "minExecutors"):
        counts += _counts(dynamic.get(name), conf.get(f"{_DYNAMIC}.{name}"))
    return max([*most, *counts]) if most else UNBOUNDED


def _has_options(spec: Mapping[str, Any]) -> bool:
    """Tell whether `spark-submit` would read the program as an option, and settings after it."""
    program = spec.get("mainApplicationFile")
    if program is None:
        program = next(iter(_list(spec.get("arguments"))), "")
    return isinstance(program, str) and program.startswith("-")


def _counts(field: object, setting: str | None) -> list[int]:
    """Return the counts in a field and in a setting; one that is written unusually has no bound."""
    found = [field] if type(field) is int and field >= 0 else []
    if setting:
        found.append(int(setting) if _NUMBER.fullmatch(setting) else UNBOUNDED)
    return found


def _pod(role: Mapping[str, Any], name: str, conf: Mapping[str, str]) -> Json:
    spec = _object(_object(role.get("template")).get("spec"))
    devices: dict[str, Any] = {}
    gpu = _object(role.get("gpu"))
    if type(gpu.get("name")) is str and gpu.get("quantity"):
        devices[gpu["name"]] = gpu["quantity"]
    for key, amount in conf.items():
        found = _DEVICES.fullmatch(key)
        if found and found[1] == name:
            vendor = conf.get(f"spark.{name}.resource.{found[2]}.vendor", "")
            devices.setdefault(f"{vendor}/{found[2]}", amount)
    own = {"name": "", "resources": {"limits": devices}}
    lists = {
        "containers": [own, *_list(spec.get("containers")), *_list(role.get("sidecars"))],
        "initContainers": [*_list(spec.get("initContainers")), *_list(role.get("initContainers"))],
    }
    return {"spec": {**spec, **lists}}


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"


def _object(value: Json) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
