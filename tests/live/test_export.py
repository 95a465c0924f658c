"""What `policyd export` writes, on a real API server: it answers as policyd does."""

import pytest

from policyd.api.makers import USUAL
from policyd.engine.compile.load import load_policies
from policyd.engine.offline.requests import namespace_lookup, offline_set
from tests.live.library import DEFINITIONS, FOLDERS, exported, params, priority_classes, trials
from tests.live.server import Live, live

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server() -> Live:
    with live() as running:
        running.define(DEFINITIONS)
        running.create(list(priority_classes()))
        yield running


@pytest.mark.parametrize("folder", [pytest.param(f, id=f.name) for f in FOLDERS])
def test_the_api_server_answers_the_librarys_cases_as_policyd_does(folder, server):
    native = exported(folder)
    if not native:
        return  # it was said why
    loaded = load_policies((folder / "policy.yaml").read_text(), folder.name)
    made = [*trials(server, folder)]
    given = params(folder)
    for each in given:
        server.namespace(each["metadata"]["namespace"], {})
    server.create(given)
    for _, trial in made:
        trial.prepare(server)
        if not trial.refused:
            find = namespace_lookup([trial.namespace], {})
            trial.decide(server, offline_set(loaded, find, objects=given, makers=USUAL))

    server.create(native)
    server.settle()
    answers = [trial.ask(server) for _, trial in made]
    server.delete(native)
    server.settle()

    asked = [
        (trial, answer)
        for (_, trial), answer in zip(made, answers, strict=True)
        if not trial.refused
    ]
    differing = {
        trial.name: why
        for trial, answer in asked
        if (why := trial.difference(answer, advice)) and not both_unknown(why)
    }
    assert not differing
    assert len(asked) > len(made) // 2, [trial.refused for _, trial in made]


def both_unknown(why):
    """Tell whether both refuse a pod as they do not know its claims, each in its own words."""
    return "cannot be evaluated" in why and "only the webhooks of policyd count" in why


def advice(denial):
    return denial.advice
