"""What `policyd apply` says of objects, offline, is what a real API server does with them."""

import json
import os
from pathlib import Path

import pytest

from tests.live.__main__ import GOAL
from tests.live.conformance import define_kinds
from tests.live.offline import compare
from tests.live.server import live

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
CASES = Path(os.environ.get("POLICYD_CASES") or ROOT / "shared" / "cases") / "policy"
FILES = (
    "k8s-map",
    "kyverno-cli-map",
    "kyverno-cli-vap",
    "kyverno-cli-vpol",
    "gatekeeper-library-cel",
)
EDITS = 400


@pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases in {CASES}")
def test_random_edits_are_decided_alike():
    cases = [case for name in FILES for case in json.loads((CASES / f"{name}.json").read_text())]
    with live() as running:
        define_kinds(running, cases)
        found = compare(running, cases, EDITS, seed=26)

    assert found.share >= GOAL, "\n".join(found.different)
    assert all(found.deeds[deed] > 10 for deed in ("unreadable", "refused", "allowed"))
