"""What a pass of `policyd background` reads of the cluster, besides the objects of its policies."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

import msgspec

from policyd.api.meta import Json
from policyd.api.names import is_label_key, is_label_value
from policyd.dialects.kyverno.entries import EntryCall
from policyd.engine.objects.workloads import value_at
from policyd.errors import ConfigurationError, PolicydError
from policyd.kube.client import Reader
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.pages import pages, whole
from policyd.kube.resources import Resource

T = TypeVar("T")

MOST_READ: Final = 5_000
"""Objects that expressions of one pass may read, each with 1.5 MiB at most; lists included."""

MOST_ROUNDS: Final = 10
"""How often an expression may read something that depends on what it has read."""

MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes of these, as JSON."""


MOST_ENTRIES: Final = 1_000
"""GlobalContextEntries that are read."""


class UnlistedError(PolicydError):
    """An expression reads what the command may not read for it, or too much of it."""


class _Question(NamedTuple):
    """What an expression reads; a list if there is no name."""

    resource: Resource
    namespace: str
    name: str = ""
    labels: tuple[tuple[str, str], ...] = ()


class ReadsOnDemand:
    """The objects that expressions read in one pass, each read once when it is first asked for.

    An expression cannot wait: it fails at what is not read yet, and is evaluated again.
    """

    def __init__(self, client: Reader, resources: Iterable[Resource]) -> None:
        """Answer for some resources only."""
        self._client = client
        self._resources = {(each.api_version, each.plural): each for each in resources}
        self._answers: dict[_Question, Json] = {}
        self._missing: dict[_Question, None] = {}
        self._read = self._bytes = 0
        self._ended = False

    async def settled(self, evaluate: Callable[[], T]) -> T:
        """Evaluate until all is read that expressions ask for; they fail if that never ends."""
        for _ in range(MOST_ROUNDS):
            self._missing = {}
            result = evaluate()
            if not self._missing:
                return result
            await self._fetch()
        self._ended = True
        try:
            return evaluate()
        finally:
            self._ended = False

    async def _fetch(self) -> None:
        missing, self._missing = self._missing, {}
        for each in missing:
            if self._read > MOST_READ or self._bytes > MOST_BYTES:
                self._answers[each] = UnlistedError("policies read too much of the cluster")
                continue
            try:
                self._answers[each] = await self._ask(each)
            except (ApiError, UnlistedError) as error:
                self._answers[each] = error
            except ValueError:  # a name that leads elsewhere
                self._answers[each] = None

    async def _ask(self, question: _Question) -> Json:
        resource, namespace, name, labels = question
        if name:
            try:
                read = await self._client.get(resource, name, namespace=namespace, into=dict)
            except NotFoundError:
                return None
            self._count(read)
            return whole(resource, read)
        selector = ",".join(f"{key}={value}" for key, value in labels)
        items: list[Json] = []
        async for page in pages(
            self._client, resource, into=dict, namespace=namespace, label_selector=selector
        ):
            for item in page.items:
                self._count(item)
                items.append(whole(resource, item))
            if self._read > MOST_READ or self._bytes > MOST_BYTES:
                raise UnlistedError("policies read too much of the cluster")
        return {"items": items}

    def _count(self, obj: Json) -> None:
        self._read += 1
        self._bytes += len(msgspec.json.encode(obj))

    def get(self, api_version: str, resource: str, namespace: str, name: str) -> Json | None:
        """Return an object; None if it is not there.

        Raises:
            PolicydError: If it cannot be read, or is not read yet.
        """
        found = self._of(api_version, resource)
        if found.namespaced and not namespace:
            raise UnlistedError(f"`{api_version}/{resource}` needs a namespace")
        if not name:
            return None
        return self._answer(_Question(found, namespace if found.namespaced else "", name))

    def list(
        self, api_version: str, resource: str, namespace: str, labels: Mapping[str, str]
    ) -> Json:
        """Return a list of objects.

        Raises:
            PolicydError: If they cannot be read, or are not read yet.
        """
        found = self._of(api_version, resource)
        if not all(is_label_key(key) and is_label_value(value) for key, value in labels.items()):
            return {"items": []}
        given = tuple(sorted(labels.items()))
        return self._answer(_Question(found, namespace if found.namespaced else "", "", given))

    def _answer(self, question: _Question) -> Json:
        if question not in self._answers:
            self._missing[question] = None
            ended = f"it reads more than {MOST_ROUNDS} times in turn"
            raise UnlistedError(ended if self._ended else "the object is not read yet")
        answer = self._answers[question]
        if isinstance(answer, PolicydError):
            raise answer
        return answer

    def post(self, api_version: str, resource: str, _namespace: str, _body: Json) -> Json:
        """Refuse a question: the pass has no user to ask about.

        Raises:
            UnlistedError: Always.
        """
        raise UnlistedError(f"`{api_version}/{resource}` cannot be asked here")

    def namespaced(self, api_version: str, resource: str) -> bool:
        """Tell whether the objects of a resource live in namespaces."""
        return self._of(api_version, resource).namespaced

    def _of(self, api_version: str, resource: str) -> Resource:
        found = self._resources.get((api_version, resource))
        if found is None:
            text = f"{api_version}/{resource}"
            raise UnlistedError(f"policies may not read `{text}` without `--reads {text}`")
        return found


class NoCalls:
    """Refuses the calls of GlobalContextEntries: the command calls no services."""

    def call(self, call: EntryCall) -> Json:
        """Refuse a call.

        Raises:
            UnlistedError: Always.
        """
        raise UnlistedError(f"`policyd background` calls no services, such as {call.url}")


def created_at(obj: Json) -> float:
    """Return when an object was created, in seconds since the epoch; 0 if it does not say."""
    return moment(value_at(obj, ("metadata", "creationTimestamp")))


def moment(text: Json) -> float:
    """Return a time of the API in seconds since the epoch; 0 if it is none."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC).timestamp()
    except (OverflowError, ValueError):
        return 0.0


async def served_kinds(
    reader: Reader, group: str, versions: Sequence[str], kinds: Collection[str]
) -> list[Resource]:
    """Return the resources of some kinds, each in the first version that serves it.

    Raises:
        ApiError: If the cluster cannot be asked.
    """
    found: dict[str, Resource] = {}
    for version in versions:
        try:
            served = await reader.served(f"{group}/{version}")
        except NotFoundError:
            continue
        for each in served:
            if each.kind in kinds:
                found.setdefault(each.kind, each)
    return [found[kind] for kind in sorted(found)]


async def resource_named(reader: Reader, text: str) -> Resource:
    """Return the resource of `v1/secrets` or `apps/v1/deployments`.

    Raises:
        ConfigurationError: If the cluster does not serve it.
        ApiError: If the cluster cannot be asked.
    """
    api_version, _, plural = text.rpartition("/")
    try:
        served = await reader.served(api_version) if api_version else ()
    except NotFoundError:
        served = ()
    for each in served:
        if each.plural == plural:
            return each
    raise ConfigurationError(
        f"the cluster serves no `{text}`", hint="write v1/secrets, or apps/v1/deployments"
    )
