"""Map each format to the function that exports its policies.

Apart from the registry, as `policyd export` alone needs it and the webhooks are to start without.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from policyd.dialects.kyverno.export import export_kyverno
from policyd.dialects.kyverno.load import KYVERNO
from policyd.engine.documents.reading import Document
from policyd.engine.export.policies import Exported
from policyd.engine.model.compiled import CompiledException, CompiledPolicy
from policyd.engine.model.dialects import PolicyFormat


class ExportFormat(Protocol):
    """Writes a document as the API server's own kinds."""

    def __call__(
        self,
        policies: Sequence[CompiledPolicy],
        document: Document,
        exceptions: Iterable[CompiledException] = (),
        *,
        version: str = "v1",
    ) -> Exported:
        """Return the objects, or findings about features that cannot be exported.

        Args:
            policies: The compiled policies of the document.
            document: The document: findings point into it.
            exceptions: Exemptions from policies.
            version: The version of the API server's kinds.
        """
        ...


EXPORTS: Final[Mapping[PolicyFormat, ExportFormat]] = {KYVERNO: export_kyverno}
"""The export function of each format."""
