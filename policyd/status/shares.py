"""Shares as written in a status and in text."""

import math
from decimal import Decimal

from policyd.alloc.amount import UNLIMITED
from policyd.alloc.fair_sharing import BorrowedShare


def weighted_share(share: BorrowedShare) -> float:
    """Return the share itself; infinite for a borrower with weight 0."""
    if share.ratio == 0:
        return 0.0
    return math.inf if share.weight == 0 else share.ratio / share.weight


def rounded_share(share: BorrowedShare) -> int:
    """Return the share as a status tells it: rounded up, the largest amount if infinite."""
    weighted = weighted_share(share)
    return UNLIMITED if math.isinf(weighted) else min(math.ceil(weighted), UNLIMITED)


def share_text(share: BorrowedShare) -> str:
    """Write the share in full, as short as it can be."""
    weighted = weighted_share(share)
    if math.isinf(weighted):
        return "+Inf"
    return f"{Decimal(repr(weighted)).normalize():f}"
