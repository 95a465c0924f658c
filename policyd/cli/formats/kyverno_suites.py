"""The files that a Kyverno test names: read, and handed to the engine."""

from pathlib import Path

from policyd.api.meta import Json
from policyd.cli.formats.files import content, load, read_objects
from policyd.dialects.kyverno.declared import declared_values
from policyd.dialects.kyverno.suite_files import (
    GROUP,
    KyvernoTest,
    SuiteCluster,
    SuiteUser,
    T,
    Values,
    read_as,
    read_suite,
)
from policyd.dialects.kyverno.suites import Given, run_suite
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document, read_documents
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.cases import CaseOutcome
from policyd.engine.offline.requests import custom_kinds
from policyd.policy_files import KYVERNO_TEST


def is_file(path: Path) -> bool:
    """Tell whether a file holds tests of Kyverno's, by its name or by what it says of itself."""
    return path.name == KYVERNO_TEST or GROUP.encode() in content(path)


def run_file(
    path: Path, keyword: str
) -> tuple[tuple[CaseOutcome, ...], tuple[Finding, ...], Loaded]:
    """Run the rows of a file of Kyverno tests, or say why they cannot be run.

    Returns:
        How each went, what is wrong with the file and what it names, and the policies.

    Raises:
        click.UsageError: If a file that it names cannot be read.
    """
    documents, findings = read_documents(content(path), str(path))
    if findings or len(documents) != 1:
        message = "not one document with `results`"
        wrong = findings or [Finding(source=str(path), message=message, line=1)]
        return (), tuple(wrong), Loaded()
    suite, findings = read_suite(documents[0])
    if suite is None:
        return (), tuple(findings), Loaded()
    given = _read(suite, path.parent, findings)
    findings += (f for f in given.loaded.findings if f.severity == "error")
    outcomes = tuple(o for o in run_suite(suite, given) if keyword in o.case.name)
    return outcomes, tuple(findings), given.loaded


def _read(suite: KyvernoTest, folder: Path, findings: list[Finding]) -> Given:
    """Read the files that a suite names; what cannot be read is added to the findings."""

    def documents(*names: str) -> list[Document]:
        found, unreadable = read_objects([str(folder / name) for name in names if name])
        findings.extend(unreadable)
        return found

    def objects(*names: str) -> list[Json]:
        return [document.value for document in documents(*names)]

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
    return Given(
        loaded=load([str(folder / name) for name in (*suite.policies, *suite.exceptions)]),
        resources=objects(*suite.resources),
        old=objects(*suite.old_resources),
        params=objects(*suite.param_resources),
        patched={
            name: objects(name) for name in {row.patched_resources for row in suite.results} - {""}
        },
        values=next(iter(values), suite.values),
        user=next(iter(users), SuiteUser()).user_info,
        external=declared_values(
            objects=cluster,
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
        kinds=custom_kinds([*cluster, *defined]),
    )


def _declares(document: Document) -> bool:
    """Tell whether a document tells of a cluster, and is not of one itself."""
    return value_at(document.value, ("kind",)) in ("Context", "ClusterResource")
