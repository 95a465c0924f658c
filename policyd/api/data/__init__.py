"""Kubernetes' own kinds, as `kubernetes.json` has them: `make generate` renews it.

The file says which sources each part comes from. It is read once, and decoded part by part where a
part is first used: `policyd.api.kinds` reads how fields merge, `policyd.patch.gotypes` what Go
writes of them, and the embedded cluster their protobuf numbers and the columns of tables. Of a
field's record each takes the keys that its own class names.
"""

import pkgutil
from functools import cache
from typing import Final

import msgspec

FILE: Final = "kubernetes.json"


class KubernetesTables(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the file, still encoded."""

    sources: dict[str, str]
    """What each part was generated from, with versions."""
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
    encoded = pkgutil.get_data(__name__, FILE)
    assert encoded is not None, f"{FILE} is not installed beside this module"
    return msgspec.json.decode(encoded, type=KubernetesTables)
