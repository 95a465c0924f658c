"""What the webhooks count by policy: reviews that it matched, changed, refused or warned of."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from policyd.errors import PolicydError

METRIC: Final = "policyd_policy_results_total"
OTHER: Final = "_other_"
"""The label of the policies that have no series of their own."""
_RESULTS: Final = frozenset({"matched", "changed", "refused", "warned", "error"})


class CountsError(PolicydError):
    """Counts cannot be read, or are none of the webhooks."""


class ReviewCounts(NamedTuple):
    """Reviews by what a policy did.

    Attributes:
        matched: Those that it concerned.
        changed: Those whose objects it changed.
        refused: Those that it refused.
        warned: Those that it warned of.
        error: Those for which it could not be evaluated.
    """

    matched: int = 0
    changed: int = 0
    refused: int = 0
    warned: int = 0
    error: int = 0


class Reviewed(NamedTuple):
    """The counts of all webhooks together.

    Attributes:
        counts: By policy.
        webhooks: How many processes have counted.
        missing: Why others are missing, a sentence each.
    """

    counts: Mapping[str, ReviewCounts] = {}
    webhooks: int = 0
    missing: tuple[str, ...] = ()

    @property
    def more(self) -> bool:
        """Whether some policies are counted together."""
        return OTHER in self.counts

    def of(self, policy: str) -> ReviewCounts | None:
        """Return the counts of a policy; None if it is not counted apart, or nothing was read."""
        if not self.webhooks or (policy not in self.counts and self.more):
            return None
        return self.counts.get(policy, ReviewCounts())


def counts_in(samples: Iterable[Sample]) -> dict[str, ReviewCounts]:
    """Add up the phases of each policy in samples; those of other metrics are left out.

    Raises:
        CountsError: If a number is none of a counter.
    """
    sums: dict[str, Counter[str]] = {}
    for sample in samples:
        policy, result = sample.labels.get("policy"), sample.labels.get("result")
        if sample.name != METRIC or policy is None or result not in _RESULTS:
            continue
        if not 0 <= sample.value < 2**53:
            raise CountsError(f"`{METRIC}` has a value that is not a count: {sample.value}")
        sums.setdefault(policy, Counter())[result] += int(sample.value)
    return {policy: ReviewCounts(**found) for policy, found in sums.items()}


def counts_of_text(lines: Iterable[str]) -> dict[str, ReviewCounts]:
    """Return the counts in a text of metrics, as webhooks serve it.

    Raises:
        CountsError: If it is none of theirs.
    """
    own = [line for line in lines if line.startswith((METRIC, f"# TYPE {METRIC} "))]
    if not own:
        raise CountsError(f"the answer has no `{METRIC}`", hint="is it a webhook of policyd?")
    try:
        families = text_string_to_metric_families("\n".join(own))
        return counts_in(sample for family in families for sample in family.samples)
    except ValueError as error:
        raise CountsError(f"the answer has a line of `{METRIC}` that cannot be read") from error


def together(parts: Iterable[Mapping[str, ReviewCounts]]) -> dict[str, ReviewCounts]:
    """Add up the counts of several webhooks."""
    sums: dict[str, ReviewCounts] = {}
    for part in parts:
        for policy, counts in part.items():
            pairs = zip(sums.get(policy, ReviewCounts()), counts, strict=True)
            sums[policy] = ReviewCounts(*(one + other for one, other in pairs))
    return sums
