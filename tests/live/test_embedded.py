"""The embedded server acts on exported policies as the real one does."""

import json
import time

import pytest

from policyd.patch.operations import difference
from tests.e2e.likeness.servers import Loop, embedded
from tests.live.library import DEFINITIONS, FOLDERS, exported, priority_classes, trials
from tests.live.server import Answer, live, path_of, without_system_fields
from tests.live.trial import GENERATED

pytestmark = pytest.mark.e2e

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


@pytest.mark.parametrize("folder", [pytest.param(f, id=f.name) for f in FOLDERS])
def test_both_servers_answer_the_librarys_cases_alike(folder, servers):
    native = exported(folder)
    if not native:
        return  # it was said why
    real, ask = servers
    made = [trial for _, trial in trials(real, folder)]
    for trial in made:
        trial.user = {}  # the administrator of both
        trial.prepare(real)
        furnish(ask, trial)
    made = [trial for trial in made if not trial.refused]

    real.create(native)
    real.settle()
    for obj in native:
        assert ask("POST", path_of(obj), obj).allowed
    answers = {trial.name: (trial.ask(real), trial.ask_by(ask)) for trial in made}
    real.delete(native)
    for obj in native:
        assert ask("DELETE", path_of(obj, obj["metadata"]["name"])).allowed

    differing = {
        name: operations
        for name, (theirs, ours) in answers.items()
        if (operations := difference(shown(theirs), shown(ours)))
    }
    assert not differing, {name: answers[name][0].message for name in differing}


def furnish(ask, trial):
    """Give the embedded server the namespace of a trial, and the object that is changed in it."""
    name = trial.namespace["metadata"]["name"]
    labels = {"metadata": {"labels": trial.namespace["metadata"]["labels"]}}
    ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert ask("PATCH", f"/api/v1/namespaces/{name}", labels, MERGE).allowed
    if trial.operation != "CREATE" and not trial.refused:
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
