"""Policies that deny everything, in many ways: what reviews of other namespaces wait for them.

Whoever may write policies of a namespace chooses what a review there costs. Reviews of several
such namespaces come in at once, and light ones of another namespace beside them.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from policyd.admission.handler import AdmissionHandler
from policyd.api.admission import AdmissionRequest
from policyd.clock import SystemClock
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import Phase, PolicySet
from policyd.engine.model.deadline import OutOfTime
from policyd.engine.model.decision import Decision
from policyd.kube.pace import Pace
from policyd.kube.reports import Reports
from policyd.testing.fake_client import FakeClient
from tests.attacks.expressions import _review, _timed
from tests.attacks.figures import Attack, Attacks, Figures
from webhooks.app import Answer
from webhooks.metrics import WebhookMetrics
from webhooks.observe.admission_reports import ReportedCounts
from webhooks.observe.observing import Verdicts
from webhooks.workers import SWITCH_SECONDS, WORKERS, Workers

Spec = dict[str, Any]

SECONDS = 2.0
"""How long reviews come in, of each kind of policies."""
STREAMS = 8
"""Reviews at a time."""
MEDIAN_SECONDS, MOST_SECONDS = 0.05, 1.0
"""How long a light review may take beside them."""
TIMEOUT_SECONDS = 4.0
MOST_ANSWERED_BYTES = 64 * 1024
MANY = 990
RULE = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
LIES, FAILS = "object.metadata.name == 'x'", "object.metadata.absent == 'x'"
ENTRIES = {f"k{i}": "v" * 20 for i in range(900)}
"""Of an object that is just short enough to be decided on the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """Policies of a namespace, and the reviews of objects there.

    Attributes:
        spec: Of the policy with each number.
        policies: How many there are.
        kind: Of which kind.
        data: The data of the objects.
        namespaces: How many namespaces have such policies.
    """

    spec: Callable[[int], Spec]
    policies: int = 2
    kind: str = "NamespacedValidatingPolicy"
    data: Mapping[str, str] | None = None
    namespaces: int = 1

    @property
    def phase(self) -> Phase:
        """Which of the webhooks decides."""
        return "mutate" if "Mutating" in self.kind else "validate"

    def documents(self) -> Iterator[Spec]:
        """Yield the policies."""
        for name in self.names:
            for number in range(self.policies):
                yield {
                    "apiVersion": "policies.kyverno.io/v1",
                    "kind": self.kind,
                    "metadata": {"name": f"p{number}", "namespace": name},
                    "spec": {
                        "matchConstraints": {"resourceRules": [RULE]},
                        **self.spec(number),
                    },
                }

    @property
    def names(self) -> Sequence[str]:
        """The namespaces."""
        return [f"hostile-{number}" for number in range(self.namespaces)]


def _validations(expression: str = LIES, **spec: Any) -> Callable[[int], Spec]:
    return lambda _number: {
        "validations": [{"expression": expression, "message": "n"}] * MANY,
        **spec,
    }


