"""An OpenTelemetry collector on this machine that notes the names of spans."""

import gzip
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS = frozenset(
    {
        ("policyd-webhooks", "review mutate"),
        ("policyd-webhooks", "review validate"),
        ("policyd-controller", "cycle"),
    }
)
"""What policyd sends: the service, and the name of the span."""


@contextmanager
def collecting() -> Iterator[tuple[str, set[tuple[str, str]]]]:
    """Collect spans while the block runs; give the address, and the spans as they come."""
    found: set[tuple[str, str]] = set()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            found.update(_spans(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_given: object) -> None:
            """Do nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", found
        finally:
            server.shutdown()


def _spans(body: bytes) -> Iterator[tuple[str, str]]:
    for each in ExportTraceServiceRequest.FromString(body).resource_spans:
        attributes = {one.key: one.value.string_value for one in each.resource.attributes}
        for scope in each.scope_spans:
            for span in scope.spans:
                yield attributes["service.name"], span.name
