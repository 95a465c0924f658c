"""Queue snapshots in files, as JSON or written by hand as YAML."""

from pathlib import Path

import msgspec

from policyd.cli.formats.files import content, text_of
from policyd.engine.documents.reading import read_documents
from policyd.snapshot.facts import SnapshotFacts, facts_of
from policyd.snapshot.reading import SnapshotError, read


def facts_in(path: str) -> SnapshotFacts:
    """Return the facts of the snapshot in a file, or on standard input.

    Raises:
        SnapshotError: If it is none.
    """
    name, body = text_of(path)
    return facts_of(read(_as_json(body, name), name))


def facts_beside(folder: Path, name: str) -> SnapshotFacts:
    """Return the facts of the snapshot that a case names.

    Raises:
        SnapshotError: If it is none.
        click.UsageError: If it cannot be read.
    """
    file = folder / name
    return facts_of(read(_as_json(content(file), str(file)), str(file)))


def _as_json(body: bytes, source: str) -> bytes:
    if body.lstrip()[:1] == b"{":
        return body
    documents, findings = read_documents(body, source)
    for finding in findings:
        raise SnapshotError(str(finding), hint=finding.hint)
    if len(documents) != 1:
        raise SnapshotError(f"{source} has {len(documents)} documents, and should have one")
    return msgspec.json.encode(documents[0].value)
