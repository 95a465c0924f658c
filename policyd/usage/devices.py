"""GPUs and the pods that they are allocated to, from series of the DCGM exporter.

The exporter names a GPU by `UUID`, a part of one also by `GPU_I_ID` and `GPU_I_PROFILE`, and the
pod that has it by `namespace`, `pod` and `container`. Where Prometheus does not honour these labels
(`honor_labels: false`), they are `exported_namespace` and so on, and `pod` is the exporter's own.

Two exporters may tell of one GPU. Then the busier of them counts, so that no GPU is taken for idle
that one of them saw busy; if they name different pods at a time, neither is believed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import isnan, nan
from typing import Final, Literal, NamedTuple

from policyd.optimize.mig import MIG, profile_of
from policyd.usage.samples import Series, Windows

ENGINE: Final = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
"""The share of time in which the graphics or compute engine was active, from 0 to 1; also of parts
of a GPU."""
UTIL: Final = "DCGM_FI_DEV_GPU_UTIL"
"""The percentage of time in which a kernel ran; of whole GPUs only."""
MEMORY_USED: Final = "DCGM_FI_DEV_FB_USED"
MEMORY_FREE: Final = "DCGM_FI_DEV_FB_FREE"
"""Memory in MiB."""
SCALE: Final[Mapping[str, float]] = {ENGINE: 1.0, UTIL: 100.0}
"""What each series of use has for a GPU that is busy all the time."""

MOST_STAYS: Final = 200_000
"""Pods on GPUs that are remembered; beyond, new ones are left out and counted."""
LATE_WINDOWS: Final = 2
"""Windows at the end that may lack samples of a pod that still runs."""
_EXPORTERS: Final = frozenset({"exporter", "dcgm-exporter", "nvidia-dcgm-exporter"})
"""Containers of exporters, as their charts and NVIDIA's operator name them."""

Part = Literal["sum", "count", "max"]
MemoryPart = Literal["most", "used", "free"]
IMPOSSIBLE: Final = "samples with values that cannot be"
UNNAMED: Final = "series without UUID, or Hostname and gpu"
FORGOTTEN: Final = "samples of pods beyond those that are remembered"
_NONE: Final = Fraction(0)
_MOST_SHARE: Final = 1.001
"""A share of 1, as floating point numbers have it."""


class Pod(NamedTuple):
    """A pod that has a GPU, and its container."""

    namespace: str
    name: str
    container: str = ""

    def __str__(self) -> str:
        """Write `namespace/name`."""
        return f"{self.namespace}/{self.name}"


NO_POD: Final = Pod("", "")
"""Of a device that is not allocated."""


class Device(NamedTuple):
    """A GPU, or a part of one.

    Attributes:
        uuid: Of the GPU; `node/number` if the series has none.
        instance: The number of the part; "" for a whole GPU.
    """

    uuid: str
    instance: str = ""

    def __str__(self) -> str:
        """Write the uuid, and the number of the part."""
        return f"{self.uuid}/{self.instance}" if self.instance else self.uuid


class DeviceFacts(NamedTuple):
    """What labels say of a device."""

    node: str
    model: str
    gpu: str
    profile: str

    @property
    def share(self) -> Fraction:
        """The part of a GPU that it is; a profile that is not known counts as a whole one."""
        found = profile_of(f"{MIG}{self.profile}", self.model) if self.profile else None
        return Fraction(1) if found is None else found.share


class NodeGpus(NamedTuple):
    """GPUs of a node: all, those that pods have, and those of them that were busy."""

    total: Fraction = _NONE
    held: Fraction = _NONE
    busy: Fraction = _NONE


class WindowGpus(NamedTuple):
    """The GPUs of all nodes in a window.

    Attributes:
        held: Those that pods have.
        busy: Those of them that were busy.
        fragments: Those that no pod has, on nodes of which pods have others.
    """

    total: Fraction
    held: Fraction
    busy: Fraction
    fragments: Fraction

    @classmethod
    def of(cls, nodes: "Iterable[NodeGpus]") -> "WindowGpus":
        """Sum up the GPUs of nodes."""
        total = held = busy = fragments = _NONE
        for each in nodes:
            total, held, busy = total + each.total, held + each.held, busy + each.busy
            fragments += each.total - each.held if each.held else _NONE
        return cls(total, held, busy, fragments)


@dataclass(slots=True)
class Cell:
    """The use of a device by a pod in one window, as shares of 1, as one exporter saw it.

    Attributes:
        total: The sum of all samples; not a number, as `most`, while that is not known.
        count: How many samples there are.
        most: The largest.
    """

    total: float = nan
    count: int = 0
    most: float = nan


