"""Makers of owned objects: the accounts of controllers, by the API group of the owner.

A user who may create an object may write any owner into it. It belongs to that owner only
if the controller of the owner's kind has made it, and the user is the only part of a request
that cannot be forged.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from policyd.api.meta import Json
from policyd.errors import ConfigurationError

GroupKind = tuple[str, str]
"""API group and kind of objects; the core group is empty."""

CORE: Final = "core"
"""The name of the core group in settings."""

_SHARED: Final = "system:kube-controller-manager"
"""The account that Kubernetes' own controllers share, unless each has its own."""

GARBAGE_COLLECTORS: Final = frozenset(
    {_SHARED, "system:serviceaccount:kube-system:generic-garbage-collector"}
)
"""The account that removes a deleted owner from objects that outlive it."""


def _of_kubernetes(*controllers: str) -> frozenset[str]:
    own = {f"system:serviceaccount:kube-system:{name}" for name in controllers}
    return frozenset({_SHARED, *own})


def _accounts(*named: str) -> frozenset[str]:
    return frozenset(f"system:serviceaccount:{each}" for each in named)


DEFAULT_MAKERS: Final[Mapping[str, frozenset[str]]] = {
    "": _of_kubernetes("replication-controller"),
    "apps": _of_kubernetes(
        "daemon-set-controller",
        "deployment-controller",
        "replicaset-controller",
        "statefulset-controller",
    ),
    "batch": _of_kubernetes("cronjob-controller", "job-controller"),
    "batch.volcano.sh": _accounts("volcano-system:volcano-controllers"),
    "jobset.x-k8s.io": _accounts(
        "jobset-system:jobset-controller-manager",
        "jobset-system:jobset-controller",
        "kubeflow-system:jobset-controller-manager",
    ),
    "kubeflow.org": _accounts(
        "kubeflow:training-operator",
        "kubeflow:mpi-operator",
        "kubeflow:notebook-controller-service-account",
        "mpi-operator:mpi-operator",
    ),
    "leaderworkerset.x-k8s.io": _accounts("lws-system:lws-controller-manager"),
    "ray.io": _accounts("ray-system:kuberay-operator"),
    "sparkoperator.k8s.io": _accounts("spark-operator:spark-operator-controller"),
    "trainer.kubeflow.org": _accounts("kubeflow-system:kubeflow-trainer-controller-manager"),
    "workload.codeflare.dev": _accounts("appwrapper-system:appwrapper-controller-manager"),
}
"""The accounts that Kubernetes' own controllers have, and that operators have as their projects'
manifests and charts install them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Makers:
    """The accounts that are trusted to set owner references.

    Attributes:
        accounts: The makers of objects that a group's objects own, by that group.
        trusted: Whether every owner reference is believed, as Kueue does.
        off: Kinds whose objects make nothing that need not be asked about again.
    """

    accounts: Mapping[str, frozenset[str]] = field(default_factory=lambda: DEFAULT_MAKERS)
    trusted: bool = False
    off: frozenset[GroupKind] = frozenset()

    def vouch(self, account: str, group: str) -> bool:
        """Tell whether an account may make objects that a group's objects own."""
        return self.trusted or account in self.accounts.get(group, ())

    def maker(self, obj: Json, account: str) -> str:
        """Return the kind of the controller that made an object; empty if that is not true."""
        for owner in controllers_of(obj):
            group, kind = group_kind_of(owner)
            if (group, kind) not in self.off and self.vouch(account, group):
                return kind
        return ""


USUAL: Final = Makers()
"""Those that operators have as their projects install them."""


def makers_of(entries: Iterable[str], *, trusted: bool = False) -> Makers:
    """Return the makers that settings name: of groups that are left out, the usual ones.

    Args:
        entries: Each `GROUP=ACCOUNT`, or several accounts with commas between; `GROUP=` for none.
        trusted: Whether every owner is believed.

    Raises:
        ConfigurationError: If an entry is not written so.
    """
    chosen: dict[str, frozenset[str]] = {}
    for entry in entries:
        group, equals, names = entry.partition("=")
        accounts = frozenset(filter(None, map(str.strip, names.split(","))))
        if not equals or not group or not all(":" in account for account in accounts):
            raise ConfigurationError(
                f"`{entry}` does not say who makes what a group's objects own",
                hint="write `ray.io=system:serviceaccount:NAMESPACE:NAME`, and `core` for pods'",
            )
        key = "" if group == CORE else group
        chosen[key] = chosen.get(key, frozenset()) | accounts
    return Makers(accounts={**DEFAULT_MAKERS, **chosen}, trusted=trusted)


def controllers_of(obj: Json) -> Iterator[Mapping[str, Any]]:
    """Yield the well-formed references of an object to its controllers."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("controller") is True:
            yield owner


def group_kind_of(owner: Mapping[str, Any]) -> GroupKind:
    """Return the API group and the kind that an owner reference names."""
    group, slash, _ = str(owner.get("apiVersion", "")).partition("/")
    return group if slash else "", str(owner.get("kind", ""))
