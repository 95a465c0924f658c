"""Hash values, and read and write JSON, YAML and gzip."""

import hashlib
import zlib
from collections.abc import Callable
from typing import Any, Final

import msgspec
import yaml

from policyd.cel.cost import WORK_LIMIT, deep_size, size_of, traverse
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.types import BYTES, DYN, STRING, Type
from policyd.cel.values import no_such_overload
from policyd.cel.values_as_json import as_json
from policyd.engine.documents.nodes import UnreadableError, build, compose

JSON = Type("json.Json")
YAML = Type("yaml.Yaml")
# Parsing a character of YAML takes about as long as copying ten elements, and a parser that is
# made takes a while before it reads any.
_YAML_WORK: Final = 10
_YAML_PARSER_WORK: Final = 40
_LARGEST: Final = 1 << 20
# The memory of a compressor before its input.
_GZIP_WORK: Final = 60


class Codec:
    """The value of the variable `json` or `yaml`."""

    __slots__ = ("cel_type_name",)

    def __init__(self, kind: Type) -> None:
        self.cel_type_name = kind.name


def _hashing(name: str) -> Callable[[str], str]:
    def digest(text: str) -> str:
        return hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()

    return digest


def _parse_json(_codec: Codec, text: object) -> Any:  # noqa: ANN401 - any JSON
    if not isinstance(text, str | bytes):
        raise no_such_overload("unmarshal", text)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CelError(f"invalid JSON: {error}") from None


def _write_json(_codec: Codec, value: object) -> str:
    return msgspec.json.encode(as_json(value), order="sorted").decode()


def _parse_yaml(_codec: Codec, text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        # Aliases and merge keys make much of little: these readers have bounds for both.
        node, shared = compose(text, WORK_LIMIT)
        return None if node is None else build(node, shared)
    except (UnreadableError, yaml.YAMLError, UnicodeEncodeError) as error:
        raise CelError(f"invalid YAML: {error}") from None


def _yaml_work(_codec: Codec, text: str) -> int:
    return _YAML_PARSER_WORK + _YAML_WORK * len(text)


def _reading_work(_codec: Codec, text: object) -> int:
    """Return the work of reading JSON: a value may be as short as three characters."""
    return 8 + size_of(text) // 8


def _writing_work(_codec: Codec, value: object) -> int:
    return 8 + 3 * deep_size(value)


def _decompress(value: bytes) -> str:
    unpacking = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacking.decompress(value, _LARGEST)
    except zlib.error as error:
        raise CelError(f"invalid gzip: {error}") from None
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise CelError(f"the gzip is truncated, or larger than {_LARGEST} bytes")
    try:
        return unpacked.decode()
    except UnicodeDecodeError:
        raise CelError("the gzip contains no text") from None


def _compress(value: object) -> bytes:
    if not isinstance(value, str | bytes):
        raise no_such_overload("gzip.compress", value)
    packing = zlib.compressobj(wbits=31)
    content = value.encode() if isinstance(value, str) else value
    return packing.compress(content) + packing.flush()


def _gzip_work(value: object) -> int:
    return _GZIP_WORK + size_of(value)


_READ = Size(cost=traverse)
_GZIP = Size(cost=traverse, work=_gzip_work)
_READ_JSON = Size(work=_reading_work)
_WRITE_JSON = Size(work=_writing_work)
_YAML = Size(work=_yaml_work)

ENCODING: tuple[Overload, ...] = (
    *(
        function(f"{prefix}{name}", STRING, returns=STRING, run=_hashing(name), size=_READ)
        for name in ("md5", "sha1", "sha256")
        for prefix in ("", "hash.")
    ),
    *(
        method(name, JSON, DYN, returns=DYN, run=_parse_json, size=_READ_JSON)
        for name in ("unmarshal", "Unmarshal")
    ),
    *(
        method(name, JSON, DYN, returns=STRING, run=_write_json, size=_WRITE_JSON)
        for name in ("marshal", "Marshal")
    ),
    *(
        method(name, YAML, STRING, returns=DYN, run=_parse_yaml, size=_YAML)
        for name in ("parse", "Parse", "Unmarshal")
    ),
    function("gzip.decompress", BYTES, returns=STRING, run=_decompress, size=_GZIP),
    function("gzip.compress", DYN, returns=BYTES, run=_compress, size=_GZIP),
)
CODECS: Final = {"json": Codec(JSON), "yaml": Codec(YAML)}
"""The values of the variables `json` and `yaml`."""
