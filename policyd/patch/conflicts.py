"""Report conflicts of server-side apply, in the API server's words."""

from collections.abc import Sequence
from dataclasses import dataclass

from policyd.errors import PolicydError
from policyd.patch.fields_v1 import FieldPath, path_text
from policyd.patch.managed_fields import Manager


@dataclass(frozen=True, slots=True)
class Conflict:
    """A field that another manager owns with another value."""

    manager: Manager
    path: FieldPath

    @property
    def field(self) -> str:
        """The field as the API server writes it: `.spec.replicas`."""
        return path_text(self.path)


class ApplyConflictError(PolicydError):
    """An apply changes fields that other managers own."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        super().__init__(
            _conflict_message(conflicts),
            hint="leave the fields out, take them over by force, or apply the values they have",
        )
        self.conflicts = tuple(conflicts)

    @property
    def causes(self) -> list[dict[str, str]]:
        """The conflicts as causes of a Status."""
        return [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {conflict.manager}",
                "field": conflict.field,
            }
            for conflict in self.conflicts
        ]


def _conflict_message(conflicts: Sequence[Conflict]) -> str:
    if len(conflicts) == 1:
        only = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {only.manager}: {only.field}"
    lines: list[str] = []
    for manager in sorted({conflict.manager for conflict in conflicts}):
        lines.append(f"conflicts with {manager}:")
        lines.extend(f"- {found.field}" for found in conflicts if found.manager == manager)
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
