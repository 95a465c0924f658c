"""Queue snapshots, as the API server passes them on."""

from typing import Final

import msgspec

from policyd.api.meta import Json
from policyd.errors import PolicydError
from policyd.kube.client import Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.resources import Resource
from policyd.snapshot.reading import configuration_in, read
from policyd.snapshot.values import (
    CLUSTER_PLURAL,
    GROUP,
    KIND,
    NAME,
    PLURAL,
    VERSION,
    QueueSnapshot,
)

OF_NAMESPACE: Final = Resource(GROUP, VERSION, PLURAL, KIND)
OF_CLUSTER: Final = Resource(GROUP, VERSION, CLUSTER_PLURAL, KIND, namespaced=False)


class NoSnapshotsError(PolicydError):
    """The cluster serves no snapshots of its queues."""


async def ask(reader: Reader, namespace: str) -> QueueSnapshot:
    """Return the snapshot for a namespace; for the whole cluster if that is "".

    Raises:
        NoSnapshotsError: If the cluster serves none.
        ApiError: If the API server refuses, or does not answer.
        SnapshotError: If the answer is of another version of policyd.
    """
    resource = OF_NAMESPACE if namespace else OF_CLUSTER
    return read(await _body(reader, resource, namespace), f"{resource.plural}/{NAME}")


async def configuration(reader: Reader, namespace: str = "") -> dict[str, Json]:
    """Return the Configuration by which the queues of the cluster decide.

    Args:
        reader: The API server.
        namespace: If given, the snapshot of this namespace is asked for: it has only the fields
            that say which jobs queue.

    Raises:
        NoSnapshotsError: If the cluster does not tell.
        ApiError: If the API server refuses, or does not answer.
        SnapshotError: If the answer is of another version of policyd.
    """
    resource = OF_NAMESPACE if namespace else OF_CLUSTER
    body = await _body(reader, resource, namespace)
    found = configuration_in(body, f"{resource.plural}/{NAME}")
    if found is None:
        raise NoSnapshotsError(
            "the snapshots of this cluster have no Configuration", hint="upgrade policyd"
        )
    return found


async def _body(reader: Reader, resource: Resource, namespace: str) -> bytes:
    try:
        found = await reader.get(resource, NAME, namespace=namespace, into=msgspec.Raw)
    except NotFoundError as error:
        raise NoSnapshotsError(
            "the cluster serves no queue snapshots",
            hint="install the chart with `controller.visibility.enabled=true`, or upgrade policyd",
        ) from error
    except ForbiddenError as error:
        raise ForbiddenError(str(error), hint=_right(namespace)) from error
    return bytes(found)


def _right(namespace: str) -> str:
    if not namespace:
        return (
            f"without -A, the right to `get` `{PLURAL}.{GROUP}` in your namespace is enough;"
            f" with it, an administrator has to grant `get` on `{CLUSTER_PLURAL}.{GROUP}`"
        )
    return (
        f"an administrator has to grant `get` on `{PLURAL}.{GROUP}` in namespace {namespace};"
        " the role `view` has it"
    )
