"""A server that costs next to nothing, in a process of its own: pods listed, watched, patched.

Run as a program, it prints its port. Pods have 7.8 KB, as those of a training job have.
"""

import asyncio
import re
from contextlib import suppress

import msgspec
import uvloop

PODS, PAGE, EVENTS = 5_000, 500, 20_000


def pod(number):
    """Make a pod as the API server returns it, managed fields and status included."""
    name = f"train-{number // 64}-worker-{number % 64}"
    env = [{"name": f"VARIABLE_{n}", "value": f"value-{n}" * 4} for n in range(36)]
    fields = {f"f:field{n}": {".": {}, "f:name": {}, "f:value": {}} for n in range(32)}
    limits = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}
    volume = {"name": "token", "mountPath": "/var/run/secrets/serviceaccount", "readOnly": True}
    container = {
        "name": "main",
        "image": "registry.example/training:1.2.3",
        "command": ["python", "-m", "train", "--config", "config.yaml"],
        "env": env,
        "resources": {"limits": limits, "requests": limits},
        "volumeMounts": [volume],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(number + 1),
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "train", "team": "vision", "kueue.x-k8s.io/queue-name": "gpu"},
            "annotations": {"example.com/note": "n" * 200},
            "managedFields": [
                {"manager": "m", "operation": "Update", "fieldsV1": fields} for _ in range(2)
            ],
        },
        "spec": {
            "nodeName": f"node-{number % 500}",
            "containers": [container, container | {"name": "side", "env": env[:4]}],
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}] * 3,
            "schedulerName": "default-scheduler",
        },
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "podIP": "10.0.0.1",
            "startTime": "2026-01-01T00:00:00Z",
        },
    }


def pages():
    encoded = [msgspec.json.encode(pod(number)) for number in range(PAGE)]
    for start in range(0, PODS, PAGE):
        rest = str(start + PAGE) if start + PAGE < PODS else ""
        head = msgspec.json.encode({"resourceVersion": str(PODS), "continue": rest})
        yield b'{"kind":"PodList","metadata":' + head + b',"items":[' + b",".join(encoded) + b"]}"


def events():
    for number in range(PAGE):
        obj = pod(number)
        obj["metadata"]["resourceVersion"] = str(PODS + number + 1)
        yield msgspec.json.encode({"type": "MODIFIED", "object": obj}) + b"\n"


ANSWERS = list(pages())
LINES = list(events())
ONE = msgspec.json.encode(pod(0))


async def serve(reader, writer):
    """Answer requests on one connection until it ends, or breaks."""
    with suppress(ConnectionError):
        await answer_all(reader, writer)
    writer.close()


async def answer_all(reader, writer):
    while head := await read_head(reader):
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if length:
            await reader.readexactly(int(length[1]))
        if b"watch=true" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for number in range(EVENTS):
                line = LINES[number % PAGE]
                writer.write(b"%x\r\n%b\r\n" % (len(line), line))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            continue
        found = re.search(rb"continue=(\d+)", head)
        body = ONE
        if head.startswith(b"GET"):
            body = ANSWERS[int(found[1]) // PAGE if found else 0]
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        writer.write(answer % len(body) + body)
        await writer.drain()


async def read_head(reader):
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
