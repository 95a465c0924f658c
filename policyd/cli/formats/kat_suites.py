"""The files of tests in kat's layout: found, read, and handed to the engine."""

from pathlib import Path
from typing import Any

from policyd.cli.formats.files import content, load
from policyd.dialects.kat.layout import FOLDER, is_input, tests_of
from policyd.dialects.kat.suites import run_test
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import read_documents
from policyd.engine.offline.cases import CaseOutcome
from policyd.policy_files import SUFFIXES


def is_folder(path: Path) -> bool:
    """Tell whether a folder holds tests of the policies beside it."""
    return path.is_dir() and path.name == FOLDER and any(is_input(f.name) for f in path.iterdir())


def run_folder(
    path: Path, keyword: str
) -> tuple[tuple[CaseOutcome, ...], tuple[Finding, ...], Loaded]:
    """Run the tests of a folder, or say why none can be run.

    Returns:
        How each went, what keeps them from being run, and the policies beside the folder.

    Raises:
        click.UsageError: If a file cannot be read.
    """
    beside = sorted(file for file in path.parent.iterdir() if file.suffix in SUFFIXES)
    loaded = load([str(file) for file in beside])
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
