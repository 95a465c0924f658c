"""Parts of GPUs as pods request them by annotation, and flavors that share GPUs."""

from fractions import Fraction

import msgspec
import pytest

from policyd.api.gpus import (
    DEVICE_MEMORY,
    FRACTION,
    MEMORY,
    NUM_DEVICES,
    REPLICAS,
    SHARED_GPU,
    SHARING,
    THOUSANDTHS,
    GpuPart,
    SharedGpus,
    flavor_errors,
    largest_charge,
    part_changes,
    part_errors,
    requested_part,
    shared_gpus,
)
from policyd.api.pods import PodSpec
from policyd.optimize.devices import gpus_asked

T4 = {SHARING: "time-slicing", REPLICAS: "4", DEVICE_MEMORY: "16000"}
SLICED = SharedGpus(limited=False, replicas=4, memory=16_000)
MPS = SharedGpus(limited=True, replicas=4, memory=16_000)


def pod(**amounts):
    limits = {name.replace("__", "/").replace("_", "."): text for name, text in amounts.items()}
    return msgspec.convert({"containers": [{"resources": {"limits": limits}}]}, PodSpec)


def wrong(annotations, spec=None):
    return [(e.path, e.message) for e in part_errors(annotations, spec or pod())]


@pytest.mark.parametrize(
    ("annotations", "part"),
    [
        pytest.param({FRACTION: "0.5"}, GpuPart(500, 0), id="half"),
        pytest.param({FRACTION: ".25"}, GpuPart(250, 0), id="without-a-zero"),
        pytest.param({FRACTION: "0.3334"}, GpuPart(334, 0), id="rounded-up"),
        pytest.param({FRACTION: "0.000000001"}, GpuPart(1, 0), id="smallest"),
        pytest.param({FRACTION: "0.999999999"}, GpuPart(1000, 0), id="nearly-whole"),
        pytest.param({FRACTION: "0.5", NUM_DEVICES: "1"}, GpuPart(500, 0), id="of-one-device"),
        pytest.param({MEMORY: "4096"}, GpuPart(0, 4096), id="memory"),
    ],
)
def test_valid_parts(annotations, part):
    assert wrong(annotations) == []
    assert requested_part(annotations) == part


@pytest.mark.parametrize(
    "text",
    ["", "0", "0.0", "1", "1.0", "1.5", "-1", "-0.5", "NaN", "inf", "5e-1", "0,5", " 0.5", "0.5\n",
     "\u0660.\u0665", "0." + "1" * 5_000, "9" * 5_000],
)  # fmt: skip
def test_fractions_that_are_none_are_refused_with_a_bounded_sentence(text):
    ((path, message),) = wrong({FRACTION: text})

    assert path == "metadata.annotations[gpu-fraction]"
    assert message.startswith("must be a decimal above 0 and below 1")
    (error,) = part_errors({FRACTION: text}, pod())
    assert len(str(error)) < 400


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "4Gi", "NaN", "1" * 20, "\u0664"])
def test_memory_that_is_none_is_refused(text):
    ((path, message),) = wrong({MEMORY: text})

    assert path == "metadata.annotations[gpu-memory]"
    assert message.startswith("must be a whole number of MiB above 0")


@pytest.mark.parametrize(
    ("annotations", "spec", "path", "message"),
    [
        pytest.param(
            {FRACTION: "0.5", MEMORY: "4096"}, pod(), "gpu-memory", "`gpu-fraction`", id="both"
        ),
        pytest.param(
            {FRACTION: "0.5", NUM_DEVICES: "2"}, pod(), NUM_DEVICES, "one GPU only", id="of-two"
        ),
        pytest.param(
            {FRACTION: "0.5"}, pod(nvidia_com__gpu="1"), FRACTION, "`nvidia.com/gpu`", id="whole"
        ),
        pytest.param(
            {MEMORY: "1"},
            pod(**{"nvidia_com__mig-1g_10gb": "1"}),
            MEMORY,
            "`nvidia.com/mig-1g.10gb`",
            id="partition",
        ),
        pytest.param(
            {FRACTION: "0.1"},
            pod(nvidia_com__gpu_shared="9"),
            FRACTION,
            f"one `{SHARED_GPU}`, and 9 are requested",
            id="more-replicas",
        ),
    ],
)
def test_a_part_stands_alone(annotations, spec, path, message):
    ((at, text),) = wrong(annotations, spec)

    assert at == f"metadata.annotations[{path}]"
    assert message in text


