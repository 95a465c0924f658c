"""Load policies from text; a policy that is invalid does not affect the others."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import API_VERSION, GROUP, Policy
from policyd.cel.compile.allowance import Allowance, within
from policyd.engine.compile.check import check_policy
from policyd.engine.compile.native import FORMS, is_binding, is_native, read_binding, read_policy
from policyd.engine.compile.placeholders import binding_placeholders, name_of, placeholders
from policyd.engine.compile.policies import OWN_FORM, Form, compile_policy
from policyd.engine.compile.schema import MOST_FINDINGS, policy_shape
from policyd.engine.compile.static_checks import static_findings
from policyd.engine.compile.templated import with_workload_kinds, without_pod
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.nodes import MAXIMUM_DEPTH, is_deeper, is_larger
from policyd.engine.documents.reading import Document, read_documents
from policyd.engine.model.background import BackgroundPolicy
from policyd.engine.model.compiled import CompiledBinding, CompiledException, CompiledPolicy
from policyd.engine.model.deadline import OutOfTime, never
from policyd.engine.model.dialects import DEFAULT_DIALECT, Dialect
from policyd.errors import did_you_mean

MOST_OF_POLICY: Final = 20_000
"""Fields and items of a policy, a binding or an exception: the check of its shape takes up to 40 µs
for each."""

MOST_VALUES: Final = 150_000
"""Values and names of fields in one document of a file of policies: each takes half a kilobyte."""

KIND = "Policy"


@dataclass(frozen=True, slots=True)
class Loaded:
    """Valid policies, and findings about the others.

    Attributes:
        policies: The policies, of all kinds.
        findings: Errors and doubtful places.
        bindings: Where policies apply.
        objects: All other objects, such as params and namespaces.
        exceptions: Exemptions from policies.
        placeholders: Placeholders of policies that cannot be used.
        binding_placeholders: The same of bindings.
        background: Policies that act by themselves, and on no request.
        faulty: Kind and name of each policy with an error.
    """

    policies: tuple[CompiledPolicy, ...] = ()
    findings: tuple[Finding, ...] = ()
    bindings: tuple[CompiledBinding, ...] = ()
    objects: tuple[Json, ...] = ()
    exceptions: tuple[CompiledException, ...] = ()
    placeholders: tuple[CompiledPolicy, ...] = ()
    binding_placeholders: tuple[CompiledBinding, ...] = ()
    background: tuple[BackgroundPolicy, ...] = ()
    faulty: tuple[tuple[str, str], ...] = ()

    @property
    def all_policies(self) -> tuple[CompiledPolicy, ...]:
        """The policies of all kinds, those that act by themselves included."""
        return (*self.policies, *(each.policy for each in self.background))

    @property
    def broken(self) -> bool:
        """Whether an error makes a document unusable."""
        return any(finding.severity == "error" for finding in self.findings)


def gather(parts: Iterable[Loaded]) -> Loaded:
    """Combine the results of several texts."""
    parts = tuple(parts)
    return Loaded(
        tuple(policy for part in parts for policy in part.policies),
        tuple(finding for part in parts for finding in part.findings),
        tuple(binding for part in parts for binding in part.bindings),
        tuple(obj for part in parts for obj in part.objects),
        tuple(exception for part in parts for exception in part.exceptions),
        tuple(policy for part in parts for policy in part.placeholders),
        tuple(binding for part in parts for binding in part.binding_placeholders),
        tuple(policy for part in parts for policy in part.background),
        tuple(key for part in parts for key in part.faulty),
    )


def load_document(
    document: Document, dialect: Dialect = DEFAULT_DIALECT, out_of_time: OutOfTime = never
) -> Loaded:
    """Load one document: a policy of any kind, a binding, or something else.

    Args:
        document: The document; the depth of one from an API server is not known yet.
        dialect: The versions and formats that policies are loaded with.
        out_of_time: Returns whether the caller's deadline has passed.
    """
    loaded = _bounded(document, dialect, out_of_time)
    return stood_in_for(loaded, document, dialect) if loaded.broken else loaded


def load_policies(
    text: str | bytes,
    source: str,
    dialect: Dialect = DEFAULT_DIALECT,
    load: Callable[[Document, Dialect], Loaded] = load_document,
) -> Loaded:
    """Load every policy and binding of a text; documents of other kinds are kept as they are.

    Args:
        text: YAML or JSON, any number of documents.
        source: The name of the text in findings: a path.
        dialect: The versions and formats that policies are loaded with.
        load: Loads one document.
    """
    documents, findings = read_documents(text, source, most=MOST_VALUES)
    parts = (load(document, dialect) for document in documents)
    return gather([Loaded(findings=tuple(findings)), *parts])


def unusable(document: Document, reason: str, dialect: Dialect = DEFAULT_DIALECT) -> Loaded:
    """Return placeholders for a document that is not loaded, as for an invalid one."""
    return stood_in_for(Loaded(findings=(document.finding(reason),)), document, dialect)


def stood_in_for(loaded: Loaded, document: Document, dialect: Dialect) -> Loaded:
    """Add the placeholders of a document with an error."""
    value = document.value
    if is_binding(value):
        return replace(loaded, binding_placeholders=binding_placeholders(document, loaded.findings))
    foreign = any(each.guards(value) for each in dialect.formats)
    if foreign or is_policy(value) or is_native(value):
        return replace(
            loaded,
            placeholders=placeholders(document, loaded.findings, dialect),
            faulty=((str(value.get("kind")), name_of(value)),),
        )
    return loaded


def _bounded(document: Document, dialect: Dialect, out_of_time: OutOfTime) -> Loaded:
    if document.tree is None and is_deeper(document.value, MAXIMUM_DEPTH):
        return Loaded(findings=(document.finding("nested too deep"),))
    if _is_loaded(document.value, dialect) and is_larger(document.value, MOST_OF_POLICY):
        message = f"more than {MOST_OF_POLICY:,} fields and items in one document"
        hint = "take it apart into several"
        return Loaded(findings=(document.finding(message, hint=hint),))
    with within(Allowance(out_of_time=out_of_time)):
        loaded = _loaded(document, dialect)
    return _shortened(loaded, document) if len(loaded.findings) > MOST_FINDINGS else loaded


def _shortened(loaded: Loaded, document: Document) -> Loaded:
    """Limit the findings of a document, the errors first."""
    findings = sorted(loaded.findings, key=lambda finding: finding.severity != "error")
    more = document.finding(f"{len(findings) - MOST_FINDINGS} more findings are not shown")
    more = replace(more, severity=findings[MOST_FINDINGS].severity)
    return replace(loaded, findings=(*findings[:MOST_FINDINGS], more))


def _is_loaded(value: Json, dialect: Dialect) -> bool:
    """Tell whether a document is a policy, or another object that is more than kept."""
    known = is_policy(value) or is_native(value) or is_binding(value)
    return known or dialect.format_of(value) is not None


def _loaded(document: Document, dialect: Dialect) -> Loaded:
    value = document.value
    if is_policy(value):
        return _load_own(document, dialect)
    if is_native(value):
        policy, findings = read_policy(document)
        form = FORMS[value["kind"]]
        return _compiled(policy, document, findings, form, dialect)
    if is_binding(value):
        binding, findings = read_binding(document)
        return Loaded((), tuple(findings), () if binding is None else (binding,))
    return _load_foreign(document, dialect)


def _load_foreign(document: Document, dialect: Dialect) -> Loaded:
    """Load a document of another engine's format, or one that is not a policy."""
    written_in = dialect.format_of(document.value)
    if written_in is None:
        findings = check_other(document, dialect)
        return Loaded(findings=tuple(findings), objects=(document.value,))
    content = written_in.load(document, dialect)
    return Loaded(
        tuple(content.policies),
        tuple(content.findings),
        exceptions=tuple(content.exceptions),
        background=tuple(content.background),
    )


