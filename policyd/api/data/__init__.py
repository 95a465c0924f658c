"""Kubernetes' own kinds, as `kubernetes.json` has them: `make generate` renews it.

The file names the sources of each part. It is read once, and decoded part by part where a
part is first used: `policyd.api.kinds` reads how fields merge, `policyd.patch.builtin_types` the
fields that Go writes, and the embedded cluster their protobuf numbers and the columns of tables. Of
a field's record each takes the keys that its own class names.

`kueue-gates.json`, Kueue's feature gates, is kept by hand: no build of ours needs Kueue's sources.

Imports nothing of policyd. Start with `__init__`.
"""

import pkgutil
from functools import cache
from typing import Final, TypeVar

import msgspec

Read = TypeVar("Read")

FILE: Final = "kubernetes.json"
DEFAULTS: Final = "defaults.json"
"""The defaults of the kinds, which `policyd.patch.defaults` reads."""


class KubernetesTables(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the file, still encoded."""

    sources: dict[str, str]
    """The sources of each part, with versions."""
    version: str
    """The version of Kubernetes, such as `v1.36.3`."""
    resources: msgspec.Raw
    """A list of the built-in resources, in the API server's own order."""
    columns: dict[str, msgspec.Raw]
    """The columns of `kubectl get`, by resource, such as `jobs.batch`."""
    types: dict[str, msgspec.Raw]
    """The fields of each struct, by the struct's name, such as `core/v1.Pod`."""


@cache
def tables() -> KubernetesTables:
    """Return the tables of the version of Kubernetes that policyd knows."""
    return msgspec.json.decode(packaged(__name__, FILE), type=KubernetesTables)


def kueue_gates(shape: type[Read]) -> Read:
    """Return Kueue's feature gates by their names, as a dictionary of the type `shape`."""
    file = msgspec.json.decode(packaged(__name__, "kueue-gates.json"), type=dict[str, msgspec.Raw])
    return msgspec.json.decode(file["gates"], type=shape)


def packaged(package: str, name: str) -> bytes:
    """Return a file that is installed beside a package's modules."""
    encoded = pkgutil.get_data(package, name)
    assert encoded is not None, f"{name} is not installed beside {package}"
    return encoded
