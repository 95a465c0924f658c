"""Objects that jobs are made from, such as the runtimes of TrainJobs, as the webhooks get them.

The webhooks know the pods of such a job by them alone. Those that most jobs name are read again and
again while the webhooks ask for snapshots.
"""

from collections import Counter
from collections.abc import Generator
from typing import Any, Final, NoReturn

import msgspec

from policyd.api.meta import Json
from policyd.controller.jobs.bases import read_basis
from policyd.controller.watch.cache import Cache
from policyd.controller.writes import Writes
from policyd.jobs.base import Basis, JobKind, JobObject
from policyd.jobs.kinds.registry import KINDS
from policyd.kube.errors import ApiError
from policyd.kube.steps import Steps
from policyd.kube.unforeseen import log_unforeseen
from policyd.snapshot.taking import STEP

REFRESH_SECONDS: Final = 10.0
"""Between two reads."""
MOST: Final = 20
"""Objects that are read."""
MOST_BYTES: Final = 8_192
"""Of the part of an object that is sent, as JSON; larger ones are left out."""

Named = tuple[str, Basis, str]
"""A kind of job, the object that one is made from, and the namespace of that or ""."""


class Bases:
    """Reads the objects that jobs are made from."""

    def __init__(self, cache: Cache, writes: Writes) -> None:
        self._cache, self._writes, self._pace = cache, writes, writes.pace
        self._kinds: dict[str, JobKind[Any]] = {kind.kind: kind for kind in KINDS if kind.made}

    async def run(self) -> NoReturn:
        """Read them until cancelled."""
        while True:
            if self._cache.new_starts.wanted(self._pace.clock.monotonic()):
                with log_unforeseen("bases_error"):
                    await self.refresh()
            await self._pace.sleep(REFRESH_SECONDS)

    async def refresh(self) -> None:
        """Read those that most jobs name."""
        named = await Steps(self._pace).run(self._named())
        found: dict[str, Json] = {}
        for (kind, basis, namespace), _ in named.most_common(MOST):
            part = await self._read(self._kinds[kind], basis, namespace)
            if part is not None:
                found[basis.key(namespace)] = part
        self._cache.new_starts.put_bases(found)

    def _named(self) -> Generator[None, None, "Counter[Named]"]:
        """Count how many jobs are made from each, step by step."""
        named: Counter[Named] = Counter()
        for kind in self._kinds.values():
            mirror = self._cache.mirrors.jobs.get(kind.kind)
            for number, job in enumerate(list(mirror or ()), start=1):
                basis = kind.basis(job) if isinstance(job, kind.type) else None
                if basis is not None:
                    space = job.metadata.namespace if basis.namespaced else ""
                    named[kind.kind, basis, space] += 1
                if not number % STEP:
                    yield
        return named

    async def _read(self, kind: JobKind[JobObject], basis: Basis, namespace: str) -> Json | None:
        """Return the part of an object that pods depend on; None if there is none to be had."""
        try:
            found = await read_basis(basis, namespace, self._writes)
            if found is None or kind.made is None:
                return None
            part = kind.made(found)
        except (ApiError, msgspec.ValidationError, AttributeError, TypeError):
            return None  # jobs that are made from it say why they wait
        return part if len(msgspec.json.encode(part)) <= MOST_BYTES else None
