"""What the API server refuses of its own policies and their bindings when they are written."""

from collections.abc import Iterator

from policyd.engine.compile.load import load_document
from policyd.engine.documents.reading import Document
from policyd.engine.export.refused import refused
from policyd.local.apiserver.status import Cause, Object


def check_admission_policy(value: Object) -> Iterator[Cause]:
    """Check a policy or a binding: every expression has to compile."""
    document = Document(value, value["metadata"].get("name", ""))
    for finding in (*load_document(document).findings, *refused(document)):
        if finding.severity == "error":
            yield Cause("FieldValueInvalid", f"Invalid value: {finding.message}", finding.field)
