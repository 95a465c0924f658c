"""GlobalContextEntries beside policies: what `globalContext.Get` gives, from a watched cache."""

from collections.abc import Iterable

from policyd.api.meta import Json
from policyd.cel.kyverno import Resources
from policyd.engine.kyverno.cluster_policies import GROUP
from policyd.engine.workloads import value_at
from policyd.errors import PolicydError

_KIND = "GlobalContextEntry"


class EntryError(PolicydError):
    """An entry cannot be answered."""


class Entries:
    """The entries among objects; each names a resource, whose objects it holds."""

    def __init__(self, objects: Iterable[Json], resources: Resources) -> None:
        """Take what is read from the cluster from `resources`."""
        self._resources = resources
        self._specs = {
            value_at(obj, ("metadata", "name")): value_at(obj, ("spec",))
            for obj in objects
            if value_at(obj, ("kind",)) == _KIND
            and str(value_at(obj, ("apiVersion",))).startswith(f"{GROUP}/")
        }

    def get(self, name: str, projection: str) -> Json:
        """Return the objects of an entry; None if there is none of the name.

        Raises:
            PolicydError: If it is no list of objects, or they cannot be read.
        """
        if name not in self._specs:
            return None
        if projection:
            message = f"projection `{projection}` of entry `{name}` is JMESPath, and not evaluated"
            raise EntryError(message)
        wanted = value_at(self._specs[name], ("kubernetesResource",))
        if not isinstance(wanted, dict):
            raise EntryError(f"entry `{name}` is a call, and a review sends none")
        given = {key: str(wanted.get(key) or "") for key in ("version", "resource", "namespace")}
        group = wanted.get("group")
        api_version = f"{group}/{given['version']}" if group else given["version"]
        found = self._resources.list(api_version, given["resource"], given["namespace"], {})
        return found["items"]
