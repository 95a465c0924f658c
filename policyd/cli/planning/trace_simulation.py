"""One simulation of a trace on a virtual cluster: pure but for the objects that it reads."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from policyd.cli.planning.virtual_clusters import Objects, VirtualCluster
from policyd.errors import PolicydError
from policyd.simulate.failures import FailureRates, failures
from policyd.simulate.scenario import NodeChange, Simulation
from policyd.simulate.trace_runs import TraceFigures, TraceRuns, figures
from policyd.simulate.traces import GPU, TracedJob, at_load, load_of, shuffled, span_of


@dataclass(frozen=True, slots=True)
class Conditions:
    """What jobs meet.

    Attributes:
        load: The part of all GPU time that they ask for while they come; None for as recorded.
        seed: Of failures, and of the order of jobs; 0 for the order as recorded.
        failures: How often nodes fail; None for never.
        until: When the simulation ends, in seconds.
        resource: The resource that is counted.
    """

    load: float | None = None
    seed: int = 0
    failures: FailureRates | None = None
    until: float = inf
    resource: str = GPU


class TraceSimulation:
    """A trace on its way.

    Attributes:
        cluster: Where it runs.
        runs: When each job ran so far.
    """

    def __init__(self, objects: Objects, jobs: Sequence[TracedJob], conditions: Conditions) -> None:
        """Begin before the first job comes.

        Args:
            objects: Of the cluster, without workloads.
            jobs: In the order in which they come, the first at 0 or later.
            conditions: What they meet.

        Raises:
            PolicydError: If a job has no queue there, or failures have no nodes.
        """
        self.cluster = VirtualCluster(objects, conditions.resource)
        self._conditions = conditions
        gpus = self.cluster.gpus
        if not gpus:
            raise PolicydError(f"no ClusterQueue has quota for {conditions.resource}")
        jobs = shuffled(jobs, conditions.seed)
        if conditions.load is not None:
            jobs = at_load(jobs, conditions.load, gpus)
        self._load = load_of(jobs, gpus)
        self._judged = jobs[0].at + span_of(jobs)
        self.runs = TraceRuns(jobs)
        changes: Iterable[NodeChange] = ()
        if (rates := conditions.failures) is not None:
            if not self.cluster.nodes:
                hint = "say --nodes, or add Nodes and a Topology to FILE"
                raise PolicydError("failures need nodes, and the cluster has none", hint=hint)
            longest = max(job.seconds for job in jobs)
            last = min(conditions.until, 2 * (self._judged + longest))
            changes = failures(self.cluster.nodes, rates, seed=conditions.seed, until=last)
        arrivals = [self.cluster.arrival(job) for job in jobs]
        self._simulation = Simulation(self.cluster.state, arrivals, changes)

    def run(self) -> Iterator[str]:
        """Let time pass, and yield the key of each job as it ends."""
        until = self._conditions.until
        yield from self.runs.follow(self._simulation.steps(until=until))
        self.runs.over = self._simulation.over
        if until < inf:
            self.runs.now = self.cluster.state.now = until

    @property
    def figures(self) -> TraceFigures:
        """The figures so far."""
        judged, gpus = min(self._judged, self._conditions.until), self.cluster.gpus
        return figures(self.runs, gpus=gpus, load=self._load, until=judged)
