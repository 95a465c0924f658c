"""The record of hours as it is stored: compressed, and never larger than a ConfigMap may be."""

import zlib
from typing import Final, NamedTuple

import msgspec

from policyd.alloc.value import Value
from policyd.errors import PolicydError
from policyd.usage.record import HoursRecord, OpenUse, UseKey

FORMAT: Final = 1
MOST_BYTES: Final = 700_000
"""A ConfigMap has a mebibyte, and base64 makes four thirds of this."""
MOST_UNPACKED: Final = 64 * 1024 * 1024
MOST_HELD: Final = 20_000
"""Workloads that hold quota whose charges are stored."""

_Seconds = dict[int, int]


class HoursDamagedError(PolicydError):
    """A stored record cannot be read."""


class _Stored(Value, frozen=True):
    """The record. Keys are in a list, and named by their place in it."""

    format: int
    since: int
    at: int
    whole: bool
    keys: list[UseKey]
    used: list[_Seconds]
    quotas: list[tuple[str, str, tuple[_Seconds, _Seconds, _Seconds]]]
    unknown: dict[str, _Seconds]
    held: dict[str, tuple[str, dict[int, int]]]


class UnpackedHours(NamedTuple):
    """A record that was stored.

    Attributes:
        record: The record.
        whole: Whether all that held quota then is in it.
    """

    record: HoursRecord
    whole: bool


def pack(record: HoursRecord, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return a record as it is stored; the oldest month is left out where it is too much.

    Args:
        record: Charged up to when it is stored. Months that are left out are gone from it, too.
        most_bytes: How large it may be.
    """
    while True:
        body = zlib.compress(msgspec.msgpack.encode(_stored(record)))
        months = record.months()
        if len(body) <= most_bytes or len(months) < 2:
            return body
        record.forget(months[1])


def unpack(body: bytes) -> UnpackedHours:
    """Return a record that was stored.

    Raises:
        HoursDamagedError: If it cannot be read, or not by this version.
    """
    try:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(body, MOST_UNPACKED)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise HoursDamagedError("it is damaged: it is too long, or not complete")
        found = msgspec.msgpack.decode(plain, type=_Stored)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HoursDamagedError(f"it is damaged: {error}") from error
    if found.format != FORMAT:
        raise HoursDamagedError(f"it has format {found.format}, and this version has {FORMAT}")
    keys = found.keys
    used = [number for _, amounts in found.held.values() for number in amounts]
    if len(keys) != len(found.used) or not all(0 <= number < len(keys) for number in used):
        raise HoursDamagedError("it is damaged: a workload has a key that is not there")
    record = HoursRecord(found.since)
    record.restore(
        at=found.at,
        used=dict(zip(keys, found.used, strict=True)),
        quotas={(queue, flavor): parts for queue, flavor, parts in found.quotas},
        unknown=found.unknown,
        held={
            uid: OpenUse(queue, {keys[number]: parts for number, parts in amounts.items()})
            for uid, (queue, amounts) in found.held.items()
        },
    )
    return UnpackedHours(record=record, whole=found.whole)


def _stored(record: HoursRecord) -> _Stored:
    numbers = {key: number for number, key in enumerate(record.used)}
    held = [*record.held.items()]
    return _Stored(
        format=FORMAT,
        since=record.since,
        at=record.at,
        whole=len(held) <= MOST_HELD,
        keys=[*record.used],
        used=[*record.used.values()],
        quotas=[(*place, parts) for place, parts in record.quotas.items()],
        unknown=record.unknown,
        held={
            uid: (use.queue, {numbers[key]: parts for key, parts in use.amounts.items()})
            for uid, use in held[:MOST_HELD]
        },
    )
