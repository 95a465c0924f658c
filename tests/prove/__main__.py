"""`make prove`: how much of published policies can be decided, and whether proofs of mutants hold.

Each policy of the libraries is encoded and decided at a bound. Then expressions get small errors:
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.model.compiled import CompiledPolicy
from policyd.errors import PolicydError
from policyd.prove.questions import Answer, Verdict, answer, decider

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
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)


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
    """Decide whether each policy of a library never denies."""
    figures = Library()
    for document, _ in published(cases, library):
        for policy in loaded(document):
            figures.policies += 1
            began = time.process_time()
            found = answer("never-denies", ((policy,),), bound=bound)
            figures.seconds.append(time.process_time() - began)
            figures.decided += found.verdict != "unknown"
            if found.why:
                figures.reasons[found.why[:80]] += 1
    return figures


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


def judge_mutants(cases: Path, count: int, objects: int, bound: int, seed: int) -> Counter[str]:
    """Ask whether policies equal their mutants, and let the engine judge each proof."""
    rng = random.Random(seed)
    sources = [
        (document, [obj for obj in resources if isinstance(obj, dict)])
        for library in LIBRARIES
        for document, resources in published(cases, library)
        if document["spec"].get("validations") and not document["spec"].get("paramKind")
    ]
    pool = _pool([obj for _, resources in sources for obj in resources], rng)
    figures: Counter[str] = Counter()
    seconds = []
    while figures["mutants"] < count:
        document, own = rng.choice(sources)
        originals, changed = loaded(document), loaded(mutant(document, rng))
        if len(originals) != 1 or len(changed) != 1:
            continue
        figures["mutants"] += 1
        began = time.process_time()
        found = answer("equal", (originals[:1], changed[:1]), bound=bound)
        seconds.append(time.process_time() - began)
        figures[found.verdict] += 1
        if found.verdict == "proved":
            tried = [*own, *rng.choices(pool, k=objects)]
            deciders = decider(originals[0]), decider(changed[0])
            wrong = sum(_differ(deciders, obj) for obj in tried)
            figures["false proofs"] += bool(wrong)
            figures["objects"] += len(tried)
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
    """Print the figures; 1 if a proof is false."""
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
    policies = decided = 0
    for library in LIBRARIES:
        figures = judge_library(cases, library, asked.bound)
        ordered = sorted(figures.seconds)
        p95 = ordered[int(len(ordered) * 0.95)]
        policies, decided = policies + figures.policies, decided + figures.decided
        print(f"{library}: {figures.decided} of {figures.policies} decided, p95 {p95:.2f} s CPU")
        for reason, number in figures.reasons.most_common(5):
            print(f"  {number:3} {reason}")
    print(f"all: {decided} of {policies} decided at bound {asked.bound} ({decided / policies:.0%})")
    found = judge_mutants(cases, asked.n, asked.objects, asked.bound, asked.seed)
    print(
        ", ".join(f"{found[name]} {name}" for name in ("mutants", "proved", "refuted", "unknown"))
    )
    print(f"{found['false proofs']} false proofs on {found['objects']} objects; seed {asked.seed}")
    return int(found["false proofs"] > 0)


if __name__ == "__main__":
    sys.exit(main())
