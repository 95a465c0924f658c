"""Reviews that cannot be judged, or hardly: too large, too deep, no Unicode, or for a bug of ours.

Whatever a real API server can send is answered with 200. A 64-GPU pod that a policy forbids and
that the queue holds is never let through as it is, whatever is around it; and what a cluster cannot
be repaired without is never refused for it.
"""

import asyncio
import base64
import itertools
import json
import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from structlog.testing import capture_logs

from policyd.config import Settings
from policyd.jobs.integrations import EVERYTHING
from tests.attacks.figures import Attacks, Figures
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.server import application
from webhooks.shared import WebhookServer
from webhooks.workers import Workers

QUEUE = {"kueue.x-k8s.io/queue-name": "team-a"}
POLICY = """
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: cap-gpus}
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: ["", batch]
      apiVersions: ["*"]
      operations: [CREATE, UPDATE]
      resources: [pods, jobs]
  validations: [{expression: pod.gpus() <= 8}]
"""
RANDOM_INPUTS = 3_000
SLOWEST_SECONDS = 8.0
"""For 48 MiB, of which most is not judged; the caller of such a review waits for longer."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A review, as bytes, and whether it must be stopped."""

    name: str
    body: bytes
    stopped: bool = True


def _object(kind: str = "Pod", **metadata: Any) -> dict[str, Any]:
    template = {
        "containers": [
            {"name": "a", "image": "a", "resources": {"limits": {"nvidia.com/gpu": "64"}}}
        ]
    }
    about = {"name": "big", "namespace": "team-a", "labels": QUEUE, **metadata}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": about, "spec": template}
    spec = {"template": {"metadata": {}, "spec": template}}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": about, "spec": spec}


def _envelope(obj: Mapping[str, Any], old: Any = None, **fields: Any) -> dict[str, Any]:
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": obj["kind"]}
    where = {"group": group, "version": version, "resource": f"{obj['kind'].lower()}s"}
    request = {
        "uid": "u-1",
        "kind": kind,
        "resource": where,
        "requestKind": kind,
        "requestResource": where,
        "name": "big",
        "namespace": "team-a",
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": "tenant", "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": old,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": request | fields,
    }


def _padded(text: bytes, *, old: bytes | None = None, kind: str = "Pod", **fields: Any) -> bytes:
    """Write a review with a piece of raw JSON in the object, and another in the old one."""
    obj = _object(kind, annotations={"padding": "HERE"})
    before = None if old is None else _object(kind, annotations={"padding": "THERE"})
    written = json.dumps(_envelope(obj, before, **fields), separators=(",", ":")).encode()
    return written.replace(b'"HERE"', text).replace(b'"THERE"', old or b"")


ESCAPED = b"\\u003c"
RAW: Mapping[str, bytes] = {
    "beyond-floats": b"1e400",
    "beyond-int64": b"1180591620717411303424",
    "minus-zero": b"-0",
    "long-decimal": b"0." + b"1" * 5_000,
    "tiny": b"1e-400",
    "half-a-surrogate": rb'"\ud800"',
    "no-utf-8": b'"\xff\xfe"',
    "surrogate-in-utf-8": b'"\xed\xa0\x80"',
    "nul": rb'"\u0000"',
    "line-separators": "\u2028\u2029\u0085".join('""').encode(),
    "key-twice": b'{"a":1,"a":2}',
    "no-unicode-in-a-key": rb'{"\udc00\ud800":1}',
    "many-digits": b"1" * 5_000,
}


