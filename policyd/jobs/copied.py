"""The labels and annotations that a workload copies from its job."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from policyd.api.kueue.names import ADMISSION_GATED_BY
from policyd.api.meta import ObjectMeta
from policyd.errors import PolicydError

FOR_PROVISIONING: Final = "provreq.kueue.x-k8s.io/"
EXPECTED_RUN_TIME: Final = "policyd.io/expected-run-time"
"""How long a job runs, as its user knows; believed, and not enforced."""


class DifferentMetadataError(PolicydError):
    """Pods of a group differ in a label or annotation that their workload is to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedMetadata:
    """The metadata that a workload copies from its job."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedKeys:
    """Which labels and annotations are copied because the administrator says so.

    Attributes:
        labels: Labels.
        annotations: Annotations.
        gates: Whether the admission gates of a job are copied.
    """

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    gates: bool = True

    def of(self, *jobs: ObjectMeta) -> CopiedMetadata:
        """Return the metadata that a workload copies from its job, or from the pods that are one.

        Keys that are always copied are the first pod's; the administrator's keys must not differ.

        Raises:
            DifferentMetadataError: If the pods contradict each other.
        """
        annotations = dict(self._always(jobs[0].annotations))
        annotations |= _common("annotation", self.annotations, [job.annotations for job in jobs])
        labels = _common("label", self.labels, [job.labels for job in jobs])
        return CopiedMetadata(labels=labels, annotations=annotations)

    def _always(self, annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        wanted = {EXPECTED_RUN_TIME, *((ADMISSION_GATED_BY,) if self.gates else ())}
        for key, value in annotations.items():
            if key in wanted or key.startswith(FOR_PROVISIONING):
                yield key, value


NO_KEYS: Final = CopiedKeys()
NOTHING_COPIED: Final = CopiedMetadata()


def _common(
    what: Literal["label", "annotation"], keys: Iterable[str], given: list[dict[str, str]]
) -> dict[str, str]:
    copied: dict[str, str] = {}
    for key in keys:
        values = {each[key] for each in given if key in each}
        if len(values) > 1:
            raise DifferentMetadataError(f"pods have different values of {what} `{key}`")
        copied.update((key, value) for value in values)
    return copied
