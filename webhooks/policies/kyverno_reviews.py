"""Kyverno's objects as they are written: refused if Kyverno would refuse them.

A policy that Kyverno stores and policyd cannot use is allowed with a warning: it may be meant for
Kyverno alone. An outage does not deny them.
"""

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from policyd.api.admission import AdmissionRequest, Rule
from policyd.api.meta import Json
from policyd.dialects.kyverno.confinement import REFUSED
from policyd.dialects.kyverno.entries import KIND as ENTRY
from policyd.dialects.kyverno.entries import mistakes_of
from policyd.dialects.kyverno.exceptions import KIND as EXCEPTION
from policyd.dialects.kyverno.load import CHECKED, is_checked
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.decision import ALLOWED, Decision
from policyd.engine.objects.equivalents import plural_of
from policyd.registration.webhook_rules import DerivedWebhook
from webhooks.policies.own_policies import denial_of, warning_of

KYVERNO_CALL: Final = DerivedWebhook(
    failure_policy="Ignore",
    rules=tuple(
        Rule(
            api_groups=(group,),
            api_versions=("*",),
            operations=("CREATE", "UPDATE"),
            resources=tuple(sorted(map(plural_of, kinds))),
        )
        for group, kinds in CHECKED.items()
    ),
)
"""The webhook rule that sends them."""


def validate_kyverno(
    request: AdmissionRequest, load: Callable[[Document], Loaded], exceptions: Collection[str]
) -> Decision:
    """Return the mistakes for which Kyverno refuses an object, and what policyd does not use.

    Args:
        request: The request; one for something else is allowed.
        load: Loads a policy.
        exceptions: The namespaces whose exceptions count.
    """
    if request.sub_resource or request.operation not in {"CREATE", "UPDATE"}:
        return ALLOWED
    try:
        new = msgspec.json.decode(request.object, type=dict[str, Json])
        old = msgspec.json.decode(request.old_object, type=dict[str, Json] | None)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ALLOWED
    metadata, spec = new.get("metadata"), new.get("spec")
    if not is_checked(new) or not isinstance(metadata, dict) or not isinstance(spec, dict):
        return ALLOWED
    if metadata.get("deletionTimestamp") or (old is not None and old.get("spec") == spec):
        return ALLOWED
    if new["kind"] == ENTRY:
        mistakes = mistakes_of(str(metadata.get("name", "")), spec)
        return Decision(denials=tuple(denial_of(message, path) for path, message in mistakes))
    fields = ("name", "namespace", "labels", "annotations")
    named = {name: metadata[name] for name in fields if name in metadata}
    document = Document({**new, "metadata": named, "status": None}, str(metadata.get("name", "")))
    findings = load(document).findings
    refused = [each for each in findings if each.rule == REFUSED]
    doubts = [each for each in findings if each.rule != REFUSED]
    if new["kind"] == EXCEPTION and request.namespace not in exceptions:
        doubts.append(_without_effect(document, request.namespace))
    return Decision(
        denials=tuple(denial_of(each.message, each.field, each.hint) for each in refused),
        warnings=tuple(map(warning_of, doubts)),
    )


def _without_effect(document: Document, namespace: str) -> Finding:
    return document.finding(
        f"exceptions in the namespace `{namespace}` have no effect",
        ("metadata", "namespace"),
        hint="use a namespace that `--exceptions` names; of the chart, "
        "`webhooks.exceptionNamespaces`",
    )
