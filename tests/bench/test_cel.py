"""What an expression costs: the kinds of expressions that policies are made of, on a 10 KB pod.

Evaluations are timed one by one, and the quietest of some rounds counts: neighbours on the machine
only ever add. cel-python gets its values converted beforehand, which for this pod takes
it longer than all evaluations together.
"""

import gc
import json
import os
import statistics
import subprocess
import sys
import time
import tracemalloc

import celpy
import pytest
from celpy.adapter import json_to_cel

from policyd.cel import (
    Budget,
    CelError,
    LazyVariables,
    admission_environment,
    compile_expression,
)
from policyd.cel.environments import extended_environment
from policyd.cel.types import BOOL, DYN, INT, STRING
from tests.bench.report import report
from tests.cel.test_cost import ATTACKS

pytestmark = pytest.mark.bench

EVALUATIONS, ROUNDS, THEIR_EVALUATIONS = 1_000, 5, 10
CONTAINERS, SLOWEST = 3, 8

CHAIN = {
    "team": ("object.metadata.labels['team']", STRING),
    "gpus": ("object.spec.containers.map(c, int(c.resources.limits['nvidia.com/gpu']))[0]", INT),
    "large": ("variables.gpus > 4 && variables.team != ''", BOOL),
}
"""Variables of a policy, the last of which uses the ones before."""

EXPRESSIONS = {
    "label required": "has(object.metadata.labels) && 'team' in object.metadata.labels",
    "limits of all containers": "object.spec.containers.all(c, has(c.resources.limits) &&"
    " 'cpu' in c.resources.limits && 'memory' in c.resources.limits)",
    "image pattern": "object.spec.containers.all(c,"
    " c.image.matches('^registry\\\\.example/[a-z0-9./-]+:[0-9.]+$'))",
    "image prefixes of params": "object.spec.containers.all(c,"
    " params.data.registries.exists(r, c.image.startsWith(r)))",
    "quantities compared": "object.spec.containers.all(c,"
    " quantity(c.resources.limits['memory']).compareTo(quantity('128Gi')) <= 0)",
    "GPUs summed up": "object.spec.containers.map(c,"
    " int(c.resources.limits['nvidia.com/gpu'])).sum() <= 24",
    "toleration exists": "object.spec.tolerations.exists(t,"
    " t.key == 'nvidia.com/gpu' && t.operator == 'Exists')",
    "optional lookups": "object.?metadata.?annotations[?'example.com/owner'].orValue('nobody')"
    " == 'nobody'",
    "labels of the namespace": "namespaceObject.metadata.labels['tier'] == 'research'",
    "fields that do not change": "object.spec.nodeName == oldObject.spec.nodeName &&"
    " object.metadata.labels['team'] == oldObject.metadata.labels['team']",
    "host paths and privileges": "object.spec.volumes.all(v, !has(v.hostPath)) &&"
    " object.spec.containers.all(c, !has(c.securityContext) ||"
    " !has(c.securityContext.privileged) || !c.securityContext.privileged)",
    "message put together": "'pod ' + object.metadata.name + ' of ' + request.userInfo.username +"
    " ' asks for ' + string(size(object.spec.containers)) + ' containers'",
    "ports unique": "object.spec.containers.all(c, c.ports.all(p,"
    " object.spec.containers.all(d, d.ports.exists_one(q, q.containerPort == p.containerPort)"
    " || d.name != c.name)))",
    "chain of three variables": "variables.large",
    "object of a mutation": "Object{spec: Object.spec{priorityClassName: 'training'}}",
    "patch of a mutation": "[JSONPatch{op: 'add', path: '/spec/priorityClassName',"
    " value: 'training'}]",
}

OURS_ALONE = {
    "quantities compared",
    "GPUs summed up",
    "optional lookups",
    "chain of three variables",
    "object of a mutation",
    "patch of a mutation",
}
"""What cel-python cannot express."""

FASTER: list[float] = []


def container(number):
    limits = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}
    return {
        "name": f"worker-{number}",
        "image": f"registry.example/research/train-{number}:1.0.{number}",
        "command": ["python", "train.py", "--epochs", "10"],
        "env": [{"name": f"SETTING_{n:02}", "value": "x" * 40} for n in range(30)],
        "resources": {"requests": limits, "limits": limits},
        "ports": [{"name": f"p{n}", "containerPort": 8000 + 10 * number + n} for n in range(2)],
        "volumeMounts": [{"name": f"v{n}", "mountPath": f"/data/{n}"} for n in range(4)],
    }


def pod():
    notes = {f"example.com/note-{n}": "y" * 30 for n in range(16)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train-0",
            "namespace": "team-a",
            "labels": {"team": "vision", "app": "train"},
            "annotations": notes,
        },
        "spec": {
            "nodeName": "a1",
            "containers": [container(n) for n in range(CONTAINERS)],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "volumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(4)],
        },
    }


