"""Racks, hosts and devices: the pods on them, what is free, and what is stranded by which pod."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from policyd.dashboard.views.wording import amounts, devices_first
from policyd.simulate.stranding import JobOnNode, NodeLine, devices_of
from policyd.status.quantities import format_amount

MOST_SQUARES: Final = 16
"""Devices of a host that are drawn one by one."""
MOST_HOSTS: Final = 128
"""Hosts that are shown at a time."""
MOST_RACKS: Final = 600
MOST_JOBS: Final = 500
"""Jobs that a filter suggests."""
ALL_AT_ONCE: Final = 64
"""Hosts of a cluster that is shown whole."""
NO_RACK: Final = "-"
"""What hosts without a place in a topology are listed under, in queries."""

Slot = Literal["used", "chosen", "free", "fragment", "stranded", "off"]


@dataclass(frozen=True, slots=True)
class ClusterRead:
    """What the view is made of.

    Attributes:
        lines: The nodes; None if they may not be read.
        pending: Whether pods of pending workloads were tried on them.
        missing: What could not be found out, and why.
    """

    lines: Sequence[NodeLine] | None
    pending: bool = False
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceCounts:
    """Devices of some hosts: how many, free, free in part-used hosts, and of no use to others."""

    total: int
    free: int
    fragments: int
    stranded: int

    @property
    def used(self) -> int:
        """How many are in use."""
        return self.total - self.free

    def part(self, amount: int) -> int:
        """Return an amount in thousandths of all."""
        return round(1_000 * amount / self.total) if self.total else 0


@dataclass(frozen=True, slots=True)
class Rack:
    """Hosts with the same place in the topology.

    Attributes:
        key: What names it in queries.
        name: What it is called.
        hosts: How many it has.
        off: How many of them take no pods.
        chosen: How many of them have pods of the chosen job.
        open: Whether its hosts are shown.
    """

    key: str
    name: str
    hosts: int
    off: int
    chosen: int
    sums: DeviceCounts
    open: bool


@dataclass(frozen=True, slots=True)
class PodsHere:
    """Pods of a job on a host.

    Attributes:
        job: `namespace/Kind/name`.
        namespace: The first part of it.
        kind: The second part.
        name: The third part.
        pods: How many.
        holds: What they request.
        chosen: Whether it is the chosen job.
    """

    job: str
    namespace: str
    kind: str
    name: str
    pods: int
    holds: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Host:
    """A node.

    Attributes:
        rack: The key of its rack.
        state: `Ready`, `NotReady` or `Cordoned`.
        slots: Its devices, one by one; empty if it has many.
        stranded_by: Jobs without whose pods more devices could be used.
        missing: Resources of which too little is left for one more pod.
        pods: The jobs on it, those with most devices first; None if pods are not known.
        beside: What is free besides devices.
        chosen: Whether it has pods of the chosen job.
    """

    name: str
    rack: str
    state: str
    sums: DeviceCounts
    slots: tuple[Slot, ...]
    stranded_by: tuple[str, ...]
    missing: str
    pods: tuple[PodsHere, ...] | None
    beside: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the view shows.

    Attributes:
        known: Whether nodes are known at all.
        device: The device that is counted; "" if there is none.
        job: The chosen job; "" for none.
        chosen_hosts: How many hosts have pods of it.
        rack: The key of the chosen rack; "" for none.
        hosts_left_out: How many more hosts there are in the chosen racks.
    """

    known: bool
    device: str
    devices: tuple[str, ...]
    sums: DeviceCounts
    nodes: int
    racks: tuple[Rack, ...]
    racks_left_out: int
    rack: str
    hosts: tuple[Host, ...]
    hosts_left_out: int
    job: str
    jobs: tuple[str, ...]
    chosen_hosts: int
    pods_known: bool
    pending: bool
    missing: tuple[str, ...]


def cluster(read: ClusterRead, query: Mapping[str, str], now: float) -> Cluster:
    """Return what the view shows.

    Args:
        read: The nodes.
        query: `device`, which is counted; `rack`, whose hosts are shown; `job`, to be highlighted.
        now: Not used: nothing of it depends on the time.
    """
    del now
    lines = read.lines or ()
    devices = devices_first({name for line in lines for name in devices_of(line.allocatable)})
    device = query.get("device", "")
    if device not in devices:
        device = _most(lines, devices)
    job, rack = query.get("job", ""), query.get("rack", "")
    racks = _racks(lines)
    with_job = {line.name for line in lines if any(pods.job == job for pods in line.pods or ())}
    shown = _shown(racks, rack, with_job)
    hosts = [line for key in shown for line in racks[key]]
    if with_job and not rack and len(lines) > ALL_AT_ONCE:
        hosts = [line for line in hosts if line.name in with_job]
    return Cluster(
        known=read.lines is not None,
        device=device,
        devices=tuple(devices),
        sums=_sums(lines, device),
        nodes=len(lines),
        racks=tuple(
            _rack(key, racks[key], device, with_job, open_=key in shown)
            for key in list(racks)[:MOST_RACKS]
        ),
        racks_left_out=max(0, len(racks) - MOST_RACKS),
        rack=rack,
        hosts=tuple(_host(line, device, job) for line in hosts[:MOST_HOSTS]),
        hosts_left_out=max(0, len(hosts) - MOST_HOSTS),
        job=job,
        jobs=tuple(_jobs(lines)),
        chosen_hosts=len(with_job),
        pods_known=all(line.pods is not None for line in lines),
        pending=read.pending,
        missing=read.missing,
    )


