"""Objects by the names that users give: what a word means, and what there is if none is found."""

from collections.abc import Mapping
from typing import Final, TypeVar

from policyd.errors import PolicydError, did_you_mean
from policyd.kube.client import PartialObject, Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, Resource
from policyd.questions.unqueued_jobs import JobNotFoundError, kind_of

T = TypeVar("T")

QUEUES: Mapping[str, Resource] = {"ClusterQueue": CLUSTER_QUEUES, "LocalQueue": LOCAL_QUEUES}
_SHORT: Mapping[str, str] = {"cq": "clusterqueue", "lq": "localqueue"}
_SHOWN: Final = 10
"""Names that a hint lists."""


class UnknownNameError(PolicydError):
    """There is nothing of a name that a user has given."""


def queue_or_job_kind(word: str) -> str:
    """Return the kind that a word means: of a queue, or of a job that can be in one.

    Raises:
        JobNotFoundError: If it is no such kind.
    """
    asked, _, group = word.lower().partition(".")
    asked = _SHORT.get(asked, asked)
    for kind, resource in QUEUES.items():
        if asked in {kind.lower(), resource.plural} and group in {"", resource.group}:
            return kind
    try:
        return kind_of(word)
    except JobNotFoundError as error:
        near = did_you_mean(asked, map(str.lower, QUEUES))
        raise JobNotFoundError(
            f"`{word}` is not a kind of queue or job", hint=near or error.hint
        ) from error


async def named(
    reader: Reader, resource: Resource, name: str, *, into: type[T], namespace: str = ""
) -> T:
    """Return an object.

    Raises:
        UnknownNameError: If there is none; the hint has what there is.
        ApiError: If the API server refuses, or does not answer.
    """
    try:
        return await reader.get(resource, name, into=into, namespace=namespace)
    except NotFoundError as error:
        where = f" in namespace {namespace}" if resource.namespaced else ""
        raise UnknownNameError(
            f"there is no {resource.kind} `{name}`{where}",
            hint=await _what_there_is(reader, resource, name, namespace),
        ) from error


async def _what_there_is(
    reader: Reader, resource: Resource, name: str, namespace: str
) -> str | None:
    try:
        page = await reader.page(resource, into=PartialObject, namespace=namespace)
    except (ForbiddenError, NotFoundError):
        return None
    names = sorted(each.metadata.name for each in page.items)
    if not names:
        return "there are none: `-n` names another namespace" if resource.namespaced else None
    more = len(names) > _SHOWN or page.continue_
    listed = ", ".join(names[:_SHOWN])
    return did_you_mean(name, names) or f"there are {listed}{' and others' if more else ''}"
