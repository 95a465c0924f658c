"""The conditions that an object must meet to be read as a job or a pod.

The API server sends nothing else for its built-in kinds; other callers may.
"""

from typing import Any

import msgspec

from policyd.api.meta import Json, Wire
from policyd.errors import PolicydError

_Object = dict[str, Any]
_Texts = dict[str, str]


class MisshapenError(PolicydError):
    """An object is not of the kind that it says it is."""


class _Metadata(Wire, frozen=True):
    labels: _Texts | None = None
    annotations: _Texts | None = None
    owner_references: list[_Object] | None = None


class _Container(Wire, frozen=True):
    resources: _Object | None = None


class _PodSpec(Wire, frozen=True):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    resources: _Object | None = None
    scheduling_gates: list[_Object] | None = None


class _Job(Wire, frozen=True):
    metadata: _Metadata | None = None


class _Pod(_Job, frozen=True):
    spec: _PodSpec | None = None


def check_shape(obj: Json, *, group: str, kind: str) -> None:
    """Check the parts of a job or pod that are looked into.

    Raises:
        MisshapenError: If one is something else than it has to be; it says where.
    """
    try:
        msgspec.convert(obj, _Pod if (group, kind) == ("", "Pod") else _Job)
    except msgspec.ValidationError as error:
        raise MisshapenError(f"the object is not a {kind}: {error}") from error
