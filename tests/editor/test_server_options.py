"""The options that an editor gives."""

from __future__ import annotations

import pytest

from symalloc.editor.server_options import ServerOptions, read_options
from symalloc.errors import UsageError


def test_without_options_the_defaults_hold() -> None:
    assert read_options(None) == read_options({}) == ServerOptions()


def test_times_and_values_of_symbols_are_read() -> None:
    given = read_options({"debounce": 300, "timeout": 5, "bind": {"n": 128}})
    assert given == ServerOptions(debounce=0.3, timeout=5, bind={"n": 128})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "must be an object"),
        ({"debonce": 1}, "did you mean 'debounce'"),
        ({"debounce": -1}, "`debounce` must be a number of at least 0, not -1"),
        ({"timeout": True}, "`timeout` must be a number"),
        ({"timeout": float("inf")}, "`timeout` must be a number"),
        ({"bind": "n=1"}, "`bind` must be an object"),
        ({"bind": {"n": "1"}}, "`bind` gives `n` the value '1'"),
    ],
)
def test_what_makes_no_sense_is_refused(given: object, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_options(given)
    assert said in str(caught.value)
