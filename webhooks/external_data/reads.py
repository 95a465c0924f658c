"""Objects of the cluster for Kyverno's `resource.Get` and `resource.List`, from memory.

A review must not wait for the API server each time an expression asks. So the resources that
policies may read are declared, and their objects watched.
"""

import asyncio
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Final, NoReturn

import structlog

from policyd.api.meta import Json
from policyd.engine.objects.match import labels_of
from policyd.errors import ConfigurationError, PolicydError
from policyd.kube.client import Reader
from policyd.kube.pace import Pace
from webhooks.external_data.permissions import Permissions
from webhooks.policies.watched import Watch

log = structlog.get_logger(__name__)

_REVIEWS: Final = "authorization.k8s.io/v1/subjectaccessreviews"


class ReadError(PolicydError):
    """Objects of the cluster cannot be read."""


class ClusterObjects:
    """The objects of the resources that policies may read."""

    def __init__(
        self,
        reader: Reader | None,
        resources: Iterable[str],
        permissions: Permissions | None = None,
        *,
        pace: Pace,
    ) -> None:
        """Begin with none.

        Args:
            reader: The API server; None where there is none, and nothing to read.
            resources: Version and plural name: `v1/configmaps`, `apps/v1/deployments`.
            permissions: Answers reviews of the permissions of users, if given.
            pace: Time.

        Raises:
            ConfigurationError: If one of them names no version.
        """
        self._pace = pace
        self._permissions = permissions
        self._watches = {text: _watch(reader, text, pace) for text in resources}

    async def run(self) -> NoReturn:
        """Watch them all."""
        async with asyncio.TaskGroup() as group:
            for watch in self._watches.values():
                group.create_task(watch.run())
            await asyncio.Event().wait()
        raise AssertionError("watches end only when they are cancelled")

    async def first_lists(self, seconds: float) -> None:
        """Wait until all objects are known, but no longer than so many seconds."""
        waiting = [watch.complete.wait() for watch in self._watches.values()]
        try:
            await self._pace.within(seconds, asyncio.gather(*waiting))
        except TimeoutError:
            for text, watch in self._watches.items():
                if watch.trouble:
                    log.warning("resource_unknown", resource=text, reason=watch.trouble)

    def get(self, api_version: str, resource: str, namespace: str, name: str) -> Json | None:
        """Return an object; None if it is not there.

        Raises:
            ReadError: If the resource is not declared, or not known.
        """
        watch = self._known(api_version, resource)
        assert watch.resource is not None, "a kind is found before its objects"
        return watch.of(namespace if watch.resource.namespaced else "").get(name)

    def list(
        self, api_version: str, resource: str, namespace: str, labels: Mapping[str, str]
    ) -> Json:
        """Return a list object, of all namespaces if none is named.

        Raises:
            ReadError: If the resource is not declared, or not known.
        """
        watch = self._known(api_version, resource)
        assert watch.resource is not None, "a kind is found before its objects"
        found = watch.of(namespace) if namespace and watch.resource.namespaced else None
        if found is None:
            objects = watch.all()
        else:  # copied first: decisions beside the loop look while the loop changes it
            objects = (obj for _, obj in sorted(found.items(), key=itemgetter(0)))
        items = [obj for obj in objects if labels.items() <= labels_of(obj).items()]
        kind = f"{watch.resource.kind}List"
        return {"apiVersion": api_version, "kind": kind, "metadata": {}, "items": items}

    def namespaced(self, api_version: str, resource: str) -> bool:
        """Tell whether the objects of a resource live in namespaces.

        Raises:
            ReadError: If the resource is not declared, or not known.
        """
        watch = self._known(api_version, resource)
        assert watch.resource is not None, "a kind is found before its objects"
        return watch.resource.namespaced

    def post(self, api_version: str, resource: str, namespace: str, body: Json) -> Json:
        """Answer a question that is put by creating an object: a SubjectAccessReview.

        Raises:
            ReadError: If it is another object, or there is no API server.
            PendingError: If it is to be asked first.
            UnansweredError: If there is no answer.
        """
        text = f"{api_version}/{resource}"
        if namespace or text != _REVIEWS:
            raise ReadError(
                f"nothing of `{text}` is created by a review: it asks by `{_REVIEWS}` alone"
            )
        if self._permissions is None:
            raise ReadError(f"no API server can answer `{text}`")
        return self._permissions.review(body)

    def _known(self, api_version: str, resource: str) -> Watch:
        text = f"{api_version}/{resource}"
        watch = self._watches.get(text)
        if watch is None:
            raise ReadError(f"policies may not read `{text}` without `--reads {text}`")
        if watch.trouble is not None:
            raise ReadError(f"`{text}` is not known: {watch.trouble}")
        return watch


def _watch(reader: Reader | None, text: str, pace: Pace) -> Watch:
    api_version, _, plural = text.rpartition("/")
    if not api_version:
        hint = f"write `v1/{text}`, or `group/version/plural`"
        raise ConfigurationError(f"`{text}` names no version", hint=hint)
    assert reader is not None, "reading requires an API server"
    return Watch(reader, api_version, lambda found: found.plural == plural, pace=pace)
