"""`make conformance-live OFFLINE=N`: the verdicts of `policyd apply` against a real API server.

The objects are those of the cases that create one, and N random edits of them. The command gets
them as files, with their namespaces and params, as its users call it; the API server gets them as
they are. Both must refuse the same objects at decoding, in the same words, and those that the
server lets policies decide must be refused alike, or become the same.
"""

import copy
import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from click.testing import CliRunner

from policyd.cli import main
from policyd.patch.operations import same_json
from tests.live.conformance import (
    GROUP_LABEL,
    Group,
    errors_of,
    groups_of,
    in_scope,
    install,
    narrowed,
    trial_of,
    with_namespace,
)
from tests.live.edits import edited
from tests.live.server import Answer, Live, path_of
from tests.live.trial import GENERATED, Trial

UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UNREADABLE = "cannot be handled as a"
BY_POLICY = ("AdmissionPolicy '", "denied request", "failed to")
"""What a message has in which a policy refuses."""


@dataclass
class Verdict:
    """What the command says of an object."""

    denied: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    result: Any = None
    expected: Answer | None = None
    """What the API server makes of the result while it has no policies."""


@dataclass
class Asked:
    """An object, and the group and trial that it is of."""

    number: int
    group: Group
    trial: Trial
    object: Any
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def file(self) -> str:
        return f"e-{self.number}.json"

    def send(self, live: Live, obj: Any) -> Answer:
        """Ask the API server about an object in its place."""
        path = path_of(obj, namespace=self.trial.namespace["metadata"]["name"])
        return live.ask("POST", path, obj, query={"dryRun": "All"}, user=self.trial.user)


@dataclass
class Comparison:
    """How many objects were told alike, and which were not."""

    decided: int = 0
    undecodable: int = 0
    refused_otherwise: int = 0
    different: list[str] = field(default_factory=list)
    deeds: Counter[str] = field(default_factory=Counter)
    """What policies did, lest all agree by doing nothing."""

    @property
    def compared(self) -> int:
        """How many objects the command and the API server must agree on."""
        return self.decided + self.undecodable

    @property
    def share(self) -> float:
        """The share that they agree on."""
        return 1 - len(self.different) / max(self.compared, 1)


def compare(live: Live, cases: list[Any], edits: int, seed: int) -> Comparison:
    """Ask about the objects of cases, and about random edits of them.

    Args:
        live: The API server; the custom kinds of the cases are defined.
        cases: The cases.
        edits: How many edits.
        seed: Of the random edits.
    """
    groups = [group for group in groups_of(in_scope(cases)[0]) if _is_comparable(group)]
    asked = list(_chosen(live, groups, edits, seed))
    comparison = Comparison()
    for cluster_wide in (False, True):
        concerned = [one for one in asked if one.trial.cluster_wide == cluster_wide]
        for group in groups:
            _command(live, group, [one for one in concerned if one.group is group])
        _compare(live, groups, concerned, comparison, cluster_wide=cluster_wide)
    return comparison


def _is_comparable(group: Group) -> bool:
    """Tell whether the command can answer: it is not told what users may do."""
    return "authorizer" not in json.dumps(group.policy)


def _chosen(live: Live, groups: Sequence[Group], edits: int, seed: int) -> Iterator[Asked]:
    """Yield the objects of the cases, and then edits of them."""
    for group in groups:
        created = [case for case in group.cases if case["request"]["operation"] == "CREATE"]
        group.trials = [(case, trial_of(live, group, case, n)) for n, case in enumerate(created)]
        live.create([with_namespace(live, group, param) for param in group.params])
    pairs = [(group, trial) for group in groups for _, trial in group.trials]
    choice = random.Random(seed)
    for number, (group, trial) in enumerate(pairs):
        yield _asked(number, group, trial, trial.object)
    for number in range(len(pairs), len(pairs) + edits):
        group, trial = choice.choice(pairs)
        yield _asked(number, group, trial, edited(trial.object, choice))


def _asked(number: int, group: Group, trial: Trial, obj: Any) -> Asked:
    obj = copy.deepcopy(obj)
    metadata = obj["metadata"]
    for name in ("uid", "resourceVersion", "generateName"):
        metadata.pop(name, None)
    metadata["name"] = f"e-{number}"
    if not trial.cluster_wide:
        metadata["namespace"] = trial.namespace["metadata"]["name"]
    elif isinstance(metadata.get("labels") or {}, dict):
        metadata["labels"] = {**(metadata.get("labels") or {}), GROUP_LABEL: f"g{group.number}"}
    return Asked(number, group, trial, obj)


def _command(live: Live, group: Group, asked: Sequence[Asked]) -> None:
    """Ask the command about objects of a group, once for each user."""
    users: dict[str, list[Asked]] = {}
    for one in asked:
        users.setdefault(json.dumps(one.trial.user, sort_keys=True), []).append(one)
    for some in users.values():
        with tempfile.TemporaryDirectory() as folder:
            _apply(live, group, some, Path(folder))


