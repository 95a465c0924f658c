"""The files that a suite of Gatekeeper's names: read, and handed to the engine."""

from collections.abc import Sequence
from pathlib import Path

from policyd.cli.formats.files import content
from policyd.dialects.gatekeeper.suites import GROUP, is_suite, read_suite, run_suite
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document, read_documents
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.offline.cases import CaseOutcome


def is_file(path: Path) -> bool:
    """Tell whether a file holds a suite."""
    text = content(path)
    if GROUP.encode() not in text:
        return False
    documents, _ = read_documents(text, str(path))
    return any(is_suite(document.value) for document in documents)


def run_file(
    path: Path, keyword: str
) -> tuple[tuple[CaseOutcome, ...], tuple[Finding, ...], Loaded]:
    """Run the cases of a file of suites, or say why none can be run.

    Returns:
        How each went, what keeps them from being run, and the policies they are about.

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
        suite, wrong = read_suite(document) if is_suite(document.value) else (None, [])
        findings += [finding for finding in wrong if finding.severity == "error"]
        for came in run_suite(suite, read) if suite else ():
            if isinstance(came, Finding):
                findings.append(came)
            elif isinstance(came, CompiledPolicy):
                policies[came.id] = came
            elif keyword in came.case.name:
                outcomes.append(came)
    return tuple(outcomes), tuple(findings), Loaded(tuple(policies.values()))
