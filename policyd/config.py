"""Settings: the only reader of the environment."""

import os
from collections.abc import Mapping


def environment() -> Mapping[str, str]:
    """Return the process's environment, read once by each composition root and passed on."""
    return dict(os.environ)
