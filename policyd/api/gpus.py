"""How pods request GPUs: names of resources, and annotations for a part of one.

The annotations are those of KAI and Run:ai. A part is counted in thousandths of a device, on the
devices of flavors that declare them as shared; a pod gets it as one replica of the device plugin.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from policyd.api.kueue.validation import FieldError
from policyd.api.meta import cut
from policyd.api.pod_requests import pod_requests
from policyd.api.pods import PodSpec
from policyd.api.quantity import QuantityError

GPU: Final = "nvidia.com/gpu"
SHARED_GPU: Final = "nvidia.com/gpu.shared"
"""A replica of a shared GPU, as the device plugin calls it with `renameByDefault: true`."""
THOUSANDTHS: Final = "policyd.io/gpu-thousandths"
"""The resource with the quota for parts of GPUs."""
WHOLE: Final = 1_000

GPU_RESOURCES: Final = frozenset(
    {
        GPU,
        SHARED_GPU,
        "nvidia.com/pgpu",
        "nvidia.com/vgpu",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
    }
)
"""Resources of which one counts as one GPU; a time-slice does, too."""

GPU_PREFIXES: Final = (
    "nvidia.com/mig-",
    "nvidia.com/GRID_",
    *(f"amd.com/{mode}_" for mode in ("cpx", "dpx", "qpx", "spx", "tpx")),
    "deviceclass.resource.kubernetes.io/",
)
"""Beginnings of resource names of which one counts as a GPU: parts of MIG, of vGPU, and of AMD's
partition modes, and devices that are requested by their class."""

FRACTION: Final = "gpu-fraction"
"""Annotation of pods: the part of a GPU, such as `0.5`."""
MEMORY: Final = "gpu-memory"
"""Annotation of pods: the memory of a GPU, in MiB."""
PARTS: Final = (FRACTION, MEMORY)
NUM_DEVICES: Final = "gpu-fraction-num-devices"

SHARING: Final = "policyd.io/shared-gpus"
"""Annotation of a ResourceFlavor: how its GPUs are shared, `time-slicing` or `mps`."""
REPLICAS: Final = "policyd.io/shared-gpu-replicas"
"""Annotation of a ResourceFlavor: the replicas of each GPU, as the device plugin is configured."""
DEVICE_MEMORY: Final = "policyd.io/shared-gpu-memory"
"""Annotation of a ResourceFlavor: the memory of each GPU, in MiB."""
_FLAVOR: Final = (SHARING, REPLICAS, DEVICE_MEMORY)
_KINDS: Final = ("mps", "time-slicing")

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}")
_FORMS: Final = {FRACTION: re.compile(r"0?\.(?!0+$)[0-9]{1,9}"), MEMORY: _NUMBER}
_LONGEST_SHOWN: Final = 64

_NO_FRACTION: Final = (
    f"must be a decimal above 0 and below 1, such as `0.5`; for whole GPUs, request `{GPU}` in"
    " `resources.limits`"
)
_NO_MEMORY: Final = "must be a whole number of MiB above 0, such as `4096`"


def counts_as_gpu(resource: str) -> bool:
    """Tell whether one of `resource` counts as a GPU.

    Memory, tiles and monitors that GPU vendors publish beside the devices do not count.
    """
    return resource in GPU_RESOURCES or resource.startswith(GPU_PREFIXES)


class GpuPart(NamedTuple):
    """The part of a GPU that a pod requests: thousandths of it, or MiB; the other one is 0."""

    thousandths: int
    memory: int


class SharedGpus(NamedTuple):
    """The GPUs of a flavor that pods share.

    Attributes:
        limited: Whether a replica has its part of the memory and no more, as with MPS.
        replicas: Of each GPU; no more pods share it.
        memory: MiB of each GPU.
    """

    limited: bool
    replicas: int
    memory: int

    @property
    def most_memory(self) -> int:
        """The MiB that a pod can get."""
        return self.memory // self.replicas if self.limited else self.memory

    def charge(self, part: GpuPart) -> int | None:
        """Return the thousandths of a GPU that a part is; None if a replica has less than that.

        A pod takes the place of one replica however little it requests.
        """
        wanted = part.thousandths or -(-part.memory * WHOLE // self.memory)
        replica = WHOLE // self.replicas
        return None if wanted > (replica if self.limited else WHOLE) else max(wanted, replica)


def shared_gpus(annotations: Mapping[str, str]) -> SharedGpus | None:
    """Return the shared GPUs that a ResourceFlavor declares; None if it declares none."""
    if SHARING not in annotations or any(flavor_errors(annotations)):
        return None
    return SharedGpus(
        limited=annotations[SHARING] == "mps",
        replicas=int(annotations[REPLICAS]),
        memory=int(annotations[DEVICE_MEMORY]),
    )


def flavor_errors(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield the errors in what a ResourceFlavor declares about shared GPUs."""
    if annotations.keys().isdisjoint(_FLAVOR):
        return
    kind, replicas, memory = (annotations.get(name, "") for name in _FLAVOR)
    if kind not in _KINDS:
        yield _error("metadata.annotations", SHARING, kind, "must be `time-slicing` or `mps`")
    if not _NUMBER.fullmatch(replicas) or not 1 < int(replicas) <= WHOLE:
        message = f"must be a whole number from 2 to {WHOLE}: the replicas of each GPU"
        yield _error("metadata.annotations", REPLICAS, replicas, message)
    if not _NUMBER.fullmatch(memory):
        message = f"{_NO_MEMORY}: the memory of each GPU"
        yield _error("metadata.annotations", DEVICE_MEMORY, memory, message)


