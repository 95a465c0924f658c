"""Policies from text: read, checked, compiled; one that is wrong leaves the others alone."""

from dataclasses import dataclass

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import API_VERSION, GROUP, Policy
from policyd.engine.check import check_policy
from policyd.engine.compile import CompiledPolicy, compile_policy
from policyd.engine.documents import Document, read_documents
from policyd.engine.findings import Finding
from policyd.engine.schema import policy_shape
from policyd.errors import did_you_mean

KIND = "Policy"


@dataclass(frozen=True, slots=True)
class Loaded:
    """Policies that can be used, and what is wrong with the others."""

    policies: tuple[CompiledPolicy, ...]
    findings: tuple[Finding, ...]


def load_policies(text: str | bytes, source: str) -> Loaded:
    """Load every policy of a text; documents of other kinds are passed over.

    Args:
        text: YAML or JSON, any number of documents.
        source: What findings call the text: a path.
    """
    documents, findings = read_documents(text, source)
    policies: list[CompiledPolicy] = []
    for document in documents:
        if is_policy(document.value):
            loaded = load_document(document)
            findings += loaded.findings
            policies += loaded.policies
        else:
            findings += check_other(document)
    return Loaded(tuple(policies), tuple(findings))


def load_document(document: Document) -> Loaded:
    """Load one policy."""
    findings = policy_shape().check(document)
    if findings:
        return Loaded((), tuple(findings))
    try:
        policy = msgspec.convert(document.value, Policy)
    except msgspec.ValidationError as error:  # what the schema cannot say, if there is anything
        return Loaded((), (document.finding(str(error)),))
    findings = check_policy(policy, document)
    compiled = compile_policy(policy, document)
    if isinstance(compiled, CompiledPolicy):
        return Loaded((), tuple(findings)) if findings else Loaded((compiled,), ())
    return Loaded((), tuple(sorted([*findings, *compiled], key=lambda f: (f.line, f.column))))


def is_policy(value: Json) -> bool:
    """Tell whether a document means to be a Policy of any version."""
    return (
        isinstance(value, dict)
        and str(value.get("apiVersion", "")).startswith(f"{GROUP}/")
        and value.get("kind") == KIND
    )


def check_other(document: Document) -> list[Finding]:
    """Say what is wrong with a document that is no policy, but may have been meant to be one."""
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
    return []