@dataclass(slots=True)
class DevicePeriod:
    """A pod's time on a device.

    Attributes:
        first: The first window with samples.
        last: The last one.
        seen: How many windows have samples.
        idle_from: The first of the windows, up to the last, that all have samples and were idle;
            one behind the last if that was busy.
        total: The sum of all samples of its use.
        count: How many these are.
        most: The largest of them.
        memory: The most memory that was used, in MiB; None if that is not known.
        memory_total: All memory of the device, in MiB; None if that is not known.
    """

    first: int
    last: int
    idle_from: int
    seen: int = 0
    total: float = 0.0
    count: int = 0
    most: float = 0.0
    memory: float | None = None
    memory_total: float | None = None

    @property
    def busy(self) -> float:
        """The share of time in which the device was busy."""
        return self.total / self.count if self.count else 0.0


_Exporters = dict[str, dict[Pod, Cell]]
_Windows = defaultdict[int, _Exporters]


@dataclass(slots=True)
class SeriesPage:
    """Series of some windows, gathered until all of their queries are answered.

    Attributes:
        use: By kind of series and device: by window, exporter and pod.
        memory: By part of memory, and by device and pod: by window.
        nodes: The GPUs of each node, by window.
    """

    use: dict[str, dict[Device, _Windows]] = field(default_factory=dict)
    memory: dict[str, dict[tuple[Device, Pod], dict[int, float]]] = field(default_factory=dict)
    nodes: defaultdict[int, dict[str, NodeGpus]] = field(default_factory=lambda: defaultdict(dict))


