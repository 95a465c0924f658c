"""Exceptions of a policy as conditions of the API server's own."""

from policyd.api.policy import LiftedRule
from policyd.engine.export.expressions import NotExportableError
from policyd.engine.export.patch import literal
from policyd.engine.export.places import both


def exempting(exception: LiftedRule) -> str:
    """Return what tells, in CEL, whether an exception concerns a request.

    Raises:
        NotExportableError: If it ends some day, as the API server's policies know no clock, or
            lifts a policy for some containers only.
    """
    if exception.until:
        raise NotExportableError(
            "an exception that ends cannot be exported: the API server's expressions have no clock"
        )
    if exception.containers:
        raise NotExportableError("an exception for some containers cannot be exported")
    users, groups, namespaces = (
        literal(list(names)) for names in (exception.users, exception.groups, exception.namespaces)
    )
    given = {
        f"request.userInfo.?username.orValue('') in {users}": exception.users,
        f"request.userInfo.?groups.orValue([]).exists(g, g in {groups})": exception.groups,
        f"request.?namespace.orValue('') in {namespaces}": exception.namespaces,
        exception.expression.strip(): exception.expression,
    }
    return both(*(text for text, wanted in given.items() if wanted)) or "true"
