"""Write in plain CEL what the pods of a SparkApplication are, and how many there are."""

from collections.abc import Callable

from policyd.engine.objects.spark import UNBOUNDED

_DYNAMIC = "spark.dynamicAllocation"


def in_all_of_spark(workload: str, of_pod: Callable[[str], str] | None, *, once: bool) -> str:
    """Return the CEL that adds up a number over the driver and the most executors.

    Args:
        workload: CEL for the application.
        of_pod: Writes the number of one pod; 1 if left out.
        once: Whether each role counts as one pod.
    """
    parts = []
    for role, count in (("driver", "1"), ("executor", "1" if once else _executors(workload))):
        each = "1" if of_pod is None else f"[{_pod(workload, role)}].map(p, {of_pod('p')})[0]"
        parts.append(f"{count} * {each}")
    return f"({' + '.join(parts)})"


def _pod(workload: str, role: str) -> str:
    fields, spec = f"{workload}.?spec.?{role}", f"{workload}.?spec.?{role}.?template.?spec"
    gpu = f"{{{fields}.?gpu.?name.orValue(''): dyn({fields}.?gpu.?quantity.orValue(0))}}"
    conf = f"{workload}.?spec.?sparkConf[?'spark.{role}.resource.gpu"
    device = f"{{{conf}.vendor'].orValue('') + '/gpu': dyn({conf}.amount'].orValue('0'))}}"
    own = f"{fields}.?gpu.?name.orValue('') != '' ? {gpu} : {device}"
    values = {
        "containers": f"[{{'resources': {{'limits': {own}}}}}]"
        f" + {spec}.?containers.orValue([]) + {fields}.?sidecars.orValue([])",
        "initContainers": f"{spec}.?initContainers.orValue([])"
        f" + {fields}.?initContainers.orValue([])",
        "overhead": f"{spec}.?overhead.orValue({{}})",
        "resourceClaims": f"{spec}.?resourceClaims.orValue([])",
    }
    written = ", ".join(f"'{name}': dyn({value})" for name, value in values.items())
    return f"{{'spec': {{{written}}}}}"


def _executors(workload: str) -> str:
    spec = f"{workload}.?spec"
    given = _most(f"{spec}.?executor.?instances", _setting(spec, "spark.executor.instances"))
    bound = _most(
        f"{spec}.?dynamicAllocation.?maxExecutors", _setting(spec, f"{_DYNAMIC}.maxExecutors")
    )
    dynamic = (
        f"{spec}.?dynamicAllocation.?enabled.orValue(false) == true"
        f" || {_setting(spec, f'{_DYNAMIC}.enabled')} == 'true'"
    )
    most = f"{bound} >= 0 ? [{bound}, {given}].max() : {UNBOUNDED}"
    return f"({dynamic} ? ({most}) : {given} >= 0 ? {given} : 2)"


def _setting(spec: str, key: str) -> str:
    return f"{spec}.?sparkConf[?'{key}'].orValue('')"


def _most(field: str, setting: str) -> str:
    number = f"{setting}.matches('^[0-9]{{1,9}}$') ? int({setting}) : -1"
    return f"[int({field}.orValue(-1)), {number}].max()"
