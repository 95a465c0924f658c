"""GPUs that are allocated, and idle: by pod, and by team; and stranded ones, over time."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from policyd.alloc.value import Value
from policyd.usage.devices import Device, DevicePeriod, DeviceUse, Pod
from policyd.usage.samples import Series, Windows

LEAST_SEEN = 0.5
"""Of the windows since a pod came, those that must have samples before it is called idle."""


class IdleDevice(Value, frozen=True, rename="camel"):
    """A device of a pod.

    Attributes:
        device: Its uuid, and the number of the part.
        share: The part of a GPU that the pod has.
        busy: The share of time in which it was busy, from 0 to 1, since the pod has it.
        since: Since when it is idle, in seconds since the epoch; None if it is not.
        at_least: Whether it was idle from the first sample on, so that it may be longer.
        missing: How many windows have no samples.
    """

    device: str
    node: str
    model: str
    profile: str
    share: Fraction
    busy: float
    most: float
    since: float | None
    at_least: bool
    missing: int


class PodUse(Value, frozen=True, rename="camel"):
    """A pod that has GPUs, the longest idle device first.

    Attributes:
        team: Its namespace.
        gpus: How many it has, parts and shared ones as fractions.
        idle: How many of these are idle.
        busy: The share of time in which its devices were busy, from 0 to 1.
        since: Since when all of its devices are idle, in seconds since the epoch; None if one is
            not.
        at_least: Whether that may be longer.
        known: Whether there are samples enough to say so.
    """

    team: str
    pod: str
    gpus: Fraction
    idle: Fraction
    busy: float
    since: float | None
    at_least: bool
    known: bool
    devices: tuple[IdleDevice, ...]


class TeamUse(Value, frozen=True, rename="camel"):
    """The GPUs of a team; the fields are those of a pod.

    Attributes:
        pods: How many pods have GPUs.
        since: Since when the longest idle pod of it is idle.
    """

    team: str
    pods: int
    gpus: Fraction
    idle: Fraction
    busy: float
    since: float | None


class GpusAt(Value, frozen=True, rename="camel"):
    """All GPUs in a window.

    Attributes:
        at: The end of the window, in seconds since the epoch.
        held: Those that pods have.
        busy: Those of them that were busy.
        fragments: Those that no pod has, on nodes of which pods have others.
    """

    at: float
    total: Fraction
    held: Fraction
    busy: Fraction
    fragments: Fraction


class StrandedAt(Value, frozen=True, rename="camel"):
    """Stranded devices of a flavor in a window.

    Attributes:
        at: The end of the window, in seconds since the epoch.
        devices: How many, as the mean of the samples in the window.
    """

    at: float
    flavor: str
    resource: str
    devices: float


class StrandedOverTime(NamedTuple):
    """Stranded devices by time, flavor and resource, and what is not known of them."""

    points: tuple[StrandedAt, ...]
    notes: tuple[str, ...] = ()


def pod_uses(use: DeviceUse) -> list[PodUse]:
    """Return the pods that have GPUs at the end, those with the most idle ones first."""
    sharers = Counter(device for device, _, _ in use.present())
    devices: dict[Pod, list[tuple[Device, DevicePeriod]]] = {}
    for device, pod, stay in use.present():
        devices.setdefault(pod._replace(container=""), []).append((device, stay))
    found = [_pod_use(use, pod, own, sharers) for pod, own in devices.items()]
    return sorted(found, key=lambda each: (-each.idle, each.since or 0.0, each.team, each.pod))


def team_uses(pods: Iterable[PodUse]) -> list[TeamUse]:
    """Return the GPUs of each team, the one with the most idle ones first."""
    teams: dict[str, list[PodUse]] = {}
    for each in pods:
        teams.setdefault(each.team, []).append(each)
    found = [_team_use(team, own) for team, own in teams.items()]
    return sorted(found, key=lambda each: (-each.idle, each.team))


def gpus_over_time(use: DeviceUse) -> Iterator[GpusAt]:
    """Yield the GPUs in each window that has samples."""
    for window, each in sorted(use.gpus.items()):
        yield GpusAt(
            at=use.windows.end_of(window),
            total=each.total,
            held=each.held,
            busy=each.busy,
            fragments=each.fragments,
        )


def stranded_over_time(
    sums: Iterable[Series], counts: Iterable[Series], windows: Windows
) -> StrandedOverTime:
    """Return the stranded devices in each window that has samples.

    Args:
        sums: The sum of the samples of each series in each window.
        counts: Their numbers.
        windows: The windows of both.
    """
    numbers = {_identity(each): each.points for each in counts}
    means: defaultdict[tuple[int, str, str], set[float]] = defaultdict(set)
    notes = set[str]()
    for each in sums:
        flavor, resource = each.labels.get("flavor"), each.labels.get("resource")
        if not flavor or not resource:
            notes.add("left out: series of stranded devices without flavor or resource")
            continue
        number = numbers.get(_identity(each), {})
        for window, total in each.points.items():
            if number.get(window, 0.0) > 0 and total >= 0:
                means[window, flavor, resource].add(total / number[window])
            else:
                notes.add("left out: samples of stranded devices with values that cannot be")
    if any(len(values) > 1 for values in means.values()):
        notes.add("left out: stranded devices at times at which two controllers report others")
    points = (
        StrandedAt(at=windows.end_of(window), flavor=flavor, resource=resource, devices=min(values))
        for (window, flavor, resource), values in sorted(means.items())
        if len(values) == 1
    )
    return StrandedOverTime(tuple(points), tuple(sorted(notes)))


def _identity(series: Series) -> frozenset[tuple[str, str]]:
    return frozenset(series.labels.items())


def _pod_use(
    use: DeviceUse, pod: Pod, own: Sequence[tuple[Device, DevicePeriod]], sharers: Counter[Device]
) -> PodUse:
    devices = tuple(_device_use(use, device, stay, sharers[device]) for device, stay in own)
    devices = tuple(sorted(devices, key=lambda each: (each.since is None, each.since or 0.0)))
    seen = sum(stay.seen for _, stay in own)
    known = seen >= LEAST_SEEN * sum(stay.last - stay.first + 1 for _, stay in own)
    moments = [each.since for each in devices if each.since is not None]
    all_idle = known and len(moments) == len(devices)
    since = max(moments) if all_idle else None
    gpus = sum((each.share for each in devices), Fraction(0))
    weighted = sum(float(each.share) * each.busy for each in devices)
    return PodUse(
        team=pod.namespace,
        pod=pod.name,
        gpus=gpus,
        idle=sum((each.share for each in devices if known and each.since is not None), Fraction(0)),
        busy=weighted / float(gpus) if gpus else 0.0,
        since=since,
        at_least=all_idle and any(each.at_least and each.since == since for each in devices),
        known=known,
        devices=devices,
    )


def _device_use(use: DeviceUse, device: Device, stay: DevicePeriod, sharers: int) -> IdleDevice:
    facts, windows = use.facts[device], use.windows
    idle = stay.idle_from <= stay.last
    return IdleDevice(
        device=str(device),
        node=facts.node,
        model=facts.model,
        profile=facts.profile,
        share=facts.share / sharers,
        busy=stay.busy,
        most=stay.most,
        since=windows.end_of(stay.idle_from - 1) if idle else None,
        at_least=idle and stay.idle_from == stay.first == 0,
        missing=stay.last - stay.first + 1 - stay.seen,
    )


def _team_use(team: str, pods: Sequence[PodUse]) -> TeamUse:
    gpus = sum((each.gpus for each in pods), Fraction(0))
    weighted = sum(float(each.gpus) * each.busy for each in pods)
    moments = [each.since for each in pods if each.since is not None]
    return TeamUse(
        team=team,
        pods=len(pods),
        gpus=gpus,
        idle=sum((each.idle for each in pods), Fraction(0)),
        busy=weighted / float(gpus) if gpus else 0.0,
        since=min(moments, default=None),
    )
