"""Parts of a GPU (MIG): the profiles of a product, and the part of it that each of them is.

A GPU has 7 parts that compute and 8 of memory, small ones 4 of each. A profile takes some of both,
and its name states the number that compute and the memory: `3g.40gb`. The values in the
table are from NVIDIA's MIG user guide (Supported MIG Profiles) and the GPU operator's
configurations of its MIG manager.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from msgspec.structs import replace

from policyd.alloc.value import Value

MIG = "nvidia.com/mig-"
"""The prefix of profiles' names as resources."""

_Shape = tuple[int, int, int]
_BIG: tuple[_Shape, ...] = ((1, 1, 7), (1, 2, 4), (2, 2, 3), (3, 4, 2), (4, 4, 1), (7, 8, 1))
_SMALL: tuple[_Shape, ...] = ((1, 1, 4), (2, 2, 2), (4, 4, 1))
"""Of each profile: parts that compute, parts of memory, and how many of it a GPU has at most."""

_PRODUCTS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("A30", (6, 12, 24)),
    ("A100 40GB", (5, 10, 10, 20, 20, 40)),
    ("A800 40GB", (5, 10, 10, 20, 20, 40)),
    ("A100", (10, 20, 20, 40, 40, 80)),
    ("A800", (10, 20, 20, 40, 40, 80)),
    ("H100 NVL", (12, 24, 24, 47, 47, 94)),
    ("H100 64GB", (8, 16, 16, 32, 32, 64)),
    ("H100 96GB", (12, 24, 24, 48, 48, 96)),
    ("H100", (10, 20, 20, 40, 40, 80)),
    ("H800", (10, 20, 20, 40, 40, 80)),
    ("H20 3E", (18, 35, 35, 71, 71, 141)),
    ("H20", (12, 24, 24, 48, 48, 96)),
    ("H200", (18, 35, 35, 71, 71, 141)),
    ("GH200 144GB", (18, 36, 36, 72, 72, 144)),
    ("GH200", (12, 24, 24, 48, 48, 96)),
    ("B200", (23, 45, 45, 90, 90, 180)),
    ("GB200", (23, 47, 47, 93, 93, 186)),
    ("B300", (34, 67, 67, 135, 135, 269)),
    ("GB300", (35, 70, 70, 139, 139, 278)),
    ("RTX PRO 6000", (24, 48, 96)),
)
"""By words of a product's name, the gigabytes of its profiles; of several the first counts."""

_NAME = re.compile(r"(?:(?P<c>\d+)c\.)?(?P<g>\d+)g\.(?P<gb>\d+)gb(?:\.[a-z.]+)?")


class Profile(Value, frozen=True):
    """A profile.

    Attributes:
        name: Such as `3g.40gb`.
        compute: How many of the GPU's parts that compute it has.
        parts: How many of these there are.
        memory: How many of the GPU's parts of memory it has.
        gigabytes: How much memory that is.
        most: How many of it a GPU has at most.
    """

    name: str
    compute: int
    parts: int
    memory: int
    gigabytes: int
    most: int

    @property
    def resource(self) -> str:
        """The name of the resource that stands for it."""
        return f"{MIG}{self.name}"

    @property
    def share(self) -> Fraction:
        """The part of a GPU that it is, by the parts that compute."""
        return Fraction(self.compute, self.parts)


@lru_cache(maxsize=256)
def profiles_of(product: str) -> tuple[Profile, ...]:
    """Return the profiles of a product, the smallest first; none if none are known.

    Args:
        product: As nodes have it in `nvidia.com/gpu.product`, in any of the drivers' spellings.
    """
    words = set(re.split(r"[-_ ]", product.upper()))
    for known, gigabytes in _PRODUCTS:
        if words.issuperset(known.split()):
            return tuple(_profiles(gigabytes))
    return ()


def _profiles(gigabytes: tuple[int, ...]) -> Iterator[Profile]:
    shapes = _BIG if len(gigabytes) == len(_BIG) else _SMALL
    for (compute, memory, most), size in zip(shapes, gigabytes, strict=True):
        name, parts = f"{compute}g.{size}gb", shapes[-1][0]
        yield Profile(
            name=name, compute=compute, parts=parts, memory=memory, gigabytes=size, most=most
        )


@lru_cache(maxsize=256)
def profile_of(resource: str, product: str = "") -> Profile | None:
    """Return the profile that a resource stands for; None if it stands for none.

    Args:
        resource: Such as `nvidia.com/mig-1g.10gb`, also with media extensions (`….me`), which
            count for nothing, or with a part of those that compute (`…mig-1c.3g.40gb`).
        product: The model of the GPU; without it, or if that has no such profile, the first product
            known to have one by this name is taken.
    """
    found = _NAME.fullmatch(resource.removeprefix(MIG)) if resource.startswith(MIG) else None
    if found is None:
        return None
    compute, size = int(found["g"]), int(found["gb"])
    own = sorted(profiles_of(product), key=lambda each: abs(each.gigabytes - size))
    alike = next((each for each in own if each.compute == compute), None)
    if alike is not None and found["c"] is None:
        # Drivers differ in how they round memory in names.
        return replace(alike, name=f"{compute}g.{size}gb", gigabytes=size)
    products = (product, *(name for name, _ in _PRODUCTS))
    same = (p for each in products for p in profiles_of(each) if p.name == f"{compute}g.{size}gb")
    given = Profile(
        name=f"{compute}g.{size}gb", compute=compute, parts=7, memory=0, gigabytes=size, most=0
    )
    profile = next(same, given)
    if found["c"] is None:
        return profile
    name = f"{found['c']}c.{profile.name}"
    return Profile(
        name=name, compute=int(found["c"]), parts=profile.parts, memory=profile.memory,
        gigabytes=size, most=profile.most,
    )  # fmt: skip