def _most(lines: Iterable[NodeLine], devices: Sequence[str]) -> str:
    """Return the device of most nodes; "" if there is none."""
    counts = dict.fromkeys(devices, 0)
    for line in lines:
        for name in devices_of(line.allocatable):
            counts[name] += 1
    return max(counts, key=lambda name: counts[name], default="")


def _racks(lines: Iterable[NodeLine]) -> dict[str, list[NodeLine]]:
    found: dict[str, list[NodeLine]] = {}
    for line in lines:
        found.setdefault(line.domain or NO_RACK, []).append(line)
    return found


def _shown(racks: Mapping[str, Sequence[NodeLine]], rack: str, with_job: set[str]) -> list[str]:
    """Return the keys of the racks whose hosts are shown."""
    if rack in racks:
        return [rack]
    if sum(map(len, racks.values())) <= ALL_AT_ONCE:
        return list(racks)
    return [key for key, lines in racks.items() if any(each.name in with_job for each in lines)]


def _sums(lines: Iterable[NodeLine], device: str) -> DeviceCounts:
    total = free = fragments = stranded = 0
    for line in lines:
        total += line.allocatable.get(device, 0)
        free += max(0, line.free.get(device, 0))
        fragments += line.fragments.get(device, 0)
        stranded += sum(each.amount for each in line.stranded if each.resource == device)
    return DeviceCounts(total=total, free=min(free, total), fragments=fragments, stranded=stranded)


def _rack(
    key: str, lines: Sequence[NodeLine], device: str, with_job: set[str], *, open_: bool
) -> Rack:
    return Rack(
        key=key,
        name="No place in a topology" if key == NO_RACK else key,
        hosts=len(lines),
        off=sum(line.state != "Ready" for line in lines),
        chosen=sum(line.name in with_job for line in lines),
        sums=_sums(lines, device),
        open=open_,
    )


def _host(line: NodeLine, device: str, job: str) -> Host:
    stranded = next((each for each in line.stranded if each.resource == device), None)
    pods = None if line.pods is None else tuple(_pods(line.pods, device, job))
    sums = _sums([line], device)
    return Host(
        name=line.name,
        rack=line.domain or NO_RACK,
        state=line.state,
        sums=sums,
        slots=tuple(_slots(line, device, job, sums)) if sums.total <= MOST_SQUARES else (),
        stranded_by=() if stranded is None else stranded.by,
        missing="" if stranded is None else ", ".join(stranded.missing),
        pods=pods,
        beside=", ".join(
            f"{format_amount(name, line.free[name])} {name}"
            for name in ("cpu", "memory")
            if name in line.free
        ),
        chosen=any(each.chosen for each in pods or ()),
    )


def _slots(line: NodeLine, device: str, job: str, sums: DeviceCounts) -> Iterator[Slot]:
    """Yield the devices of a host: those in use, stranded ones, and those that are free."""
    of_job = sum(each.requests.get(device, 0) for each in line.pods or () if each.job == job)
    chosen = min(of_job, sums.used)
    stranded = min(sums.stranded, sums.free)
    off = line.state != "Ready"
    rest: Slot = "fragment" if sums.used else "free"
    counts: tuple[tuple[Slot, int], ...] = (
        ("chosen", chosen),
        ("used", sums.used - chosen),
        ("off" if off else "stranded", stranded),
        ("off" if off else rest, sums.free - stranded),
    )
    for slot, count in counts:
        yield from (slot for _ in range(count))


def _pods(jobs: Iterable[JobOnNode], device: str, job: str) -> Iterator[PodsHere]:
    for each in sorted(jobs, key=lambda one: (-one.requests.get(device, 0), one.job)):
        namespace, kind, name = ([*each.job.split("/", 2), "", ""])[:3]
        yield PodsHere(
            job=each.job,
            namespace=namespace,
            kind=kind,
            name=name,
            pods=each.pods,
            holds=amounts(each.requests),
            chosen=each.job == job,
        )


def _jobs(lines: Iterable[NodeLine]) -> list[str]:
    found = {
        pods.job
        for line in lines
        for pods in line.pods or ()
        if any("/" in name for name in pods.requests)
    }
    return sorted(found)[:MOST_JOBS]
