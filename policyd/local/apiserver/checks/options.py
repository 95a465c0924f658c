"""The rules of the query options of writes, lists and deletions."""

from collections.abc import Iterator

from policyd.local.apiserver.requests import ApiRequest
from policyd.local.apiserver.status import (
    Cause,
    StatusError,
    bad_request,
    invalid,
    not_permitted,
    not_supported,
    wrong,
)

GROUP = "meta.k8s.io"
VALIDATIONS = ("", "Ignore", "Strict", "Warn")
MATCHES = ("Exact", "NotOlderThan", "")
POLICIES = ("Foreground", "Background", "Orphan", "nil")
LONGEST_MANAGER = 128


def check_write_options(request: ApiRequest, kind: str) -> None:
    """Check the options of a creation, update or patch; `kind` is like `CreateOptions`.

    Raises:
        StatusError: 422, with all that is wrong.
    """
    causes = list(_write_causes(request))
    if causes:
        raise invalid(f"{kind}.{GROUP}", "", causes)


def _write_causes(request: ApiRequest) -> Iterator[Cause]:
    options = request.options
    if len(options.text("fieldManager")) > LONGEST_MANAGER:
        message = f"Too long: may not be more than {LONGEST_MANAGER} bytes"
        yield Cause("FieldValueTooLong", message, "fieldManager")
    dry_run = options.text("dryRun")
    if dry_run and dry_run != "All":
        yield not_supported("dryRun", [dry_run], ["All"])
    validation = options.text("fieldValidation")
    if validation not in VALIDATIONS:
        yield not_supported("fieldValidation", validation, VALIDATIONS)


def check_propagation(policy: str) -> None:
    """Check the options for an object's dependents.

    Raises:
        StatusError: 422, if there is no such policy.
    """
    if policy not in {"", *POLICIES}:
        cause = not_supported("propagationPolicy", policy, POLICIES)
        raise invalid(f"DeleteOptions.{GROUP}", "", [cause])


def check_list_options(request: ApiRequest) -> None:
    """Check which version of a list is asked for.

    Raises:
        StatusError: 400 or 422.
    """
    version = request.options.text("resourceVersion")
    match = request.options.text("resourceVersionMatch")
    watches = request.options.flag("watch")
    initial = request.options.text("sendInitialEvents")
    causes = _watch_causes(match, initial) if watches else _match_causes(version, match)
    for cause in causes:
        raise invalid(f"ListOptions.{GROUP}", "", [cause])
    if version and not version.isdecimal():
        why = wrong("resourceVersion", version, f'{PARSING} "{version}": {SYNTAX}')
        if watches:
            raise StatusError(500, "", str(why))
        raise bad_request(f"invalid resource version: {why}")
    for name in ("limit", "timeoutSeconds"):
        request.options.integer(name)


def _watch_causes(match: str, initial: str) -> Iterator[Cause]:
    path = "resourceVersionMatch"
    if initial and match != "NotOlderThan":
        what = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        yield not_permitted(path, what)
    elif match and not initial:
        what = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        yield not_permitted(path, what)


PARSING = "strconv.ParseUint: parsing"
SYNTAX = "invalid syntax"


def _match_causes(version: str, match: str) -> Iterator[Cause]:
    path = "resourceVersionMatch"
    if match and not version:
        yield not_permitted(path, f"{path} is forbidden unless resourceVersion is provided")
    elif match not in MATCHES:
        yield not_supported(path, match, MATCHES)
    elif match == "Exact" and version == "0":
        yield not_permitted(path, f'{path} "exact" is forbidden for resourceVersion "0"')
