"""Confine a namespaced policy to its namespace: objects, params, permissions.

The author of a policy in one namespace need not be trusted with any other, nor with the data that
the webhooks may read and reach. So each question of such a policy is answered for its own
namespace, in any syntax, and a question about cluster objects is not answered at all.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace

from policyd.api.policy import ParamKind, ParamRef
from policyd.cel import CelError
from policyd.cel.lib.authorizer import (
    Authorization,
    Authorize,
    AuthorizedAction,
    Authorizer,
    ResourceCheck,
)
from policyd.engine.model.params import ParamError, ParamSource
from policyd.errors import PolicydError


class ElsewhereError(PolicydError):
    """A namespaced policy reads something outside its namespace."""

    def __init__(self, namespace: str, asked: str) -> None:
        super().__init__(f"a policy of namespace `{namespace}` cannot access {asked}")


class Confinable(ABC):
    """The value of a variable of external data, which can be confined to a namespace."""

    __slots__ = ()

    @abstractmethod
    def within(self, namespace: str) -> "Confinable":
        """Return it as something of a namespace sees it."""


def confined(variables: Mapping[str, object], namespace: str) -> dict[str, object]:
    """Return the external data that a namespaced policy sees."""
    found: dict[str, object] = {}
    for name, value in variables.items():
        if isinstance(value, Confinable):
            found[name] = value.within(namespace)
        elif isinstance(value, (Authorizer, ResourceCheck)):
            found[name] = replace(value, authorize=_within(value.authorize, namespace))
    return found


def _within(authorize: Authorize, namespace: str) -> Authorize:
    """Authorize users in a namespace, and only the service accounts of that namespace."""

    def decide(asked: AuthorizedAction) -> Authorization:
        account = asked.service_account
        if asked.path or asked.namespace != namespace:
            message = f"permissions elsewhere: write `.namespace('{namespace}')`"
            raise CelError(str(ElsewhereError(namespace, message)))
        if account and not account.startswith(f"{namespace}/"):
            raise CelError(str(ElsewhereError(namespace, f"service account `{account}`")))
        return authorize(asked)

    return decide


def check_params(
    kind: ParamKind, ref: ParamRef | None, source: ParamSource, namespace: str
) -> None:
    """Check that params are of a namespace.

    Raises:
        ParamError: If they are not, or that is unknown.
    """
    if source.namespaced(kind) is False:
        raise ParamError(str(ElsewhereError(namespace, of_the_cluster(kind))))
    if ref is not None and ref.namespace not in ("", namespace):
        raise ParamError(str(ElsewhereError(namespace, f"params of `{ref.namespace}`")))


def of_the_cluster(kind: ParamKind) -> str:
    """Say which params are asked for that belong to the cluster."""
    return f"params of kind `{kind.kind}`, which belong to the cluster"
