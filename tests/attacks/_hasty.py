"""The webhooks with short bounds of time, which a flood of a few seconds reaches."""

import json
import sys
from dataclasses import replace

from policyd import health
from policyd.connections import Bounds, Listening


def main() -> None:
    """Run the webhooks, with bounds that differ as the first argument says in JSON."""
    given = json.loads(sys.argv.pop(1))
    assert Listening.__init__.__kwdefaults__ is not None, "its bounds have a default"
    Listening.__init__.__kwdefaults__["bounds"] = replace(Bounds(), **given)
    given.pop("connections", None)
    health.HEALTH_BOUNDS = replace(health.HEALTH_BOUNDS, **given)  # type: ignore[misc]
    # What takes the bounds is imported once they are set.
    from webhooks.__main__ import main as run  # noqa: PLC0415

    run()


if __name__ == "__main__":
    main()
