"""The policies of a cluster, as the API server keeps them."""

from typing import NamedTuple

import msgspec

from policyd.api.policy import BindingObject, PolicyObject
from policyd.errors import PolicydError
from policyd.kube.client import Reader
from policyd.kube.errors import NotFoundError
from policyd.kube.namespace_limits import MOST_POLICIES, MOST_POLICY_BYTES, POLICIES_AT_A_TIME
from policyd.kube.pages import pages
from policyd.kube.resources import POLICIES, POLICY_BINDINGS


class TooManyPoliciesError(PolicydError):
    """A cluster has more policies than are read."""


class ClusterPolicies(NamedTuple):
    """The policies of a cluster, and their bindings, as the API server keeps them."""

    policies: tuple[PolicyObject, ...]
    bindings: tuple[BindingObject, ...]


async def cluster_policies(reader: Reader) -> ClusterPolicies:
    """Return the Policies and PolicyBindings of a cluster.

    Raises:
        TooManyPoliciesError: If there are more than policyd loads.
        ApiError: If the API server refuses, or does not answer.
    """
    policies: list[PolicyObject] = []
    bindings: list[BindingObject] = []
    room = MOST_POLICY_BYTES
    async for page in pages(reader, POLICIES, into=PolicyObject, limit=POLICIES_AT_A_TIME):
        policies += page.items
        room -= sum(len(msgspec.json.encode(each.spec)) for each in page.items)
        if len(policies) > MOST_POLICIES or room < 0:
            raise TooManyPoliciesError("there are more policies than policyd loads")
    try:
        async for bound in pages(reader, POLICY_BINDINGS, into=BindingObject):
            bindings += bound.items
    except NotFoundError:
        pass  # an older installation has no bindings
    return ClusterPolicies(tuple(policies), tuple(bindings))
