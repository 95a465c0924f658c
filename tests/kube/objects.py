"""What the tests of this folder store and decode."""

import msgspec

from policyd.api.meta import ObjectMeta, Wire
from policyd.kube.resources import PODS


class PodSpec(Wire, frozen=True):
    node_name: str = ""
    priority: int = 0


class PodStatus(Wire, frozen=True):
    phase: str = ""


class Pod(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def pod(name, *, namespace="ml", priority=0, **metadata):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"priority": priority},
    }


def add(store, name, **fields):
    body = pod(name, **fields)
    return store.create(PODS, body, namespace=body["metadata"]["namespace"])


def change(store, name, *, namespace="ml", **spec):
    old = store.get(PODS, namespace, name)
    return store.replace(PODS, old, old | {"spec": old["spec"] | spec})


def remove(store, name, *, namespace="ml"):
    store.delete(PODS, store.get(PODS, namespace, name), dry_run=False)


def stored(store):
    """What the server has, as an informer should have it."""
    return {
        f"{obj['metadata']['namespace']}/{obj['metadata']['name']}": msgspec.convert(obj, Pod)
        for obj in store.select(PODS, {})
    }
