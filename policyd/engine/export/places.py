"""Write where the pods of a kind are in plain CEL, in place of `pod` and `workload`.

A kind has one pod template (a Deployment), several (the head and the workers of a RayCluster), or
as many as its author lists (the replicated jobs of a JobSet). Expressions of a policy are rewritten
once for each place; where a place stands for several templates, they loop over them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from policyd.engine.objects.spark import UNBOUNDED
from policyd.engine.objects.workloads import EACH, WorkloadKind
from policyd.patch.operations import pointer as json_pointer

HOLDER, HOLDER_KEY = "holder", "holderKey"
"""The variables of loops over lists of pod templates."""

_ALWAYS_THERE = frozenset({"", "apps", "batch"})
"""Groups whose kinds cannot be without a pod template."""


@dataclass(frozen=True, slots=True)
class PodPlace:
    """The location of pods in an object, in CEL.

    Attributes:
        pod: The pod, or the template.
        path: An expression for its JSON pointer.
        count: An expression for the number of pods made from it.
        loop: The list that is looped over to find all of it; empty if it is one template.
        present: An expression for whether it exists; empty if it always does.
    """

    pod: str
    path: str
    count: str
    loop: str = ""
    present: str = ""

    def exists(self, condition: str) -> str:
        """Return the CEL that tells whether `condition` holds for any of the templates."""
        held = both(self.present, condition)
        return f"{self.loop}.exists({HOLDER_KEY}, {HOLDER}, {held})" if self.loop else f"({held})"

    def all(self, condition: str) -> str:
        """Return the CEL that tells whether `condition` holds for all of the templates."""
        held = f"(!({self.present}) || {condition})" if self.present else f"({condition})"
        return f"{self.loop}.all({HOLDER_KEY}, {HOLDER}, {held})" if self.loop else held

    def gather(self, condition: str, value: str) -> str:
        """Return the list of values of the templates for which `condition` holds."""
        held = both(self.present, condition)
        if self.loop:
            chosen = f"{held}, " if held else ""
            return f"{self.loop}.transformList({HOLDER_KEY}, {HOLDER}, {chosen}{value})"
        return f"({held} ? [{value}] : [])" if held else f"[{value}]"


def both(*conditions: str) -> str:
    """Join conditions that must all hold; empty ones say nothing."""
    given = [condition for condition in conditions if condition]
    return " && ".join(f"({c})" for c in given) if len(given) > 1 else "".join(given)


def places_of(kind: WorkloadKind | None, workload: str) -> tuple[PodPlace, ...]:
    """Return where the pods of a kind are, in CEL; `workload` is the CEL of the object."""
    if kind is None:
        return ()
    return tuple(
        (_looped if EACH in place.path else _single)(kind, index, workload)
        for index, place in enumerate(kind.places)
    )


def has_templates(kind: WorkloadKind) -> bool:
    """Tell whether objects of a kind cannot be without their pod templates."""
    return kind.group in _ALWAYS_THERE


def _single(kind: WorkloadKind, index: int, workload: str) -> PodPlace:
    path = kind.places[index].path
    pointer = _quoted(json_pointer(path)) if path else "''"
    count = _count(kind, workload, path, index)
    if has_templates(kind) or not path:
        return PodPlace(pod=".".join((workload, *path)), path=pointer, count=count)
    optional = _optional(workload, path)
    if len(kind.places) == 1:
        return PodPlace(pod=f"{optional}.orValue({{}})", path=pointer, count=count)
    there = f"{optional}.hasValue()"
    return PodPlace(".".join((workload, *path)), pointer, count, present=there)


def _looped(kind: WorkloadKind, index: int, workload: str) -> PodPlace:
    path = kind.places[index].path
    split = path.index(EACH)
    before, after = path[:split], path[split + 1 :]
    by_name = kind.group == "kubeflow.org"
    key = f"jsonpatch.escapeKey({HOLDER_KEY})" if by_name else f"string({HOLDER_KEY})"
    start, end = _quoted(f"{json_pointer(before)}/"), _quoted(json_pointer(after))
    return PodPlace(
        pod=".".join((HOLDER, *after)),
        path=f"{start} + {key} + {end}",
        count=_count(kind, HOLDER, after, 1),
        loop=f"{_optional(workload, before)}.orValue({'{}' if by_name else '[]'})",
        present=f"{_optional(HOLDER, after)}.hasValue()",
    )


def _optional(base: str, path: Sequence[str]) -> str:
    return base + "".join(f".?{step}" for step in path)


def _quoted(text: str) -> str:
    return f"'{text}'"


Counter = Callable[[str, Sequence[str], int], str]


def _count(kind: WorkloadKind, base: str, path: Sequence[str], index: int) -> str:
    """Return the CEL for the number of pods of a template, as the kind's controller counts."""
    counter = _replicas if kind.group == "batch.volcano.sh" else _COUNTERS.get(kind.kind, _replicas)
    return counter(base, path, index)