ACTIVATION = {
    "object": pod(),
    "oldObject": pod(),
    "request": {"userInfo": {"username": "alice", "groups": ["dev"]}, "operation": "UPDATE"},
    "namespaceObject": {"metadata": {"name": "team-a", "labels": {"tier": "research"}}},
    "params": {"data": {"registries": ["mirror.example/", "other.example/", "registry.example/"]}},
}


def compiled(source):
    variables = {name: type_ for name, (_, type_) in CHAIN.items()}
    return compile_expression(source, admission_environment(mutation=True, variables=variables))


def evaluations(program):
    """Seconds of each evaluation, policy variables computed anew each time."""
    chain = {name: compiled(source) for name, (source, _) in CHAIN.items()}
    spent = []
    for _ in range(EVALUATIONS):
        budget, seen = Budget(), dict(ACTIVATION)
        seen["variables"] = LazyVariables(chain, ACTIVATION, budget)
        started = time.perf_counter()
        program.evaluate(seen, budget)
        spent.append(time.perf_counter() - started)
    return sorted(spent)


def theirs(source):
    """Median seconds of an evaluation by cel-python, values converted beforehand."""
    environment = celpy.Environment()
    program = environment.program(environment.compile(source))
    activation = {name: json_to_cel(value) for name, value in ACTIVATION.items()}
    spent = []
    for _ in range(THEIR_EVALUATIONS):
        started = time.perf_counter()
        assert program.evaluate(activation)
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


def test_the_pod_is_as_large_as_pods_are():
    assert 9_000 < len(json.dumps(pod())) < 11_000


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_evaluations(name):
    program = compiled(EXPRESSIONS[name])
    assert program.evaluate(with_variables(), Budget())

    rounds = [evaluations(program) for _ in range(ROUNDS)]

    middle = min(spent[EVALUATIONS // 2] for spent in rounds)
    report(f"cel, {name}, p50", middle * 1e6, "µs", 5)
    slowest = min(spent[EVALUATIONS * 99 // 100] for spent in rounds)
    report(f"cel, {name}, p99", slowest * 1e6, "µs", 25)
    if name not in OURS_ALONE:
        FASTER.append(theirs(EXPRESSIONS[name]) / middle)
        report(f"cel, {name}, times faster than cel-python", FASTER[-1], "")


def test_cel_python_beside():
    assert len(FASTER) == len(EXPRESSIONS) - len(OURS_ALONE)

    report("cel, times faster than cel-python, mean", statistics.geometric_mean(FASTER), "")
    report("cel, times faster than cel-python, least", min(FASTER), "")


def with_variables():
    chain = {name: compiled(source) for name, (source, _) in CHAIN.items()}
    return ACTIVATION | {"variables": LazyVariables(chain, ACTIVATION, Budget())}


def test_compiling():
    spent = []
    for source in EXPRESSIONS.values():
        times = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            compiled(source)
            times.append(time.perf_counter() - started)
        spent.append(min(times))

    report("cel, compiling an expression, median", statistics.median(spent) * 1e3, "ms", 2)
    report("cel, compiling an expression, most", max(spent) * 1e3, "ms", 2)


def test_memory_of_a_program():
    copies = 20
    keep = [compiled(source) for source in EXPRESSIONS.values()]  # what is shared is there by now
    gc.collect()
    tracemalloc.start()
    try:
        keep += [compiled(source) for source in EXPRESSIONS.values() for _ in range(copies)]
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    report("cel, memory a program", taken / (copies * len(EXPRESSIONS)) / 1024, "KB", 10)


def test_importing(tmp_path):
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled already
    measure = (
        "import time; started = time.process_time();"
        " import policyd.cel; print(time.process_time() - started)"
    )
    spent = [
        float(subprocess.check_output([sys.executable, "-c", measure], env=environ, text=True))
        for _ in range(2 * ROUNDS)
    ]

    report("cel, importing policyd.cel, CPU", min(spent) * 1e3, "ms", 60)


def test_the_cost_limit():
    environment = extended_environment().extend(variables=dict.fromkeys("los", DYN))
    wide = [{f"k{i}": {"x": [1, 2, 3, "y" * 50]} for i in range(300)} for _ in range(2)]
    values = {"l": list(range(1_000)), "o": wide, "s": "a" * 10_000}
    spent = {}
    for name, source in ATTACKS.items():
        program = compile_expression(source, environment)
        spent[name] = min(until_the_limit(program, values) for _ in range(3))

    middle = statistics.median(spent.values())
    report(f"cel, {len(ATTACKS)} expressions at the limit, median", middle * 1e3, "ms", 200)
    for name in sorted(spent, key=spent.__getitem__, reverse=True)[:SLOWEST]:
        report(f"cel, at the limit, {name}", spent[name] * 1e3, "ms", 200)


def until_the_limit(program, values):
    """CPU seconds until an expression is stopped."""
    started = time.process_time()
    with pytest.raises(CelError):
        program.evaluate(values, Budget())
    return time.process_time() - started
