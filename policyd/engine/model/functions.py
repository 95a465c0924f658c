"""Declare the CEL functions that policyd adds to the API server's.

Three variables: `pod`, the current pod or the pod template of the current workload; `workload`,
the object itself; and `maker`, the kind of the controller that made it, which is empty unless the
account of the request is that controller's. Methods of the first two are in `METHODS`: one row has
all that the engine knows of a method, and its description on the reference page. The variables for
the queues are in `queue_facts`.

For an object that makes no pods, `pod` is empty: it asks for nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from policyd.api.makers import controllers_of, group_kind_of
from policyd.api.meta import Json
from policyd.cel import CelError, Environment, admission_environment
from policyd.cel.cost import Budget, deep_size
from policyd.cel.environments import DEFAULT_VERSION
from policyd.cel.functions import Overload, Size, Version, method
from policyd.cel.lib.quantity import QUANTITY, CelQuantity
from policyd.cel.types import DYN, INT, STRING, Type, map_of
from policyd.engine.model.queue_facts import QUEUE_STRUCTS, QUEUE_VARIABLES
from policyd.engine.model.surroundings import ClaimsOfRequest
from policyd.engine.objects.pods import (
    ASKED_FOR,
    PART_OF_GPU,
    PodError,
    Side,
    claimed_devices,
    claims,
    count_pods,
    devices,
    gpus,
    total,
)
from policyd.engine.objects.workloads import EACH, find_kind

T = TypeVar("T")

POD = map_of(STRING, DYN)

_PART_WORK = 5
"""Elements that take as long to compare as a part of a container does to look at."""
_SUM_WORK = 15
"""Elements that take as long to compare as making the sum does."""


# So little is covered by the cost.
_COVERED_WORK = 100


def _failing(run: Callable[..., T]) -> Callable[..., T]:
    """Let an error about a misshapen pod be one of the expression."""

    def call(*arguments: Json) -> T:
        try:
            return run(*arguments)
        except PodError as error:
            raise CelError(str(error)) from None

    return call


def _work_of(pod: Json) -> int:
    """Return the work of adding up the requests of containers."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return 0
    if pod.get("kind", "Pod") != "Pod":
        # Its templates are looked for, and then added up.
        return deep_size(pod) * 3 // 2 if find_kind(pod) else 0
    work = 0
    for field in ("containers", "initContainers"):
        containers = spec.get(field)
        for container in containers if isinstance(containers, list) else ():
            resources = container.get("resources") if isinstance(container, dict) else None
            work += 2
            if isinstance(resources, dict):
                for side in resources.values():
                    work += len(side) if isinstance(side, dict) else 0
    work *= _PART_WORK
    return work if work > _COVERED_WORK else 0


def _looking(pod: Json, *_resource: str) -> int:
    return _SUM_WORK + _work_of(pod)


def _owned(obj: Json) -> int:
    """Return the work of looking for the controller among owners."""
    metadata = obj.get("metadata")
    owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    return len(owners) if isinstance(owners, list) else 0


def _claiming(pod: Json, *_budget: object) -> int:
    """Return the work of looking at the claims of a pod, or at all templates of a workload."""
    spec = pod.get("spec")
    claims = spec.get("resourceClaims") if isinstance(spec, dict) else None
    return _looking(pod) + (_PART_WORK * len(claims) if isinstance(claims, list) else 0)


def _total(side: Side) -> Callable[[Json, str], CelQuantity]:
    def run(pod: Json, resource: str) -> CelQuantity:
        return CelQuantity(total(pod, resource, side))

    return run


class _Remembering:
    """Counts the GPUs of a pod, and remembers the answer while policies ask about the same.

    Every second policy needs this first. INVARIANT: decoded objects are never changed in
    place, so that the same containers mean the same answer. The cached value is replaced whole,
    so that threads may share it.
    """

    def __init__(self) -> None:
        self._last: tuple[Json, Json, Json, Json, int, int] | None = None

    def __call__(self, pod: Json, budget: Budget | None = None) -> int:
        spec = pod.get("spec")
        if pod.get("kind", "Pod") != "Pod" or not isinstance(spec, dict):
            parts = pod, None, None, None
        else:
            of = pod.get("metadata")
            annotations = of.get("annotations") if isinstance(of, dict) else None
            containers, starting = spec.get("containers"), spec.get("initContainers")
            parts = containers, starting, spec.get("overhead"), annotations
        last = self._last
        known = (
            last
            and last[0] is parts[0]
            and last[1] is parts[1]
            and last[2] is parts[2]
            and last[3] is parts[3]
        )
        work = last[5] if last and known else _work_of(pod)
        if work and budget is not None:  # the same whether it was remembered or not
            budget.charge_work(work)
        if last is None or not known:
            last = self._last = (*parts, gpus(pod), work)
        return last[4]


def _claimed(pod: Json, budget: Budget | None = None) -> int:
    """Count the devices of claims, which the request's surroundings know."""
    known = None if budget is None else budget.facts
    claims = known if isinstance(known, ClaimsOfRequest) else ClaimsOfRequest()
    return claimed_devices(pod, claims.spec)


