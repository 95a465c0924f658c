"""The surroundings of objects that policies decide on, for commands with `--cluster`."""

from collections.abc import Iterable, Mapping, Sequence

from policyd.api.kinds import resource_for_kind
from policyd.api.kueue import LocalQueue
from policyd.api.meta import Json
from policyd.api.policy import ParamKind
from policyd.cli.clusters import CLUSTER, missing, resource_of
from policyd.cli.policies.request_options import ObjectKey, ObjectSurroundings, key_of
from policyd.cli.questions.question import ask
from policyd.engine.documents.findings import Finding
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.queue_facts import QueueFacts, UnknownFacts
from policyd.engine.offline.cases import CaseSurroundings
from policyd.kube import resources as r
from policyd.kube.client import Reader
from policyd.kube.errors import ApiError, ForbiddenError, NotFoundError
from policyd.kube.pages import pages, whole
from policyd.kube.resources import Resource
from policyd.questions.queue_objects import listed, listed_if_served
from policyd.questions.snapshots import NoSnapshotsError
from policyd.snapshot.facts import LocalQueueKey, SnapshotFacts, facts_of
from policyd.snapshot.reading import SnapshotError


async def read_surroundings(
    reader: Reader,
    policies: Sequence[CompiledPolicy],
    objects: Sequence[Json],
    *,
    namespace: str,
    stored: bool,
) -> ObjectSurroundings:
    """Read what policies may depend on when they decide on some objects.

    Args:
        reader: The cluster.
        policies: The policies.
        objects: The objects; what is not an object is left to others.
        namespace: Of objects that name none.
        stored: Whether to read the objects as they are, too, for updates and deletions.

    Raises:
        ApiError: If the cluster does not answer.
    """
    surroundings = ObjectSurroundings(namespace=namespace)
    found = _Objects(reader, surroundings)
    keys = [key for key in map(key_of, objects) if key is not None]
    for api_version, kind in dict.fromkeys((key.api_version, key.kind) for key in keys):
        await found.define(api_version, kind)
    given = {key.name for key in keys if (key.api_version, key.kind) == ("v1", "Namespace")}
    names = dict.fromkeys(key.namespace or namespace for key in keys if found.is_namespaced(key))
    for name in names:
        if name not in given:
            await found.namespace(name)
    if stored:
        for key in keys:
            await found.as_it_is(key, namespace)
    await found.params(policies)
    if any(policy.reads_queues for policy in policies):
        surroundings.queues = await queue_facts(reader, names, surroundings)
    return surroundings


async def read_case_surroundings(
    reader: Reader, policies: Sequence[CompiledPolicy]
) -> CaseSurroundings:
    """Read what cases leave out: labels of namespaces, params, the queues.

    Raises:
        ApiError: If something of that cannot be read: each case might depend on it.
    """
    surroundings = ObjectSurroundings()
    found = _Objects(reader, surroundings)
    namespaces = await listed(reader, r.NAMESPACES)
    await found.params(policies)
    if any(policy.reads_queues for policy in policies):
        surroundings.queues = await queue_facts(reader, (), surroundings)
    for finding in surroundings.findings:
        raise ForbiddenError(finding.message, hint=finding.hint)
    return CaseSurroundings(
        queues=surroundings.queues, namespaces=tuple(namespaces), params=tuple(surroundings.objects)
    )


async def read_scan_surroundings(
    reader: Reader, policies: Sequence[CompiledPolicy]
) -> ObjectSurroundings:
    """Read all namespaces, and the params of policies.

    Raises:
        ApiError: If the cluster does not answer.
    """
    surroundings = ObjectSurroundings()
    try:
        surroundings.objects += await listed(reader, r.NAMESPACES)
    except ForbiddenError as error:
        what = "policies that depend on labels of namespaces are not evaluated"
        surroundings.findings.append(missing(what, error))
    await _Objects(reader, surroundings).params(policies)
    return surroundings


