"""Exported policies say and do the same as those that they were made from."""

from pathlib import Path

import pytest

from policyd.api.admission import UserInfo
from policyd.engine.cases import load_cases
from policyd.engine.documents import Document, read_documents
from policyd.engine.export import export_policy
from policyd.engine.load import gather, load_document
from policyd.engine.offline import Circumstances, namespace_lookup, request_for
from policyd.engine.policy_set import PolicySet
from policyd.patch.builtin_views import type_of, typed_view
from policyd.patch.json_patch import apply_json_patch

LIBRARY = Path(__file__).parents[2] / "policies"
FOLDERS = sorted(path.parent for path in LIBRARY.rglob("cases.yaml"))


def exported(text):
    """Export a policy; return what was made, and what was said."""
    documents, findings = read_documents(text, "policy.yaml")
    assert not findings
    loaded = gather(load_document(document) for document in documents)
    assert not loaded.findings, loaded.findings
    parts = [export_policy(p, documents[0], loaded.bindings) for p in loaded.policies]
    objects = [obj for part in parts for obj in part.objects]
    return loaded, objects, [finding for part in parts for finding in part.findings]


def policy_set(loaded, labels):
    return PolicySet(
        loaded.policies, bindings=loaded.bindings, namespaces=namespace_lookup((), labels)
    )


def as_the_api_server_reads(obj):
    """Return an object of a built-in kind as its type in Go shows it."""
    struct = type_of(obj)
    return obj if struct is None else typed_view(obj, struct)[0]


def messages(decision):
    """Return what denials and warnings say, without who says it."""
    return [denial.advice for denial in decision.denials]


def library_cases():
    for folder in FOLDERS:
        text = (folder / "cases.yaml").read_text()
        cases, findings = load_cases(text, folder.name)
        assert not findings
        for case in cases.cases:
            yield pytest.param(folder, cases, case, id=f"{folder.name}: {case.name}")


@pytest.fixture(scope="module")
def sets():
    """Return a policy as it is and as it is exported, made once."""
    made = {}

    def find(folder):
        if folder not in made:
            ours, objects, said = exported((folder / "policy.yaml").read_text())
            assert not [finding for finding in said if finding.severity == "error"], said
            native = gather(load_document(Document(obj, "export")) for obj in objects)
            assert not native.findings
            made[folder] = ours, native
        return made[folder]

    return find


@pytest.mark.parametrize(("folder", "cases", "case"), [*library_cases()])
def test_the_library_answers_its_own_cases_alike(folder, cases, case, sets):
    labels = cases.namespace_labels if case.namespace_labels is None else case.namespace_labels
    user = UserInfo(username="someone")
    if case.user:
        user = UserInfo(username=case.user.username, groups=case.user.groups)
    circumstances = Circumstances(operation=case.operation, user=user)
    obj = as_the_api_server_reads(case.object)
    request = request_for(obj, circumstances, old_object=as_the_api_server_reads(case.old_object))

    ours, theirs = (policy_set(loaded, labels).review(request) for loaded in sets(folder))

    assert messages(theirs) == messages(ours)
    assert len(theirs.warnings) == len(ours.warnings)
    changed = as_the_api_server_reads(apply_json_patch(obj, ours.operations))
    assert as_the_api_server_reads(apply_json_patch(obj, theirs.operations)) == changed
