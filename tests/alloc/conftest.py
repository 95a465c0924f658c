"""How thoroughly the properties of the core are tried: `--hypothesis-profile=thorough` for all."""

import os

from hypothesis import settings

settings.register_profile(
    "thorough",
    max_examples=int(os.environ.get("EXAMPLES", "10000")),
    deadline=None,
    derandomize=False,
)