def asks_for_part(annotations: Mapping[str, str]) -> bool:
    """Tell whether a pod with these annotations requests a part of a GPU, valid or not."""
    return FRACTION in annotations or MEMORY in annotations


def part_of(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations by which a pod requests a part of a GPU."""
    return {name: annotations[name] for name in PARTS if name in annotations}


def requested_part(annotations: Mapping[str, str]) -> GpuPart:
    """Return the part of a GPU that valid annotations request."""
    if FRACTION in annotations:
        digits = annotations[FRACTION].partition(".")[2]
        return GpuPart(-(-int(digits) * WHOLE // 10 ** len(digits)), 0)
    return GpuPart(0, int(annotations[MEMORY]))


def part_errors(
    annotations: Mapping[str, str], spec: PodSpec, where: str = "metadata.annotations"
) -> Iterator[FieldError]:
    """Yield the errors in the part of a GPU that a pod requests.

    Args:
        annotations: Of the pod, or of its template.
        spec: Of the pod.
        where: The path of the annotations.
    """
    if not asks_for_part(annotations):
        return
    name = FRACTION if FRACTION in annotations else MEMORY
    text = annotations[name]
    if FRACTION in annotations and MEMORY in annotations:
        message = f"cannot be combined with `{FRACTION}`: remove one of the two"
        yield _error(where, MEMORY, annotations[MEMORY], message)
    if not _FORMS[name].fullmatch(text):
        yield _error(where, name, text, _NO_FRACTION if name == FRACTION else _NO_MEMORY)
    if annotations.get(NUM_DEVICES, "1") != "1":
        message = "a pod gets a part of one GPU only: remove it, or request whole GPUs"
        yield _error(where, NUM_DEVICES, annotations[NUM_DEVICES], message)
    yield from _besides(spec, f"{where}[{name}]", text)


def _besides(spec: PodSpec, path: str, text: str) -> Iterator[FieldError]:
    """Yield the GPUs that a pod requests besides the one replica by which it gets a part."""
    try:
        requests = pod_requests(spec)
    except QuantityError:  # it has an error of its own
        return
    for resource in sorted(filter(counts_as_gpu, requests)):
        amount, shown = requests[resource], cut(resource, _LONGEST_SHOWN, end="...")
        message = f"cannot be combined with `{shown}` in `resources`: remove one of the two"
        if resource == SHARED_GPU:
            message = f"a part of a GPU is one `{SHARED_GPU}`, and {amount} are requested"
        if amount > (1 if resource == SHARED_GPU else 0):
            yield FieldError(path, cut(text, _LONGEST_SHOWN, end="..."), message)


def part_changes(
    old: Mapping[str, str], new: Mapping[str, str], where: str = "metadata.annotations"
) -> Iterator[FieldError]:
    """Yield changes of the part of a GPU that a pod requests: quota is held for what it was."""
    for name in (*PARTS, NUM_DEVICES):
        if old.get(name) != new.get(name):
            message = "field is immutable in a queue: create the job anew with another part"
            yield _error(where, name, new.get(name, ""), message)


def largest_charge(part: GpuPart, flavors: Iterable[SharedGpus]) -> int | None:
    """Return what a part is charged on whichever of the flavors it gets; None if none has it."""
    charges = (each.charge(part) for each in flavors)
    return max((each for each in charges if each is not None), default=None)


def _error(where: str, name: str, value: str, message: str) -> FieldError:
    return FieldError(f"{where}[{name}]", cut(value, _LONGEST_SHOWN, end="..."), message)
