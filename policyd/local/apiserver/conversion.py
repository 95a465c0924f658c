"""Between the version an object is stored in and the one it is asked for.

Custom kinds convert by name alone, but Kueue's: policyd knows both of their versions, and converts
them here as its webhooks do elsewhere. Events are one set of objects in two groups, whose fields
have different names.
"""

from collections.abc import Mapping

from policyd.api.kueue.names import GROUP
from policyd.api.kueue.v1beta1 import (
    OLD_API_VERSION,
    UnconvertibleError,
    downgraded,
    upgraded,
)
from policyd.local.apiserver.custom.checking import check_custom
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.status import Object, internal_error, invalid, wrong

EVENT_NAMES: Mapping[str, str] = {
    "count": "deprecatedCount",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "involvedObject": "regarding",
    "lastTimestamp": "deprecatedLastTimestamp",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
}
"""The fields of a core event, with their names in events.k8s.io."""

LEFT_OUT = frozenset({"reportingComponent", "reportingInstance"})
"""The fields of a core event that are left out of one of events.k8s.io if they are empty."""

STORED_NAMES = {new: old for old, new in EVENT_NAMES.items()}


def to_served(served: Served, stored: Object) -> Object:
    """Show a stored object in the version of the request.

    Raises:
        StatusError: If that version cannot say it.
    """
    try:
        return _converted(stored, served.api_version, EVENT_NAMES if served.kept_as else {})
    except UnconvertibleError as error:  # as where a webhook that converts fails
        raise internal_error(str(error)) from error


def for_table(served: Served, stored: Object) -> Object:
    """Show a stored object for the cells of tables: events in the version they are kept in."""
    return stored if served.kept_as else to_served(served, stored)


def as_item(served: Served, stored: Object) -> Object:
    """Show a stored object as an item of a list, where built-in kinds omit apiVersion and kind."""
    shown = to_served(served, stored)
    if served.custom is not None:
        return shown
    return {name: part for name, part in shown.items() if name not in {"apiVersion", "kind"}}


def to_stored(served: Served, given: Object) -> Object:
    """Turn a client's object into the version that is stored.

    Raises:
        StatusError: 422, if it is not as its own version has it.
    """
    try:
        return _to_stored(served, given)
    except UnconvertibleError as error:
        causes = [] if served.custom is None else list(check_custom(given, served.custom.schema))
        name = str(given.get("metadata", {}).get("name", ""))
        place = wrong(error.place, None, str(error))
        raise invalid(served.qualified_kind, name, causes or [place]) from error


def _to_stored(served: Served, given: Object) -> Object:
    return _converted(given, served.stored_api_version, STORED_NAMES if served.kept_as else {})


def _converted(value: Object, api_version: str, names: Mapping[str, str]) -> Object:
    if value.get("apiVersion") == api_version:
        return value
    if api_version.startswith(f"{GROUP}/"):
        step = downgraded if api_version == OLD_API_VERSION else upgraded
        value = step(value)
    renamed = value
    if names:
        renamed = {
            names.get(name, name): part
            for name, part in value.items()
            if part or name not in LEFT_OUT
        }
    return {**renamed, "apiVersion": api_version}