class _Objects:
    """Reads objects, and notes what may not be read."""

    def __init__(self, reader: Reader, surroundings: ObjectSurroundings) -> None:
        self._reader = reader
        self._surroundings = surroundings
        self._served: dict[tuple[str, str], Resource | None] = {}

    async def define(self, api_version: str, kind: str) -> None:
        """Find out where the objects of a kind are, and how its definition is, if it has one."""
        resource = await resource_of(self._reader, api_version, kind)
        self._served[api_version, kind] = resource
        if resource is None or resource_for_kind(resource.group, resource.version, kind):
            return
        definitions, name = r.CUSTOM_RESOURCE_DEFINITIONS, f"{resource.plural}.{resource.group}"
        self._surroundings.kinds[resource.group, kind] = resource.plural, resource.namespaced
        try:
            definition = await self._reader.get(definitions, name, into=dict)
        except NotFoundError:
            return
        except ForbiddenError as error:
            what = f"lists in a {kind} are merged without its schema"
            self._note(missing(what, error, severity="warning"))
            return
        self._surroundings.objects.append(whole(definitions, definition))

    def is_namespaced(self, key: ObjectKey) -> bool:
        """Tell whether an object is in a namespace; one of a kind that is not served may be."""
        resource = self._served[key.api_version, key.kind]
        return resource is None or resource.namespaced

    async def namespace(self, name: str) -> None:
        """Read a Namespace."""
        try:
            found = await self._reader.get(r.NAMESPACES, name, into=dict)
        except NotFoundError:
            message = f"there is no namespace {name}: objects in it are refused"
            self._note(Finding(source=CLUSTER, message=message, rule="cluster"))
        except ForbiddenError as error:
            what = f"policies that depend on namespace {name} cannot be evaluated"
            self._note(missing(what, error, severity="warning"))
        else:
            self._surroundings.objects.append(whole(r.NAMESPACES, found))

    async def as_it_is(self, key: ObjectKey, namespace: str) -> None:
        """Read an object that is to be changed or deleted; a sentence says why it cannot be."""
        resource = self._served[key.api_version, key.kind]
        found: Json
        if resource is None:
            found = f"the cluster serves no {key.kind} of {key.api_version}"
        elif not key.name:
            found = "without a name, it cannot be in the cluster"
        else:
            where = key.namespace or namespace if resource.namespaced else ""
            try:
                read = await self._reader.get(resource, key.name, namespace=where, into=dict)
                found = whole(resource, read)
            except NotFoundError:
                found = f"there is no {key.kind} {key.name} in the cluster"
            except ForbiddenError as error:
                found = f"it cannot be read as it is: {error}"
        self._surroundings.stored[key] = found

    async def params(self, policies: Sequence[CompiledPolicy]) -> None:
        """Read the params of policies, and the claims whose devices they count."""
        users: dict[ParamKind, list[CompiledPolicy]] = {}
        for policy in policies:
            if policy.policy.spec.param_kind is not None:
                users.setdefault(policy.policy.spec.param_kind, []).append(policy)
        for kind, using in users.items():
            resource = await resource_of(self._reader, kind.api_version, kind.kind)
            if resource is None:
                continue  # each policy says so itself
            try:
                self._surroundings.objects += await listed(self._reader, resource)
            except ForbiddenError as error:
                self._leave_out(using, "params", error)
        await self._claims([policy for policy in policies if policy.counts_claims])

    async def _claims(self, policies: Sequence[CompiledPolicy]) -> None:
        """Read all claims and templates, if policies count their devices."""
        for resource in (r.RESOURCE_CLAIMS, r.RESOURCE_CLAIM_TEMPLATES) if policies else ():
            try:
                self._surroundings.objects += await listed_if_served(self._reader, resource)
            except ForbiddenError as error:
                self._leave_out(policies, "claims", error)

    def _leave_out(self, policies: Sequence[CompiledPolicy], want: str, error: ApiError) -> None:
        names = ", ".join(f"`{policy.name}`" for policy in policies)
        self._note(missing(f"left out, for want of {want}: {names}", error))
        self._surroundings.left_out.update(policy.id for policy in policies)

    def _note(self, finding: Finding) -> None:
        self._surroundings.findings.append(finding)


async def queue_facts(
    reader: Reader, namespaces: Iterable[str], surroundings: ObjectSurroundings
) -> QueueFacts:
    """Return the facts of the cluster's queues.

    Args:
        reader: The cluster.
        namespaces: Those to ask for one by one, if the whole cluster may not be asked for.
        surroundings: Where to note what is not known.

    Raises:
        ApiError: If the cluster does not answer.
    """
    try:
        return facts_of(await ask(reader, ""), await _local_queues(reader))
    except ForbiddenError as error:
        what = "policies cannot read `cluster`, and of the queues those of the namespace only"
        surroundings.findings.append(missing(what, error, severity="warning"))
        reason = str(error)
    except (NoSnapshotsError, SnapshotError) as error:
        return _unknown(error, surroundings)
    own: dict[str, SnapshotFacts | UnknownFacts] = {}
    for name in namespaces:
        try:
            own[name] = facts_of(await ask(reader, name), await _local_queues(reader, name))
        except (ForbiddenError, NoSnapshotsError, SnapshotError) as error:
            own[name] = UnknownFacts(str(error))
    return _OwnFacts(own, UnknownFacts(reason))


def _unknown(
    error: ApiError | NoSnapshotsError | SnapshotError, surroundings: ObjectSurroundings
) -> UnknownFacts:
    what = "policies cannot read the queues"
    surroundings.findings.append(
        missing(what, ApiError(str(error), hint=error.hint), severity="warning")
    )
    return UnknownFacts(str(error))


class _OwnFacts:
    """What snapshots of namespaces say, where that of the cluster may not be read."""

    def __init__(self, own: Mapping[str, QueueFacts], rest: UnknownFacts) -> None:
        self._own = own
        self._rest = rest

    def variables(self, namespace: str, queue: str) -> Mapping[str, object]:
        """Return the queue of a namespace; the cluster is unknown."""
        known = self._own.get(namespace, self._rest).variables(namespace, queue)
        return {**known, "cluster": self._rest.variables(namespace, queue)["cluster"]}

    def within(self, namespace: str) -> QueueFacts:
        """Return what policies of a namespace may know: all that its snapshot says."""
        own: QueueFacts = self._own.get(namespace, self._rest)
        return own.within(namespace)


async def _local_queues(reader: Reader, namespace: str = "") -> dict[LocalQueueKey, str] | None:
    """Return the ClusterQueue of each LocalQueue; None if they cannot be listed."""
    found: dict[LocalQueueKey, str] = {}
    try:
        async for page in pages(reader, r.LOCAL_QUEUES, into=LocalQueue, namespace=namespace):
            for each in page.items:
                found[each.metadata.namespace, each.metadata.name] = each.spec.cluster_queue
    except (ForbiddenError, NotFoundError):
        return None
    return found
