"""The opt-in rules of queues beyond Kueue's, called by a state and its cycles."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf

from msgspec.structs import replace

from policyd.alloc.cluster_queue import NominatedWorkload, QueueState
from policyd.alloc.extension import CycleExtension, Extension
from policyd.alloc.flavors.assignment import FlavorOption
from policyd.alloc.flavors.search import FlavorSearch, Pins
from policyd.alloc.ledger import Holding
from policyd.alloc.plan import Admit, Evict, Move, Plan
from policyd.alloc.queue import QueueSpec
from policyd.alloc.quota import QuotaNode, QuotaTree
from policyd.alloc.reasons import FIT, Refusal
from policyd.alloc.settings import QueueingSettings
from policyd.alloc.state import CoreState
from policyd.alloc.topology.values import PlacementRequest
from policyd.alloc.workload import QueuedWorkload
from policyd.optimize.devices import GPU, shared_gpus
from policyd.optimize.fragmentation import fragments_first
from policyd.optimize.local_order import local_shares
from policyd.optimize.moves import claim_of, consolidate, hold_places, places_held
from policyd.optimize.opt_ins import NO_OPT_INS, UNPROTECTED, wants
from policyd.optimize.reservation import (
    ChangedTrees,
    EarliestStarts,
    Reservations,
    next_due,
    stale_gangs,
)


class Optimizer(Extension):
    """The decisions beyond Kueue's rules in one state.

    Attributes:
        opted: ClusterQueues that want something, by name.
        moving: Places that are held for moved workloads and their preemptors, by key.
    """

    def __init__(self, state: CoreState) -> None:
        self.opted: dict[str, QueueState] = {}
        self.moving: dict[str, Move] = {}
        self._gathering = ChangedTrees()
        self._starts = EarliestStarts(state)
        self._state = state

    @property
    def held_up(self) -> Collection[QuotaNode]:
        """The roots of trees whose inadmissible workloads are tried again later."""
        return self._gathering.roots

    def due(self, changed: Collection[QuotaNode]) -> Collection[QuotaNode]:
        """Return the roots of trees whose inadmissible workloads are tried again."""

        def waits(root: QuotaNode) -> bool:
            return any(q.pending.aside or q.pending.refused for q in self._state.queues_below(root))

        return self._gathering.take(changed, self._state.now, self.gather_seconds, waits)

    def preempting(self, preemptor: QueuedWorkload) -> None:
        """Gather changes from now on in the tree of a workload."""
        queue = self._state.queues.get(preemptor.cluster_queue)
        if queue is not None and queue.node is not None:
            self._gathering.preempted(queue.node, self._state.now)

    def put_queue(self, queue: QueueState) -> None:
        """Note that a ClusterQueue has another specification, or none."""
        order = wants(queue.spec).order
        queue.pending.order_by_run_time(shortest=order == "ShortestFirst")
        queue.pending.preemptor_first = order != "Priority"
        if wants(queue.spec) is NO_OPT_INS:
            self.opted.pop(queue.name, None)
        else:
            self.opted[queue.name] = queue

    def search(self, tree: QuotaTree, queue: QueueSpec, settings: QueueingSettings) -> FlavorSearch:
        """Return the search for flavors by the rules of a queue."""
        weights = wants(queue).packs
        if weights:
            return PackingSearch(tree, queue, settings, weights)
        return super().search(tree, queue, settings)

    def request(
        self, queue: QueueSpec, workload: QueuedWorkload, request: PlacementRequest
    ) -> PlacementRequest:
        """Return a pod set's request for places in a topology, by the rules of its queue."""
        want = wants(queue)
        if not (want.whole_gpus or want.avoids_fragments):
            return request
        gpus = request.requests.get(GPU, 0) * sum(each.count for each in workload.pod_sets)
        return replace(
            request,
            rule=shared_gpus if want.whole_gpus and gpus > 1 else None,
            tie_break=fragments_first if want.avoids_fragments else None,
        )

    def protects(self, queue: QueueState) -> bool:
        """Tell whether the workloads of a queue are protected from preemption for some time."""
        want = wants(queue.spec)
        return want.protection is not UNPROTECTED or want.order == "ShortestFirst"

    def protected_until(self, holding: Holding, preemptor: QueuedWorkload) -> float:
        """Return when a workload may be preempted for another, in seconds since the epoch.

        In the order of run times, one that goes before another of its priority is not preempted
        for it, though it may be newer: it would be next again at once.
        """
        workload, queue = holding.workload, holding.admission.cluster_queue
        want = wants(self._state.queues[queue].spec)
        same = queue == preemptor.cluster_queue and workload.priority == preemptor.priority
        if want.order == "ShortestFirst" and same and _runs(workload) < _runs(preemptor):
            return inf
        given = want.protection
        if given is UNPROTECTED:
            return 0.0
        seconds = given.preemption if queue == preemptor.cluster_queue else given.reclaim
        if preemptor.uid in self._state.preemptors.get(workload.key, ()):
            seconds = max(seconds, given.repetition)
        since = self._state.now if workload.reserved_at is None else workload.reserved_at
        return since + seconds

    def settle(self) -> None:
        """Order LocalQueues by their shares, if their ClusterQueue is set to."""
        for queue in self.opted.values():
            if wants(queue.spec).order in {"DominantShare", "Proportion"}:
                queue.pending.order_by(local_shares(queue, self._state.local_weights))

    def forget(self, key: str) -> None:
        """Drop a workload that was removed."""
        self.moving.pop(key, None)

    def holds_for(self, key: str) -> bool:
        """Tell whether quota is held for a workload, so that its leaving helps others."""
        return key in self.reserved

    def committed(self, plan: Plan) -> Iterable[str]:
        """Hold the quota of a plan; return the ClusterQueues whose reservation changed."""
        self._starts.committed(plan)
        for action in plan.actions if self.moving else ():
            if isinstance(action, Admit):
                self.moving.pop(action.workload.key, None)
        self.moving |= {move.key: move for move in plan.moves}
        changed = self.reserved.items() ^ plan.reserved.items()
        self.reserved = plan.reserved
        return [name for _, name in changed]

    def pins(self) -> Mapping[str, Pins]:
        """Return the flavors of those that are moved."""
        return {move.key: move.pins for move in self._held()}

    def next_due(self) -> float | None:
        """Return when another cycle may decide otherwise though nothing changes; None if never."""
        moments = next_due(self.opted.values(), self._state.now), self._gathering.next_at
        return min((moment for moment in moments if moment is not None), default=None)

    @contextmanager
    def cycle(self) -> Iterator[CycleExtension]:
        """Yield the extension of a cycle; places of moved workloads are held meanwhile."""
        if not (self.opted or self.moving):
            yield CycleExtension()
            return
        moving = self._held()
        with places_held(self._state, moving):
            # Places that are held take quota for this cycle alone.
            starts = EarliestStarts(self._state) if moving else self._starts
            yield _OptimizedCycle(self._state, self.opted, starts, moving)

    def _held(self) -> list[Move]:
        now = self._state.now
        return [move for move in self.moving.values() if move.until > now]


