"""Judge many requests by policies, on all cores: for the impact of a roll-out.

Requests are judged here at first; if that takes longer, in processes that load the same policies.
The verdicts come in the order of the requests.
"""

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Final, Self

import msgspec

from policyd.admission.in_turn import decided_together
from policyd.api.admission import AdmissionRequest, Operation
from policyd.api.makers import Makers
from policyd.api.meta import Json
from policyd.cli.formats.documents import load_texts
from policyd.cli.policies.request_options import Labels, NamespaceOptions
from policyd.clock import SystemClock
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.evaluate.policy_set import PHASES, PolicySet
from policyd.engine.offline.audit_log import Gone, LoggedRequest
from policyd.engine.offline.impact import RequestVerdict, judge, reads_old_object
from policyd.engine.offline.requests import BELIEVING, namespace_lookup, offline_set
from policyd.engine.offline.scan import why_left_out
from policyd.errors import PolicydError
from policyd.jobs.kinds.registry import KINDS

ALONE_SECONDS: Final = 2.0
"""How long requests are judged in this process before others are started: that takes a second."""

_BATCH: Final = 200
_BATCH_BYTES: Final = 4 * 1024 * 1024
_JOBS: Final = frozenset((kind.group, kind.plural) for kind in KINDS) | {("", "pods")}
_QUEUES: Final = "kueue.x-k8s.io"

Named = tuple[tuple[str, bytes], ...]
"""Contents of files with their names."""

JudgedEntry = tuple[LoggedRequest, RequestVerdict] | Gone
"""A request with its verdict, or what is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What each process needs to judge.

    Attributes:
        policies: The new policies.
        against: The old policies; None if there are none.
        objects: Namespaces, params, and definitions of kinds.
        given: The options for namespaces.
        of_cluster: Whether the namespaces are all that the cluster has.
        queue: Whether the rules of queues count, too.
        existing: Whether the objects exist, so that policies that read the user are left out.
        left_out: The ids of policies that cannot be evaluated.
        as_written: Whether Kyverno's policies see objects without defaults.
    """

    policies: Named
    against: Named | None = None
    objects: tuple[Json, ...] = ()
    given: NamespaceOptions
    of_cluster: bool = False
    queue: bool = False
    existing: bool = False
    left_out: frozenset[str] = frozenset()
    as_written: bool = False


@dataclass(frozen=True, slots=True)
class _Batch:
    requests: Sequence[AdmissionRequest]
    namespaces: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class _Judged:
    verdicts: Sequence[RequestVerdict]
    findings: Sequence[Finding]


class Judge:
    """Judges requests in one process."""

    def __init__(self, setup: Setup, loaded: Loaded | None = None) -> None:
        """Load the policies, unless that was done before."""
        self.loaded = loaded or load_texts(setup.policies)
        """The new policies."""
        self.old_loaded = None if setup.against is None else load_texts(setup.against)
        """The old policies."""
        self._setup = setup
        self._labels = Labels(setup.objects, setup.given, of_cluster=setup.of_cluster)
        self._find = self._labels.lookup
        self._known: Mapping[str, Json] = {}
        self._of_log = self._find
        self._noted = 0
        self.new = self._set(self.loaded)
        self.old = None if self.old_loaded is None else self._set(self.old_loaded)
        self._decide = decided_together if setup.queue else PolicySet.review

    def _set(self, loaded: Loaded) -> PolicySet:
        setup = self._setup
        policies = (policy for policy in loaded.policies if policy.id not in setup.left_out)
        if setup.existing:
            policies = (each for each in policies if each.background and not why_left_out(each))
        return offline_set(
            replace(loaded, policies=tuple(policies)),
            self.namespace,
            objects=setup.objects,
            now=SystemClock().now,
            makers=BELIEVING if setup.existing else Makers(),
            as_written=setup.as_written,
        )

    def namespace(self, name: str) -> Mapping[str, Json] | None:
        """Return a Namespace; None if it is not known."""
        return (self._find if name not in self._known else self._of_log)(name)

    def concerns(self, request: AdmissionRequest) -> bool:
        """Tell whether something decides on requests for a resource and operation."""
        if self._setup.queue and _of_queues(request):
            return True
        sets = (self.new,) if self.old is None else (self.new, self.old)
        return any(policies.concerned(request, phase) for policies in sets for phase in PHASES)

    def operations(self, request: AdmissionRequest) -> tuple[Operation, ...]:
        """Return the operations by which an existing object is judged.

        It is taken as if it were created now; for policies that concern updates only, as if it
        were sent again unchanged.
        """
        created = self._concerned(request, "CREATE")
        updated = self._concerned(request, "UPDATE") - created
        names: tuple[Operation, ...] = ("CREATE",) if created else ()
        return (*names, "UPDATE") if updated else names

    def _concerned(self, request: AdmissionRequest, operation: Operation) -> set[str]:
        asked = msgspec.structs.replace(request, operation=operation)
        return {policy.id for phase in PHASES for policy in self.new.concerned(asked, phase)}

    def reads_old(self, request: AdmissionRequest) -> bool:
        """Tell whether that reads the object before the change."""
        if self._setup.queue and _of_queues(request):
            return True
        sets = (self.new,) if self.old is None else (self.new, self.old)
        return any(reads_old_object(policies, request) for policies in sets)

    def judge(self, batch: _Batch) -> _Judged:
        """Return a verdict for each request, and what is newly unknown of namespaces."""
        if batch.namespaces is not self._known:
            self._known = batch.namespaces
            self._of_log = namespace_lookup(batch.namespaces.values(), {})
        verdicts = []
        for request in batch.requests:
            if request.namespace not in self._known:
                self._labels.note(self.new, request)
                if self.old is not None:
                    self._labels.note(self.old, request)
            verdicts.append(judge(request, self.new, self.old, self._decide))
        findings = list(self._labels.findings)
        new, self._noted = findings[self._noted :], len(findings)
        return _Judged(verdicts, new)


