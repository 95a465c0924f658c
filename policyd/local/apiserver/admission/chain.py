"""The order of admission: what is built in, then webhooks; first what mutates, then checks."""

from policyd.local.apiserver.admission.attributes import Attributes


class Admission:
    """What every write passes through."""

    async def mutate(self, attributes: Attributes) -> None:
        """Change `attributes.object`, or refuse."""

    async def validate(self, attributes: Attributes) -> None:
        """Refuse, or do nothing."""
