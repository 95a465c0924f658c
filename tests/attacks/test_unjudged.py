"""The quick ones of the attacks with reviews that cannot be judged; `make attacks` runs all."""

import pytest

from tests.attacks.unjudged import failing, shapes


@pytest.mark.parametrize("attack", [shapes, failing])
def test_no_pod_gets_through(attack):
    figures = attack()

    assert figures.tried > 100
    assert (figures.bypasses, figures.reads) == (0, 0)
