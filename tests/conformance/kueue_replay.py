"""The calls that a test of Kueue made, made again on what we ship.

A subclass has a method `_do_…` for each call that it compares, or that means more than its name.
Others are known by their names: objects are put, or taken out. One that asks for something, and
that nothing answers, is a failure.
"""

import re

NAMESPACE = "default"
MADE = re.compile(r"hierarchy\.|.*\.(New\w*|ClusterQueues?|Cohorts?|getClusterQueue|Snapshot)$")
"""Calls that make or look up Go's own objects."""

PUTS = re.compile(r"(?i)add|assume|create|insert|new|push|statusUpdate|update")
TAKES_OUT = re.compile(r"(?i)(?:delete|forget|remove)(?:AndForget)?(\w*)")


class CallReplay:
    """A `cluster` in which a test's calls are made again, and the objects that they are about."""

    def __init__(self, cluster, objects):
        self.cluster = cluster
        self.objects = {key: placed(body) for key, body in objects.items()}

    def replay(self, calls):
        """Make calls, and say what the first of them returns otherwise than for Kueue."""
        for call in calls:
            if not MADE.match(call["op"]):
                wrong = self.call(call["op"], call.get("args") or {}, call.get("result"))
                if wrong:
                    return f"{call['op']}: {wrong}"
        return ""

    def call(self, operation, args, result):
        """Make a call; say what it returns otherwise than for Kueue."""
        name = operation.rpartition(".")[2]
        args = self.resolve(args)
        if act := getattr(self, f"_do_{snake(name)}", None):
            return act(args, result)
        if PUTS.match(name):
            return self.put(args, result)
        if found := TAKES_OUT.match(name):
            return self.take_out(found[1], args)
        raise LookupError(f"no such call: {operation}")

    def resolve(self, value):
        """Replace references to objects by the objects, at any depth."""
        if isinstance(value, dict):
            if "$obj" in value:
                return self.objects[value["$obj"]]
            return {name: self.resolve(each) for name, each in value.items()}
        return [self.resolve(each) for each in value] if isinstance(value, list) else value

    def put(self, args, _result=None):
        """Put the objects among the arguments of a call."""
        self.cluster.put(*map(placed, bodies(args)))

    def take_out(self, kind, args):
        """Take an object out that is given, or whose name or key is."""
        for body in bodies(args):
            self.forget(body.get("kind") or kind, key_of(body))
        for key in args.values():
            if isinstance(key, str):
                self.forget(kind, key_text(key) if kind in NAMESPACED else key)

    def forget(self, kind, key):
        """Have a mirror forget an object, if it has it."""
        if self.cluster.mirror_of(kind).get(key) is not None:
            self.cluster.remove(kind, key)


NAMESPACED = ("LocalQueue", "Workload")


def bodies(args):
    """Yield the objects among the arguments of a call; of a workload's info, the workload."""
    for each in args.values():
        if isinstance(each, dict):
            yield each.get("Obj", each)


def placed(body):
    """Return an object in a namespace if it must be in one: some tests leave it out."""
    if body.get("kind") not in NAMESPACED:
        return body
    metadata = body.get("metadata") or {}
    return {**body, "metadata": {**metadata, "namespace": metadata.get("namespace") or NAMESPACE}}


def key_of(body, kind=""):
    """Return the key of an object; of one whose kind is left out, as one of `kind`."""
    metadata = placed({"kind": kind, **body})["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def key_text(key):
    """Return a key as ours is, in the namespace of those that name none."""
    key = key.lstrip("/")
    return key if "/" in key else f"{NAMESPACE}/{key}"


def snake(name):
    """Write a name of Go's in lower case."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def unlike(got, wanted):
    """Say that two values differ; empty if they do not."""
    return "" if got == wanted else f"got {got}, wanted {wanted}"