def _computed(number: int) -> Spec:
    texts = [f"'w{number}-{i}'" for i in range(MANY // 2)]
    return {"validations": [{"expression": LIES, "messageExpression": text} for text in texts]}


def _conditional(_number: int) -> Spec:
    conditions = [{"name": f"c{i}", "expression": f"!({LIES})"} for i in range(64)]
    return {"matchConditions": conditions, "validations": [{"expression": LIES, "message": "n"}]}


def _with_variables(_number: int) -> Spec:
    variables = [{"name": f"v{i}", "expression": LIES} for i in range(MANY // 2)]
    validations = [{"expression": f"variables.v{i}", "message": "n"} for i in range(MANY // 2)]
    return {"variables": variables, "validations": validations}


def _annotated(_number: int) -> Spec:
    kept = [{"key": f"k{i}", "valueExpression": f"string({FAILS})"} for i in range(20)]
    return {"validations": [{"expression": "true"}], "auditAnnotations": kept}


def _mutated(expression: str) -> Callable[[int], Spec]:
    def spec(number: int) -> Spec:
        of_each = [expression.replace("NAME", f"a{number}x{i}") for i in range(20)]
        return {
            "mutations": [
                {"patchType": "JSONPatch", "jsonPatch": {"expression": each}}
                if each.startswith("[")
                else {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": each},
                }
                for each in of_each
            ]
        }

    return spec


_LABEL = "Object{metadata: Object.metadata{labels: {'NAME': 'b'}}}"
_PATCH = "[JSONPatch{op: 'add', path: '/data/NAME', value: 'b'}]"
_ABSENT = "[JSONPatch{op: 'remove', path: '/data/NAME'}]"

FLOODS: Mapping[str, Flood] = {
    "policies that deny everything": Flood(spec=_validations()),
    "policies of many namespaces that deny everything": Flood(spec=_validations(), namespaces=6),
    "policies that fail everywhere": Flood(spec=_validations(FAILS), policies=4),
    "failures that are ignored": Flood(
        spec=_validations(FAILS, failurePolicy="Ignore"), policies=4
    ),
    "policies that warn of everything": Flood(
        spec=_validations(validationActions=["Warn", "Audit"]), policies=6
    ),
    "computed messages": Flood(spec=_computed, policies=4),
    "many conditions": Flood(spec=_conditional, policies=50),
    "many variables": Flood(spec=_with_variables, policies=4),
    "audit annotations that fail": Flood(spec=_annotated, policies=50),
    "many changes": Flood(
        spec=_mutated(_LABEL), policies=50, kind="NamespacedMutatingPolicy", data=ENTRIES
    ),
    "many patches": Flood(
        spec=_mutated(_PATCH), policies=50, kind="NamespacedMutatingPolicy", data=ENTRIES
    ),
    "patches that fail": Flood(
        spec=_mutated(_ABSENT), policies=50, kind="NamespacedMutatingPolicy", data=ENTRIES
    ),
}


def _out_of_time() -> OutOfTime:
    until = time.monotonic() + TIMEOUT_SECONDS
    return lambda: time.monotonic() > until


def _observer(phase: Phase) -> Callable[[AdmissionRequest, Decision], None]:
    """Return what takes note of decisions: metrics, the log, and counts for reports."""
    counts = ReportedCounts(Reports(FakeClient()), pace=Pace())
    metrics = WebhookMetrics(CollectorRegistry())
    return Verdicts(metrics, phase, then=counts.take).take


@contextmanager
def _answering(flood: Flood) -> Iterator[Answer]:
    """Answer reviews by the policies of a flood."""
    text = "\n---\n".join(map(json.dumps, flood.documents()))
    loaded = load_policies(text, "p.yaml", EVERY_FORMAT)
    assert len(loaded.policies) == flood.policies * flood.namespaces, loaded.findings
    policies = PolicySet(loaded.policies, namespaces=lambda _name: {"metadata": {"labels": {}}})
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        with ThreadPoolExecutor(WORKERS) as executor:
            workers = Workers(executor, clock=SystemClock())
            handler = AdmissionHandler(
                phase=flood.phase,
                policies=policies.mutate if flood.phase == "mutate" else policies.validate,
                with_external_data=workers.decide,
                run=workers.run,
                observe=_observer(flood.phase),
            )

            yield handler.answer
    finally:
        sys.setswitchinterval(before)


async def _flooded(flood: Flood, answer: Answer) -> Figures:
    body = _review(flood.data or {"a": "b"})

    def of(namespace: str) -> bytes:
        return body.replace(b'"namespace":"a"', b'"namespace":"%b"' % namespace.encode())

    sent, longest_answer, ended = 0, 0, False

    async def stream(namespace: str) -> None:
        nonlocal sent, longest_answer
        while not ended:
            given = await answer(of(namespace), _out_of_time())
            longest_answer = max(longest_answer, len(given))
            sent += 1
            await asyncio.sleep(0.01)

    waited = []
    async with asyncio.TaskGroup() as group:
        for number in range(STREAMS * flood.namespaces):
            group.create_task(stream(flood.names[number % flood.namespaces]))
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            waited.append(await _timed(answer, of("other")))
            await asyncio.sleep(0.005)
        ended = True
    median, longest = statistics.median(waited), max(waited)
    faults = [
        f"a light review {what} {seconds * 1000:.0f} ms"
        for what, seconds, most in (
            ("took", median, MEDIAN_SECONDS),
            ("took up to", longest, MOST_SECONDS),
        )
        if seconds > most
    ]
    if longest_answer > MOST_ANSWERED_BYTES:
        faults.append(f"an answer had {longest_answer} bytes")
    return Figures(
        tried=sent + len(waited),
        median_seconds=median,
        worst_seconds=longest,
        faults=tuple(faults),
    )


def _attack(flood: Flood) -> Attack:
    def attack() -> Figures:
        with capture_logs(), _answering(flood) as answer:
            return asyncio.run(_flooded(flood, answer))

    return attack


ATTACKS: Attacks = {name: _attack(flood) for name, flood in FLOODS.items()}
