"""What the policies of a cluster make of an object. Imports the engine."""

import asyncio
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from policyd.api.admission import UserInfo
from policyd.api.meta import Json
from policyd.clock import SystemClock, cpu_limit
from policyd.engine.compile.load import Loaded, gather, load_document
from policyd.engine.documents.reading import Document
from policyd.engine.offline.origins import origins
from policyd.engine.offline.requests import (
    ObjectError,
    RequestCircumstances,
    namespace_lookup,
    offline_set,
    request_for,
)
from policyd.engine.offline.shares import SharedDecision, decide_in_shares
from policyd.errors import PolicydError
from policyd.kube.calls import FIELD_MANAGER
from policyd.kube.client import Reader
from policyd.kube.resources import NAMESPACES
from policyd.patch.recorded import ObjectOrigins, submitted
from policyd.questions.policies import ClusterPolicies

DECIDING_SECONDS: Final = 2.0
"""Of processor time for one object."""
MOST_COMPILED: Final = 256
"""Policies that are kept as they were compiled: most clusters have fewer."""


class ObjectRequest(NamedTuple):
    """An object that policies are asked about.

    Attributes:
        obj: The object.
        namespace: Its namespace, as the API server has it; None if it cannot be read.
        user: Who sends it.
    """

    obj: Json
    namespace: Json | None
    user: UserInfo


async def namespace_of(reader: Reader, name: str) -> Json | None:
    """Return a Namespace; None if it cannot be read."""
    try:
        return await reader.get(NAMESPACES, name, into=dict)
    except PolicydError:
        return None


async def decided(of: ClusterPolicies, asked: ObjectRequest) -> SharedDecision:
    """Return what the policies of a cluster make of a new object; nothing is sent to the cluster.

    Raises:
        ObjectError: If it is not an object.
    """
    return await asyncio.to_thread(_decide, of, asked)


async def field_origins(of: ClusterPolicies | None, asked: ObjectRequest) -> ObjectOrigins | None:
    """Find the writers of fields of a stored object; None if it does not record its writer.

    Args:
        of: The policies; None if they cannot be read.
        asked: The object.
    """
    sent = submitted(asked.obj, without=(FIELD_MANAGER,))
    if sent is None:
        return None
    try:
        shared = None if of is None else await decided(of, asked._replace(obj=sent))
    except ObjectError:
        shared = None
    return await asyncio.to_thread(origins, asked.obj, sent, shared, own=FIELD_MANAGER)


def _decide(of: ClusterPolicies, asked: ObjectRequest) -> SharedDecision:
    loaded = gather(map(_loaded, _texts(of)))
    known = [] if asked.namespace is None else [{**_NAMESPACE, **asked.namespace}]
    policies = offline_set(
        loaded, namespace_lookup(known, {}), objects=known, now=SystemClock().now
    )
    circumstances = RequestCircumstances(operation="CREATE", user=asked.user)
    request = request_for(asked.obj, circumstances)
    return decide_in_shares(policies, request, cpu_limit(DECIDING_SECONDS))


_NAMESPACE: Final[dict[str, Any]] = {"apiVersion": "v1", "kind": "Namespace"}


def _texts(of: ClusterPolicies) -> Iterable[tuple[str, bytes]]:
    for policy in of.policies:
        yield policy.metadata.name, msgspec.json.encode(policy.value)
    for binding in of.bindings:
        yield binding.metadata.name, msgspec.json.encode(binding.value)


@lru_cache(MOST_COMPILED)
def _loaded(given: tuple[str, bytes]) -> Loaded:
    """Compile a policy. The same text always has the same result, so it is kept."""
    name, text = given
    document = Document(msgspec.json.decode(text), name)
    return load_document(document, out_of_time=cpu_limit())