def _sizes() -> Iterator[Sent]:
    """Yield what was measured of a real API server, and more than it sends of what is stored."""
    for name, count in (
        ("a-pod-of-3,143,996-bytes", 0),
        ("escaped", 3 * 1024 * 1024),
        ("longer-than-is-judged", 9 * 1024 * 1024),
    ):
        text = b'"' + (ESCAPED * count or b"x" * (3_143_996 - len(_padded(b'""')))) + b'"'
        yield Sent(f"{name}: create", _padded(text))
    stored = b'"' + ESCAPED * 1_500_000 + b'"'
    yield Sent("update of 1.6 MB", _padded(b'"' + b"x" * 1_600_000 + b'"', old=b'"x"'))
    yield Sent("replaced", _padded(b'"' + ESCAPED * 3 * 1024 * 1024 + b'"', old=stored))
    yield Sent("patched", _padded(b'"' + ESCAPED * 4_600_000 + b'"', old=stored))
    yield Sent("many keys", _padded(b"{%b}" % b",".join(b'"%x":0' % i for i in range(300_000))))
    yield Sent("many objects", _padded(b"[%b{}]" % (b"{}," * 1_000_000)))
    yield Sent("aliases", _padded(b"[%b{}]" % (b"{}," * 9_000_000)))
    yield Sent("long name", _padded(b'"x"', name="n" * 3_000_000))
    yield Sent("many groups", _padded(b'"x"', userInfo={"groups": ["g" * 99] * 10_000}))


def _shapes() -> Iterator[Sent]:
    for levels, kind in itertools.product((500, 513, 900, 2_000, 10_002), ("Pod", "Job")):
        for name, text in (
            ("lists", b"[" * levels + b"]" * levels),
            ("maps", b'{"a":' * levels + b"1" + b"}" * levels),
        ):
            yield Sent(f"{levels} {name}", _padded(text, kind=kind))
            yield Sent(f"{levels} {name}, old", _padded(b'"x"', old=text, kind=kind))
    for (name, text), kind in itertools.product(RAW.items(), ("Pod", "Job")):
        yield Sent(name, _padded(text, kind=kind))
        yield Sent(f"{name}, old", _padded(b'"x"', old=text, kind=kind))
        yield Sent(f"{name}, padded", _padded(b'["%b",%b]' % (b"x" * 100_000, text), kind=kind))


def _exempt() -> Iterator[Sent]:
    deep = b"[" * 5_000 + b"]" * 5_000
    nodes = {"username": "system:node:a", "groups": ["system:nodes"]}
    ours = {"username": "c", "groups": ["system:serviceaccounts:policyd"]}
    yield Sent("kube-system", _padded(deep, namespace="kube-system"), stopped=False)
    yield Sent("our own", _padded(deep, namespace="policyd"), stopped=False)
    for text in (deep, *RAW.values()):
        yield Sent("a kubelet", _padded(text, userInfo=nodes), stopped=False)
        yield Sent("the controller", _padded(text, userInfo=ours), stopped=False)


def _mixed() -> Iterator[Sent]:
    """Yield pieces of raw JSON in random places of the object, and random bytes in its texts."""
    rng = random.Random(20)
    pieces = [*RAW.values(), b"[" * 600 + b"]" * 600, b'"' + ESCAPED * 20_000 + b'"']
    places = ("annotations", "labels", "finalizers", "managedFields", "name", "generateName")
    for number in range(RANDOM_INPUTS):
        kind = rng.choice(("Pod", "Job"))
        obj = _object(kind)
        chosen = rng.sample(range(len(pieces)), rng.randint(1, 3))
        for place in chosen:
            obj["metadata"][f"x-{place}"] = f"HERE{place}"
        spot = rng.choice(places)
        if spot not in ("labels", "name"):
            obj["metadata"][spot] = rng.choice((7, "a", [1], {"a": [None]}, None))
        old = rng.choice((None, _object(kind), {}, []))
        body = json.dumps(_envelope(obj, old)).encode()
        for place in chosen:
            body = body.replace(b'"HERE%d"' % place, pieces[place])
        yield Sent(f"random {number}", body)


