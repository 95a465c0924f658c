import struct

import pytest

from policyd.local.apiserver.wire.protobuf import MEDIA_TYPE, ProtobufError, decode_protobuf
from tests.local.apiserver.client import CONFIG_MAPS


def varint(number):
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def field(number, value):
    """Encode one field: an int, bytes, text, a float, or a message as a list of fields."""
    match value:
        case bool() | int():
            return varint(number << 3) + varint(int(value))
        case float():
            return varint(number << 3 | 1) + struct.pack("<d", value)
        case str():
            value = value.encode()
        case list():
            value = b"".join(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def envelope(api_version, kind, *fields):
    about = [field(1, api_version), field(2, kind)]
    return b"k8s\x00" + field(1, about) + field(2, list(fields))


NAME = field(1, [field(1, "one"), field(2, "")])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            envelope("v1", "Namespace", NAME, field(2, []), field(3, [field(1, "")])),
            {"metadata": {"name": "one"}, "spec": {}, "status": {}},
            id="zero-values-mean-nothing",
        ),
        pytest.param(
            envelope("apps/v1", "Deployment", NAME, field(2, [field(1, 0)])),
            {"metadata": {"name": "one"}, "spec": {"replicas": 0}},
            id="but-not-behind-a-pointer",
        ),
        pytest.param(
            envelope("v1", "ConfigMap", NAME, field(2, [field(1, "a"), field(2, "b")])),
            {"metadata": {"name": "one"}, "data": {"a": "b"}},
            id="map",
        ),
        pytest.param(
            envelope("v1", "Secret", field(2, [field(1, "a"), field(2, b"\x00\xff")])),
            {"data": {"a": "AP8="}},
            id="bytes",
        ),
        pytest.param(
            envelope("scheduling.k8s.io/v1", "PriorityClass", field(2, -5)),
            {"value": -5},
            id="negative",
        ),
        pytest.param(
            envelope(
                "v1",
                "Pod",
                field(1, [field(8, [field(1, 1_000_000_000)])]),
                field(
                    2,
                    [
                        field(1, [field(1, "v"), field(2, [field(2, [field(1, "Memory")])])]),
                        field(
                            2,
                            [
                                field(1, "c"),
                                field(
                                    10,
                                    [
                                        field(
                                            1,
                                            [
                                                field(
                                                    2,
                                                    [
                                                        field(1, "/"),
                                                        field(2, [field(1, 1), field(3, "web")]),
                                                    ],
                                                )
                                            ],
                                        )
                                    ],
                                ),
                                field(8, [field(1, [field(1, "cpu"), field(2, [field(1, "2")])])]),
                            ],
                        ),
                    ],
                ),
            ),
            {
                "metadata": {"creationTimestamp": "2001-09-09T01:46:40Z"},
                "spec": {
                    "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
                    "containers": [
                        {
                            "name": "c",
                            "livenessProbe": {"httpGet": {"path": "/", "port": "web"}},
                            "resources": {"limits": {"cpu": "2"}},
                        }
                    ],
                },
            },
            id="inlined-messages-and-special-scalars",
        ),
    ],
)
def test_objects_are_read(body, expected):
    decoded = decode_protobuf(body)

    kind = {"apiVersion": decoded.pop("apiVersion"), "kind": decoded.pop("kind")}
    assert decoded == expected
    assert all(kind.values())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{}", id="no-envelope"),
        pytest.param(b"k8s\x00\xff", id="number-without-end"),
        pytest.param(b"k8s\x00\x0a\x7f", id="too-short"),
        pytest.param(b"k8s\x00\x0b", id="group"),
        pytest.param(envelope("v1", "Thing"), id="unknown-kind"),
        pytest.param(envelope("v1", "Namespace", field(1, 5)), id="number-for-a-message"),
        pytest.param(envelope("v1", "Namespace", field(1, [field(1, b"\xff")])), id="no-text"),
    ],
)
def test_broken_values_are_refused(body):
    with pytest.raises(ProtobufError):
        decode_protobuf(body)


@pytest.mark.anyio
async def test_the_server_takes_protobuf_and_answers_in_json(api):
    body = envelope("v1", "ConfigMap", NAME, field(2, [field(1, "a"), field(2, "b")]))

    created = await api.create(CONFIG_MAPS, body, content_type=MEDIA_TYPE)

    assert created["data"] == {"a": "b"}


@pytest.mark.anyio
async def test_broken_protobuf_is_a_bad_request(api):
    reply = await api.send("POST", CONFIG_MAPS, b"k8s\x00\xff", content_type=MEDIA_TYPE)

    assert reply.code == 400
