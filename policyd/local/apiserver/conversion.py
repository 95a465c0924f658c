"""Between the version an object is stored in and the one it is asked for."""

from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.status import Object


def to_served(served: Served, stored: Object) -> Object:
    """Show a stored object in the version of the request."""
    if stored.get("apiVersion") == served.api_version:
        return stored
    return {**stored, "apiVersion": served.api_version}


def to_stored(served: Served, given: Object) -> Object:
    """Turn a client's object into the version that is stored."""
    if given.get("apiVersion") == served.stored_api_version:
        return given
    return {**given, "apiVersion": served.stored_api_version}
