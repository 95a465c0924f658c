"""Scenarios out of bytes, one for each choice: Hypothesis draws many choices as fast as one.

A scenario is a function of its choices. Lower bytes choose what comes first, so that Hypothesis,
which lowers them for as long as a test fails, ends with a simple one.
"""

from hypothesis import strategies as st


class Choices:
    """Bytes, used up one after the other; that there are too few is an error of the test."""

    def __init__(self, drawn):
        self._drawn, self._used = drawn, 0

    @property
    def left(self):
        return len(self._drawn) - self._used

    def below(self, number):
        chosen = self._drawn[self._used] % number
        self._used += 1
        return chosen

    def number(self, least, most):
        return least + self.below(most - least + 1)

    def maybe(self, least, most):
        """A number or None, as often the one as the other."""
        numbers = most - least + 1
        chosen = self.below(2 * numbers) - numbers
        return None if chosen < 0 else least + chosen

    def one(self, options):
        return options[self.below(len(options))]

    def once_in(self, times):
        return self.below(times) == times - 1

    def yes(self):
        return self.once_in(2)

    def shuffled(self, things):
        rest = list(things)
        return [rest.pop(self.below(len(rest))) for _ in things]


def scenarios(make, most):
    """What `make` makes of at most so many choices."""

    @st.composite
    def scenario(draw):
        return make(Choices(draw(drawn)))

    drawn = st.binary(min_size=most, max_size=most)
    return scenario()