def test_a_part_may_come_with_its_replica_and_pods_without_one_are_not_looked_at():
    assert wrong({FRACTION: "0.5"}, pod(nvidia_com__gpu_shared="1")) == []
    assert wrong({NUM_DEVICES: "7"}, pod(nvidia_com__gpu="8")) == []


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        pytest.param({FRACTION: "0.1"}, {FRACTION: "0.9"}, [FRACTION], id="larger"),
        pytest.param({FRACTION: "0.9"}, {FRACTION: "0.1"}, [FRACTION], id="smaller"),
        pytest.param({}, {MEMORY: "1"}, [MEMORY], id="added"),
        pytest.param({FRACTION: "0.1"}, {MEMORY: "1"}, [FRACTION, MEMORY], id="another"),
        pytest.param({FRACTION: "0.1", "a": "b"}, {FRACTION: "0.1"}, [], id="of-others"),
    ],
)
def test_changes_of_parts(old, new, changed):
    assert [e.path for e in part_changes(old, new)] == [
        f"metadata.annotations[{name}]" for name in changed
    ]


@pytest.mark.parametrize(
    ("shared", "part", "charge"),
    [
        pytest.param(SLICED, GpuPart(500, 0), 500, id="fraction"),
        pytest.param(SLICED, GpuPart(1, 0), 250, id="at-least-a-replica"),
        pytest.param(SLICED, GpuPart(0, 16_000), 1_000, id="all-memory"),
        pytest.param(SLICED, GpuPart(0, 4_001), 251, id="memory-rounded-up"),
        pytest.param(SLICED, GpuPart(0, 16_001), None, id="more-memory-than-a-device"),
        pytest.param(MPS, GpuPart(250, 0), 250, id="a-replica-of-mps"),
        pytest.param(MPS, GpuPart(251, 0), None, id="more-than-a-replica-of-mps"),
        pytest.param(MPS, GpuPart(0, 1), 250, id="memory-of-mps"),
    ],
)
def test_the_charge_of_a_part_on_a_flavor(shared, part, charge):
    assert shared.charge(part) == charge


def test_the_flavor_on_which_a_part_is_largest_counts():
    large = SharedGpus(limited=False, replicas=8, memory=80_000)

    assert largest_charge(GpuPart(0, 8_000), [SLICED, large]) == 500
    assert largest_charge(GpuPart(0, 20_000), [SLICED, large]) == 250
    assert largest_charge(GpuPart(0, 90_000), [SLICED, large]) is None
    assert largest_charge(GpuPart(500, 0), []) is None


def test_replicas_of_a_gpu_are_never_more_than_the_gpu():
    for replicas in range(2, 1_001):
        shared = SharedGpus(limited=True, replicas=replicas, memory=1)
        assert replicas * shared.charge(GpuPart(1, 0)) <= 1_000


@pytest.mark.parametrize(
    ("annotations", "wrong_ones"),
    [
        pytest.param({"a": "b"}, [], id="others"),
        pytest.param(T4, [], id="valid"),
        pytest.param({SHARING: "mps"}, [REPLICAS, DEVICE_MEMORY], id="incomplete"),
        pytest.param({REPLICAS: "4"}, [SHARING, DEVICE_MEMORY], id="without-a-kind"),
        pytest.param({**T4, SHARING: "vgpu"}, [SHARING], id="another-kind"),
        pytest.param({**T4, REPLICAS: "1"}, [REPLICAS], id="not-shared"),
        pytest.param({**T4, REPLICAS: "1001"}, [REPLICAS], id="too-many"),
        pytest.param({**T4, DEVICE_MEMORY: "16Gi"}, [DEVICE_MEMORY], id="memory-as-a-quantity"),
    ],
)
def test_what_a_flavor_declares(annotations, wrong_ones):
    assert [e.path for e in flavor_errors(annotations)] == [
        f"metadata.annotations[{name}]" for name in wrong_ones
    ]
    declared = SHARING in annotations and not wrong_ones
    assert shared_gpus(annotations) == (SLICED if declared else None)


def test_parts_are_known_to_what_adds_up_gpus():
    assert gpus_asked({THOUSANDTHS: 250, "nvidia.com/gpu": 1}) == Fraction(5, 4)
