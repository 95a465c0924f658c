"""Annotations of a ClusterQueue that ask for more than Kueue's rules."""

from collections.abc import Mapping
from typing import Final, get_args

from policyd.api.configuration.duration import DurationError, duration_seconds
from policyd.errors import PolicydError, did_you_mean
from policyd.jobs.gangs.hand_over import GANG_SCHEDULER, GANG_WAIT
from policyd.jobs.gangs.schedulers import SCHEDULERS, GangScheduler
from policyd.optimize.opt_ins import NO_OPT_INS, UNPROTECTED, OptIns, Order, Protection

QUEUE_ORDER: Final = "policyd.io/queue-order"
BINPACK: Final = "policyd.io/binpack"
STALE_GANG_GRACE: Final = "policyd.io/stale-gang-grace"
CONSOLIDATE: Final = "policyd.io/consolidate"
CLAIM_PREEMPTED: Final = "policyd.io/claim-preempted"
RESERVE_AFTER: Final = "policyd.io/reserve-after"
AVOID_SHARED_GPUS: Final = "policyd.io/avoid-shared-gpus"
AVOID_FRAGMENTS: Final = "policyd.io/avoid-fragments"
PREEMPT_MIN_RUNTIME: Final = "policyd.io/preempt-min-runtime"
RECLAIM_MIN_RUNTIME: Final = "policyd.io/reclaim-min-runtime"
REPEAT_MIN_RUNTIME: Final = "policyd.io/repeat-min-runtime"

_ORDERS: Final[Mapping[str, Order]] = {order: order for order in get_args(Order)}


class OptInError(PolicydError):
    """An annotation of a ClusterQueue is invalid."""


def opt_ins_of(annotations: Mapping[str, str]) -> OptIns:
    """Read the annotations of a ClusterQueue.

    Raises:
        OptInError: If one of them says something that cannot be meant.
    """
    gang_scheduler_of(annotations)
    gang_wait_of(annotations)
    found = OptIns(
        order=_order(annotations.get(QUEUE_ORDER, "Priority")),
        packs=_weights(annotations.get(BINPACK, "")),
        stale_seconds=_seconds(annotations, STALE_GANG_GRACE),
        moves=_number(annotations.get(CONSOLIDATE, "0")),
        claims=_switch(annotations, CLAIM_PREEMPTED),
        reserve_seconds=_seconds(annotations, RESERVE_AFTER),
        whole_gpus=_switch(annotations, AVOID_SHARED_GPUS),
        avoids_fragments=_switch(annotations, AVOID_FRAGMENTS),
        protection=_protection(annotations),
    )
    return NO_OPT_INS if found == NO_OPT_INS else found


def gang_scheduler_of(annotations: Mapping[str, str]) -> GangScheduler | None:
    """Return the scheduler that the gangs of a ClusterQueue are handed to; None if to none.

    Raises:
        OptInError: If there is none of that name.
    """
    text = annotations.get(GANG_SCHEDULER)
    if text is None:
        return None
    if text not in SCHEDULERS:
        known = did_you_mean(text, SCHEDULERS) or f"known: {', '.join(SCHEDULERS)}"
        raise OptInError(f"{GANG_SCHEDULER}: unknown scheduler `{text}`", hint=known)
    return SCHEDULERS[text]


def gang_wait_of(annotations: Mapping[str, str]) -> int | None:
    """Return how many seconds pods of a gang wait for each other at most; None if unset.

    Raises:
        OptInError: If it is not a duration.
    """
    seconds = _seconds(annotations, GANG_WAIT)
    return None if seconds is None else max(1, round(seconds))


def _order(text: str) -> Order:
    if text not in _ORDERS:
        known = did_you_mean(text, _ORDERS) or f"known: {', '.join(_ORDERS)}"
        raise OptInError(f"{QUEUE_ORDER}: unknown order `{text}`", hint=known)
    return _ORDERS[text]


def _weights(text: str) -> dict[str, float]:
    weights = {}
    for part in filter(None, map(str.strip, text.split(","))):
        resource, _, weight = part.partition("=")
        try:
            weights[resource.strip()] = float(weight or "1")
        except ValueError:
            hint = "write `nvidia.com/gpu=5, cpu=1`"
            raise OptInError(f"{BINPACK}: `{weight}` is not a weight", hint=hint) from None
    if not all(0 <= weight < float("inf") for weight in weights.values()):
        raise OptInError(f"{BINPACK}: a weight in `{text}` is negative or too large")
    return weights


def _seconds(annotations: Mapping[str, str], name: str) -> float | None:
    text = annotations.get(name)
    try:
        return None if text is None else max(0.0, duration_seconds(text))
    except DurationError as error:
        raise OptInError(f"{name}: {error}", hint=error.hint) from error


def _protection(annotations: Mapping[str, str]) -> Protection:
    found = Protection(
        preemption=_seconds(annotations, PREEMPT_MIN_RUNTIME) or 0.0,
        reclaim=_seconds(annotations, RECLAIM_MIN_RUNTIME) or 0.0,
        repetition=_seconds(annotations, REPEAT_MIN_RUNTIME) or 0.0,
    )
    return UNPROTECTED if found == UNPROTECTED else found


def _switch(annotations: Mapping[str, str], name: str) -> bool:
    text = annotations.get(name, "false")
    if text not in {"true", "false"}:
        raise OptInError(f"{name}: `{text}` is neither `true` nor `false`")
    return text == "true"


def _number(text: str) -> int:
    if not text.isdecimal():
        hint = "write how many workloads may be moved at a time, such as `4`"
        raise OptInError(f"{CONSOLIDATE}: `{text}` is not a number", hint=hint)
    return int(text)


def protection_of(annotations: Mapping[str, str]) -> Protection:
    """Read for how long the workloads of a ClusterQueue keep their quota.

    Raises:
        DurationError: If one of them is not a duration.
    """

    def seconds(name: str) -> float:
        try:
            return max(0.0, duration_seconds(annotations.get(name, "0")))
        except DurationError as error:
            raise DurationError(f"{name}: {error}", hint=error.hint) from error

    found = Protection(
        preemption=seconds(PREEMPT_MIN_RUNTIME),
        reclaim=seconds(RECLAIM_MIN_RUNTIME),
        repetition=seconds(REPEAT_MIN_RUNTIME),
    )
    return UNPROTECTED if found == UNPROTECTED else found
