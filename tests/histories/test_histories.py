"""Histories in simulated time: none fails, they are eventful, and a seed always gives the same."""

import asyncio
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from aiohttp import ClientTimeout

from policyd.kube.calls import ApiCall
from tests.histories.history import live_through
from tests.histories.loop import Process, SimulatedLoop, StuckError
from tests.histories.network import Headers, Network
from tests.histories.plan import FAULTS, Plan, plan_of
from tests.histories.trouble import ADMISSION, LOST_SECONDS, Trouble

HISTORIES = 9
"""More take longer than a test may: `make histories` has thousands."""


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """What the command says of some histories."""
    file = tmp_path_factory.mktemp("histories") / "figures.json"
    command = [sys.executable, "-m", "tests.histories", f"-n{HISTORIES}", "--processes=1"]
    ended = subprocess.run(
        [*command, f"--json={file}"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(file.read_text())


def test_no_judge_objects(figures):
    assert (figures["histories"], figures["failed"]) == (HISTORIES, 0)


def test_they_are_long_busy_and_eventful(figures):
    middle = figures["median"]

    assert middle["peak load"] > 1
    assert middle["hours"] >= 4
    assert middle["workloads"] >= 30
    assert middle["faults"] >= 5


def test_every_fault_is_planned():
    planned = {e.act for seed in range(50) for e in plan_of(seed).events}

    assert planned >= FAULTS


def test_the_same_seed_gives_the_same_bytes():
    code = (
        "from tests.histories.history import live_through; "
        "from tests.histories.plan import plan_of; "
        "print(live_through(plan_of(7), digest=True).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    }

    assert len(digests) == 1
    assert len(digests.pop().strip()) == 32


def test_a_plan_is_read_as_it_was_written():
    plan = plan_of(3)

    assert Plan.of(json.loads(json.dumps(plan.as_json()))) == plan


def test_another_seed_is_another_history():
    assert plan_of(1).events != plan_of(2).events
    assert live_through(Plan(1, 60.0, plan_of(1).setting, ())).faults == []


def test_what_a_judge_cannot_read_is_an_objection():
    judges = {"a": lambda _world, _log: ["wrong", {}["admission"]], "b": lambda _world, _log: []}
    outcome = live_through(Plan(1, 60.0, plan_of(1).setting, ()), judges=judges)

    assert outcome.faults == [("a", "what was written cannot be read: KeyError('admission')")]


def test_an_unanswered_admission_is_reported_by_no_answer_and_no_watch():
    loop = SimulatedLoop(1)
    trouble, process = Trouble(loop, lambda: 0.5), Process(loop, "controller 1")
    other = ApiCall(method="PATCH", path="/workloads/other/status", body=b"{}")
    admission = ApiCall(method="PATCH", path="/workloads/w/status", body=ADMISSION)

    def found():
        calls = [trouble.of_request(process, call.method, call.path) for call in (other, admission)]
        return calls, [trouble.of_chunk(process, path) for path in ("/workloads", "/pods")]

    trouble.strike_at(1, "unanswered")
    dooms = [trouble.doom(process, call) for call in (other, admission, admission)]
    assert dooms == ["", "unanswered", ""]
    assert found() == ([None, "unreachable"], ["late", None])
    loop.call_later(LOST_SECONDS, loop.stop)
    loop.run_forever()
    loop.close()
    assert found() == ([None, None], [None, None])


def test_a_request_whose_answer_is_lost_may_be_carried_out_after_the_time_out():
    loop, seen = SimulatedLoop(1), []
    trouble = SimpleNamespace(
        of_request=lambda *_: "time-out after", doom=lambda *_: "", server_is_down=lambda: False
    )

    async def application(_scope, _receive, send):
        seen.append(loop.time())
        await send({"type": "http.response.start", "status": 200, "headers": ()})
        await send({"type": "http.response.body"})

    async def ask():
        network = Network(Process(loop, "server"), application, lambda: 0.75, trouble)
        call, limit = ApiCall(method="PATCH", path="/", body=b"{}"), ClientTimeout(total=10)
        with pytest.raises(TimeoutError):
            await network.request(call, limit, Headers("alice"))
        assert (seen, loop.time()) == ([], 10)
        await asyncio.sleep(60)

    loop.run_until_complete(ask())
    loop.close()
    assert (seen, loop.errors) == ([15], [])


class TestLoop:
    def test_time_goes_on_when_nothing_is_ready(self):
        loop, seen = SimulatedLoop(1), []
        loop.call_later(3600, seen.append, "late")
        loop.call_later(1, seen.append, "soon")
        loop.call_later(7200, loop.stop)
        loop.run_forever()
        loop.close()

        assert (seen, loop.time()) == (["soon", "late"], 7200)

    @pytest.mark.parametrize("seed", range(3))
    def test_the_seed_orders_what_is_ready(self, seed):
        def order():
            loop, seen = SimulatedLoop(seed), []
            for number in range(20):
                loop.call_soon(seen.append, number)
            loop.call_later(1, loop.stop)
            loop.run_forever()
            loop.close()
            return seen

        assert order() == order() != sorted(order())

    def test_a_killed_process_does_nothing_more_and_a_frozen_one_goes_on_later(self):
        loop, seen = SimulatedLoop(1), []
        killed, frozen = Process(loop, "killed"), Process(loop, "frozen")
        for process in (killed, frozen):
            loop.call_later(1, lambda p=process: seen.append((p.name, loop.time())),
                            context=process.context)  # fmt: skip
        killed.kill()
        frozen.freeze(5)
        loop.call_later(10, loop.stop)
        loop.run_forever()
        loop.close()

        assert seen == [("frozen", 5)]

    def test_a_busy_loop_is_noticed(self):
        loop = SimulatedLoop(1, most_turns=100)

        def again():
            loop.call_soon(again)

        again()
        with pytest.raises(StuckError, match="101 callbacks at 0"):
            loop.run_forever()
        loop.close()

    def test_what_has_no_end_is_noticed(self):
        loop = SimulatedLoop(1, most=100)

        def again():
            loop.call_later(1, again)

        again()
        with pytest.raises(StuckError, match="100 callbacks until 101 s, and no end"):
            loop.run_forever()
        loop.close()
