"""Legacy policies in short, and what their conversions decide."""

from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import gather, load_document
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import RequestCircumstances, namespace_lookup, request_for
from policyd.migrate.kyverno.policies import convert
from policyd.patch.json_patch import apply_json_patch

PODS = {"any": [{"resources": {"kinds": ["Pod"]}}]}


def legacy(*rules, annotations=None, kind="ClusterPolicy", **spec):
    """Return a legacy policy that enforces its rules."""
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": kind,
        "metadata": {"name": "p", "annotations": annotations or {}},
        "spec": {"validationFailureAction": "Enforce", "rules": list(rules), **spec},
    }


def rule(*, match=PODS, name="r", **parts):
    return {"name": name, "match": match, **parts}


def validating(match=PODS, **validate):
    """Return a policy with one rule that validates."""
    return legacy(rule(match=match, validate={"message": "no", **validate}))


def pod(*containers, labels=None, annotations=None, **spec):
    metadata = {"name": "a", "namespace": "default"}
    metadata |= {"labels": labels} if labels else {}
    metadata |= {"annotations": annotations} if annotations else {}
    given = list(containers) or [{"name": "c", "image": "nginx:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": given, **spec},
    }


def in_template(of):
    """Return a Deployment whose template is a pod."""
    template = {"metadata": {k: v for k, v in of["metadata"].items() if k == "labels"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"template": {**template, "spec": of["spec"]}},
    }


def decide(policy, obj, *, operation="CREATE", namespaces=(), old=None, **options):
    """Return what the conversion of a policy decides, and the object in the end."""
    conversion = convert(policy, **options)
    assert conversion.whole, conversion.refusals
    documents = [Document(each, "p") for each in conversion.policies]
    loaded = gather(load_document(each, EVERY_FORMAT) for each in documents)
    assert not [f for f in loaded.findings if f.severity == "error"], loaded.findings
    circumstances = RequestCircumstances(operation=operation)
    request = request_for(
        obj, circumstances, old_object=old or (obj if operation == "UPDATE" else None)
    )
    surroundings = PolicyContext(namespaces=namespace_lookup(namespaces, {}))
    decision = PolicySet(loaded.policies, bindings=(), surroundings=surroundings).review(request)
    assert not [denial for denial in decision.denials if denial.failed], decision.denials
    changed = apply_json_patch(obj, decision.operations) if decision.operations else obj
    return decision, changed


def answer(policy, obj, **others):
    """Say in a word what the conversion of a policy decides."""
    decision, _ = decide(policy, obj, **others)
    if decision.denials:
        return "fail"
    return "pass" if decision.matched else "skip"


THINGS = {"any": [{"resources": {"kinds": ["Thing"]}}]}


def thing(**spec):
    """Return an object of a kind that is not built in."""
    return {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": spec,
    }


def judged(pattern, **spec):
    """Return the answer of a rule with a pattern of the spec to a thing."""
    return answer(validating(THINGS, pattern={"spec": pattern}), thing(**spec))
