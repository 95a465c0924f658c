r"""Generate random text by a pattern: `random('[a-z]{4}-\d{2}')`.

The pattern is run backwards: of alternatives one is taken, of a class one character, of a
repetition without an end a few. The caller provides the random numbers.
"""

import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from policyd.cel.cost import Budget
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload
from policyd.cel.types import STRING

RandomBelow = Callable[[int], int]
"""Returns a number from 0 to below its argument."""

DEFAULT_PATTERN: Final = "[0-9a-z]{8}"
_PRINTABLE: Final = "".join(map(chr, range(32, 127)))
_WORD: Final = string.ascii_letters + string.digits + "_"
_CLASSES: Final = {"d": string.digits, "w": _WORD, "s": " \t\n\r\f"}
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r"}
# How many more than the least an open repetition makes.
_MORE: Final = 10
_LONGEST: Final = 4_096
# So many characters of a class take a step.
_CLASS_STEP: Final = 16
# Longer ones are not repetitions.
_LONGEST_REPETITION: Final = 20
# The work of a step, in elements compared; few texts take more than some ten.
_STEP_WORK: Final = 10


@dataclass(slots=True)
class _Writer:
    """Reads a pattern from left to right, and writes text that matches it."""

    pattern: str
    random_below: RandomBelow
    place: int = 0
    steps: int = 0

    def peek(self) -> str:
        return self.pattern[self.place : self.place + 1]

    def take(self) -> str:
        character = self.peek()
        self.place += 1
        return character

    def alternatives(self) -> str:
        """Write one of the alternatives up to the end of the group."""
        written = [self.sequence()]
        while self.peek() == "|":
            self.place += 1
            written.append(self.sequence())
        return written[self.random_below(len(written))]

    def sequence(self) -> str:
        parts: list[str] = []
        length = 0
        while self.peek() not in ("", "|", ")"):
            parts.append(self.repeated())
            length += len(parts[-1])
            if length > _LONGEST:
                raise CelError(f"the pattern makes more than {_LONGEST} characters")
        return "".join(parts)

    def repeated(self) -> str:
        start = self.place
        first = self.atom()
        least, most = self.quantifier()
        end = self.place
        count = least + self.random_below(most - least + 1)
        if count * len(first) > _LONGEST:
            raise CelError(f"the pattern makes more than {_LONGEST} characters")
        parts = [first] if count else []
        for _ in range(count - 1):
            self.place = start
            parts.append(self.atom())
        self.place = end
        return "".join(parts)

    def quantifier(self) -> tuple[int, int]:
        """Return the least and the most times the atom before is repeated."""
        mark = self.peek()
        if mark in ("", "{") and mark != "{":
            return 1, 1
        limits = {"*": (0, _MORE), "+": (1, 1 + _MORE), "?": (0, 1)}.get(mark)
        if limits is not None:
            self.place += 1
            return limits
        return self.counted() if mark == "{" else (1, 1)

    def counted(self) -> tuple[int, int]:
        end = self.pattern.find("}", self.place, self.place + _LONGEST_REPETITION)
        least, comma, most = self.pattern[self.place + 1 : end].partition(",")
        numbers = all(part.isascii() and part.isdigit() for part in (least, most or "0"))
        if end < 0 or not numbers or len(least + most) > 8:
            raise self.wrong("a repetition is `{n}`, `{n,}` or `{n,m}`")
        self.place = end + 1
        upper = int(most) if most else int(least) + (_MORE if comma else 0)
        if upper < int(least):
            raise self.wrong("a repetition's end lies before its begin")
        return int(least), upper

    def atom(self) -> str:
        self.step(1)
        character = self.take()
        if character == "(":
            return self.group()
        if character == "[":
            return self.one_of(self.members())
        if character == "\\":
            return self.one_of(self.escaped())
        if character == ".":
            return self.one_of(_PRINTABLE)
        if character in "*+?{":
            raise self.wrong("nothing to repeat")
        return "" if character in "^$" else character

    def step(self, steps: int) -> None:
        self.steps += steps
        if self.steps > _LONGEST:
            raise self.wrong(f"it takes more than {_LONGEST} steps")

    def group(self) -> str:
        if self.pattern.startswith("?:", self.place):
            self.place += 2
        written = self.alternatives()
        if self.take() != ")":
            raise self.wrong("a group is not closed")
        return written

    def escaped(self) -> str:
        letter = self.take()
        if letter.lower() in _CLASSES and letter:
            members = _CLASSES[letter.lower()]
            return members if letter.islower() else _without(members)
        return _CONTROLS.get(letter, letter)

    def members(self) -> str:
        """Return the characters of a class."""
        negated = self.peek() == "^"
        self.place += negated
        members = ""
        while (character := self.take()) != "]" or not members:
            if not character:
                raise self.wrong("a class is not closed")
            found = self.escaped() if character == "\\" else character
            if self.peek() == "-" and self.pattern[self.place + 1 : self.place + 2] not in (
                "",
                "]",
            ):
                self.place += 1
                first, last = ord(found[0]), ord(self.take())
                self.step(max(last - first, 0) // _CLASS_STEP)
                found = "".join(map(chr, range(first, last + 1)))
            members += found
            self.step(1 + len(members) // (_CLASS_STEP * _CLASS_STEP))
        return _without(members) if negated else members

    def one_of(self, characters: str) -> str:
        if not characters:
            raise self.wrong("a class has no characters")
        return characters[self.random_below(len(characters))]

    def wrong(self, reason: str) -> CelError:
        return CelError(f"cannot make text by `{self.pattern[:100]}`: {reason}")


def _without(members: str) -> str:
    return "".join(character for character in _PRINTABLE if character not in members)


def random_text(pattern: str, random_below: RandomBelow, budget: Budget | None = None) -> str:
    """Write text that matches a pattern; each step is charged as work.

    Raises:
        CelError: If the pattern cannot be read, or makes too much.
    """
    writer = _Writer(pattern, random_below)
    try:
        written = writer.alternatives()
    except RecursionError:
        raise writer.wrong("groups nest too deep") from None
    finally:
        if budget is not None:
            budget.charge_work(_STEP_WORK * (1 + writer.steps))
    if writer.place < len(pattern):
        raise writer.wrong("a group is not opened")
    return written


def random_texts(random_below: RandomBelow | None) -> tuple[Overload, ...]:
    """Return the functions, with the caller's random numbers."""

    def write(pattern: str, budget: Budget | None = None) -> str:
        if random_below is None:
            raise CelError("`random` is not available here: it needs a source of random numbers")
        return random_text(pattern, random_below, budget)

    def write_default(budget: Budget | None = None) -> str:
        return write(DEFAULT_PATTERN, budget)

    return tuple(
        Overload(
            name=name,
            parameters=parameters,
            result=STRING,
            run=run,
            cost=_LONGEST // 10,
            constant=False,
            counted=True,
        )
        for name in ("random", "random.random")
        for parameters, run in (((), write_default), ((STRING,), write))
    )
