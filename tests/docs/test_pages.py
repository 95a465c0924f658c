"""What can be checked without running anything: links, YAML blocks, and that fences are seen."""

import json
import re

import msgspec
import pytest
import yaml

from policyd.api import crd, kinds
from policyd.api.admission import ReviewError, parse_review
from policyd.api.configuration import check_configuration, decode_configuration
from policyd.api.kueue.v1beta1 import upgraded
from policyd.cli.importing.reading import IMPORTABLE
from policyd.cli.importing.rules import rules_of
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.documents.reading import Document
from policyd.engine.offline.cases import load_cases
from policyd.errors import ConfigurationError
from policyd.local.apiserver.custom import schema as custom_schema
from policyd.local.apiserver.custom.checking import check_custom
from policyd.migrate.gatekeeper.constraints import (
    UnconvertibleConstraintError,
    convert_constraint,
    is_constraint,
    of_library,
)
from policyd.patch.builtin_types import decode_typed
from policyd.snapshot.reading import read
from policyd.snapshot.values import KIND
from tests.docs.pages import ANCHOR, LINK, PROJECT, anchors, blocks, pages

EVERY_PAGE = [pytest.param(page, id=str(page.relative_to(PROJECT))) for page in pages()]
YAML_BLOCKS = [
    pytest.param(block, id=block.place)
    for page in pages()
    for block in blocks(page)
    if block.language == "yaml"
]
AUDIT = "audit.k8s.io/v1"
OTHERS = {
    ("v1", "Config"),
    ("apiserver.config.k8s.io/v1", "AdmissionConfiguration"),
    (AUDIT, "Policy"),
    (AUDIT, "Event"),
}
"""Files of Kubernetes' own programs, which the real ones use in other tests."""
LEGACY = {("kyverno.io/v1", "ClusterPolicy")}
"""What `policyd migrate` reads: the guide's own commands do."""
PATH = re.compile(r"`((?:policyd|webhooks|tests|charts|policies|docs)/[\w./-]*\w/?)`")
CUSTOM = {(f"{kind.group}/{kind.version}", kind.type.__name__): kind for kind in crd.KINDS}


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_anchors_lead_to_headings(page):
    for target, anchor in ANCHOR.findall(page.read_text()):
        if "://" not in target:
            assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_every_fence_is_seen(page):
    """An indented fence would be passed over by all tests of blocks."""
    fences = page.read_text().count("```")

    assert fences == 2 * len(blocks(page))


@pytest.mark.parametrize("block", YAML_BLOCKS)
def test_yaml_has_the_fields_of_its_kind(block):
    documents = [document for document in yaml.safe_load_all(block.text) if document]
    assert documents, block.place
    assert [wrong for document in documents for wrong in mistakes(document)] == []
    kinds = {(document.get("kind"), document.get("apiVersion") == AUDIT) for document in documents}
    if ("Policy", False) in kinds:
        findings = load_policies(block.text, block.place, EVERY_FORMAT).findings
        assert [f"{finding.line}: {finding.message}" for finding in findings] == []


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"apiVersion": "v1", "kind": "Pod", "spec": {"node": "a"}}, id="built-in"),
        pytest.param(
            {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "spec": {"parent": "a"}},
            id="kueue",
        ),
        pytest.param({"apiVersion": "v1", "kind": "Pot"}, id="kind"),
        pytest.param({"apiVersion": "v1", "kind": "Configuration"}, id="configuration"),
        pytest.param({"cases": [{"name": "a", "expects": {}}]}, id="cases"),
    ],
)
def test_a_mistake_in_yaml_would_be_found(document):
    assert mistakes(document)


def configuration_mistakes(document):
    try:
        return check_configuration(decode_configuration(document))[1]
    except ConfigurationError as error:
        return [str(error)]


def review_mistakes(document):
    try:
        parse_review(json.dumps(document).encode())
    except ReviewError as error:
        return [str(error)]
    return []


def snapshot_mistakes(document):
    known = read(json.dumps(document).encode(), "")
    return sorted(document.keys() - msgspec.to_builtins(known).keys())


def constraint_mistakes(document):
    try:
        convert_constraint(of_library(document["kind"]), Document(document, ""), name="c")
    except UnconvertibleConstraintError as error:
        return [str(error)]
    return []


def import_mistakes(document):
    return [finding.message for finding in rules_of(Document(document, ""), IMPORTABLE)[1]]


READ = {
    "ImportRules": import_mistakes,
    "AdmissionReview": review_mistakes,
    "Configuration": configuration_mistakes,
    KIND: snapshot_mistakes,
}
"""What finds the mistakes in documents of kinds that have no schema."""


def mistakes(document):
    """Say what an object has that its kind does not know, or what its schema forbids."""
    if "cases" in document:
        return [finding.message for finding in load_cases(yaml.safe_dump(document), "")[1]]
    if "kind" not in document or (document["apiVersion"], document["kind"]) in OTHERS:
        return []
    document = upgraded(document)
    api_version, kind = document["apiVersion"], document["kind"]
    if kind in READ:
        return READ[kind](document)
    if (api_version, kind) in CUSTOM:
        return custom_mistakes(document, CUSTOM[api_version, kind])
    return served_mistakes(document, api_version, kind)


def served_mistakes(document, api_version, kind):
    loaded = load_policies(yaml.safe_dump(document), "", EVERY_FORMAT)
    if loaded.all_policies or loaded.bindings or loaded.exceptions:
        return [finding.message for finding in loaded.findings]
    if (api_version, kind) in LEGACY:
        return []
    if is_constraint(document):
        return constraint_mistakes(document)
    group, _, version = api_version.rpartition("/")
    built_in = kinds.resource_for_kind(group, version, kind)
    if built_in is None:
        return [f"{kind} of {api_version} is not known"]
    return decode_typed(document, built_in.type_name)[1]


def custom_mistakes(document, kind):
    definition = crd.definition(kind)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    unknown = list(custom_schema.prune(document, schema))
    return unknown + [cause.message for cause in check_custom(document, schema)]


def test_the_map_leads_to_every_page():
    docs = PROJECT / "docs"
    shown = {
        (index.parent / target).resolve()
        for index in docs.rglob("index.md")
        for target in LINK.findall(index.read_text())
    }

    lost = [
        str(page.relative_to(docs))
        for page in docs.rglob("*.md")
        if page != docs / "index.md" and page not in shown and page.parent not in shown
    ]

    assert lost == []


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_paths_of_the_project_are_those_of_the_tree(page):
    """A decision and the changelog may name what was there, or was not built."""
    history = page.parent.name == "adr" or page.name == "CHANGELOG.md"
    named = set() if history else set(PATH.findall(page.read_text()))

    assert [path for path in sorted(named) if not (PROJECT / path).exists()] == []
