"""Kyverno's PolicyException, as far as it is CEL."""

from typing import Final

import msgspec

from policyd.api.kyverno import PolicyException
from policyd.cel import CelCompileError, compile_expression
from policyd.engine.compiled import CompiledException
from policyd.engine.dialects import Dialect, kyverno_places
from policyd.engine.documents import Document
from policyd.engine.findings import Finding
from policyd.engine.kyverno.policies import shape_of

KIND: Final = "PolicyException"


def load_exception(
    document: Document, dialect: Dialect
) -> tuple[CompiledException | None, list[Finding]]:
    """Read an exception, and say what is wrong with it."""
    value, findings = shape_of(PolicyException).read(document)
    if value is None:
        return None, findings
    read: PolicyException = msgspec.convert(value, PolicyException)
    spec = read.spec
    environment = kyverno_places(dialect, params=False).conditions
    conditions = []
    for index, condition in enumerate(spec.match_conditions):
        path = ("spec", "matchConditions", index, "expression")
        try:
            conditions.append(compile_expression(condition.expression, environment, wants="bool"))
        except CelCompileError as error:
            for issue in error.issues:
                at = document.position_within(path, issue.line, issue.column)
                findings.append(document.finding(issue.message, path, hint=issue.hint, at=at))
    if any(finding.severity == "error" for finding in findings):
        return None, findings
    exception = CompiledException(
        name=read.metadata.name,
        policies=frozenset((ref.kind, ref.name) for ref in spec.policy_refs),
        conditions=tuple(conditions),
        images=spec.images,
        values=spec.allowed_values,
    )
    return exception, findings
