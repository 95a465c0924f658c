"""What forecasts remember, as it is stored: small enough for one object of the API server.

Workloads have no names in it. Owners and stems are in it as far as they are in the traits.
"""

import gzip
import zlib
from collections.abc import Generator, Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from policyd.alloc.value import Value
from policyd.alloc.workload import QueuedWorkload
from policyd.forecast.arrivals import PastArrival
from policyd.forecast.run_times import STEPS, GroupRecord, JobTraits
from policyd.forecast.starts import Forecaster

FORMAT: Final = 1
MOST_BYTES: Final = 600_000
"""Compressed. An object has at most a megabyte, and base64 takes a third more."""
_STEP = 100
_PIECE, _GZIP = 65_536, 31


class MemoryDamagedError(Exception):
    """What was stored cannot be read, or not by this version."""


class StoredGroup(Value, frozen=True, array_like=True):
    """A life table without its zeros: steps and amounts, one after the other."""

    names: tuple[str, ...]
    faded_at: float
    ended: tuple[float, ...]
    stopped: tuple[float, ...]


class StoredKind(Value, frozen=True, array_like=True):
    """Workloads that came and are alike."""

    traits: JobTraits
    workload: QueuedWorkload


class ForecastMemory(Value, frozen=True):
    """All that forecasts remember.

    Attributes:
        format: How this is to be read.
        at: When it was stored, in seconds since the epoch.
        since: From when on arrivals are remembered.
        groups: Run times; the group not heard of for longest is the first.
        kinds: Table of workloads that came.
        arrivals: When each came, the first first, and its index in that table.
        outcomes: How earlier forecasts turned out, by class of size.
    """

    at: float
    format: int = FORMAT
    since: float = 0.0
    groups: tuple[StoredGroup, ...] = ()
    kinds: tuple[StoredKind, ...] = ()
    arrivals: tuple[tuple[float, int], ...] = ()
    outcomes: dict[str, tuple[tuple[float, float, float], ...]] = {}


def remembered(of: Forecaster, *, at: float) -> Generator[None, None, ForecastMemory]:
    """Return what is remembered.

    Args:
        of: Left as it is; it may learn between the steps.
        at: The time, in seconds since the epoch.

    Yields:
        Nothing, after each step.
    """
    groups = []
    for number, record in enumerate(list(of.run_times.records())):
        ended, stopped = _sparse(record.ended), _sparse(record.stopped)
        groups.append(StoredGroup(record.names, round(record.faded_at), ended, stopped))
        if not number % _STEP:
            yield
    kinds: list[StoredKind] = []
    index: dict[bytes, int] = {}
    arrivals = []
    for number, past in enumerate(of.arrivals.past()):
        kind = StoredKind(past.traits, past.workload)
        place = index.setdefault(msgspec.json.encode(kind), len(kinds))
        if place == len(kinds):
            kinds.append(kind)
        arrivals.append((round(past.at, 1), place))
        if not number % _STEP:
            yield
    return ForecastMemory(
        at=at,
        since=of.arrivals.since,
        groups=tuple(groups),
        kinds=tuple(kinds),
        arrivals=tuple(arrivals),
        outcomes={name: tuple(each) for name, each in of.correction.records().items()},
    )


def pack(memory: ForecastMemory, *, most_bytes: int = MOST_BYTES) -> Generator[None, None, bytes]:
    """Return the memory as it is stored; what is oldest is left out where it is too much.

    Yields:
        Nothing, after each step.
    """
    while True:
        plain, packer, parts = (
            msgspec.json.encode(memory),
            zlib.compressobj(wbits=_GZIP),
            list[bytes](),
        )
        for start in range(0, len(plain), _PIECE):
            yield
            parts.append(packer.compress(plain[start : start + _PIECE]))
        body = b"".join([*parts, packer.flush()])
        if len(body) <= most_bytes or not (memory.groups or memory.arrivals):
            return body
        memory = _newer_half(memory)


def unpack(body: bytes, *, names: bool = True) -> ForecastMemory:
    """Return the memory that was stored.

    Args:
        body: As `pack` returned it.
        names: Whether owners and stems may be remembered.

    Raises:
        MemoryDamagedError: If it cannot be read, or not by this version.
    """
    try:
        found = msgspec.json.decode(gzip.decompress(body), type=ForecastMemory)
    except (OSError, EOFError, zlib.error, msgspec.MsgspecError) as error:
        raise MemoryDamagedError(f"it is damaged: {error}") from error
    if found.format != FORMAT:
        raise MemoryDamagedError(f"it has format {found.format}, and this version has {FORMAT}")
    if any(not 0 <= kind < len(found.kinds) for _, kind in found.arrivals):
        raise MemoryDamagedError("an arrival names a kind that is not there")
    if names:
        return found
    return replace(
        found,
        groups=tuple(each for each in found.groups if each.names[:1] in _NAMELESS),
        kinds=tuple(replace(each, traits=nameless(each.traits)) for each in found.kinds),
    )


_NAMELESS: Final = ((), ("shape",), ("queue",))
"""How the names of groups begin in which no owner and no stem is."""


def nameless(traits: JobTraits) -> JobTraits:
    """Return traits without owner and stem."""
    return replace(traits, owner="", stem="")


def restore(into: Forecaster, memory: ForecastMemory) -> None:
    """Remember what was stored; nothing may be remembered yet."""
    into.run_times.restore(
        GroupRecord(
            names=each.names,
            faded_at=each.faded_at,
            ended=_dense(each.ended),
            stopped=_dense(each.stopped),
        )
        for each in memory.groups
    )
    kinds = memory.kinds
    past = (
        PastArrival(at=at, workload=kinds[kind].workload, traits=kinds[kind].traits)
        for at, kind in memory.arrivals
    )
    into.arrivals.restore(past, since=memory.since)
    into.correction.restore(memory.outcomes)


def _newer_half(memory: ForecastMemory) -> ForecastMemory:
    groups = memory.groups[(len(memory.groups) + 1) // 2 :]
    arrivals = memory.arrivals[(len(memory.arrivals) + 1) // 2 :]
    used = {kind: number for number, kind in enumerate(dict.fromkeys(k for _, k in arrivals))}
    return replace(
        memory,
        groups=groups,
        kinds=tuple(memory.kinds[kind] for kind in used),
        arrivals=tuple((at, used[kind]) for at, kind in arrivals),
        since=arrivals[0][0] if arrivals else memory.at,
    )


def _sparse(amounts: Iterable[float]) -> tuple[float, ...]:
    pairs = ((step, round(n, 3)) for step, n in enumerate(amounts) if n >= 0.001)
    return tuple(each for pair in pairs for each in pair)


def _dense(pairs: tuple[float, ...]) -> tuple[float, ...]:
    amounts = [0.0] * STEPS
    for step, amount in zip(pairs[::2], pairs[1::2], strict=True):
        amounts[min(STEPS - 1, max(0, int(step)))] += amount
    return tuple(amounts)
