"""What jobs are made from, where that is an object of its own: read when it is needed."""

from typing import Any

import structlog

from policyd.controller.writes import Writes
from policyd.jobs.base import J, JobKind
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import Resource

log = structlog.get_logger()

BASIS_SECONDS = 5.0
"""Between looks for an object that a job is made from, and that is not there yet."""


async def on_basis(kind: JobKind[J], job: J, writes: Writes) -> J | None:
    """Return a job with what it is made from; None, and an event, if that is not there.

    Raises:
        ApiError: If the API server cannot be asked.
    """
    basis = kind.basis(job)
    if basis is None:
        return job
    resource = Resource(
        basis.group, basis.version, basis.plural, basis.kind, namespaced=basis.namespaced
    )
    namespace = job.metadata.namespace
    try:
        found = await writes.client.get(
            resource, basis.name, namespace=namespace, into=dict[str, Any]
        )
    except NotFoundError:
        about = Resource(kind.group, kind.version, kind.plural, kind.kind)
        message = f'{basis.kind} "{basis.name}" not found'
        writes.tell(about, job.metadata, f"{basis.kind}NotFound", message, bad=True)
        log.warning("basis_missing", job=job.metadata.key, basis=basis.name)
        return None
    return kind.on_basis(job, found)