def controller_kind(obj: Json) -> str:
    """Return the kind of the controller that an object names, empty if it names none."""
    return next((group_kind_of(owner)[1] for owner in controllers_of(obj)), "")


# A look at all containers of a pod costs about as much as ten selections.
_LOOK = Size(cost=10, work=_looking)
_REMEMBERED = Size(cost=10, counted=True)
_OWNERS = Size(cost=10, work=_owned)
_ASKED = Size(cost=100, work=_claiming, counted=True)
"""Like other questions about objects of the cluster."""

CONTROLLER = tuple(
    ("metadata", "ownerReferences", EACH, name) for name in ("apiVersion", "controller", "kind")
)
"""All that says which kind of controller an object has, as paths in it."""
_CLAIMS = (("spec", "resourceClaims"),)
COUNTS_CLAIMS = "claimedDevices"
"""The method whose result depends on other objects than the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMethod:
    """A method that policyd adds, and what the engine has to know of it.

    Attributes:
        overload: How it is called, its cost, its code, and its summary.
        looks_at: What it looks at in a pod, besides its kind, as paths.
        reads: Names of the fields it reads, as far as mutations can change them.
        counts_devices: Whether it counts devices only, and no memory and such.
    """

    overload: Overload
    looks_at: tuple[tuple[str, ...], ...] = ()
    reads: frozenset[str] = frozenset()
    counts_devices: bool = False


def _own(
    overload: Overload,
    summary: str,
    *,
    looks_at: tuple[tuple[str, ...], ...] = (),
    reads: tuple[str, ...] = (),
    counts_devices: bool = False,
) -> OwnMethod:
    return OwnMethod(
        overload=replace(overload, summary=summary, section="Pods and workloads"),
        looks_at=looks_at,
        reads=frozenset(reads),
        counts_devices=counts_devices,
    )


_OWN = (
    _own(
        method("gpus", POD, returns=INT, run=_failing(_Remembering()), size=_REMEMBERED),
        "GPUs that a pod asks for, or all pods of a workload; a part of one counts as one.",
        looks_at=(*ASKED_FOR, *PART_OF_GPU),
        reads=("resources", "annotations"),
        counts_devices=True,
    ),
    _own(
        method("claims", POD, returns=INT, run=_failing(claims), size=_LOOK),
        "ResourceClaims by which a pod gets devices, or all pods of a workload.",
        looks_at=_CLAIMS,
        reads=("resourceClaims",),
    ),
    _own(
        method(COUNTS_CLAIMS, POD, returns=INT, run=_failing(_claimed), size=_ASKED),
        "Devices that a pod gets by ResourceClaims, or all pods of a workload: the most of"
        " alternatives, and none of those with admin access. An error if a claim or template does"
        " not exist, or requests all devices that match.",
        looks_at=_CLAIMS,
        reads=("resourceClaims",),
    ),
    _own(
        method("devices", POD, returns=INT, run=_failing(devices), size=_LOOK),
        "GPUs and ResourceClaims of a pod, or of one pod of each template of a workload, even of"
        " one that has no pods now.",
        looks_at=(*ASKED_FOR, *PART_OF_GPU, *_CLAIMS),
        reads=("resources", "annotations", "resourceClaims"),
        counts_devices=True,
    ),
    _own(
        method(
            "requests", POD, STRING, returns=QUANTITY, run=_failing(_total("requests")), size=_LOOK
        ),
        "The request of a pod for a resource, as a quantity.",
        looks_at=ASKED_FOR,
        reads=("resources",),
    ),
    _own(
        method("limits", POD, STRING, returns=QUANTITY, run=_failing(_total("limits")), size=_LOOK),
        "The limit of a pod for a resource, as a quantity.",
        looks_at=ASKED_FOR,
        reads=("resources",),
    ),
    _own(
        method("pods", POD, returns=INT, run=count_pods, size=_LOOK),
        "How many pods a workload makes at the same time.",
    ),
    _own(
        method("controller", POD, returns=STRING, run=controller_kind, size=_OWNERS),
        "The kind of the object that made it; empty if a user did.",
        looks_at=CONTROLLER,
    ),
)

METHODS: Mapping[str, OwnMethod] = {own.overload.name: own for own in _OWN}
"""The methods that policyd adds, by name."""

FUNCTIONS: tuple[Overload, ...] = tuple(own.overload for own in _OWN)


@cache
def expression_environment(
    version: Version = DEFAULT_VERSION, *, params: bool = False, mutation: bool = False
) -> Environment:
    """Return the environment of a Policy's expressions, before its own variables."""
    environment = admission_environment(version, params=params, mutation=mutation, extra=FUNCTIONS)
    return environment.extend(
        variables={"pod": POD, "workload": POD, "maker": STRING, **QUEUE_VARIABLES},
        structs=QUEUE_STRUCTS,
    )


def with_variables(environment: Environment, variables: Mapping[str, Type]) -> Environment:
    """Let `variables` have these fields, and no others."""
    return environment.extend(structs={"kubernetes.variables": dict(variables)})
