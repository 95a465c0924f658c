"""The order of admission: plug-ins, policies, webhooks; first mutation, then validation."""

from policyd.local.apiserver.admission import plugins
from policyd.local.apiserver.admission.attributes import WriteAttributes
from policyd.local.apiserver.admission.policies import StoredPolicies
from policyd.local.apiserver.admission.webhooks import Webhooks
from policyd.local.apiserver.store import Store
from policyd.local.apiserver.writing.metadata import own_copy


class AdmissionChain:
    """The admission of every write."""

    def __init__(self, store: Store, policies: StoredPolicies, webhooks: Webhooks) -> None:
        self._store = store
        self._policies = policies
        self._webhooks = webhooks

    async def mutate(self, attributes: WriteAttributes) -> None:
        """Change `attributes.object`; early plugins run again after changes of late ones.

        Raises:
            StatusError: If the write is refused.
        """
        plugins.mutate(attributes, self._store)
        changed = self._policies.mutate(attributes)
        found = await self._webhooks.mutate(attributes)
        if not (changed or found.changed) or attributes.object is None:
            return
        before = own_copy(attributes.object)
        plugins.mutate(attributes, self._store)
        self._policies.mutate(attributes, again=True)
        again = found.again if attributes.object == before else found.asked
        await self._webhooks.mutate_again(attributes, again)

    async def validate(self, attributes: WriteAttributes) -> None:
        """Check the object as it is to be stored, or the one to delete.

        Raises:
            StatusError: If the write is refused.
        """
        if attributes.operation == "DELETE":
            plugins.check_deletion(attributes)
            # Mutating webhooks are asked about deletions too, though there is nothing to change.
            await self._webhooks.mutate(attributes)
        else:
            plugins.check_default_class(attributes, self._store)
        self._policies.validate(attributes)
        await self._webhooks.validate(attributes)
