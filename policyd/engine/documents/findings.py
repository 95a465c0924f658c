"""Report problems of a file: a message, a position and a hint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Severity = Literal["error", "warning"]
_WIDEST: Final = 160
"""Characters of a line that are shown."""


RULES: Final[Mapping[str, str]] = {
    "policy": "an error that makes a policy unusable",
    "unreadable": "a document that is not YAML, or not a Kubernetes object",
    "namespace-labels": "a namespaceSelector for a namespace whose labels are unknown",
    "conflict": "two policies, or two elements of a JSON patch, that write a field differently",
    "never-true": "a match that no request can meet",
    "unknown": "a resource or kind that does not exist",
    "null-unsafe": "an expression or mutation that fails where an optional field is missing",
    "failure-policy": "a policy without a `failurePolicy`",
    "dialect": "an expression that another version of Kubernetes reads differently",
    "refused": "a policy or binding that the API server, or Kyverno, rejects",
    "cost": "a policy that costs too much for large objects",
    "wide-rules": "rules with so many combinations that more requests are sent to the webhooks",
    "case": "a case that did not give the expected result",
    "proof": "a policy without effect, or one that does not mean what another does, by a proof",
    "coverage": "a validation that no case violates",
    "warning": "a warning of a policy that allows the request",
}
"""The names of rules that findings carry for CI; other findings carry a policy's name."""


class LintWarning(NamedTuple):
    """A warning about a policy: a message, a hint, and one of RULES."""

    message: str
    hint: str | None = None
    rule: str = "policy"


class Position(NamedTuple):
    """A place in a text; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong.

    `field` is the path in the object (`spec.validations[0].expression`), for objects that do not
    come from a file. `excerpt` is the line of the source, for the caret; `rule` is the subject of
    the finding, for statistics: one of RULES, or a policy.
    """

    source: str
    message: str
    line: int = 0
    column: int = 0
    field: str = ""
    hint: str | None = None
    severity: Severity = "error"
    excerpt: str = ""
    rule: str = "policy"

    @property
    def place(self) -> str:
        """Return `file:line:column`, as far as they are known."""
        if self.line:
            return f"{self.source}:{self.line}:{self.column}"
        return f"{self.source}: {self.field}" if self.field else self.source

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def field_path(path: tuple[str | int, ...]) -> str:
    """Write a path as users do: `spec.validations[0].expression`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def _around(text: str, column: int) -> tuple[str, int]:
    """Return the part of a long line around a column, and the column within it."""
    if len(text) <= _WIDEST:
        return text, column
    start = max(0, min(column - 1 - _WIDEST // 2, len(text) - _WIDEST))
    before = "…" if start else ""
    after = "…" if start + _WIDEST < len(text) else ""
    return f"{before}{text[start : start + _WIDEST]}{after}", column - start + len(before)


def caret_lines(finding: Finding) -> list[str]:
    """Draw the line of the source with a caret below the column; empty if there is no line."""
    if not finding.excerpt:
        return []
    number, (excerpt, column) = str(finding.line), _around(finding.excerpt, finding.column)
    # Tabs stay tabs, so that the caret stands where the terminal put the character.
    blank = "".join("\t" if c == "\t" else " " for c in excerpt[: column - 1])
    return [f"  {number} | {excerpt}", f"  {' ' * len(number)} | {blank}^"]
