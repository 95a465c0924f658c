"""What forecasts remember: stored small, and read back as it was."""

import gzip

import msgspec
import pytest

from policyd.forecast.arrivals import PastArrival
from policyd.forecast.memory import (
    MemoryDamagedError,
    nameless,
    pack,
    remembered,
    restore,
    unpack,
)
from policyd.forecast.run_times import JobTraits
from tests.alloc.builders import workload
from tests.forecast.builders import TRAITS, forecaster
from tests.snapshot.taking import finished


def learnt(jobs=60):
    """A forecaster that has seen jobs of several owners come and end."""
    of = forecaster()
    for number in range(jobs):
        traits = JobTraits(queue="q", owner=f"o{number % 7}", stem=f"s{number}", shape="gpu=1")
        of.run_times.observe(traits, 60.0 * number, at=float(number), ended=number % 5 > 0)
        kind = workload(f"w{number}", "q", gpu=1 + number % 3)
        of.arrivals.observe(PastArrival(at=float(number), workload=kind, traits=TRAITS))
    of.correction.restore({"1": [(0.1, -0.2, 0.3)]})
    return of


def stored(of, **options):
    return finished(pack(finished(remembered(of, at=100.0)), **options))


def test_what_is_read_back_forecasts_the_same():
    before, after = learnt(), forecaster()

    restore(after, unpack(stored(before)))

    assert stored(after) == stored(before)
    traits = JobTraits(queue="q", owner="o3", stem="s3", shape="gpu=1")
    old, new = (each.run_times.curves().of(traits) for each in (before, after))
    assert new.quantile(0.5) == pytest.approx(old.quantile(0.5), rel=0.01)
    assert after.arrivals.past() == before.arrivals.past()
    assert after.arrivals.since == before.arrivals.since


def test_where_it_is_too_much_the_oldest_is_left_out():
    whole = stored(learnt())

    body = stored(learnt(), most_bytes=len(whole) // 2)
    found = unpack(body)

    assert len(body) <= len(whole) // 2
    assert found.arrivals[-1][0] == 59.0
    assert found.groups[-1] == unpack(whole).groups[-1]
    assert found.since == found.arrivals[0][0]


def test_without_names_no_owner_and_no_stem_is_read():
    found = unpack(stored(learnt()), names=False)

    assert {each.names[:1] for each in found.groups} == {(), ("shape",), ("queue",)}
    assert {each.traits for each in found.kinds} == {nameless(TRAITS)}


def encoded(**fields):
    return gzip.compress(msgspec.json.encode({"at": 1.0, "format": 1, **fields}))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"", "damaged", id="empty"),
        pytest.param(b"{}", "damaged", id="not-compressed"),
        pytest.param(gzip.compress(b"{}")[:-9], "damaged", id="cut-in-half"),
        pytest.param(gzip.compress(b"{}"), "damaged", id="without-a-time"),
        pytest.param(encoded(format=2), "it has format 2", id="of-another-version"),
        pytest.param(encoded(arrivals=[[1.0, 0]]), "a kind that is not there", id="no-such-kind"),
    ],
)
def test_what_cannot_be_read_is_reported(body, reason):
    with pytest.raises(MemoryDamagedError, match=reason):
        unpack(body)
