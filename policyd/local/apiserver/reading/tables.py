"""Tables for `kubectl get`, one row an object."""

from collections.abc import Sequence

from policyd.local.apiserver.reading.cells import row_conditions
from policyd.local.apiserver.reading.columns import TableColumn, columns_of
from policyd.local.apiserver.requests import ApiRequest
from policyd.local.apiserver.status import Object, bad_request, wrong

INCLUDED = frozenset({"", "Metadata", "None", "Object"})
"""The objects that a client can request besides the cells."""


def table(request: ApiRequest, shown: Sequence[Object], *, about: Object, now: float) -> Object:
    """Write objects as a Table.

    Args:
        request: Says of which kind they are, and how much of them is wanted beside the cells.
        shown: The objects.
        about: The metadata of the list.
        now: Seconds since the epoch, for ages.
    """
    columns = columns_of(request.served)
    include = request.options.text("includeObject")
    if include not in INCLUDED:
        why = "must be 'Metadata', 'Object', 'None', or empty"
        cause = wrong("includeObject", include, why)
        raise bad_request(f"Unable to convert to Table as requested: {cause}")
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": about,
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [_row(value, columns, include, now) for value in shown],
    }


def _definition(column: TableColumn) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": "",
        "priority": column.priority,
    }


def _row(value: Object, columns: Sequence[TableColumn], include: str, now: float) -> Object:
    row: Object = {"cells": [column.cell(value, now) for column in columns]}
    conditions = row_conditions(value)
    if conditions:
        row["conditions"] = conditions
    if include == "Object":
        row["object"] = value
    elif include == "None":
        row["object"] = None
    else:
        kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        row["object"] = {**kind, "metadata": value["metadata"]}
    return row