class DeviceUse:
    """The use of all devices in a stretch of time, gathered page by page.

    Attributes:
        facts: What is known of each device.
        stays: The time of each pod on each device.
        gpus: All GPUs, by window.
        problems: How many series or devices were left out, by reason.
    """

    def __init__(self, windows: Windows, *, threshold: float, remapped: Iterable[str]) -> None:
        """Begin with nothing.

        Args:
            windows: The stretch of time.
            threshold: A device is idle in a window if no sample is above it, from 0 to 1.
            remapped: The Prometheus jobs whose series have the labels `exported_...`.
        """
        self.windows, self._threshold = windows, threshold
        self._remapped = frozenset(remapped)
        self.facts: dict[Device, DeviceFacts] = {}
        self.stays: dict[tuple[Device, Pod], DevicePeriod] = {}
        self.gpus: dict[int, WindowGpus] = {}
        self.problems: Counter[str] = Counter()
        self._contradicting: Counter[Device] = Counter()
        self._page = SeriesPage()

    @property
    def contradicting(self) -> frozenset[Device]:
        """Devices of which two exporters named different pods at a time, more than once.

        Once may be between two scrapes: one exporter learns earlier of a new pod.
        """
        return frozenset(device for device, count in self._contradicting.items() if count > 1)

    def add_use(self, name: str, part: Part, series: Iterable[Series]) -> None:
        """Add the series of a query over each window of a page.

        Args:
            name: `ENGINE` or `UTIL`.
            part: What the query computes of the samples of a window.
            series: The answer.
        """
        scale = SCALE[name]
        for each in series:
            place = self._place(each.labels)
            if place is None:
                continue
            device, pod, exporter = place
            windows = self._page.use.setdefault(name, {}).setdefault(device, defaultdict(dict))
            for window, value in each.points.items():
                cell = windows[window].setdefault(exporter, {}).setdefault(pod, Cell())
                if part == "count":
                    cell.count += int(value)
                elif part == "sum":
                    cell.total = value / scale + (0.0 if isnan(cell.total) else cell.total)
                else:
                    cell.most = max(value / scale, 0.0 if isnan(cell.most) else cell.most)

    def add_memory(self, part: MemoryPart, series: Iterable[Series]) -> None:
        """Add the series of memory of a page, in MiB.

        Args:
            part: The most that was used in each window; or what was used, or free, at its end.
            series: The answer.
        """
        kept = self._page.memory.setdefault(part, {})
        for each in series:
            place = self._place(each.labels)
            if place is None:
                continue
            own = kept.setdefault(place[:2], {})
            for window, value in each.points.items():
                if value < 0:
                    self.problems[IMPOSSIBLE] += 1
                else:
                    own[window] = max(value, own.get(window, 0.0))

    def close_page(self) -> None:
        """Take over the page; pages come in the order of time."""
        page = self._page
        devices = {device for each in page.use.values() for device in each}
        for device in sorted(devices):
            engine: Mapping[int, _Exporters] = page.use.get(ENGINE, {}).get(device, {})
            util: Mapping[int, _Exporters] = page.use.get(UTIL, {}).get(device, {})
            for window in sorted(engine.keys() | util.keys()):
                exporters = _possible(engine.get(window, {})) or _possible(util.get(window, {}))
                if exporters:
                    self._fold(device, window, exporters)
                else:
                    self.problems[IMPOSSIBLE] += 1
        for window, nodes in page.nodes.items():
            self.gpus[window] = WindowGpus.of(nodes.values())
        self._fold_memory(page)
        self._page = SeriesPage()

    def present(self) -> Iterable[tuple[Device, Pod, DevicePeriod]]:
        """Yield the pods that have a device at the end, in a fixed order."""
        last = self.windows.number - 1 - LATE_WINDOWS
        for (device, pod), stay in sorted(self.stays.items()):
            if pod.name and stay.last >= last and device not in self.contradicting:
                yield device, pod, stay

    def _place(self, labels: Mapping[str, str]) -> tuple[Device, Pod, str] | None:
        """Return the device, the pod and the exporter of a series; None if it names no device."""
        node = labels.get("Hostname") or labels.get("exported_Hostname") or ""
        index = labels.get("gpu", "")
        uuid = labels.get("UUID") or (f"{node}/{index}" if node and index else "")
        if not uuid:
            self.problems[UNNAMED] += 1
            return None
        device = Device(uuid, labels.get("GPU_I_ID", ""))
        if device not in self.facts:
            model, profile = labels.get("modelName", ""), labels.get("GPU_I_PROFILE", "")
            self.facts[device] = DeviceFacts(node, model, index, profile)
        exporter = f"{labels.get('job', '')} {labels.get('instance', '')}"
        return device, pod_of(labels, remapped=labels.get("job", "") in self._remapped), exporter

    def _fold(self, device: Device, window: int, exporters: _Exporters) -> None:
        """Take over one window of a device."""
        named = [{pod for pod in each if pod.name} for each in exporters.values()]
        named = [each for each in named if each]
        if any(a.isdisjoint(b) for n, a in enumerate(named) for b in named[n + 1 :]):
            self._contradicting[device] += 1
            return
        pods, busy = sorted(set().union(*named)) or [NO_POD], False
        for pod in pods:
            # An exporter that names no pod tells of all of them.
            cells = [each.get(pod) or each.get(NO_POD) for each in exporters.values()]
            known = [cell for cell in cells if cell is not None]
            mean = max(known, key=lambda cell: cell.total / cell.count)
            most = max(cell.most for cell in known)
            busy = busy or most > self._threshold
            self._note(device, pod, window, Cell(mean.total, mean.count, most))
        share = self.facts[device].share
        held, used = (share if pods[0].name else _NONE), (share if busy else _NONE)
        node = self._page.nodes[window].get(self.facts[device].node, NodeGpus())
        self._page.nodes[window][self.facts[device].node] = NodeGpus(
            node.total + share, node.held + held, node.busy + (used if held else _NONE)
        )

    def _note(self, device: Device, pod: Pod, window: int, cell: Cell) -> None:
        stay = self.stays.get((device, pod))
        if stay is None:
            if len(self.stays) >= MOST_STAYS:
                self.problems[FORGOTTEN] += 1
                return
            stay = self.stays[device, pod] = DevicePeriod(window, window, window)
        if cell.most > self._threshold:
            stay.idle_from = window + 1
        elif window > stay.last + 1:
            stay.idle_from = window  # in between it may have been busy
        stay.last = window
        stay.seen += 1
        stay.total, stay.count = stay.total + cell.total, stay.count + cell.count
        stay.most = max(stay.most, cell.most)

    def _fold_memory(self, page: SeriesPage) -> None:
        now, free = page.memory.get("used", {}), page.memory.get("free", {})
        for key, most in page.memory.get("most", {}).items():
            stay = self.stays.get(key)
            if stay is None:
                continue
            stay.memory = max(stay.memory or 0.0, *most.values())
            used, left = now.get(key, {}), free.get(key, {})
            totals = [used[window] + left[window] for window in used.keys() & left.keys()]
            if totals:
                stay.memory_total = max(stay.memory_total or 0.0, *totals)


def pod_of(labels: Mapping[str, str], *, remapped: bool) -> Pod:
    """Return the pod that labels name; one without a name if the device is not allocated.

    Args:
        labels: Of a series.
        remapped: Whether the labels of the exporter begin with `exported_`.
    """
    if remapped or labels.get("exported_pod"):
        names = ("exported_namespace", "exported_pod", "exported_container")
    else:
        names = ("namespace", "pod", "container")
    found = Pod(*(labels.get(name, "") for name in names))
    own = found.container in _EXPORTERS and "dcgm-exporter" in found.name
    return NO_POD if own or not found.name else found


def _possible(exporters: _Exporters) -> _Exporters:
    """Return the samples of a window that can be: those of the exporters whose shares are.

    A scale of another exporter, or a recording rule of the same name, gives others.
    """
    possible: _Exporters = {}
    for exporter, pods in exporters.items():
        own = {pod: cell for pod, cell in pods.items() if _can_be(cell)}
        if own:
            possible[exporter] = own
    return possible


def _can_be(cell: Cell) -> bool:
    if not cell.count:
        return False
    mean = cell.total / cell.count
    return 0 <= mean <= cell.most * _MOST_SHARE and cell.most <= _MOST_SHARE
