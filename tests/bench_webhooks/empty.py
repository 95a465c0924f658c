"""Webhooks that decide nothing: they decode the review, and answer at once.

They are the least that any webhook costs. Run as a process: CERTIFICATE KEY PATCH PORT.
"""

import base64
import sys
from pathlib import Path
from typing import Any

import msgspec
import uvicorn


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer one review."""
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    review = msgspec.json.decode(body)
    response = {"uid": review["request"]["uid"], "allowed": True}
    if scope["path"] == "/mutate":
        response |= {"patchType": "JSONPatch", "patch": PATCH}
    answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(answer)})


if __name__ == "__main__":
    certificate, key, patch, port = sys.argv[1:]
    PATCH = base64.b64encode(Path(patch).read_bytes()).decode()
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(port),
        ssl_certfile=certificate,
        ssl_keyfile=key,
        access_log=False,
        log_level="warning",
        timeout_keep_alive=120,
        loop="uvloop",
        http="httptools",
    )