class _OptimizedCycle(CycleExtension):
    """The decisions beyond Kueue's rules in one cycle."""

    def __init__(
        self,
        state: CoreState,
        opted: Mapping[str, QueueState],
        starts: EarliestStarts,
        moving: Collection[Move],
    ) -> None:
        self.active = bool(opted)
        self.moves: list[Move] = []
        self._state = state
        self._opted = opted
        self._new: tuple[Move, ...] = ()
        self._reservations = Reservations(state, starts.of(opted), moving)

    @property
    def reserved(self) -> Mapping[str, str]:
        """Keys of workloads for which quota is held, and their ClusterQueues."""
        return self._reservations.holders

    def evictions(self) -> list[Evict]:
        """Return the gangs that have run with fewer pods than they need for too long."""
        return stale_gangs(self._opted.values(), self._state.now)

    def make_room(self, entry: NominatedWorkload, victims: Collection[str]) -> bool:
        """Have others moved for a workload that does not fit, if its queue wants that."""
        wanted = wants(entry.options.spec).moves and entry.assignment.mode is not FIT
        if not wanted or victims or self._reservations.of(entry):
            return False
        found = consolidate(self._state, entry, self._opted)
        if found is None:
            return False
        entry.assignment, entry.targets, self._new = found
        self.moves.extend(self._new)
        return True

    def delay(self, entry: NominatedWorkload) -> Refusal | None:
        """Return why a workload must wait: it would delay one for which quota is held."""
        return self._reservations.refusal(entry)

    def holds_for(self, entry: NominatedWorkload) -> bool:
        """Tell whether quota is held for a workload already."""
        held = self._reservations.of(entry)
        return held is not None and held.name == entry.ticket.workload.key

    def kept(self, entry: NominatedWorkload) -> None:
        """Note that a workload has its assignment, or that it is kept for it."""
        self._reservations.note(entry)

    def preempted(self, entry: NominatedWorkload) -> None:
        """Hold the new places of moved workloads, and the claim of a preemptor."""
        if self._new:
            self._reservations.hold(self._new[1:])
            hold_places(self._state, self._new[1:])
            self._new = ()
        claims, key = wants(entry.options.spec).claims, entry.ticket.workload.key
        if claims and all(move.key != key for move in self.moves):
            self.moves.append(claim_of(self._state, entry))

    def requeued(
        self, entry: NominatedWorkload, refusal: Refusal, *, strict: bool
    ) -> tuple[Refusal, bool]:
        """Add a workload's reservation to its refusal; it holds up none in its queue meanwhile."""
        held = self._reservations.of(entry)
        strict = strict and (held is None or held.node is not entry.options.node)
        return self._reservations.explained(entry, refusal), strict


class PackingSearch(FlavorSearch):
    """A search that tries the flavor first that would be fullest, by the weights of resources."""

    __slots__ = ("_weights",)
    in_order = False

    def __init__(
        self,
        tree: QuotaTree,
        queue: QueueSpec,
        settings: QueueingSettings,
        weights: Mapping[str, float],
    ) -> None:
        super().__init__(tree, queue, settings)
        self._weights = weights

    def arranged(self, options: tuple[FlavorOption, ...]) -> tuple[FlavorOption, ...]:
        """Return flavors with the fullest first."""
        tree, weights = self.tree, self._weights

        def room(option: FlavorOption) -> float:
            parts = zip(option.resources, option.charges.items(), strict=True)
            return sum(
                weights.get(name, 0.0) * (tree.available(cell) - n) / (tree.potential[cell] or 1)
                for name, (cell, n) in parts
            )

        return tuple(sorted(options, key=room))


def _runs(workload: QueuedWorkload) -> float:
    """Return how long a workload runs as it declares, in seconds; one that does not comes last."""
    return inf if workload.run_seconds is None else workload.run_seconds
