"""Pods of a SparkApplication, which has no templates of them: the most that Spark may make."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from policyd.api.meta import Json

UNBOUNDED: Final = 2**31 - 1
"""The executors that Spark makes at most where dynamic allocation has no bound."""

_OF_SPARK: Final = 2
"""The executors that Spark makes where nothing says how many."""

_DYNAMIC: Final = "spark.dynamicAllocation"
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
    given = _object(spec.get("executor")).get("instances"), conf.get("spark.executor.instances")
    counts = [count for each in given if (count := _number(each)) is not None]
    dynamic = _object(spec.get("dynamicAllocation"))
    if dynamic.get("enabled") is not True and not _is_true(conf.get(f"{_DYNAMIC}.enabled")):
        return max(counts, default=_OF_SPARK)
    bounds = dynamic.get("maxExecutors"), conf.get(f"{_DYNAMIC}.maxExecutors")
    most = [count for each in bounds if (count := _number(each)) is not None]
    return max([*most, *counts]) if most else UNBOUNDED


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


def _number(value: object) -> int | None:
    """Return a count, as a number or as Spark's settings write it."""
    if isinstance(value, str) and value.strip().isdecimal():
        return min(int(value.strip()[:10]), UNBOUNDED)
    return value if type(value) is int and value >= 0 else None


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"


def _object(value: Json) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
