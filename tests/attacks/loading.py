"""Policies, and files of them, that are to cost more than they should when they are loaded.

Bombs are small texts that stand for much; floods are changes, one after the other. Reviews go on
meanwhile, and what they wait for is measured from when they were due.
"""

import asyncio
import os
import resource
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from policyd.api.admission import parse_review
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.errors import ConfigurationError
from policyd.kube.pace import Pace
from tests.attacks.figures import Attacks, Figures
from tests.webhooks.policies import stored
from tests.webhooks.reviews import policy, review
from webhooks.certificate.files import read_file
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce, files_of
from webhooks.policies.loading import Loading
from webhooks.policies.stored import StoredPolicy

MOST_SECONDS = 6.0
"""CPU that one text of up to 1.5 MB may take: what is loaded beside reviews, one at a time."""

MOST_BYTES = 150 * 1024 * 1024
MEDIAN_SECONDS = 0.05
LONGEST_SECONDS = 1.0
ETCD = 1_500_000
"""How large an object of the API server may be."""

HEAD = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]
"""
NATIVE = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]
"""
KYVERNO = """\
apiVersion: policies.kyverno.io/v1
kind: NamespacedValidatingPolicy
metadata: {name: p, namespace: team-a}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
"""
GOOD = HEAD.replace("name: p", "name: good") + "  validations: [{expression: 'true'}]\n"


def validating(*expressions: str, head: str = HEAD) -> str:
    """Return a policy of some validations."""
    lines = (f"  - expression: {expression!r}\n" for expression in expressions)
    return f"{head}  validations:\n{''.join(lines)}"


def _aliases(levels: int, width: int) -> str:
    first = "a0: &a0 [" + ",".join("x" * width) + "]\n"
    return first + "".join(
        f"a{level}: &a{level} [" + ",".join([f"*a{level - 1}"] * width) + "]\n"
        for level in range(1, levels)
    )


