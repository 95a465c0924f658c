"""Six hours of a DCGM exporter's series, and the answers to expect of them, worked out by hand.

The exporter is asked every 30 s, from 2026-11-02T00:00:30Z to 06:00:00Z. Windows of 300 s have ten
samples each. `python -m tests.usage.recording` prints all as OpenMetrics, for
`promtool tsdb create-blocks-from openmetrics`.
"""

from collections.abc import Callable, Iterator

BEGIN = 1_793_577_600
"""2026-11-02T00:00:00Z, in seconds since the epoch."""
HOUR = 3_600
END = BEGIN + 6 * HOUR
EVERY = 30

ENGINE, UTIL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"
USED, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
STRANDED, GPU = "policyd_stranded_devices", "nvidia.com/gpu"
A100 = "NVIDIA A100-SXM4-80GB"

Value = Callable[[int], float | None]
"""What a series has, so many seconds after the begin; None for no sample."""


def gpu(node, index, pod="", *, instance="", job="dcgm", **more):
    """The labels of a device as the exporter has them."""
    labels = {
        "gpu": str(index),
        "UUID": f"GPU-{node}{index}",
        "pci_bus_id": f"00000000:0{index}:00.0",
        "device": f"nvidia{index}",
        "modelName": A100,
        "Hostname": f"node-{node}",
        "instance": instance or f"10.0.0.{ord(node)}:9400",
        "job": job,
    }
    if pod:
        namespace, _, name = pod.partition("/")
        labels |= {"namespace": namespace, "pod": name, "container": "main"}
    return {**labels, **more}


def always(value: float) -> Value:
    return lambda _: value


def between(begin: float, end: float, value: float) -> Value:
    """A value in some hours, the begin left out as in windows."""
    return lambda at: value if begin * HOUR < at <= end * HOUR else None


def until(hour: float, value: float) -> Value:
    """A value up to an hour, and 0 after it."""
    return lambda at: value if at <= hour * HOUR else 0.0


def series() -> Iterator[tuple[str, dict[str, str], Value]]:
    """Name, labels and values of every series."""
    # A training job on two GPUs, of which one is never used; and a free GPU beside it.
    train = "team-a/train-0"
    for index, busy in ((0, 0.9), (1, 0.0)):
        yield ENGINE, gpu("a", index, train), always(busy)
        yield UTIL, gpu("a", index, train), always(100 * busy)
        yield USED, gpu("a", index, train), always(40_000 if busy else 500)
        yield FREE, gpu("a", index, train), always(41_000 if busy else 80_500)
    yield ENGINE, gpu("a", 3), always(0.0)
    # A notebook that was last used at 02:00.
    yield ENGINE, gpu("a", 2, "team-b/notebook-0"), until(2, 0.6)
    yield USED, gpu("a", 2, "team-b/notebook-0"), until(2, 70_000)
    yield FREE, gpu("a", 2, "team-b/notebook-0"), lambda at: 11_000 if at <= 2 * HOUR else 81_000
    # A part of a GPU: only the engine tells of parts. It is busy in every other sample.
    part = gpu("b", 0, "team-c/part-0", GPU_I_ID="7", GPU_I_PROFILE="1g.10gb")
    yield ENGINE, part, lambda at: 0.75 if at // EVERY % 2 else 0.25
    yield USED, part, always(9_000)
    yield FREE, part, always(700)
    # A small service on a whole GPU: 1g.10gb would do.
    yield ENGINE, gpu("b", 1, "team-b/small-0"), always(0.05)
    yield USED, gpu("b", 1, "team-b/small-0"), always(4_000)
    yield FREE, gpu("b", 1, "team-b/small-0"), always(77_000)
    # One pod follows another on a GPU at 01:00.
    yield ENGINE, gpu("b", 2, "team-a/old-0"), between(0, 1, 1.0)
    yield ENGINE, gpu("b", 2, "team-a/new-0"), between(1, 6, 0.5)
    yield from of_several_exporters()


