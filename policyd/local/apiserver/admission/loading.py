"""The policies of the API server's own kinds, compiled once for their check and their use."""

from functools import lru_cache
from typing import Final

import msgspec

from policyd.engine.compile.load import Loaded, load_document
from policyd.engine.documents.reading import Document
from policyd.local.apiserver.status import Object

MOST_KEPT: Final = 128
"""Policies and bindings that are kept compiled."""

_READ: Final = ("name", "labels", "annotations")
"""Of the metadata, what a policy is loaded from: all else changes when it is stored."""


def load_stored(policy: Object) -> Loaded:
    """Compile a policy or a binding, or return it as it was compiled last time."""
    given = policy["metadata"]
    metadata = {field: given[field] for field in _READ if field in given}
    read = {field: policy[field] for field in policy if field != "status"}
    return _load(msgspec.json.encode({**read, "metadata": metadata}, order="sorted"))


@lru_cache(maxsize=MOST_KEPT)
def _load(text: bytes) -> Loaded:
    policy = msgspec.json.decode(text)
    return load_document(Document(policy, policy["metadata"].get("name", "")))
