"""A mistake in one field of a job, as the door refuses it."""

from dataclasses import dataclass

from policyd.api.meta import Json


@dataclass(frozen=True, slots=True)
class FieldError:
    """One mistake: where it is, what stands there, and what is wrong with it."""

    field: str
    value: Json
    detail: str

    @property
    def problem(self) -> str:
        """The mistake as the API server would word it, the field left out."""
        return f'Invalid value: "{self.value}": {self.detail}'

    def __str__(self) -> str:
        """The mistake as the API server would word it."""
        return f"{self.field}: {self.problem}"
