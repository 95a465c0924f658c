"""`make prove`: how much of published policies can be decided, and whether proofs of mutants hold.

Each policy of the libraries, and each of its expressions by itself, is encoded and decided at a
bound. Then expressions get small errors:
where the solver says that a policy and its mutant are equal, the engine must say so for each object
of a pool; where it finds an object, the engine has confirmed it.
"""

import argparse
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from policyd.cel.compile.program import compile_expression
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.model.compiled import CompiledPolicy, expressions_of
from policyd.errors import PolicydError
from policyd.prove.questions import Answer, Verdict, answer, decider
from tests.histories.apart import apart

_ROOT = Path(__file__).parents[2]
LIBRARIES = ("kubescape-vap", "kyverno-policies-vpol", "kyverno-policies-cpol-cel")
SWAPS = (
    *((" && ", " || "), (" || ", " && "), (" == ", " != "), (" != ", " == ")),
    *((" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > ")),
    *((".all(", ".exists("), (".exists(", ".all("), ("startsWith(", "endsWith(")),
    *(("true", "false"), ("false", "true"), ("!has(", "has("), ("!", "")),
)
"""What a mutant has in place of what."""
POOL = 100_000
"""Objects that are made of those of the cases."""
Decider = Callable[[Answer], Verdict]


@dataclass
class Library:
    """The figures of one library."""

    policies: int = 0
    decided: int = 0
    expressions: int = 0
    decided_expressions: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        p95 = sorted(self.seconds)[int(len(self.seconds) * 0.95)]
        share = self.decided_expressions / self.expressions
        return (
            f"{self.decided} of {self.policies} policies decided,"
            f" {self.decided_expressions} of {self.expressions} expressions ({share:.0%}),"
            f" p95 of a policy {p95:.2f} s CPU"
        )

    def add(self, other: "Library") -> None:
        """Add the figures of another library."""
        self.policies += other.policies
        self.decided += other.decided
        self.expressions += other.expressions
        self.decided_expressions += other.decided_expressions
        self.seconds += other.seconds

    def ask(self, policy: CompiledPolicy, bound: int) -> bool:
        """Ask whether a policy never denies; tell whether there is an answer."""
        began = time.process_time()
        found = answer("never-denies", ((policy,),), bound=bound)
        self.seconds.append(time.process_time() - began)
        if found.why:
            self.reasons[found.why[:80]] += 1
        return found.verdict != "unknown"


