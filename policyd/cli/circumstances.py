"""Under what circumstances objects are sent, as the command line says it."""

from collections.abc import Mapping
from typing import TypedDict

import click

from policyd.api.admission import AdmissionRequest, Operation, UserInfo
from policyd.api.meta import Json
from policyd.cli.options import GROUPS, USER, together
from policyd.engine.offline import Circumstances, CustomKinds, as_it_was, request_for


class Sent(TypedDict):
    """What the command line says of how objects are sent."""

    operation: Operation
    namespace: str
    namespace_labels: Mapping[str, str]
    user: str
    groups: tuple[str, ...]


def request_of(obj: Json, given: Sent, kinds: CustomKinds) -> AdmissionRequest:
    """Return the request that sends an object; one that is updated was as it is.

    Args:
        obj: The object.
        given: What the command line says.
        kinds: The kinds that are not built in.

    Raises:
        ObjectError: If it is no object of Kubernetes.
    """
    circumstances = Circumstances(
        operation=given["operation"],
        user=UserInfo(username=given["user"], groups=given["groups"]),
        namespace=given["namespace"],
        kinds=kinds,
    )
    old = as_it_was(obj, given["operation"])
    return request_for(obj, circumstances, old_object=old)


def _labels(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> Mapping[str, str]:
    """Read `key=value,key=value`."""
    pairs = [part.partition("=") for part in (value or "").split(",") if part]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise click.BadParameter(f"`{value}` is not of the form key=value,key=value")
    return {key: text for key, _, text in pairs}


NAMESPACE_LABELS = click.option(
    "--namespace-labels",
    callback=_labels,
    metavar="KEY=VALUE,…",
    help="Labels of the namespaces that are not among the objects.",
)

with_circumstances = together(
    click.option(
        "--operation",
        type=click.Choice(["CREATE", "UPDATE", "DELETE"]),
        default="CREATE",
        help="What is done with the objects.",
    ),
    click.option("-n", "--namespace", default="default", help="Namespace of objects without one."),
    NAMESPACE_LABELS,
    USER,
    GROUPS,
)
"""Give a command the options that say how objects are sent."""