def of_several_exporters() -> Iterator[tuple[str, dict[str, str], Value]]:
    """Labels that are renamed, foreign or contradicting, and samples that are missing or odd."""
    # Labels that Prometheus renamed: `pod` is the exporter's own.
    own = {"namespace": "gpu-operator", "pod": "dcgm-exporter-x7x2p", "container": "exporter"}
    renamed = {
        "exported_namespace": "team-d", "exported_pod": "serve-0", "exported_container": "main"
    }  # fmt: skip
    yield UTIL, gpu("c", 0, job="remapped", **own, **renamed), always(37)
    yield UTIL, gpu("c", 1, job="remapped", **own), always(0)
    # Two exporters tell of one GPU, and one of them knows no pods.
    yield UTIL, gpu("d", 0, "team-d/two-0", instance="one:9400"), always(10)
    yield UTIL, gpu("d", 0, instance="two:9400"), always(12)
    # Two exporters that contradict each other.
    yield UTIL, gpu("e", 0, "team-e/yes-0", instance="one:9400"), always(0)
    yield UTIL, gpu("e", 0, "team-e/no-0", instance="two:9400"), always(0)
    # An idle pod without samples from 03:00 to 03:30.
    idle = "team-e/gap-0"
    yield ENGINE, gpu("f", 0, idle), lambda at: None if 3 < at / HOUR <= 3.5 else 0.0
    # An idle one whose samples are of another scale, or no numbers, for an hour each.
    odd = gpu("f", 1, "team-e/odd-0")
    yield UTIL, odd, lambda at: 250.0 if at <= HOUR else float("nan") if at <= 2 * HOUR else 0.0
    # What a controller counted: stranded devices of two flavors, which a second leader knew better.
    own = {"job": "policyd", "instance": "10.0.1.1:8080", "flavor": "h100", "resource": GPU}
    yield STRANDED, own, until(2, 6)
    yield STRANDED, {**own, "instance": "10.0.1.2:8080"}, between(1, 2, 4)
    yield STRANDED, {**own, "flavor": "a100"}, lambda at: at // EVERY % 2
    yield STRANDED, {"job": "other", "instance": "x:1"}, always(7)
    # A series of another exporter by the same name.
    yield UTIL, {"job": "other", "instance": "x:1", "card": "0"}, always(99)


TEAMS = {  # pods, GPUs, idle ones
    "team-a": (2, 3, 1),
    "team-b": (2, 2, 1),
    "team-c": (1, 1 / 7, 0),
    "team-d": (2, 2, 0),
    "team-e": (2, 2, 2),
}
BUSY = {  # of each pod, from 0 to 1
    "train-0": 0.45,  # (0.9 + 0) / 2
    "notebook-0": 0.2,  # 0.6 for 2 of 6 hours
    "part-0": 0.5,  # (0.25 + 0.75) / 2
    "small-0": 0.05,
    "new-0": 0.5,  # without the hour of the pod before it
    "serve-0": 0.37,
    "two-0": 0.12,  # the busier exporter
    "gap-0": 0.0,
    "odd-0": 0.0,
}
SINCE = {  # hours after the begin, of pods all of whose GPUs are idle
    "notebook-0": 2,
    "gap-0": 3.5,
    "odd-0": 2,
}
GPUS = {"total": 12 + 1 / 7 - 1, "held": 10 + 1 / 7 - 1, "fragments": 2}
"""All 13 devices, less the GPU of which nothing is known; free ones beside held ones: a3, c1."""
STRANDED_HOURS = {"h100": [6, None, 0, 0, 0, 0], "a100": [0.5] * 6}
"""By flavor and hour; of the second, two controllers report different numbers."""


def open_metrics() -> Iterator[str]:
    """Yield the lines of all samples, those of one name together."""
    found: dict[str, list[str]] = {}
    for name, labels, value in series():
        text = ",".join(f'{key}="{each}"' for key, each in labels.items())
        lines = found.setdefault(name, [f"# TYPE {name} gauge"])
        for at in range(EVERY, END - BEGIN + 1, EVERY):
            sample = value(at)
            if sample is not None:
                lines.append(f"{name}{{{text}}} {sample} {BEGIN + at}")
    for lines in found.values():
        yield from lines
    yield "# EOF"


if __name__ == "__main__":
    print("\n".join(open_metrics()))