def published(cases: Path, library: str) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Yield the policies of a library, each with the objects of its cases."""
    found: dict[str, tuple[dict[str, Any], list[Any]]] = {}
    for case in json.loads((cases / "policy" / f"{library}.json").read_text()):
        document = case["policy"]
        key = json.dumps(document, sort_keys=True)
        found.setdefault(key, (document, []))[1].append(case.get("resource"))
        for name in ("validationActions", "validationFailureAction"):
            if name in (document or {}).get("spec", {}):
                # A policy that only audits denies nothing, so that each question is answered.
                deny = "Enforce" if name.endswith("Action") else ["Deny"]
                document["spec"][name] = deny
    yield from found.values()


def loaded(document: Any) -> tuple[CompiledPolicy, ...]:
    """Return the policies of a document; none if it has errors, or there is none."""
    if document is None:
        return ()
    return load_policies(yaml.safe_dump(document), "policy", EVERY_FORMAT).policies


def judge_library(cases: Path, library: str, bound: int) -> Library:
    """Decide whether each policy of a library never denies, and each expression of it."""
    figures, parts = Library(), Library()
    for document, _ in published(cases, library):
        for policy in loaded(document):
            figures.policies += 1
            figures.decided += figures.ask(policy, bound)
            for part in by_expression(policy):
                figures.expressions += 1
                figures.decided_expressions += parts.ask(part, bound)
    return figures


def by_expression(policy: CompiledPolicy) -> Iterator[CompiledPolicy]:
    """Yield a policy for each expression that decides: it denies if that is false, or fails.

    Of a variable, it is asked whether it fails.
    """
    for name, program, environment in expressions_of(policy):
        asked = program
        if policy.variables.get(name) is program:
            asked = compile_expression(f"[variables.{name}].size() == 1", environment)
        check = replace(policy.validations[0], program=asked)
        yield replace(policy, conditions=(), validations=(check,))


def mutant(document: Any, rng: random.Random) -> Any:
    """Return a policy with one small error in an expression; None if none can be made."""
    text = json.dumps(document["spec"].get("validations") or [])
    places = [
        (match.start(), before, after)
        for before, after in SWAPS
        for match in re.finditer(re.escape(before), text)
    ]
    if not places:
        return None
    place, before, after = rng.choice(places)
    changed = text[:place] + after + text[place + len(before) :]
    return {**document, "spec": {**document["spec"], "validations": json.loads(changed)}}


@dataclass(frozen=True)
class Mutants:
    """Mutants of policies, each made and judged by its number alone, so that cores share them.

    Attributes:
        sources: Policies, each with the objects of its cases.
        pool: Objects that proofs are tried on.
        asked: The options of the command.
    """

    sources: list[tuple[Any, list[Any]]]
    pool: list[Any]
    asked: argparse.Namespace

    def judge(self, number: int) -> tuple[str, float, int, str]:
        """Ask whether a policy equals its mutant, and let the engine judge the answer.

        Returns:
            The verdict, its seconds, the objects it was tried on, and what shows it to be false.
        """
        rng = random.Random(f"{self.asked.seed}/{number}")
        other: Any = None
        originals: tuple[CompiledPolicy, ...] = ()
        changed: tuple[CompiledPolicy, ...] = ()
        while len(originals) != 1 or len(changed) != 1:
            document, own = rng.choice(self.sources)
            other = mutant(document, rng)
            originals, changed = loaded(document), loaded(other)
        began = time.process_time()
        found = answer("equal", (originals, changed), bound=self.asked.bound)
        seconds = time.process_time() - began
        deciders = decider(originals[0]), decider(changed[0])
        tried: list[Any] = []
        false = ""
        if found.verdict == "proved":
            tried = [*own, *rng.choices(self.pool, k=self.asked.objects)]
            example = next((obj for obj in tried if _differ(deciders, obj)), None)
            false = "" if example is None else f"differs for {json.dumps(example)}"
        elif found.verdict == "refuted" and not _differ(deciders, found.object):
            false = f"does not differ for {json.dumps(found.object)}"
        if false:
            validations = json.dumps(other["spec"]["validations"])
            false = f"{number}: {originals[0].id} with {validations} {false}"
        return found.verdict, seconds, len(tried), false


def judge_mutants(cases: Path, asked: argparse.Namespace) -> Counter[str]:
    """Judge the answers about many mutants, on all cores."""
    sources = [
        (document, [obj for obj in resources if isinstance(obj, dict)])
        for library in LIBRARIES
        for document, resources in published(cases, library)
        if document["spec"].get("validations") and not document["spec"].get("paramKind")
    ]
    objects = [obj for _, resources in sources for obj in resources]
    mutants = Mutants(sources, _pool(objects, random.Random(asked.seed)), asked)
    figures: Counter[str] = Counter()
    seconds = []
    for verdict, spent, tried, false in apart(
        mutants.judge, range(asked.n), at_once=os.cpu_count() or 1
    ):
        seconds.append(spent)
        figures["mutants"] += 1
        figures[verdict] += 1
        figures["objects"] += tried
        figures[f"false {verdict}"] += bool(false)
        if false:
            print(false)
    seconds.sort()
    print(f"a policy and its mutant: p95 {seconds[int(len(seconds) * 0.95)]:.2f} s CPU")
    return figures


def _pool(objects: list[Any], rng: random.Random) -> list[Any]:
    """Return many objects: those of the cases, and each of them with parts of others."""
    by_kind: dict[str, list[Any]] = {}
    for obj in objects:
        by_kind.setdefault(str(obj.get("kind")), []).append(obj)
    return objects + [
        _mixed(one, rng.choice(by_kind[str(one.get("kind"))]), rng)
        for one in rng.choices(objects, k=POOL)
    ]


def _mixed(one: Any, other: Any, rng: random.Random) -> Any:
    """Return an object with fields from either of two, or without them."""
    if isinstance(one, dict) and isinstance(other, dict):
        made = {key: _mixed(value, other.get(key, value), rng) for key, value in one.items()}
        made |= {key: value for key, value in other.items() if rng.random() < 0.2}
        kept = ("apiVersion", "kind", "metadata", "name", "spec")
        return {key: each for key, each in made.items() if key in kept or rng.random() > 0.1}
    if isinstance(one, list) and isinstance(other, list):
        return [each for each in (*one, *other) if rng.random() < 0.6]
    return other if rng.random() < 0.3 else one


def _differ(deciders: tuple[Decider, Decider], obj: Any) -> bool:
    example = Answer(verdict="refuted", bound=0, object=obj)
    try:
        one, other = (decide(example).denies for decide in deciders)
    except (PolicydError, ValueError, KeyError):
        return False  # no object of Kubernetes
    return one != other


def main() -> int:
    """Print the figures; 1 if a proof or a refutation is false."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=2_000, help="mutants")
    parser.add_argument("--objects", type=int, default=5_000, help="objects for each proof")
    parser.add_argument("--bound", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    cases = Path(os.environ.get("POLICYD_CASES") or _ROOT.parent / "shared" / "cases")
    if not cases.is_dir():
        print(f"no cases in {cases}: set POLICYD_CASES to their folder", file=sys.stderr)
        return 2
    every = Library()
    for library in LIBRARIES:
        figures = judge_library(cases, library, asked.bound)
        print(f"{library}: {figures}")
        for reason, number in figures.reasons.most_common(5):
            print(f"  {number:3} {reason}")
        every.add(figures)
    print(f"all, at bound {asked.bound}: {every}")
    found = judge_mutants(cases, asked)
    print(
        ", ".join(f"{found[name]} {name}" for name in ("mutants", "proved", "refuted", "unknown"))
    )
    wrong = found["false proved"], found["false refuted"]
    print(
        f"{wrong[0]} false proofs on {found['objects']:,} objects,"
        f" {wrong[1]} false refutations; seed {asked.seed}"
    )
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
