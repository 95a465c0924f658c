"""Amounts of resources with quota, and the error of devices that cannot be counted."""

from collections.abc import Iterable, Mapping

from policyd.api.kueue.validation import FieldError
from policyd.devices.charges import saturated

Amounts = dict[str, int]
"""Resource name to amount, in the units of quota."""


class DeviceCountError(ValueError):
    """Devices cannot be counted, so that nothing may be admitted that gets them.

    Attributes:
        errors: What is wrong, by field.
    """

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)
        texts = [str(each) for each in self.errors]
        super().__init__(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")


class CountedLaterError(Exception):
    """Devices are counted in a later turn, as others of their namespace took much work.

    This is no verdict: nothing is known of them meanwhile.
    """

    def __init__(self, namespace: str) -> None:
        super().__init__(
            f"the devices of its claims are counted in a later turn: those of the namespace"
            f" `{namespace}` take much work"
        )


def unit_of(resource: str) -> int:
    """Return the units of quota of one: cpu is counted in thousandths."""
    return 1_000 if resource == "cpu" else 1


def add(total: Amounts, more: Mapping[str, int]) -> None:
    """Add amounts to a total."""
    for resource, amount in more.items():
        total[resource] = saturated(total.get(resource, 0) + amount)