def _in_each_place(bomb: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield a bomb as the value of each field of a policy's upper levels."""
    own = "apiVersion: policyd.io/v1alpha1\nkind: Policy\n"
    foreign = "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\n"
    old = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\n"
    native = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n"
    named = "metadata: {name: p}\n"
    for kind in (own, foreign, old, native):
        yield "metadata", f"{bomb}{kind}metadata: *{name}\n"
        yield "labels", f"{bomb}{kind}metadata: {{name: p, labels: *{name}}}\n"
        yield "spec", f"{bomb}{kind}{named}spec: *{name}\n"
        for field in ("matchConstraints", "validations", "variables", "unknown", "rules"):
            yield field, f"{bomb}{kind}{named}spec: {{{field}: *{name}}}\n"
    yield "kind", f"{bomb}apiVersion: policyd.io/v1alpha1\nkind: *{name}\n"
    yield "version", f"{bomb}apiVersion: *{name}\nkind: Policy\n"
    yield "items", f"{bomb}apiVersion: v1\nkind: PolicyList\nitems: *{name}\n"
    yield "merge", f"{bomb}apiVersion: v1\nkind: ConfigMap\n{named}data: {{<<: [*{name}]}}\n"
    yield "data", f"{bomb}apiVersion: v1\nkind: ConfigMap\n{named}data: *{name}\n"


def _patterns() -> Iterator[tuple[str, str]]:
    for name, pattern in (
        ("repeats", "(a{{1000}}){{9}}x{}"),
        ("nested-repeats", "((a{{30}}){{30}}){{9}}x{}"),
        ("letters", "(\\pL{{100}}){{9}}x{}"),
        ("any-case", "(?i)(\\pL{{50}}){{9}}x{}"),
        ("too-large", "((\\pL{{999}}){{9}}){{9}}x{}"),
        ("choices", "({}" + "|ab" * 5 + "){{999}}"),
    ):
        many = [pattern.format(number) for number in range(25_000 // len(pattern))]
        for call in (
            "object.metadata.name.matches('{}')",
            "'a'.matches('{}')",
            "'a'.find('{}') == ''",
        ):
            texts = [call.format(each.replace("\\", "\\\\")) for each in many]
            yield f"patterns {name} {call[:8]}", validating(*texts)
        yield f"patterns {name} in one", validating(" || ".join(texts[:200]), head=NATIVE)


def _large() -> Iterator[tuple[str, str]]:
    longest = "[" + ",".join(f"object.a{n}" for n in range(8_500)) + "].size() > 0"
    for head in (HEAD, KYVERNO):
        yield "long expressions", validating(*[longest] * 14, head=head)
        yield "many expressions", validating(*["object.a == 'b'"] * 50_000, head=head)
        yield "wrong expressions", validating(*["1 +"] * 50_000, head=head)
        yield (
            "undeclared",
            validating("[" + ",".join(f"a{n}" for n in range(14_000)) + "]", head=head),
        )
    variables = "".join(f"  - {{name: v{n}, expression: '1'}}\n" for n in range(30_000))
    yield "variables", f"{validating('true')}  variables:\n{variables}"
    yield "unknown fields", GOOD + "".join(f"  a{n}: 1\n" for n in range(100_000))
    rules = ", ".join(f"r{n}" for n in range(500))
    each = (
        f"{{apiGroups: [{rules}], apiVersions: [{rules}], operations: ['*'], resources: [{rules}]}}"
    )
    yield "rules", validating("true").replace("resourceRules: [", f"resourceRules: [{each}, ")
    yield from _texts()


def _texts() -> Iterator[tuple[str, str]]:
    yield "a number", HEAD + "  priority: 0x" + "f" * 500_000 + "\n"
    yield "a decimal", HEAD + "  priority: " + "9" * 500_000 + "\n"
    yield "a name", validating("true").replace("name: p", "name: " + "a" * 500_000)
    yield "a dotted name", validating("true").replace("name: p", "name: " + "a." * 250_000)
    yield "a kind", "apiVersion: policyd.io/v1alpha1\nkind: " + "Polic" * 200_000 + "\n"
    yield "empty documents", "---\n" * 1_000_000
    yield "comments", "--- # a\n" * 180_000
    yield "small documents", "--- a\n" * 240_000
    yield "small objects", "---\na: b\n" * 150_000
    yield "lists", "[" * 300_000
    yield "nested maps", "a: {" * 199 + "}" * 199
    yield "JSON", '{"a": [' + ",".join(["{}"] * 300_000) + "]}"
    yield (
        "JSON lists",
        '{"apiVersion": "v1", "kind": "List", "items": [' + ",".join(["{}"] * 9_999) + "]}",
    )
    yield "anchors", "".join(f"a{n}: &b{n} x\n" for n in range(60_000))
    yield "a long text", "a: &a " + "x" * 100_000 + "\nb: [" + ",".join(["*a"] * 999) + "]\n"
    yield "tags", "- !!python/object:os.system a\n" * 40_000
    yield "keys", "? [a]\n: b\n" * 100_000
    yield "a quoted text", 'a: "' + "\\x41" * 350_000 + '"\n'
    yield "tabs", "\ta: b\n" * 100_000
    yield "no end", "a: '" + "x\n" * 400_000
    yield "no UTF-8", "a: b\n" * 100_000 + "\udc80"


def bombs() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each bomb."""
    for levels, width in ((9, 9), (50, 2)):
        bomb = _aliases(levels, width)
        for place, text in _in_each_place(bomb, f"a{levels - 1}"):
            yield f"aliases {levels}x{width} {place}", text
    yield from _patterns()
    yield from _large()


def tried_bombs() -> Figures:
    """Load each bomb behind a policy that is to be loaded all the same."""
    worst, tried = 0.0, 0
    faults: list[str] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, text in bombs():
        tried += 1
        content = f"{GOOD}---\n{text}"[:ETCD].encode(errors="surrogateescape")
        began = time.process_time()
        try:
            loaded = load_policies(content, "bomb.yaml", EVERY_FORMAT)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            faults.append(f"{name}: {type(error).__name__}: {error}"[:200])
            continue
        seconds = time.process_time() - began
        worst = max(worst, seconds)
        if seconds > MOST_SECONDS:
            faults.append(f"{name}: {seconds:.1f} s for {len(content):,} bytes")
        if "good" not in [each.name for each in loaded.policies] and name != "no UTF-8":
            faults.append(f"{name}: what stands before it is not loaded")
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if peak > MOST_BYTES:
        faults.append(f"{peak >> 20} MiB are taken")
    return Figures(tried=tried, worst_seconds=worst, peak_bytes=peak, faults=tuple(faults))


class Reviewed:
    """Policies that are loaded beside reviews, and how long reviews wait."""

    def __init__(self) -> None:
        self.policies = PoliciesInForce(
            namespaces=without_cluster, metrics=WebhookMetrics(CollectorRegistry())
        )
        self.loading = Loading(self.policies, pace=Pace())
        self.waits: list[float] = []
        self.refused = 0

    def note(self, policy: StoredPolicy) -> None:
        """Note a policy that is new or changed."""
        self.loading.note(policy.key, partial(self.policies.take, policy))

    async def during(self, attack: Callable[["Reviewed"], None], seconds: float) -> None:
        """Review a pod every 10 ms for some seconds, while an attack notes a change every 10 ms."""
        running = asyncio.create_task(self.loading.run())
        own = policy("own", validations=[{"expression": "object.metadata.name != 'b'"}])["spec"]
        self.note(stored("own", own))
        await self.loading.settled()
        end = time.monotonic() + seconds
        due = time.monotonic()
        while due < end:
            attack(self)
            due += 0.01
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            allowed = self.policies.validate(parse_review(review())).allowed
            self.waits.append(time.monotonic() - due)
            self.refused += not allowed
            due = max(due, time.monotonic() - 0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _flood(spec: dict[str, object], names: int = 1) -> Callable[[Reviewed], None]:
    """Return what changes one of some policies, again and again."""
    count = 0

    def attack(reviewed: Reviewed) -> None:
        nonlocal count
        count += 1
        name = f"p{count % names}"
        # What is broken refuses what it was to guard, unless it says otherwise.
        spec["failurePolicy"] = "Ignore"
        changed = {**spec, "matchConditions": [{"name": f"c{count}", "expression": "true"}]}
        reviewed.note(stored(name, changed))

    return attack


def _spec(*expressions: str) -> dict[str, object]:
    found: dict[str, object] = policy(
        "p", validations=[{"expression": each} for each in expressions]
    )["spec"]
    return found


LONGEST = "[" + ",".join(f"object.a{n}" for n in range(8_500)) + "].size() > 0 || true"
FLOODS: dict[str, tuple[dict[str, object], int]] = {
    "a small policy": (_spec("object.metadata.name != 'c'"), 1),
    "a policy of 900 expressions": (_spec(*(f"object.a{n} != 'b' || true" for n in range(900))), 1),
    "the longest expressions": (_spec(LONGEST, LONGEST), 1),
    "the largest patterns": (
        _spec(*(f"!'a'.matches('(\\\\pL{{100}}){{3}}x{n}')" for n in range(30))),
        1,
    ),
    "a hundred policies": (_spec(*(f"object.a{n} != 'b' || true" for n in range(50))), 100),
}


def tried_floods() -> Figures:
    """Change policies a hundred times a second while pods are reviewed."""
    waits: list[float] = []
    faults = []
    tried = 0
    for name, (spec, names) in FLOODS.items():
        reviewed = Reviewed()
        asyncio.run(reviewed.during(_flood(spec, names), 4.0))
        tried += len(reviewed.waits)
        waits += reviewed.waits
        median, longest = statistics.median(reviewed.waits), max(reviewed.waits)
        if median > MEDIAN_SECONDS or longest > LONGEST_SECONDS:
            faults.append(f"{name}: median {median * 1000:.0f} ms, longest {longest * 1000:.0f} ms")
        if reviewed.refused:
            faults.append(f"{name}: {reviewed.refused} pods are refused that are not meant")
    return Figures(
        tried=tried,
        worst_seconds=max(waits),
        median_seconds=statistics.median(waits),
        faults=tuple(faults),
    )


def _links(folder: Path, secret: Path) -> None:
    """Put links of all sorts into a folder."""
    (folder / "file.yaml").symlink_to(secret / "key.yaml")
    (folder / "folder").symlink_to(secret)
    (folder / "root").symlink_to("/")
    (folder / "proc.yaml").symlink_to("/proc/self/environ")
    (folder / "zero.yaml").symlink_to("/dev/zero")
    (folder / "input.yaml").symlink_to("/dev/stdin")
    (folder / "chain.yaml").symlink_to("chain-1")
    (folder / "chain-1").symlink_to("../secret/key.yaml")
    (folder / "loop.yaml").symlink_to("loop.yaml")
    (folder / "inner").mkdir()
    (folder / "inner" / "up").symlink_to("..")
    (folder / "inner" / "out").symlink_to("../..")
    (folder / "through.yaml").symlink_to("inner/out/secret/key.yaml")
    os.mkfifo(folder / "pipe.yaml")
    with (folder / "huge.yaml").open("wb") as file:
        file.truncate(1 << 40)


def tried_folders() -> Figures:
    """Read a folder of links, pipes and devices."""
    with tempfile.TemporaryDirectory() as place:
        folder, secret = Path(place, "policies"), Path(place, "secret")
        folder.mkdir()
        secret.mkdir()
        (secret / "key.yaml").write_text("password: secret")
        (folder / "own.yaml").write_text(GOOD)
        _links(folder, secret)
        tracemalloc.start()
        began = time.process_time()
        files = files_of([folder])
        reads = 0
        for file in files:
            try:
                reads += b"secret" in read_file(file)
            except ConfigurationError:
                continue
        seconds = time.process_time() - began
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        tried = sum(1 for _ in folder.rglob("*"))
    names = [file.name for file in files]
    faults = [] if names == ["huge.yaml", "own.yaml"] else [f"read: {', '.join(names)}"]
    return Figures(
        tried=tried, reads=reads, worst_seconds=seconds, peak_bytes=peak, faults=tuple(faults)
    )


ATTACKS: Attacks = {
    "bombs": tried_bombs,
    "floods of changes": tried_floods,
    "links in a folder": tried_folders,
}
