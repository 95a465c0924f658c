"""Tests in the layouts of others: Kyverno's, Gatekeeper's and kat's.

Their files are found and read here; the dialects interpret them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from policyd.api.meta import Json
from policyd.cli.formats.documents import load, read_objects
from policyd.cli.formats.files import content
from policyd.dialects.gatekeeper import suites as gatekeeper
from policyd.dialects.kat.layout import FOLDER, is_input, tests_of
from policyd.dialects.kat.suites import run_test
from policyd.dialects.kyverno import suite_files as kyverno_files
from policyd.dialects.kyverno.declared import declared_values
from policyd.dialects.kyverno.suite_files import (
    KyvernoTest,
    SuiteCluster,
    SuiteUser,
    T,
    Values,
    read_as,
)
from policyd.dialects.kyverno.suites import SuiteContent, run_suite
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document, read_documents
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.cases import CaseOutcome
from policyd.engine.offline.requests import (
    CustomKinds,
    ObjectError,
    RequestCircumstances,
    custom_kinds,
    identify,
    in_its_namespace,
)
from policyd.policy_files import KYVERNO_TEST, SUFFIXES

Outcomes = tuple[tuple[CaseOutcome, ...], tuple[Finding, ...], Loaded]
"""The outcomes of tests, the findings that prevent tests from running, and the policies."""


def is_kyverno_test(path: Path) -> bool:
    """Tell whether a file contains tests of Kyverno, by its name or its content."""
    return path.name == KYVERNO_TEST or kyverno_files.GROUP.encode() in content(path)


def run_kyverno_test(path: Path, keyword: str) -> Outcomes:
    """Run the rows of a file of Kyverno tests, or say why they cannot be run.

    Raises:
        click.UsageError: If a file that it names cannot be read.
    """
    documents, findings = read_documents(content(path), str(path))
    if findings or len(documents) != 1:
        message = "not one document with `results`"
        wrong = findings or [Finding(source=str(path), message=message, line=1)]
        return (), tuple(wrong), Loaded()
    suite, findings = kyverno_files.read_suite(documents[0])
    if suite is None:
        return (), tuple(findings), Loaded()
    given = _read(suite, path.parent, findings)
    findings += (f for f in given.loaded.findings if f.severity == "error")
    outcomes = tuple(o for o in run_suite(suite, given) if keyword in o.case.name)
    return outcomes, tuple(findings), given.loaded


def _read(suite: KyvernoTest, folder: Path, findings: list[Finding]) -> SuiteContent:
    """Read the files that a suite names; errors are added to the findings."""

    def documents(*names: str) -> list[Document]:
        found, unreadable = read_objects([str(folder / name) for name in names if name])
        findings.extend(unreadable)
        return found

    def objects(*names: str) -> list[Json]:
        return [document.value for document in documents(*names)]

    def stored(*names: str) -> list[Json]:
        return [_stored(each, kinds) for each in objects(*names)]

    def read(struct: type[T], document: Document) -> list[T]:
        value, wrong = read_as(struct, document)
        findings.extend(wrong)
        return [] if value is None else [value]

    values = [v for each in documents(suite.variables)[:1] for v in read(Values, each)]
    users = [u for each in documents(suite.userinfo)[:1] for u in read(SuiteUser, each)]
    found = documents(suite.context, *suite.cluster_resources)
    declared = [c.spec for each in found if _declares(each) for c in read(SuiteCluster, each)]
    cluster = [each.value for each in found if not _declares(each)]
    cluster += (obj for each in declared for obj in each.resources)
    defined = objects(*(name for each in declared for name in each.crds))
    kinds = custom_kinds([*cluster, *defined])
    targets = stored(*suite.target_resources)
    expected = {
        name for row in suite.results for name in (row.patched_resources, row.generated_resource)
    }
    return SuiteContent(
        loaded=load(
            [str(folder / name) for name in (*suite.policies, *suite.exceptions)], stored=False
        ),
        resources=stored(*suite.resources),
        old=stored(*suite.old_resources),
        targets=targets,
        params=stored(*suite.param_resources),
        patched={name: stored(name) for name in expected - {""}},
        values=next(iter(values), suite.values),
        user=next(iter(users), SuiteUser()).user_info,
        external=declared_values(
            objects=[*cluster, *targets],
            images=[image for each in declared for image in each.images],
            responses=suite.api_call_responses,
            entries=[
                {**entry, "resources": objects(*entry["resourceFiles"])}
                if entry.get("resourceFiles")
                else entry
                for entry in suite.global_context_entries
            ],
        ),
        namespaces=cluster,
        kinds=kinds,
    )


def _stored(obj: Json, kinds: CustomKinds) -> Json:
    """Return an object in its namespace; one that is none fails when its row is run."""
    try:
        return in_its_namespace(obj, identify(obj, RequestCircumstances(kinds=kinds)).namespace)
    except ObjectError:
        return obj


def _declares(document: Document) -> bool:
    """Tell whether a document tells of a cluster, and is not of one itself."""
    return value_at(document.value, ("kind",)) in ("Context", "ClusterResource")


def is_gatekeeper_suite(path: Path) -> bool:
    """Tell whether a file holds a suite."""
    text = content(path)
    if gatekeeper.GROUP.encode() not in text:
        return False
    documents, _ = read_documents(text, str(path))
    return any(gatekeeper.is_suite(document.value) for document in documents)


def run_gatekeeper_suite(path: Path, keyword: str) -> Outcomes:
    """Run the cases of a file of suites, or say why none can be run.

    Raises:
        click.UsageError: If a file that it names cannot be read.
    """

    def read(name: str) -> Sequence[Document]:
        file = path.parent / name
        return read_documents(content(file), str(file))[0]

    outcomes: list[CaseOutcome] = []
    policies: dict[str, CompiledPolicy] = {}
    documents, findings = read_documents(content(path), str(path))
    for document in documents:
        suite, wrong = (
            gatekeeper.read_suite(document) if gatekeeper.is_suite(document.value) else (None, [])
        )
        findings += [finding for finding in wrong if finding.severity == "error"]
        for came in gatekeeper.run_suite(suite, read) if suite else ():
            if isinstance(came, Finding):
                findings.append(came)
            elif isinstance(came, CompiledPolicy):
                policies[came.id] = came
            elif keyword in came.case.name:
                outcomes.append(came)
    return tuple(outcomes), tuple(findings), Loaded(tuple(policies.values()))


def is_kat_folder(path: Path) -> bool:
    """Tell whether a folder holds tests of the policies beside it."""
    return path.is_dir() and path.name == FOLDER and any(is_input(f.name) for f in path.iterdir())


def run_kat_folder(path: Path, keyword: str) -> Outcomes:
    """Run the tests of a folder, or say why none can be run.

    Raises:
        click.UsageError: If a file cannot be read.
    """
    beside = sorted(file for file in path.parent.iterdir() if file.suffix in SUFFIXES)
    loaded = load([str(file) for file in beside], stored=False)
    wrong = [finding for finding in loaded.findings if finding.severity == "error"]
    if not loaded.policies and not wrong:
        wrong = [Finding(source=str(path), message="no policy found next to these tests")]
    if wrong:
        return (), tuple(wrong), loaded
    findings: list[Finding] = []

    def read(name: str) -> Any:  # noqa: ANN401 - decoded YAML, or a text
        text = content(path / name)
        if not name.endswith(".yaml"):
            return text.decode(errors="replace")
        documents, unreadable = read_documents(text, str(path / name))
        findings.extend(unreadable)
        return documents[0].value if documents else None

    tests = list(tests_of(sorted(file.name for file in path.iterdir()), read))
    if findings:
        return (), tuple(findings), loaded
    return tuple(run_test(t, loaded) for t in tests if keyword in t.name), (), loaded