def _of_queues(request: AdmissionRequest) -> bool:
    resource = request.resource
    return not request.sub_resource and (
        resource.group == _QUEUES or (resource.group, resource.resource) in _JOBS
    )


@dataclass(slots=True)
class Judging:
    """Judges a stream of requests.

    Attributes:
        setup: What processes need.
        judge: The judge of this process.
        workers: How many processes there may be.
        namespaces: Returns the namespaces that the stream has had so far.
        findings: What is unknown of namespaces.
    """

    setup: Setup
    judge: Judge
    workers: int
    namespaces: Callable[[], Mapping[str, Json]] = dict
    findings: dict[Finding, None] = field(default_factory=dict)

    def verdicts(self, stream: Iterable[LoggedRequest | Gone]) -> Iterator[JudgedEntry]:
        """Yield each request with its verdict, and what is gone, in their order.

        Raises:
            PolicydError: If a process was killed.
        """
        with JudgingRun(self) as run:
            for entry in stream:
                yield from run.take(entry)
            yield from run.rest()


class JudgingRun:
    """One run of a judging: it takes requests one by one, where no stream has them.

    As a context manager, it ends the processes.
    """

    def __init__(self, judging: Judging) -> None:
        """Begin with no request."""
        self._judging = judging
        self._pool: ProcessPoolExecutor | None = None
        self._alone_seconds = 0.0
        self._waiting: deque[tuple[list[LoggedRequest | Gone], Future[_Judged]]] = deque()
        self._closing = ExitStack()
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._entries: list[LoggedRequest | Gone] = []
        self._requests: list[AdmissionRequest] = []
        self._namespaces: dict[str, Json] = {}
        self._length = 0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes; what they have not begun is dropped."""
        self._closing.close()

    def take(self, entry: LoggedRequest | Gone) -> Iterator[JudgedEntry]:
        """Take an entry, and yield those that are judged by now.

        Raises:
            PolicydError: If a process was killed.
        """
        if isinstance(entry, LoggedRequest):
            name = entry.request.namespace
            known = self._judging.namespaces().get(name)
            if name in self._namespaces and self._namespaces[name] is not known:
                yield from self._judged()
            if known is not None:
                self._namespaces[name] = known
            self._requests.append(entry.request)
            self._length += len(entry.request.object) + len(entry.request.old_object)
        self._entries.append(entry)
        if (
            len(self._requests) >= _BATCH
            or self._length > _BATCH_BYTES
            or len(self._entries) > _MOST_ENTRIES
        ):
            yield from self._judged()

    def rest(self) -> Iterator[JudgedEntry]:
        """Yield the entries that are not judged yet.

        Raises:
            PolicydError: If a process was killed.
        """
        if self._entries:
            yield from self._judged()
        while self._waiting:
            yield from self._first()

    def _judged(self) -> Iterator[JudgedEntry]:
        """Judge the entries so far, or have them judged, with the namespaces as they are now."""
        judging, entries = self._judging, self._entries
        batch = _Batch(self._requests, self._namespaces)
        self._begin_batch()
        if self._pool is None:
            if judging.workers <= 1 or self._alone_seconds < ALONE_SECONDS:
                clock = SystemClock()
                started = clock.monotonic()
                judged = judging.judge.judge(batch)
                self._alone_seconds += clock.monotonic() - started
                yield from self._taken(entries, judged)
                return
            self._pool = ProcessPoolExecutor(
                judging.workers, get_context("spawn"), _begin, (judging.setup,)
            )
            self._closing.callback(self._pool.shutdown, wait=True, cancel_futures=True)
        self._waiting.append((entries, _submitted(self._pool, batch)))
        if len(self._waiting) > 2 * judging.workers:
            yield from self._first()

    def _first(self) -> Iterator[JudgedEntry]:
        entries, future = self._waiting.popleft()
        return self._taken(entries, _result(future))

    def _taken(
        self, entries: Iterable[LoggedRequest | Gone], judged: _Judged
    ) -> Iterator[JudgedEntry]:
        self._judging.findings |= dict.fromkeys(judged.findings)
        verdicts = iter(judged.verdicts)
        for entry in entries:
            yield entry if isinstance(entry, Gone) else (entry, next(verdicts))


_MOST_ENTRIES: Final = 10_000
_JUDGES: list[Judge] = []
"""That of a process."""


def _begin(setup: Setup) -> None:
    # Ctrl-C signals all processes of a terminal; the one that started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _JUDGES[:] = [Judge(setup)]


def _judged(batch: _Batch) -> _Judged:
    (judge_here,) = _JUDGES
    return judge_here.judge(batch)


def _submitted(pool: ProcessPoolExecutor, batch: _Batch) -> Future[_Judged]:
    try:
        return pool.submit(_judged, batch)
    except BrokenProcessPool as error:
        raise _killed() from error


def _result(future: Future[_Judged]) -> _Judged:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise _killed() from error


def _killed() -> PolicydError:
    hint = "it may have run out of memory: try --workers 1"
    return PolicydError("a process that judges requests was killed", hint=hint)
