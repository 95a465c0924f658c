"""A Prometheus that is away, slow, empty or foreign: a sentence, never a wrong number."""

import asyncio
import json

import pytest
from aiohttp import web

from policyd.cli.usage.gathering import UseQuery, gather
from policyd.cli.usage.prometheus import PrometheusOptions, TooLargeError, open_prometheus
from policyd.usage.idle import pod_uses
from tests.cli.usage.given import usage
from tests.usage import recording
from tests.usage.loopback import FakePrometheus, serving


def text(body, status=200, **headers):
    async def fail(_request, _asked):
        return web.Response(text=body, status=status, headers=headers)

    return fail


async def slow(_request, _asked):
    await asyncio.sleep(2)


def refusal(message):
    return json.dumps({"status": "error", "errorType": "bad_data", "error": message})


@pytest.mark.parametrize(
    ("fail", "message"),
    [
        pytest.param(slow, "did not answer within 1 s", id="slow"),
        pytest.param(text("<html>login</html>"), "is not one of Prometheus' HTTP API", id="html"),
        pytest.param(text("[" * 100_000), "is not one of Prometheus' HTTP API", id="nested"),
        pytest.param(text("{}", 404), "has no HTTP API of Prometheus (status 404)", id="path"),
        pytest.param(text("", 302, Location="http://x"), "(status 302)", id="redirect"),
        pytest.param(text("no", 401), "refuses access (status 401)", id="token"),
        pytest.param(text("no", 403), "refuses access (status 403)", id="rights"),
        pytest.param(text("bad", 503), "failed with status 503", id="broken"),
        pytest.param(text(refusal("a\nb\x1b[31m"), 422), "query: a b[31m", id="refusal"),
        pytest.param(text(refusal("x" * 9_999), 400), "x" * 198 + "…", id="long"),
    ],
)
def test_what_is_no_answer_is_one_sentence(fail, message):
    with serving(FakePrometheus(fail=fail)) as address:
        done = usage("idle", address, "--timeout", 1 if fail is slow else 60)

    assert done.exit_code == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("error:") == 1
    assert "Traceback" not in done.stderr


def test_a_prometheus_that_is_away_is_one_sentence():
    done = usage("idle", "http://127.0.0.1:9")

    assert done.exit_code == 2
    assert "error: Prometheus at `http://127.0.0.1:9` cannot be asked" in done.stderr


def test_a_prometheus_without_the_exporter_is_one_sentence():
    with serving(FakePrometheus(series=lambda: iter(()))) as address:
        done = usage("rightsize", address, "--no-cluster")

    assert done.exit_code == 2
    assert "error: Prometheus has no samples of DCGM_FI_DEV_GPU_UTIL" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--match", "a=b"], "`a=b` is not a matcher of a label", id="matcher"),
        pytest.param(["--match", 'a="b"} or x{'], "is not a matcher of a label", id="injection"),
        pytest.param(["--since", "2026-11-03"], "the time since --since is less", id="future"),
        pytest.param(["--since", "2020-01-01"], "or more than 92 days", id="past"),
        pytest.param(["--chart", "a.pdf"], "`a.pdf` is not a name of a chart", id="chart"),
    ],
)
def test_arguments_that_cannot_be_meant_are_one_sentence(address, arguments, message):
    done = usage("idle", address, *arguments)

    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("localhost:9090", "is not the address of a Prometheus", id="scheme"),
        pytest.param("http://a:b@host", "has a password in it", id="password"),
        pytest.param("http://host/?x=1", "is not the address of a Prometheus", id="query"),
        pytest.param("http://[::", "is not the address of a Prometheus", id="host"),
    ],
)
def test_addresses_that_cannot_be_meant_are_one_sentence(url, message):
    done = usage("idle", url)

    assert done.exit_code == 2
    assert message in done.stderr


def test_a_token_is_sent_from_its_file_and_never_unencrypted_to_another_machine(tmp_path):
    token = tmp_path / "token"
    token.write_text("abc\n")
    fake = FakePrometheus()
    with serving(fake) as address:
        assert usage("idle", address, "--token-file", token).exit_code == 0
    assert {each["Authorization"] for each in fake.headers} == {"Bearer abc"}

    done = usage("idle", "http://prometheus.example", "--token-file", token)

    assert done.exit_code == 2
    assert "would be sent unencrypted" in done.stderr


def test_a_token_that_is_none_is_one_sentence(address, tmp_path):
    token = tmp_path / "token"
    token.write_text("a\r\nX-Evil: 1")

    done = usage("idle", address, "--token-file", token)

    assert done.exit_code == 2
    assert "has no token" in done.stderr


def test_authorities_that_are_none_are_one_sentence(address, tmp_path):
    file = tmp_path / "ca.pem"
    file.write_text("nothing")

    done = usage("idle", address, "--ca-file", file)

    assert done.exit_code == 2
    assert "has no certificate of an authority" in done.stderr


def gathered(address, **options):
    async def main():
        asked = UseQuery(6 * 3600, recording.END, 300, 0.01, (), memory=True)
        async with open_prometheus(PrometheusOptions(address=address, **options)) as prometheus:
            return await gather(prometheus, asked, now=recording.END)

    return asyncio.run(main())


def test_answers_that_are_too_large_are_asked_for_in_parts_and_say_the_same():
    fake = FakePrometheus()
    with serving(fake) as address:
        whole, count = gathered(address), len(fake.queries)
        parts = gathered(address, most_bytes=6_000)

    assert len(fake.queries) > 3 * count
    assert pod_uses(parts.use) == pod_uses(whole.use)
    assert parts.use.gpus == whole.use.gpus
    assert parts.use.stays == whole.use.stays


def test_an_answer_that_is_too_large_in_any_part_is_one_sentence():
    with serving(FakePrometheus()) as address, pytest.raises(TooLargeError, match="0 MiB"):
        gathered(address, most_bytes=500)


def test_the_answer_lists_what_was_left_out(address):
    done = usage("idle", address)

    assert done.exit_code == 0
    assert "left out: series without UUID, or Hostname and gpu" in done.stdout
    assert "left out: samples with values that cannot be" in done.stdout
    assert "GPU-e0 (node-e), for which two exporters name different pods" in done.stdout
    assert "the clock of Prometheus is" in done.stdout


def test_the_answer_has_the_warnings_of_prometheus():
    fake = FakePrometheus()

    async def warn(request, asked):
        answer = {"status": "success", "data": fake.data(request.path, asked)}
        return web.json_response({**answer, "warnings": ["a store is away"]})

    fake.fail = warn
    with serving(fake) as address:
        done = usage("idle", address)

    assert done.stdout.count("not known: Prometheus warns: a store is away") == 1


@pytest.mark.parametrize("name", ["rightsize", "fragmentation", "idle"])
def test_names_that_look_like_formulas_are_drawn_as_they_are(name, tmp_path):
    pytest.importorskip("matplotlib", reason="pip install 'policyd[plots]'")
    hostile, file = "$x^{$", tmp_path / "chart.svg"
    labels = recording.gpu("a", 0, f"team/{hostile}")

    def series():
        yield recording.UTIL, labels, recording.always(0)
        yield recording.USED, labels, recording.always(100)
        yield recording.FREE, labels, recording.always(100)
        of = {"flavor": hostile, "resource": recording.GPU}
        yield recording.STRANDED, of, recording.always(1)

    more = [] if name == "idle" else ["--no-cluster"]
    with serving(FakePrometheus(series)) as address:
        done = usage(name, address, *more, "--chart", file)

    assert done.exit_code == 0, done.output
    assert file.read_text().startswith("<?xml")
