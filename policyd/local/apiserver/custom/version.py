"""One version of a custom kind, as its definition has it."""

from dataclasses import dataclass

from policyd.local.apiserver.status import Object


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CustomVersion:
    """One version of a CustomResourceDefinition.

    `schema` is the openAPIV3Schema; `columns` the additionalPrinterColumns; `scale` the paths of
    the scale subresource, or None.
    """

    schema: Object
    columns: tuple[Object, ...] = ()
    scale: Object | None = None
    selectable: tuple[str, ...] = ()
