"""Suggestions, and the MIG profiles that they may name."""

from fractions import Fraction

import pytest

from policyd.usage.devices import ENGINE, DeviceUse
from policyd.usage.rightsize import Margins, ProfileRoom, profile_rooms, suggestions
from policyd.usage.samples import Series, Windows

A100 = "NVIDIA A100-SXM4-80GB"
SMALL, MIDDLE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"


def used(*, most=0.05, memory=4_000.0, windows=24, seen=1.0, devices=1):
    """The use of a pod's devices, the last of which is idle if there are several."""
    use = DeviceUse(Windows(0.0, 300, windows), threshold=0.01, remapped=())
    for number in range(devices):
        labels = {
            "UUID": f"GPU-{number}", "modelName": A100, "Hostname": "n", "gpu": str(number),
            "namespace": "team-a", "pod": "p",
        }  # fmt: skip
        busy = 0.0 if devices > 1 and number == devices - 1 else most
        points = {n: busy for n in range(windows) if n % 10 < 10 * seen or n == windows - 1}
        for part in ("sum", "max"):
            use.add_use(ENGINE, part, [Series(labels, points)])
        use.add_use(ENGINE, "count", [Series(labels, dict.fromkeys(points, 1.0))])
        use.add_memory("most", [Series(labels, dict.fromkeys(points, memory))])
        use.add_memory("used", [Series(labels, dict.fromkeys(points, memory))])
        use.add_memory("free", [Series(labels, dict.fromkeys(points, 81_000 - memory))])
    use.close_page()
    return use


def room(resource=SMALL, *, free=2, queues=("team-a/mig",)):
    return ProfileRoom(resource, A100, 7, free, "node-1", queues)


@pytest.mark.parametrize(
    ("use", "rooms", "kind", "message"),
    [
        pytest.param(
            used(), [room(MIDDLE), room()], "profile",
            "request 1 nvidia.com/mig-1g.10gb (2 of 7 are free, most on node-1; team-a/mig gives"
            " quota for it)", id="smallest",
        ),
        pytest.param(
            used(memory=8_000), [room(MIDDLE), room()], "profile", "request 1 nvidia.com/mig-2g",
            id="memory-with-headroom",
        ),
        pytest.param(
            used(most=0.13), [room(MIDDLE), room()], "profile", "request 1 nvidia.com/mig-2g",
            id="busy-with-headroom",
        ),
        pytest.param(
            used(), [room(free=0)], "keep", f"{SMALL} would do, but all 7 are in use", id="no-room"
        ),
        pytest.param(
            used(), [room(queues=())], "keep", f"{SMALL} would do, but no queue gives quota for it",
            id="no-quota",
        ),
        pytest.param(used(), [], "keep", "no profile that exists here would do", id="none-here"),
        pytest.param(used(most=0.9), [room()], "keep", "no profile that exists", id="too-busy"),
        pytest.param(used(), None, "unknown", "it is not known which MIG", id="unknown"),
        pytest.param(used(windows=11), [room()], "unknown", "seen for 55 minutes only", id="short"),
        pytest.param(used(seen=0.5), [room()], "unknown", "samples of 58% of its time", id="gaps"),
        pytest.param(used(devices=3), [room()], "fewer", "request 2 instead of 3", id="fewer"),
        pytest.param(used(most=0.0), [room()], "fewer", "request none: all were idle", id="idle"),
    ],
)  # fmt: skip
def test_a_suggestion_can_be_followed(use, rooms, kind, message):
    (found,) = suggestions(use, rooms, Margins(headroom=0.2, threshold=0.01))

    assert found.kind == kind
    assert found.suggestion.startswith(message)


def test_a_profile_frees_the_rest_of_the_gpu():
    (found,) = suggestions(used(), [room()], Margins(headroom=0.2, threshold=0.01))

    assert found.freed == Fraction(6, 7)
    assert found.evidence == (
        "in 2.0 h: busy 5% of the time, at most 5%; at most 4000 of 81000 MiB used"
    )


def test_rooms_are_the_profiles_of_nodes_with_what_pods_leave_of_them():
    nodes = [
        ("a", A100, {SMALL: 7, "nvidia.com/gpu": 8}, {SMALL: 1}),
        ("b", A100, {SMALL: 7}, {SMALL: 3}),
        ("c", A100, {MIDDLE: 0}, {MIDDLE: 0}),
    ]

    found = profile_rooms(nodes, {SMALL: ["q/mig"]})

    assert found == [ProfileRoom(SMALL, A100, 14, 4, "b", ("q/mig",))]
