"""The environment of the process: the only place that reads or sets it."""

import os
from collections.abc import Mapping


def environment() -> Mapping[str, str]:
    """Return the process's environment, read once by each composition root and passed on."""
    return dict(os.environ)


def without_usage_statistics() -> None:
    """Keep Ray from sending usage statistics, of this process and of those that it starts."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
