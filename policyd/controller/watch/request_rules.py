"""What namespaces, runtimes and the administrator make of the requests of workloads."""

import structlog

from policyd.api.configuration.kinds import ResourcesConfiguration
from policyd.api.limit_ranges import summarize
from policyd.api.quantity import QuantityError
from policyd.controller.watch.mirrors import Mirrors
from policyd.jobs.requests import RequestRules

log = structlog.get_logger()


class RulesByNamespace:
    """The rules for each namespace, worked out when they are first asked for."""

    def __init__(self, mirrors: Mirrors, resources: ResourcesConfiguration) -> None:
        self._mirrors = mirrors
        self._resources = resources
        self._known: dict[str, RequestRules] = {}
        mirrors.limit_ranges.listen(self._forget)
        mirrors.runtime_classes.listen(self._forget)

    def _forget(self, _change: object) -> None:
        self._known.clear()

    def of(self, namespace: str) -> RequestRules:
        """Return the rules for the workloads of a namespace."""
        rules = self._known.get(namespace)
        if rules is None:
            rules = self._known[namespace] = self._work_out(namespace)
        return rules

    def _work_out(self, namespace: str) -> RequestRules:
        found = (
            each for each in self._mirrors.limit_ranges if each.metadata.namespace == namespace
        )
        ranges = sorted(found, key=lambda each: each.metadata.name)
        try:
            limits = summarize(ranges)
        except QuantityError as error:  # the API server lets none in; a file may have one
            log.warning("limit_range_unusable", namespace=namespace, error=str(error))
            limits = {}
        overheads = {
            each.metadata.name: each.overhead.pod_fixed
            for each in self._mirrors.runtime_classes
            if each.overhead is not None
        }
        return RequestRules(limits=limits, overheads=overheads, resources=self._resources)
