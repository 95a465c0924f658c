"""Objects that jobs are made from, such as the runtime of a TrainJob: read when needed."""

from typing import Any

import structlog

from policyd.api.meta import Json
from policyd.controller.watch.mirrors import job_resource
from policyd.controller.writes import Writes
from policyd.jobs.base import Basis, J, JobKind, SizeError
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import Resource

log = structlog.get_logger()

BASIS_SECONDS = 5.0
"""Between looks for an object that a job is made from, and that is not there yet."""
SIZE_SECONDS = 30.0
"""Between reads of the object that sets a job's size; if it is watched, changes come at once."""


async def on_basis(kind: JobKind[J], job: J, writes: Writes) -> J | None:
    """Return a job with the object it is made from; None, and an event, if that does not exist.

    Raises:
        ApiError: If the API server cannot be asked.
    """
    basis = kind.basis(job)
    if basis is None:
        return job
    found = await read_basis(basis, job.metadata.namespace, writes)
    if found is None:
        message = f'{basis.kind} "{basis.name}" not found'
        writes.record(
            job_resource(kind), job.metadata, f"{basis.kind}NotFound", message, warning=True
        )
        log.warning("basis_missing", job=job.metadata.key, basis=basis.name)
        return None
    return kind.on_basis(job, found)


async def as_it_runs(kind: JobKind[J], job: J, writes: Writes) -> J | None:
    """Return an elastic job with as many pods as the object that runs for it has.

    Returns:
        The unchanged job, if nothing runs, or if it states its own number of pods; None, and an
        event, if the running object has pods that the job does not know.

    Raises:
        ApiError: If the API server cannot be asked.
    """
    assert kind.elastic is not None, "this job may grow"
    basis = kind.elastic.sized_by(job)
    found = None
    if basis is not None:
        found = await read_basis(basis, job.metadata.namespace, writes)
    if found is None:
        return job
    try:
        return kind.elastic.sized(job, found)
    except SizeError as error:
        writes.record(job_resource(kind), job.metadata, "UnknownPods", str(error), warning=True)
        log.warning("size_unknown", job=job.metadata.key, error=str(error))
        return None


async def read_basis(basis: Basis, namespace: str, writes: Writes) -> Json | None:
    """Return an object that jobs of a namespace are made from; None if it does not exist.

    Raises:
        ApiError: If the API server cannot be asked.
    """
    resource = Resource(
        basis.group, basis.version, basis.plural, basis.kind, namespaced=basis.namespaced
    )
    try:
        return await writes.client.get(
            resource, basis.name, namespace=namespace, into=dict[str, Any]
        )
    except NotFoundError:
        return None
