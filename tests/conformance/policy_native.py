"""The API server's own policies: cases of published ones, in every dialect they were asked in."""

import json

from policyd.patch.operations import same_json
from tests.conformance.outcome import Outcome
from tests.conformance.policy_cases import MODES, ask, difference, expected_in

OUT_OF_SCOPE = {
    "kyverno.params-list": "Kyverno's CLI hands a policy all its params as one List",
}
"""Features of a case that no API server has."""


def run_native(path):
    for case in json.loads(path.read_text()):
        rules = [OUT_OF_SCOPE[name] for name in case["requires"] if name in OUT_OF_SCOPE]
        yield (
            Outcome(case["id"], rule=rules[0]) if rules else Outcome(case["id"], why=failure(case))
        )


def failure(case, given=None):
    """Say how the engine's answers differ from the API server's, or from what is published."""
    if not case.get("apiserver"):
        return published_difference(case, ask(case, MODES[0], given=given))
    for mode in MODES:
        why = difference(ask(case, mode, given=given), expected_in(case, mode))
        if why:
            return f"{mode.name}: {why}"
    return ""


def published_difference(case, asked):
    """Say how an answer differs from what the source expects, where nobody asked an API server."""
    expect = case["expect"]
    wanted = expect.get("errorContains")
    if wanted:
        messages = [*map(str, asked.findings), *(str(denial) for denial in asked.decision.denials)]
        return (
            ""
            if any(wanted in text for text in messages)
            else f"no error with `{wanted}`: {messages}"
        )
    if asked.findings:
        return f"not loaded: {asked.findings[0]}"
    if asked.decision.allowed != expect["allowed"]:
        return f"allowed should be {expect['allowed']}: {asked.decision.denials}"
    if "patched" in expect and not same_json(asked.result, expect["patched"]):
        return f"patched {asked.result} != {expect['patched']}"
    return ""