def _number(base: str, path: Sequence[str], default: str = "1") -> str:
    return f"int({_optional(base, path)}.orValue({default}))"


def _one(_base: str, _path: Sequence[str], _index: int) -> str:
    return "1"


def _replicas(base: str, path: Sequence[str], _index: int) -> str:
    return _number(base, (*path[:-1], "replicas"))


def _job(base: str, path: Sequence[str], _index: int) -> str:
    parallelism = _number(base, (*path[:-1], "parallelism"))
    return f"[{parallelism}, {_number(base, (*path[:-1], 'completions'), parallelism)}].min()"


def _job_set(base: str, path: Sequence[str], index: int) -> str:
    return f"{_number(base, ('replicas',))} * {_job(base, path, index)}"


def _ray(base: str, path: Sequence[str], index: int) -> str:
    if not index:
        return "1"
    if path[-1] == "submitterPodTemplate":
        mode = f"{_optional(base, ('spec', 'submissionMode'))}.orValue('K8sJobMode')"
        return f"({mode} == 'K8sJobMode' ? 1 : 0)"
    least = _number(base, (*path[:-1], "minReplicas"), "0")
    replicas = f"[{_replicas(base, path, index)}, {least}].max()"
    return f"{replicas} * {_number(base, (*path[:-1], 'numOfHosts'))}"


def _leader_worker_set(base: str, path: Sequence[str], index: int) -> str:
    replicas = _number(base, ("spec", "replicas"))
    if not index:
        return replicas
    led = f"({_optional(base, (*path[:-1], 'leaderTemplate'))}.hasValue() ? 1 : 0)"
    return f"{replicas} * [{_number(base, (*path[:-1], 'size'))} - {led}, 0].max()"


_COUNTERS: dict[str, Counter] = {
    "Pod": _one,
    "PodTemplate": _one,
    "DaemonSet": _one,
    "Job": _job,
    "CronJob": _job,
    "JobSet": _job_set,
    "LeaderWorkerSet": _leader_worker_set,
    "RayCluster": _ray,
    "RayJob": _ray,
    "RayService": _ray,
}


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
    bound, first, least = (
        _most(f"{spec}.?dynamicAllocation.?{name}", _setting(spec, f"{_DYNAMIC}.{name}"))
        for name in ("maxExecutors", "initialExecutors", "minExecutors")
    )
    dynamic = (
        f"{spec}.?dynamicAllocation.?enabled.orValue(false) == true"
        f" || {_setting(spec, f'{_DYNAMIC}.enabled')} == 'true'"
    )
    streaming = f"{_setting(spec, 'spark.streaming.dynamicAllocation.enabled')} == 'true'"
    program = f"{spec}.?mainApplicationFile.or({spec}.?arguments[?0]).orValue('')"
    most = f"{bound} >= 0 ? [{bound}, {given}, {first}, {least}].max() : {UNBOUNDED}"
    counted = f"{dynamic} ? ({most}) : {given} >= 0 ? {given} : 2"
    return f"({streaming} || {program}.startsWith('-') ? {UNBOUNDED} : {counted})"


def _setting(spec: str, key: str) -> str:
    return f"{spec}.?sparkConf[?'{key}'].orValue('')"


def _most(field: str, setting: str) -> str:
    number = (
        f"{setting} == '' ? -1 : {setting}.matches('^[0-9]{{1,9}}$') ? int({setting}) : {UNBOUNDED}"
    )
    return f"[int({field}.orValue(-1)), {number}].max()"
