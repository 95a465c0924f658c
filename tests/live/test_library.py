"""Exported policies of the library: a real API server, policyd and the embedded server agree."""

import json
import os
import time
from dataclasses import replace

import pytest

from policyd.api.makers import USUAL
from policyd.engine.compile.load import load_policies
from policyd.engine.offline.requests import namespace_lookup, offline_set
from policyd.patch.operations import difference
from tests.e2e.likeness.servers import Loop, embedded
from tests.live.library import DEFINITIONS, FOLDERS, exported, params, priority_classes, trials
from tests.live.server import Answer, live, path_of, without_system_fields
from tests.live.trial import GENERATED

pytestmark = pytest.mark.e2e

ON_DEMAND = pytest.mark.skipif(
    "POLICYD_WHOLE_LIBRARY" not in os.environ, reason="one of three; all: make conformance-live"
)

PATIENCE_SECONDS = 10.0
JSON = {"Content-Type": "application/json"}
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Return the real server, and a function that asks the embedded one."""
    folder = tmp_path_factory.mktemp("embedded")
    with live() as running, Loop() as loop, embedded(loop, folder) as server:

        def ask(method, path, body=None, headers=JSON):
            text = None if body is None else json.dumps(body).encode()
            code, _, answer = server.ask(method, path, text, headers)
            return Answer(code, json.loads(answer))

        running.define(DEFINITIONS)
        running.create([*priority_classes()])
        for obj in (*DEFINITIONS, *priority_classes()):
            assert ask("POST", path_of(obj), obj).allowed
        yield running, ask


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, id=folder.name, marks=[ON_DEMAND] if number % 3 else [])
        for number, folder in enumerate(FOLDERS)
    ],
)
def test_the_cases_of_the_library_are_answered_alike(folder, servers):
    native = exported(folder)
    if not native:
        return  # `policyd export` says why
    real, ask = servers
    given = params(folder)
    for each in given:
        real.namespace(each["metadata"]["namespace"], {})
        ask("POST", "/api/v1/namespaces", {"metadata": {"name": each["metadata"]["namespace"]}})
        ask("POST", path_of(each), each)
    real.create(given)
    loaded = load_policies((folder / "policy.yaml").read_text(), folder.name)
    made = [trial for _, trial in trials(real, folder)]
    for trial in made:
        trial.prepare(real)
        if not trial.refused:
            furnish(ask, trial)
            find = namespace_lookup([trial.namespace], {})
            trial.decide(real, offline_set(loaded, find, objects=given, makers=USUAL))
    asked = [trial for trial in made if not trial.refused]
    assert len(asked) > len(made) // 2, [trial.refused for trial in made]

    real.create(native)
    real.settle()
    for obj in native:
        assert ask("POST", path_of(obj), obj).allowed
    answers = [(trial, trial.ask(real)) for trial in asked]
    administrators = [replace(trial, user={}) for trial in asked]
    of_both = [(trial, trial.ask(real), trial.ask_by(ask)) for trial in administrators]
    real.delete(native)
    real.settle()
    for obj in native:
        assert ask("DELETE", path_of(obj, obj["metadata"]["name"])).allowed

    differing = {
        trial.name: why
        for trial, answer in answers
        if (why := trial.difference(answer, advice)) and not both_unknown(why)
    }
    assert not differing
    unlike = {
        trial.name: (operations, theirs.message)
        for trial, theirs, ours in of_both
        if (operations := difference(shown(theirs), shown(ours)))
    }
    assert not unlike


def both_unknown(why):
    """Tell whether both refuse a pod as they do not know its claims, each in its own words."""
    return "cannot be evaluated" in why and "only the webhooks of policyd count" in why


def advice(denial):
    return denial.advice


def furnish(ask, trial):
    """Give the embedded server the namespace of a trial, and the object that is changed in it."""
    name = trial.namespace["metadata"]["name"]
    labels = {"metadata": {"labels": trial.namespace["metadata"]["labels"]}}
    ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert ask("PATCH", f"/api/v1/namespaces/{name}", labels, MERGE).allowed
    if trial.operation != "CREATE":
        old = without_owners(trial.old_object or trial.object)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while ask("POST", path_of(old, namespace=name), old).code not in (201, 409):
            assert time.monotonic() < deadline, "the object to be changed is not created"


def without_owners(obj):
    """Return an object without owners: the embedded cluster deletes it if they do not exist."""
    metadata = {key: given for key, given in obj["metadata"].items() if key != "ownerReferences"}
    return {**obj, "metadata": metadata}


def shown(answer):
    """Return what two servers must agree on."""
    if not answer.allowed:
        return {"code": answer.code, "message": GENERATED.sub("-*", answer.message)}
    return {"code": answer.code, "object": without_system_fields(answer.body)}
