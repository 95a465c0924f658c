import pytest

from policyd.cli.formats.times import read_duration
from policyd.errors import PolicydError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("90m", 5_400, id="minutes"),
        pytest.param("1h30m", 5_400, id="hours-and-minutes"),
        pytest.param("1.5h", 5_400, id="a-fraction"),
        pytest.param("7d", 604_800, id="days"),
        pytest.param("1d12h", 129_600, id="days-and-hours"),
        pytest.param("2w", 1_209_600, id="weeks"),
        pytest.param("1w1d1s", 691_201, id="weeks-days-and-seconds"),
        pytest.param("0", 0, id="nothing"),
        pytest.param("0d", 0, id="no-days"),
    ],
)
def test_a_duration_is_read(text, seconds):
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "soon", "7", "d", "1d2w", "-7d", "7d-1h", "-1h", "+1h", "1.5d", "²d", "9" * 7 + "d"],
)
def test_another_text_is_refused_with_examples(text):
    with pytest.raises(PolicydError) as refused:
        read_duration(text)

    assert str(refused.value) == f"`{text}` is not a duration"
    assert refused.value.hint == "such as 90m, 7d or 1d12h"
