"""Policies and their bindings as they are written: refused if they could not be used.

They are checked as the API server checks its own, so that an error is reported at once, and not in
a status that is easily overlooked. No policy applies to them, and an outage does not deny them: a
repair of a policy must not require working policies.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from policyd.api.admission import AdmissionRequest, Rule
from policyd.api.policy import GROUP, VERSION, BindingObject, PolicyObject
from policyd.clock import cpu_limit
from policyd.engine.compile.load import load_document
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.decision import ALLOWED, Decision, Denial
from policyd.registration.webhook_rules import DerivedWebhook

SPEAKER: Final = "policyd"
"""The name in the place of a policy's in these denials."""

OWN_CALL: Final = DerivedWebhook(
    failure_policy="Ignore",
    rules=(
        Rule(
            api_groups=(GROUP,),
            api_versions=(VERSION,),
            operations=("CREATE", "UPDATE"),
            resources=("policies", "policybindings"),
            scope="Cluster",
        ),
    ),
)
"""The webhook rule that sends them."""

_KINDS: Final[Mapping[str, type[PolicyObject] | type[BindingObject]]] = {
    "Policy": PolicyObject,
    "PolicyBinding": BindingObject,
}


def validate_own(
    request: AdmissionRequest,
    *,
    no_room_reason: Callable[[Document], str] = lambda _document: "",
) -> Decision:
    """Return the mistakes in a Policy or PolicyBinding, as `policyd check` does.

    Args:
        request: The request.
        no_room_reason: Returns why it would not be loaded, with any spec.
    """
    if request.kind.group != GROUP:
        return ALLOWED
    kind = _KINDS.get(request.kind.kind)
    if kind is None or request.sub_resource or request.operation not in {"CREATE", "UPDATE"}:
        return ALLOWED
    try:
        new = msgspec.json.decode(request.object, type=kind)
        old = msgspec.json.decode(request.old_object, type=kind | None)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Decision(denials=(denial_of(f"the object cannot be read: {error}"),))
    if new.metadata.deletion_timestamp is not None or (old is not None and old.spec == new.spec):
        return ALLOWED
    document = Document(new.value, new.metadata.name)
    too_many = no_room_reason(document)
    if too_many:
        return Decision(denials=(denial_of(too_many),))
    findings = load_document(document, out_of_time=cpu_limit()).findings
    errors = [finding for finding in findings if finding.severity == "error"]
    doubts = [finding for finding in findings if finding.severity != "error"]
    return Decision(
        denials=tuple(denial_of(f.message, f.field, f.hint) for f in errors),
        warnings=tuple(map(warning_of, doubts)),
    )


def denial_of(message: str, path: str = "", hint: str | None = None) -> Denial:
    """Return the denial for a mistake in a policy."""
    return Denial(policy=SPEAKER, message=message, path=path, remedy=hint or "")


def warning_of(finding: Finding) -> str:
    """Return the warning for a doubtful place in a policy."""
    place = f"{finding.field}: " if finding.field else ""
    hint = f"; {finding.hint}" if finding.hint else ""
    return f"{SPEAKER}: {place}{finding.message}{hint}"