def _load_own(document: Document, dialect: Dialect) -> Loaded:
    findings = policy_shape().check(document)
    if findings:
        return Loaded((), tuple(findings))
    try:
        policy = msgspec.convert(document.value, Policy)
    except msgspec.ValidationError as error:  # errors that the schema cannot express
        return Loaded((), (document.finding(str(error)),))
    findings = check_policy(policy, document)
    return _compiled(with_workload_kinds(policy), document, findings, OWN_FORM, dialect)


def _compiled(
    policy: Policy | None, document: Document, findings: list[Finding], form: Form, dialect: Dialect
) -> Loaded:
    """Compile a policy; an error anywhere makes it unusable."""
    if policy is None:
        return Loaded((), tuple(findings))
    compiled = compile_policy(policy, document, form, dialect)
    if isinstance(compiled, CompiledPolicy):
        findings += [*without_pod(compiled, document)]
        findings = [*findings, *static_findings(policy, document, form, dialect)]
        usable = all(finding.severity == "warning" for finding in findings)
        return Loaded((compiled,) if usable else (), tuple(findings))
    return Loaded((), tuple(sorted([*findings, *compiled], key=lambda f: (f.line, f.column))))


def is_policy(value: Json) -> bool:
    """Tell whether a document means to be a Policy of any version."""
    return (
        isinstance(value, dict)
        and str(value.get("apiVersion", "")).startswith(f"{GROUP}/")
        and value.get("kind") == KIND
    )


def check_other(document: Document, dialect: Dialect) -> list[Finding]:
    """Report a document that is not a policy, but may have been meant to be one."""
    value = document.value
    if not isinstance(value, dict):
        return [document.finding("not an object")]
    missing = [name for name in ("apiVersion", "kind") if not value.get(name)]
    if missing:
        begin = f"a policy begins with `apiVersion: {API_VERSION}` and `kind: {KIND}`"
        return [document.finding(f"field `{missing[0]}` is missing", hint=begin)]
    kind = str(value["kind"])
    near = did_you_mean(kind, [KIND])
    if near and str(value["apiVersion"]).startswith(f"{GROUP}/"):
        return [document.finding(f"unknown kind `{kind}`", ("kind",), hint=near)]
    return [finding for each in dialect.formats for finding in each.misnamed(document)]
