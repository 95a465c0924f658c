"""Start a control plane for a human: `python -m tests.controlplane up`. Ctrl-C stops it."""

import argparse
import signal
import time

from tests.controlplane.nodes import RACK
from tests.controlplane.server import ControlPlane


def main() -> None:
    """Start a control plane with nodes in two racks, and wait for Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.controlplane", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="up")
    up = commands.add_parser("up", help="start a control plane, and stop it on Ctrl-C")
    up.add_argument("--nodes", type=int, default=8, help="nodes of 8 GPUs each (default: 8)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(options.nodes)
    except KeyboardInterrupt:
        print("stopped")


def run(nodes: int) -> None:
    """Keep a control plane up until interrupted."""
    with ControlPlane() as control_plane:
        for rack, count in ("a", nodes - nodes // 2), ("b", nodes // 2):
            names = [f"{rack}{number}" for number in range(1, count + 1)]
            if names:
                control_plane.add_nodes(*names, labels={RACK: rack})
        print(f"ready in {control_plane.start_seconds:.1f} s, with {nodes} nodes; Ctrl-C stops it")
        print(f"export KUBECONFIG={control_plane.kubeconfig}")
        print(f"alias kubectl={control_plane.site.binaries / 'kubectl'}", flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
