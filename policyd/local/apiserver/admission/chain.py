"""The order of admission: what is built in, then webhooks; first what mutates, then checks."""

from policyd.local.apiserver.admission import plugins
from policyd.local.apiserver.admission.attributes import Attributes
from policyd.local.apiserver.store import Store


class Admission:
    """What every write passes through."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def mutate(self, attributes: Attributes) -> None:
        """Change `attributes.object`.

        Raises:
            StatusError: If the write is refused.
        """
        plugins.mutate(attributes, self._store)

    async def validate(self, attributes: Attributes) -> None:
        """Look at the object as it is to be stored, or at what is to be deleted.

        Raises:
            StatusError: If the write is refused.
        """
        if attributes.operation == "DELETE":
            plugins.check_deletion(attributes)
