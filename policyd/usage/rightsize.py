"""Suggestions for pods that have more of a GPU than they use, each with its evidence.

A profile of MIG is suggested only where some node has it, free, and where a ClusterQueue gives
quota for it: a suggestion that cannot be followed is none.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from policyd.alloc.value import Value
from policyd.optimize.mig import MIG, Profile, profile_of
from policyd.usage.devices import Device, DevicePeriod, DeviceUse, Pod

LEAST_SECONDS: Final = 3_600
"""For how long a pod must have been seen: before, it may still be reading its data."""
LEAST_SEEN: Final = 0.9
"""Of the windows since it came, those that must have samples."""
MEBIBYTES_OF_GIGABYTE: Final = 1_000_000_000 / 2**20
"""Names of profiles count gigabytes, the exporter MiB. So many are the least that a profile has."""

Kind = Literal["fewer", "profile", "keep", "unknown"]


class ProfileRoom(NamedTuple):
    """Devices of a profile that exist.

    Attributes:
        resource: Such as `nvidia.com/mig-1g.10gb`.
        product: The model of the GPUs that are cut up so.
        total: How many nodes have.
        free: How many of them no pod requests.
        node: The node with the most free ones.
        queues: The ClusterQueues and flavors that give quota for it, as `queue/flavor`.
    """

    resource: str
    product: str
    total: int
    free: int
    node: str
    queues: tuple[str, ...]


class Suggestion(Value, frozen=True, rename="camel"):
    """A pod with the use of its devices, and what would do for it.

    Attributes:
        team: Its namespace.
        devices: How many it has.
        unused: How many of these were idle all the time.
        most: The largest share of time in which one was busy, from 0 to 1.
        busy: The mean of these shares.
        memory: The most memory that was used of one, in MiB; None if that is not known.
        memory_total: The memory of one, in MiB; None if that is not known.
        seconds: For how long the pod was seen.
        kind: What is suggested.
        suggestion: That as a sentence; for `unknown`, why nothing is.
        evidence: The measurements behind it, as a sentence.
        freed: How many GPUs would be free.
    """

    team: str
    pod: str
    devices: int
    unused: int
    most: float
    busy: float
    memory: float | None
    memory_total: float | None
    seconds: float
    kind: Kind
    suggestion: str
    evidence: str
    freed: Fraction = Fraction(0)


class Margins(NamedTuple):
    """What a suggestion leaves to a pod beyond what it used.

    Attributes:
        headroom: A share of what was used, such as 0.2.
        threshold: A device was used if it was busy for more than this share of time.
    """

    headroom: float
    threshold: float


def suggestions(
    use: DeviceUse, profiles: Sequence[ProfileRoom] | None, needs: Margins
) -> list[Suggestion]:
    """Return the pods that have GPUs, those with the most to free first.

    Args:
        use: Of all devices.
        profiles: The profiles that exist; None if that is not known.
        needs: What is left to pods.
    """
    pods: dict[Pod, list[tuple[Device, DevicePeriod]]] = {}
    for device, pod, stay in use.present():
        pods.setdefault(pod._replace(container=""), []).append((device, stay))
    found = [_of_pod(use, pod, own, profiles, needs) for pod, own in pods.items()]
    return sorted(found, key=lambda each: (-each.freed, each.team, each.pod))


def _of_pod(
    use: DeviceUse,
    pod: Pod,
    own: Sequence[tuple[Device, DevicePeriod]],
    profiles: Sequence[ProfileRoom] | None,
    needs: Margins,
) -> Suggestion:
    stays = [stay for _, stay in own]
    used = [stay for stay in stays if stay.most > needs.threshold]
    memories = [each.memory for each in stays if each.memory is not None]
    totals = [each.memory_total for each in stays if each.memory_total is not None]
    windows = min(stay.last - stay.first + 1 for stay in stays)
    seen = sum(stay.seen for stay in stays) / sum(each.last - each.first + 1 for each in stays)
    base = Suggestion(
        team=pod.namespace,
        pod=pod.name,
        devices=len(stays),
        unused=len(stays) - len(used),
        most=max(stay.most for stay in stays),
        busy=sum(stay.busy for stay in stays) / len(stays),
        memory=max(memories) if len(memories) == len(stays) else None,
        memory_total=max(totals, default=None),
        seconds=windows * float(use.windows.seconds),
        kind="keep",
        suggestion="",
        evidence="",
    )
    kind, sentence, freed = _unclear(base, seen) or _suggested(use, base, own, profiles, needs)
    return _suggestion(base, kind, sentence, freed)


_Choice = tuple[Kind, str, Fraction]
_NOTHING: Final = Fraction(0)


def _unclear(found: Suggestion, seen: float) -> _Choice | None:
    """Say why nothing can be suggested; None if something can."""
    if found.seconds < LEAST_SECONDS:
        return "unknown", f"seen for {found.seconds / 60:.0f} minutes only", _NOTHING
    if seen < LEAST_SEEN:
        return "unknown", f"samples of {seen:.0%} of its time only", _NOTHING
    return None


def _suggested(
    use: DeviceUse,
    found: Suggestion,
    own: Sequence[tuple[Device, DevicePeriod]],
    profiles: Sequence[ProfileRoom] | None,
    needs: Margins,
) -> _Choice:
    if found.unused:
        idle = (use.facts[d].share for d, stay in own if stay.most <= needs.threshold)
        left = found.devices - found.unused
        count = f"{left} instead of {found.devices}" if left else "none: all were idle"
        return "fewer", f"request {count}", sum(idle, _NOTHING)
    facts = use.facts[own[0][0]]
    if found.devices > 1 or facts.profile:
        return "keep", "its devices were all in use", _NOTHING
    if profiles is None:
        return "unknown", "it is not known which MIG profiles exist", _NOTHING
    if found.memory is None:
        return "unknown", "its use of memory is not known", _NOTHING
    return _smallest(facts.model, found, found.memory, profiles, needs)


def _smallest(
    model: str, found: Suggestion, memory: float, profiles: Sequence[ProfileRoom], needs: Margins
) -> _Choice:
    """Return the smallest profile that exists, has room and would do."""
    memory_needed, share_needed = memory * (1 + needs.headroom), found.most * (1 + needs.headroom)
    fitting: list[tuple[Fraction, ProfileRoom]] = []
    full: list[ProfileRoom] = []
    for room in profiles:
        profile = profile_of(room.resource, room.product or model)
        if profile is None or not _does(profile, memory_needed, share_needed):
            continue
        if room.free and room.queues:
            fitting.append((profile.share, room))
        else:
            full.append(room)
    if fitting:
        share, room = min(fitting, key=lambda pair: (pair[0], pair[1].resource))
        where = f"{room.free} of {room.total} are free, most on {room.node}; {room.queues[0]}"
        sentence = f"request 1 {room.resource} ({where} gives quota for it)"
        return "profile", sentence, 1 - share
    if full:
        room = min(full, key=lambda each: each.resource)
        shortfall = "no queue gives quota for it" if room.free else f"all {room.total} are in use"
        return "keep", f"{room.resource} would do, but {shortfall}", _NOTHING
    return "keep", "no profile that exists here would do", _NOTHING


def _does(profile: Profile, memory: float, share: float) -> bool:
    enough = profile.gigabytes * MEBIBYTES_OF_GIGABYTE
    return profile.share < 1 and memory <= enough and share <= float(profile.share)


def _suggestion(found: Suggestion, kind: Kind, sentence: str, freed: Fraction) -> Suggestion:
    memory = "memory not known"
    if found.memory is not None and found.memory_total:
        memory = f"at most {found.memory:.0f} of {found.memory_total:.0f} MiB used"
    idle = f", {found.unused} of {found.devices} devices never" if found.unused else ""
    evidence = (
        f"in {found.seconds / 3_600:.1f} h: busy {found.busy:.0%} of the time, at most"
        f" {found.most:.0%}{idle}; {memory}"
    )
    return replace(found, kind=kind, suggestion=sentence, evidence=evidence, freed=freed)


def profile_rooms(
    nodes: Iterable[tuple[str, str, Mapping[str, int], Mapping[str, int]]],
    quotas: Mapping[str, Sequence[str]],
) -> list[ProfileRoom]:
    """Return the profiles that nodes have, and which queues give quota for them.

    Args:
        nodes: Name, product, allocatable and free resources of each.
        quotas: `queue/flavor` of those that give quota, by resource.
    """
    found: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
    for name, product, allocatable, free in nodes:
        for resource, total in allocatable.items():
            if resource.startswith(MIG) and total > 0:
                left = max(0, free.get(resource, 0))
                found.setdefault((resource, product), []).append((left, total, name))
    return [
        ProfileRoom(
            resource=resource,
            product=product,
            total=sum(total for _, total, _ in own),
            free=sum(left for left, _, _ in own),
            node=max(own, key=lambda each: (each[0], each[2]))[2],
            queues=tuple(sorted(quotas.get(resource, ()))),
        )
        for (resource, product), own in sorted(found.items())
    ]
