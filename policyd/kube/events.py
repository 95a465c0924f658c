"""Events of objects, as kubectl shows them.

Fire and forget: recording never waits, never fails, and never slows the caller down. The same
reason for the same object is one Event whose count grows, as writes are the most expensive.
Each object has an allowance, and the queue of Events is bounded; the rest is counted and dropped.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Set
from dataclasses import dataclass
from typing import Literal, NoReturn

import structlog

from policyd.api.meta import Json, ObjectReference, cut, timestamp
from policyd.kube.client import PartialObject, Writer
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.pace import Pace
from policyd.kube.resources import EVENTS

log = structlog.get_logger()

EventKind = Literal["Normal", "Warning"]

MESSAGE_BYTES = 1024
BURST = 25
"""Events of one object at once."""
REFILL_SECONDS = 300.0
"""Until an object may have one more."""
MOST_WAITING = 1000
MOST_REMEMBERED = 4096
LONGEST_REST_SECONDS = 1.0
SAME_EVENT_SECONDS = 600.0
"""An Event that was last seen longer ago is not counted up: a new one is written."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """The key by which two events are the same."""

    about: ObjectReference
    kind: EventKind
    reason: str
    number: int = 0
    """Tells events apart that are not counted together."""


@dataclass(slots=True)
class _Series:
    """One Event object, as it is stored or about to be."""

    first_at: float
    last_at: float
    message: str
    count: int = 0
    name: str = ""
    """Empty until it is written."""


@dataclass(slots=True)
class _Allowance:
    left: float
    at: float


class EventRecorder:
    """Records events; `run` writes them."""

    def __init__(
        self,
        writer: Writer,
        *,
        component: str,
        pace: Pace | None = None,
        apart: Set[str] = frozenset(),
    ) -> None:
        """Write as a component.

        Args:
            writer: The API server.
            component: The reporting component.
            pace: The clock.
            apart: Reasons whose events are not counted in one object, but are one each.
        """
        self._writer = writer
        self._apart = apart
        self._component = component
        self._pace = pace or Pace()
        self._series: OrderedDict[_Subject, _Series] = OrderedDict()
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()
        self._waiting: OrderedDict[_Subject, None] = OrderedDict()
        self._woken = asyncio.Event()
        self._number = 0
        self.left_out = 0
        """How many events were not written: too many, or refused by the server."""

    def record(
        self, about: ObjectReference, *, kind: EventKind = "Normal", reason: str, message: str
    ) -> None:
        """Note that something happened to an object.

        Args:
            about: The object; `uid` and `kind` should be given, so that kubectl finds the event.
            kind: `Warning` if a person has to act on it.
            reason: A CamelCase word for machines.
            message: A sentence for people, cut to 1 KiB.
        """
        now = self._pace.clock.now()
        self._number += reason in self._apart
        subject = _Subject(about, kind, reason, self._number if reason in self._apart else 0)
        if subject not in self._waiting and not self._allowed(about, now):
            self.left_out += 1
            return
        series = self._series.get(subject)
        if series is None or now - series.last_at > SAME_EVENT_SECONDS:
            series = self._series[subject] = _Series(now, now, message)
        series.count += 1
        series.last_at, series.message = now, cut(message, MESSAGE_BYTES, end="...")
        self._series.move_to_end(subject)
        self._waiting[subject] = None
        self._woken.set()

    @property
    def waiting(self) -> int:
        """How many events are recorded and not written."""
        return len(self._waiting)

    async def run(self) -> NoReturn:
        """Write recorded Events, one after the other, until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            await self.flush()

    async def flush(self) -> None:
        """Write all that are queued now.

        A slow server has other things to do first: after each, the recorder rests.
        """
        while self._waiting:
            began = self._pace.clock.monotonic()
            subject, _ = self._waiting.popitem(last=False)
            try:
                await self._write(subject, self._series[subject])
            except ApiError as error:
                self.left_out += 1
                log.debug("event_left_out", reason=subject.reason, error=str(error))
            while len(self._series) > MOST_REMEMBERED:
                self._series.popitem(last=False)
            await self._pace.rest(began, most=LONGEST_REST_SECONDS)

    def _allowed(self, about: ObjectReference, now: float) -> bool:
        if len(self._waiting) >= MOST_WAITING:
            return False
        key = about.uid or f"{about.kind}/{about.namespace}/{about.name}"
        allowance = self._allowances.setdefault(key, _Allowance(float(BURST), now))
        self._allowances.move_to_end(key)
        if len(self._allowances) > MOST_REMEMBERED:
            self._allowances.popitem(last=False)
        earned = max(0.0, now - allowance.at) / REFILL_SECONDS
        allowance.left, allowance.at = min(float(BURST), allowance.left + earned), now
        if allowance.left < 1:
            return False
        allowance.left -= 1
        return True

    async def _write(self, subject: _Subject, series: _Series) -> None:
        namespace = subject.about.namespace or "default"
        if series.name:
            try:
                await self._writer.patch(
                    EVENTS, series.name, _again(series), namespace=namespace, into=PartialObject
                )
            except NotFoundError:
                series.name = ""  # the server keeps events for an hour only
            else:
                return
        self._number += 1
        unique = f"{int(series.first_at * 1e6):x}{self._number:x}"
        series.name = f"{subject.about.name[:200].rstrip('-.')}.{unique}"
        body = self._body(subject, series, namespace)
        await self._writer.create(EVENTS, body, namespace=namespace, into=PartialObject)

    def _body(self, subject: _Subject, series: _Series, namespace: str) -> Json:
        return {
            "metadata": {"name": series.name, "namespace": namespace},
            "involvedObject": subject.about,
            "type": subject.kind,
            "reason": subject.reason,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": timestamp(series.first_at),
            **_again(series),
        }


def _again(series: _Series) -> dict[str, Json]:
    return {
        "count": series.count,
        "lastTimestamp": timestamp(series.last_at),
        "message": series.message,
    }
