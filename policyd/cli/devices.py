"""`policyd devices`: show the GPUs of nodes, and the share of a GPU that each device is."""

import json
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from math import lcm
from typing import Any, Final, Literal, Unpack

import click
import yaml

from policyd.alloc.value import Value
from policyd.api.meta import Json
from policyd.cli.formats.json_values import as_number
from policyd.cli.formats.scenarios import (
    scenario_device_offer,
    scenario_nodes,
    scenario_objects,
)
from policyd.cli.formats.tables import show_table
from policyd.cli.options import ClusterOptions, from_cluster, one_source
from policyd.devices.on_nodes import DeviceKind
from policyd.optimize.devices import GPU, SLICES, Devices, inventory
from policyd.optimize.mig import MIG, profiles_of
from policyd.standard_input import FILE

_NOT_CONFIGURED: Final = (
    "devices that pods get by ResourceClaims are not in this Configuration: map their classes to a"
    " resource with resources.deviceClassMappings"
)
_HEAD = ("RESOURCE", "PRODUCT", "SHARING", "NODES", "REPORTED", "ONE IS", "GPUS")


class GpuSlices(Value, frozen=True):
    """How resources are counted.

    Attributes:
        gpu: How many slices a GPU is.
        resources: How many one of each resource is.
        unclear: Resources that are not the same on all nodes: what part of a GPU one is on each.
            One counts as the biggest.
    """

    gpu: int
    resources: Mapping[str, int]
    unclear: Mapping[str, tuple[Fraction, ...]]


def gpu_slices(devices: Iterable[Devices]) -> GpuSlices:
    """Work out how to count the devices of a cluster.

    Where a product is cut up, all its profiles are counted, also those of which there are none now.
    """
    shares: dict[str, set[Fraction]] = {}
    for each in devices:
        shares.setdefault(each.resource, set()).add(each.share)
        if each.resource.startswith(MIG):
            for profile in profiles_of(each.product):
                shares.setdefault(profile.resource, set()).add(profile.share)
    shares.setdefault(GPU, {Fraction(1)})
    gpu = lcm(*(share.denominator for found in shares.values() for share in found))
    return GpuSlices(
        gpu=gpu,
        resources={name: int(max(found) * gpu) for name, found in sorted(shares.items())},
        unclear={n: tuple(sorted(found)) for n, found in sorted(shares.items()) if len(found) > 1},
    )


@click.command("devices")
@click.argument("file", type=FILE, required=False)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "config"]),
    default="table",
    show_default=True,
    help="A line for each kind of device, the same as JSON, or a Configuration that counts them.",
)
@from_cluster("nodes, ResourceSlices and DeviceClasses")
def command(
    file: str | None, output: Literal["table", "json", "config"], **given: Unpack[ClusterOptions]
) -> None:
    r"""Show which GPUs nodes have: whole ones, parts of them (MIG), and replicas of shared ones.

    FILE (- for standard input) has Nodes; with --cluster, they are those of the cluster. Replicas
    and parts are not whole GPUs: the last column counts the physical GPUs behind what the nodes
    report.

    Devices that pods get by ResourceClaims are listed by DRIVER, if FILE has ResourceSlices and
    DeviceClasses too. How many GPUs they are is not known if they are divided, or no GPUs.

    `-o config` prints a Configuration of Kueue's by which all of them count against one quota, of
    `policyd.io/gpu-slices`: a GPU is as many as all parts divide.

    \b
    Examples:
      policyd devices --cluster
      kubectl get nodes -o yaml | policyd devices -
      policyd devices nodes.yaml -o config >> configuration.yaml
    """
    one_source(given, file, "FILE")
    left_out: list[str] = []
    objects = scenario_objects(file) if file else _of_cluster(given, left_out)
    if file and objects and not any(o["kind"] in {"Node", "ResourceSlice"} for o in objects):
        raise click.UsageError(f"no Node in {file}")
    devices, offer = inventory(scenario_nodes(objects)), scenario_device_offer(objects)
    claimed, slices = offer.kinds(), gpu_slices(devices)
    left_out += (f"not listed: {each}" for each in offer.left_out)
    if output == "json":
        listed = [*map(_as_json, devices), *map(_claimed_as_json, claimed)]
        click.echo(json.dumps(listed, indent=2))
    elif output == "config":
        click.echo("\n".join(_configuration(slices)))
        if claimed:
            left_out.append(_NOT_CONFIGURED)
    else:
        driver = ("DRIVER",) if claimed else ()
        rows = [(*_row(each), *("-" for _ in driver)) for each in devices]
        rows += [_claimed_row(each) for each in claimed]
        show_table((*_HEAD, *driver), rows, numbers=_HEAD[3:])
    for sentence in (*left_out, *_warnings(slices)):
        click.secho(f"warning: {sentence}", fg="yellow", err=True)


def _of_cluster(given: ClusterOptions, left_out: list[str]) -> list[Json]:
    """Return the nodes of a cluster, and the objects about devices of claims."""
    # Imported only where a cluster is read: it takes as long as a small command.
    from policyd.cli.clusters import read_cluster  # noqa: PLC0415
    from policyd.questions.queue_objects import device_objects  # noqa: PLC0415

    return read_cluster(given, lambda reader, _: device_objects(reader, left_out.append))


def _row(each: Devices) -> tuple[str, ...]:
    return (
        each.resource,
        each.product or "-",
        each.sharing or "-",
        str(each.nodes),
        str(each.reported),
        str(each.share),
        f"{float(each.gpus):.4g}",
    )


def _as_json(each: Devices) -> dict[str, Any]:
    return {
        "resource": each.resource,
        "product": each.product,
        "sharing": each.sharing,
        "nodes": each.nodes,
        "reported": each.reported,
        "share": as_number(each.share),
        "gpus": as_number(each.gpus),
    }


def _claimed_row(each: DeviceKind) -> tuple[str, ...]:
    one = ("-", "-") if _gpus(each) is None else ("1", str(each.number))
    return (
        each.resource,
        each.product or "-",
        "-",
        str(each.nodes),
        str(each.number),
        *one,
        each.driver,
    )


def _claimed_as_json(each: DeviceKind) -> dict[str, Any]:
    gpus = _gpus(each)
    return {
        "resource": each.resource,
        "product": each.product,
        "sharing": "",
        "nodes": each.nodes,
        "reported": each.number,
        "share": None if gpus is None else 1,
        "gpus": gpus,
        "driver": each.driver,
    }


def _gpus(each: DeviceKind) -> int | None:
    """Return how many GPUs devices are; None if that is not known."""
    return None if each.divided or "gpu" not in each.driver else each.number


def _configuration(slices: GpuSlices) -> Iterator[str]:
    transformations = [
        {"input": name, "strategy": "Replace", "outputs": {SLICES: number}}
        for name, number in slices.resources.items()
    ]
    yield f"# A GPU is {slices.gpu} {SLICES}: a quota of 8 GPUs is {8 * slices.gpu}."
    yield "apiVersion: config.kueue.x-k8s.io/v1beta2"
    yield "kind: Configuration"
    yield yaml.safe_dump({"resources": {"transformations": transformations}}, sort_keys=False)


def _warnings(slices: GpuSlices) -> Iterator[str]:
    for name, shares in slices.unclear.items():
        parts = ", ".join("a whole GPU" if share == 1 else f"{share} of one" for share in shares)
        yield (
            f"{name} is not the same on all nodes ({parts}), and counts as the biggest; give the"
            " others a flavor and a quota of their own, or, if they are shared, another name"
        )