def _application(*, fails: type[BaseException] | None = None) -> Any:
    webhooks = WebhookServer(settings=Settings(), integrations=EVERYTHING)
    policies = PoliciesInForce(namespaces=without_cluster, metrics=webhooks.metrics)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "cap-gpus.yaml"
        file.write_text(POLICY)
        policies.read_files([file])
    if fails is not None:
        policies.in_force  # noqa: B018 - known to whoever answers without it

        def fail(*_given: Any) -> Any:
            raise fails

        policies.mutate = policies.validate = fail  # type: ignore[method-assign]
    workers = Workers(ThreadPoolExecutor(1), clock=webhooks.pace.clock)
    return application(webhooks, policies, workers, lambda work: work.close())


async def _asked(app: Any, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
    sent: list[Any] = []
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    pieces = iter(range(0, len(body), 65_536))

    async def receive() -> dict[str, Any]:
        at = next(pieces)
        more = at + 65_536 < len(body)
        return {"type": "http.request", "body": body[at : at + 65_536], "more_body": more}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({**scope, "query_string": b"timeout=10s", "http_version": "1.1"}, receive, send)
    text = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(text).get("response", {})


def _held(answer: Mapping[str, Any]) -> bool:
    """Tell whether a mutation holds the object: by a gate, or by being suspended."""
    patch = base64.b64decode(answer.get("patch", ""))
    return b"schedulingGates" in patch or b"suspend" in patch


async def _tried(inputs: Iterator[Sent], app: Any) -> Figures:
    tried = bypasses = 0
    worst = 0.0
    faults: list[str] = []
    for sent, path in ((s, p) for s in inputs for p in ("/mutate", "/validate")):
        began = time.process_time()
        status, answer = await _asked(app, path, sent.body)
        spent = time.process_time() - began
        tried, worst = tried + 1, max(worst, spent)
        where = f"{path}, {sent.name}"
        if status != 200:
            bypasses += 1
            faults.append(f"{where}: answered with {status}")
        elif sent.stopped and answer["allowed"] and not _held(answer):
            # What is updated is held already; that it stays so is asked of the validation.
            updated = path == "/mutate" and b'"operation": "UPDATE"' in sent.body.replace(
                b'":"', b'": "'
            )
            bypasses += not updated
            faults += [] if updated else [f"{where}: let through"]
        elif not sent.stopped and not answer["allowed"]:
            faults.append(f"{where}: refused, although nothing is asked of it")
        if spent > SLOWEST_SECONDS:
            faults.append(f"{where}: {spent:.1f} s of CPU")
    return Figures(tried=tried, bypasses=bypasses, worst_seconds=worst, faults=tuple(faults))


def _of(*inputs: Any) -> Figures:
    with capture_logs():
        return asyncio.run(_tried(itertools.chain(*(each() for each in inputs)), _application()))


def sizes() -> Figures:
    """Send reviews as large as a real API server's, and larger."""
    return _of(_sizes)


def shapes() -> Figures:
    """Send what is deep, or no Unicode, or no number that is known here."""
    return _of(_shapes, _exempt)


def mixed() -> Figures:
    """Send some thousand objects with any of that anywhere."""
    return _of(_mixed)


def failing() -> Figures:
    """Have deciding fail, for a bug or for want of memory."""
    tried = bypasses = 0
    faults: list[str] = []
    for error in (RuntimeError, MemoryError, RecursionError, KeyError, AssertionError):
        inputs = itertools.chain(_exempt(), itertools.islice(_mixed(), 50))
        with capture_logs():
            found = asyncio.run(_tried(inputs, _application(fails=error)))
        tried, bypasses = tried + found.tried, bypasses + found.bypasses
        faults += [f"{error.__name__}: {fault}" for fault in found.faults]
    return Figures(tried=tried, bypasses=bypasses, faults=tuple(faults))


ATTACKS: Attacks = {
    "reviews as large as they come": sizes,
    "reviews of any depth, without Unicode": shapes,
    "objects with all of that anywhere": mixed,
    "a mistake of ours in each review": failing,
}
