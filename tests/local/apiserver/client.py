"""What the tests ask the server with: requests over its real HTTPS, and objects to send."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from policyd.local.apiserver import ApiServer, ApiUser

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
NAMESPACES = "/api/v1/namespaces"

WAIT_SECONDS = 10.0
"""The longest that a test waits for anything."""


class Reply(NamedTuple):
    """An answer; the body is decoded if it is JSON."""

    code: int
    body: Any
    headers: Any

    @property
    def message(self) -> str:
        return self.body["message"]


class Api:
    """One user's session with a server."""

    def __init__(self, server: ApiServer, session: aiohttp.ClientSession, token: str) -> None:
        self.server = server
        self.session = session
        self.token = token

    async def send(self, method, path, body=None, *, content_type=None, headers=None, **query):
        given = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        data = body
        if isinstance(body, dict | list):
            data = json.dumps(body).encode()
        if data is not None:
            given["Content-Type"] = content_type or "application/json"
        async with self.session.request(
            method, self.server.address + path, data=data, headers=given, params=query
        ) as answer:
            content = await answer.read()
            is_json = answer.content_type == "application/json"
            decoded = json.loads(content) if is_json else content.decode()
            return Reply(answer.status, decoded, answer.headers)

    async def get(self, path, **query):
        return await self.send("GET", path, **query)

    async def create(self, path, body, **query):
        """Create an object that must be accepted; return it as stored."""
        reply = await self.send("POST", path, body, **query)
        assert reply.code == 201, reply.body
        return reply.body

    async def patch(self, path, body, content_type=MERGE, **query):
        return await self.send("PATCH", path, body, content_type=content_type, **query)

    async def delete(self, path, body=None, **query):
        return await self.send("DELETE", path, body, **query)

    async def gone(self, path):
        """Wait until there is nothing at a path."""
        collection, _, name = path.rpartition("/")
        query = {"fieldSelector": f"metadata.name={name}", "sendInitialEvents": "true"}
        query["resourceVersionMatch"] = "NotOlderThan"
        async with self.watching(collection, **query) as watch:
            event = await watch.next_event()
            if event["type"] == "ADDED":
                while event["type"] != "DELETED":
                    event = await watch.next_event()
        assert (await self.get(path)).code == 404

    @asynccontextmanager
    async def watching(self, path, **query):
        """Open a watch; what it gives is read with `next_event`."""
        headers = {"Authorization": f"Bearer {self.token}", **query.pop("headers", {})}
        params = {"watch": "true", **query}
        async with self.session.get(
            self.server.address + path, headers=headers, params=params
        ) as answer:
            assert answer.status == 200
            yield Watch(answer)


class Watch:
    """One open watch."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next_event(self):
        """Return the next line; None when the server has ended the watch."""
        async with asyncio.timeout(WAIT_SECONDS):
            line = await self._answer.content.readline()
        return json.loads(line) if line else None

    async def names(self, count):
        """Return the next changes as pairs of type and name."""
        events = [await self.next_event() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


@asynccontextmanager
async def session_with(server: ApiServer, user: ApiUser | None = None) -> AsyncIterator[Api]:
    """Open a session by a kubeconfig of the server, as any client would."""
    kubeconfig = server.kubeconfig(user) if user else server.kubeconfig()
    authority = kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]
    context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
    token = kubeconfig["users"][0]["user"]["token"]
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Api(server, session, token)


def config_map(name="one", *, labels=None, **data):
    about = {"name": name}
    if labels:
        about["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}


def pod(name="one", **spec):
    containers = [{"name": "main", "image": "busybox:1"}]
    about = {"name": name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": about,
        "spec": {"containers": containers, **spec},
    }


def job(name="one", **spec):
    containers = [{"name": "main", "image": "busybox:1"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def owned(value, owner, **reference):
    """Return an object that belongs to another."""
    by = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **reference,
    }
    return {**value, "metadata": {**value["metadata"], "ownerReferences": [by]}}
