"""Which jobs the webhooks of a cluster hold, for `policyd apply --cluster`."""

from collections.abc import Iterable
from typing import Final

from policyd.admission.in_turn import HeldJobs
from policyd.api.kueue.names import DEFAULT_LOCAL_QUEUE, GROUP
from policyd.api.meta import Json
from policyd.cli.clusters import missing
from policyd.cli.policies.request_options import ObjectSurroundings, key_of
from policyd.engine.documents.findings import Finding
from policyd.errors import ConfigurationError, PolicydError
from policyd.jobs.frameworks import reported_integrations
from policyd.jobs.integrations import EVERYTHING, Integrations
from policyd.jobs.rules.defaults import holds
from policyd.kube import resources as r
from policyd.kube.client import PartialObject, Reader
from policyd.kube.errors import ApiError, ForbiddenError, NotFoundError
from policyd.kube.resources import Resource
from policyd.questions.snapshots import NoSnapshotsError, configuration
from policyd.snapshot.reading import SnapshotError

_KINDS_UNKNOWN: Final = "all kinds of jobs are taken to queue"


async def read_held_jobs(
    reader: Reader, objects: Iterable[Json], surroundings: ObjectSurroundings
) -> HeldJobs | None:
    """Read which jobs are held in the namespaces of some objects.

    Args:
        reader: The cluster.
        objects: The objects.
        surroundings: Their namespace, and where to note what may not be read.

    Returns:
        Which jobs are held; None if that does not matter to any of the objects.

    Raises:
        ApiError: If the cluster does not answer.
    """
    keys = [key for key in map(key_of, objects) if key is not None]
    groups = [(key, key.api_version.rpartition("/")[0]) for key in keys]
    jobs = [key for key, group in groups if holds(group, key.kind, EVERYTHING)]
    if not jobs and all(group != GROUP for _, group in groups):
        return None
    findings = surroundings.findings
    namespaces = dict.fromkeys(key.namespace or surroundings.namespace for key in jobs)
    integrations = await _integrations(reader, namespaces, findings)
    default_queues = set()
    for name in namespaces:
        without = f"jobs in {name} that name no queue are taken to have no default queue"
        if await _is_there(reader, r.LOCAL_QUEUES, name, without, findings):
            default_queues.add(name)
    without = "jobs that name no priority class are taken to have no default class"
    return HeldJobs(
        integrations=integrations,
        default_queues=frozenset(default_queues),
        default_class=await _is_there(reader, r.WORKLOAD_PRIORITY_CLASSES, "", without, findings),
    )


async def _integrations(
    reader: Reader, namespaces: Iterable[str], findings: list[Finding]
) -> Integrations:
    """Return which kinds queue, from the first snapshot that the user may read."""
    problem: PolicydError | None = None
    for namespace in ("", *namespaces):
        try:
            found = reported_integrations(await configuration(reader, namespace))
        except ForbiddenError as error:
            problem = error
        except (ConfigurationError, NoSnapshotsError, SnapshotError) as error:
            problem = error
            break
        else:
            if found is not None:
                return found
            problem = NoSnapshotsError(
                "the snapshots of this cluster do not say which jobs queue", hint="upgrade policyd"
            )
            break
    assert problem is not None, "the whole cluster was asked for"
    reason = ApiError(str(problem), hint=problem.hint)
    findings.append(missing(_KINDS_UNKNOWN, reason, severity="warning"))
    return EVERYTHING


async def _is_there(
    reader: Reader, resource: Resource, namespace: str, without: str, findings: list[Finding]
) -> bool:
    """Tell whether the object named `default` exists; if that may not be read, note it."""
    try:
        await reader.get(resource, DEFAULT_LOCAL_QUEUE, namespace=namespace, into=PartialObject)
    except NotFoundError:
        return False
    except ForbiddenError as error:
        findings.append(missing(without, error, severity="warning"))
        return False
    return True
