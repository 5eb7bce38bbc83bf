"""The options that an editor gives."""

from __future__ import annotations

import pytest

from symalloc.editor.checker import ServerOptions, read_options
from symalloc.errors import UsageError


def test_without_options_the_defaults_hold() -> None:
    assert read_options(None) == read_options({}) == ServerOptions()


def test_times_and_values_of_symbols_are_read() -> None:
    given = read_options({"debounce": 300, "timeout": 5, "bind": {"n": 128}})
    assert given == ServerOptions(debounce=300, timeout=5, bind={"n": 128})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "it must be an object"),
        ({"debonce": 1}, "did you mean 'debounce'"),
        ({"debounce": -1}, "`debounce` is -1; it must be a whole number of at least 0"),
        ({"timeout": True}, "`timeout` is True; it must be a number of seconds"),
        ({"bind": "n=1"}, "`bind` is 'n=1'; it must map symbols to whole numbers"),
        ({"bind": {"n": "1"}}, "the `bind` of 'n' is '1'; it must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_refused(given: object, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_options(given)
    assert said in str(caught.value)