def _apply(live: Live, group: Group, asked: Sequence[Asked], folder: Path) -> None:
    binding = narrowed(group.binding, group.number, cluster_wide=asked[0].trial.cluster_wide)
    policies, objects = folder / "policies", folder / "objects"
    _write(policies, {"policy": group.policy, "binding": binding})
    namespaces = {one.trial.namespace["metadata"]["name"]: one.trial.namespace for one in asked}
    params = {f"param-{n}": param for n, param in enumerate(group.params)}
    _write(objects, {**namespaces, **params})
    _write(objects, {one.file.removesuffix(".json"): one.object for one in asked})
    user = asked[0].trial.user
    arguments = ["apply", "-p", str(policies), "-f", str(objects), "--user", user["username"]]
    arguments += ["--no-queue", "--group", "system:authenticated"]
    for name in user.get("groups") or ():
        arguments += ["--group", name]
    by_file = {one.file: one.verdict for one in asked}
    report = _run([*arguments, "-o", "sarif"])
    for found in report["runs"][0]["results"] if report else ():
        place = found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        verdict = by_file.get(Path(unquote(place)).name)
        if verdict is not None:
            text = found["message"]["text"]
            which = {"unreadable": verdict.unreadable, "warning": verdict.warned}
            which.get(found["ruleId"], verdict.denied).append(text)
    if "Mutating" in group.policy["kind"]:
        by_name = {one.object["metadata"]["name"]: one for one in asked}
        changed = [
            (by_name[obj["metadata"]["name"]], obj)
            for obj in _run([*arguments, "-o", "json"]) or ()
            if (obj.get("metadata") or {}).get("name") in by_name
        ]
        for (one, obj), answer in zip(
            changed, live.all(lambda pair: pair[0].send(live, pair[1]), changed), strict=True
        ):
            one.verdict.result, one.verdict.expected = obj, answer


def _write(folder: Path, objects: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    for name, obj in objects.items():
        (folder / f"{name}.json").write_text(json.dumps(obj))


def _run(arguments: Sequence[str]) -> Any:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in {0, 1, 2}, result.exception
    return json.loads(result.stdout) if result.stdout else None


def _compare(
    live: Live,
    groups: Sequence[Group],
    asked: Sequence[Asked],
    comparison: Comparison,
    *,
    cluster_wide: bool,
) -> None:
    installed = [
        document
        for group in groups
        if not errors_of(group)
        for document in install(live, group, cluster_wide=cluster_wide)
    ]
    live.settle()
    concerned = [one for one in asked if not one.group.refused]
    answers = live.all(lambda one: one.send(live, one.object), concerned)
    for one, answer in zip(concerned, answers, strict=True):
        _note(one, answer, comparison)
    live.delete(installed)
    live.settle()


def _note(one: Asked, answer: Answer, comparison: Comparison) -> None:
    by_policy = any(part in answer.message for part in BY_POLICY)
    if UNREADABLE in answer.message:
        comparison.undecodable += 1
    elif answer.allowed or by_policy:
        comparison.decided += 1
    else:
        comparison.refused_otherwise += 1
        return
    comparison.deeds[_deed(one.verdict)] += 1
    why = _difference(one.verdict, answer)
    if why:
        kind = one.object["kind"]
        name = one.group.policy["metadata"]["name"]
        comparison.different.append(f"{name}: {kind} {one.object['metadata']['name']}: {why}")


def _deed(verdict: Verdict) -> str:
    if verdict.unreadable:
        return "unreadable"
    if verdict.denied:
        return "refused"
    return "warned of" if verdict.warned else "allowed"


def _difference(verdict: Verdict, answer: Answer) -> str:
    """Say how the command and the API server differ about an object; empty if they do not."""
    ours = [*verdict.unreadable, *verdict.denied]
    if not answer.allowed:
        alike = _is_shown(answer.message, ours)
        return "" if alike else f"ours {ours}, API server {answer.message}"
    if ours:
        return f"ours {ours}, API server: allowed"
    failed = [text for text in answer.warnings if text.startswith("Validation failed for")]
    if len(failed) != len(verdict.warned):
        return f"warnings: ours {verdict.warned}, API server {failed}"
    return "" if verdict.expected is None else _other_result(verdict.expected, answer)


def _other_result(expected: Answer, answer: Answer) -> str:
    """Say how the object differs that comes of the changes of policies."""
    if not expected.allowed:
        return f"the result: {expected.message}"
    if same_json(_without_uids(expected.object), _without_uids(answer.object)):
        return ""
    return f"object {answer.object} != {expected.object}"


def _without_uids(obj: Any) -> Any:
    """Return an object without the identifiers that the API server makes up."""
    return json.loads(UID.sub("", json.dumps(obj)))


def _is_shown(message: str, ours: Iterable[str]) -> bool:
    shown = GENERATED.sub("-*", message)
    return any(shown.endswith(GENERATED.sub("-*", text)) for text in ours)
