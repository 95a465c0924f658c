"""The owners of fields, which server-side apply uses and every write updates."""

from functools import lru_cache

from policyd.local.apiserver.custom.version import CustomVersion
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.requests import ApiRequest
from policyd.local.apiserver.status import Object
from policyd.patch.fields_v1 import EMPTY, FieldSet, field_element, field_set
from policyd.patch.managed_fields import with_managed_fields
from policyd.patch.schema import Schema, schema_from_openapi, schema_of_type
from policyd.patch.structured import FieldWriter, track_update

STATUS = field_set([(field_element("status"),)])
SPEC = field_set([(field_element("spec"),)])


def schema_of(served: Served) -> Schema:
    """Return the schema by which objects of a kind are merged."""
    if served.custom is not None:
        return _custom_schema(served.custom)
    return schema_of_type(served.type_name)


@lru_cache(maxsize=256)
def _custom_schema(version: CustomVersion) -> Schema:
    return schema_from_openapi(version.schema)


def writer(request: ApiRequest, now: float) -> FieldWriter:
    """Describe the writer."""
    return FieldWriter(
        manager=request.field_manager,
        api_version=request.served.api_version,
        now=now,
        subresource=request.target.subresource,
        ignored=_ignored(request),
    )


def _ignored(request: ApiRequest) -> FieldSet:
    if request.target.subresource == "status":
        return SPEC
    return STATUS if request.served.has("status") else EMPTY


def tracked(old: Object | None, new: Object, request: ApiRequest, now: float) -> Object:
    """Return an object with its managedFields brought up to date."""
    entries = track_update(old, new, schema=schema_of(request.served), writer=writer(request, now))
    return with_managed_fields(new, entries)
