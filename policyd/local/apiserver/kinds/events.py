"""Events: the rules that those of the newer group keep."""

from collections.abc import Iterator

from policyd.local.apiserver.checks import names
from policyd.local.apiserver.status import Cause, Object, required, wrong

TYPES = ("Normal", "Warning")
LONGEST = {"action": 128, "message": 1024, "reason": 128, "reportingInstance": 128}
"""Letters of each text."""

FINAL = (
    ("involvedObject", "involvedObject"),
    ("reason", "reason"),
    ("action", "action"),
    ("message", "message"),
    ("type", "type"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
)
"""The fields that stay as they are, and what messages call them."""


def check_event(event: Object) -> Iterator[Cause]:
    """Check an event that is created; one with a time of its own is of the newer kind."""
    about = event.get("involvedObject", {}).get("namespace", "")
    namespace = event["metadata"].get("namespace", "")
    if namespace != (about or "default"):
        yield wrong("involvedObject.namespace", about, "does not match event.namespace")
    if _is_new(event):
        yield from _check_new(event)


def _is_new(event: Object) -> bool:
    return bool(event.get("eventTime"))


def _check_new(event: Object) -> Iterator[Cause]:
    controller = event.get("reportingComponent", "")
    if not controller:
        yield required("reportingController")
    for line in names.qualified_name(controller):
        yield wrong("reportingController", controller, line)
    for field in ("reportingInstance", "action", "reason"):
        if not event.get(field):
            yield required(field)
    for field, longest in LONGEST.items():
        if len(event.get(field, "")) > longest:
            yield wrong(field, "", f"can have at most {longest} characters")
    if event.get("type") not in TYPES:
        yield wrong("type", "", f"has invalid value: {event.get('type', '')}")


def check_event_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of an event, of which only its series goes on."""
    if not _is_new(old):
        return
    for field, shown in FINAL:
        if new.get(field) != old.get(field):
            yield wrong(shown, new.get(field), "field is immutable")
