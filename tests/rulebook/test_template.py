from __future__ import annotations

import pytest

from symalloc.rulebook.rule import IN_ADVICE, Value, compile_template
from symalloc.size.parse import SizeSyntaxError, parse_condition, parse_expr

SITE = "tensor-on-storage"
VALUES: dict[str, Value] = {
    "tensor": "alloc",
    "storage": "storage",
    "nbytes": parse_expr("4*m"),
    "offset": parse_expr("0"),
    "numel": parse_expr("m"),
    "itemsize": 4,
    "storage.size": 16,
    "precondition": parse_condition("m <= 4"),
    "counterexample": {"m": 5, "n": 1},
    "consequence": None,
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("no names", "no names"),
        ("`{tensor}` on `{storage}`", "`alloc` on `storage`"),
        ("{nbytes} in {storage.size}", "4*m B in 16 B"),
        ("{offset + nbytes + 64}", "(4*m + 64) B"),
        ("{offset}", "0 B"),
        ("{offset:code}", "0"),
        ("R.shape([{nbytes + 64:code}])", "R.shape([4*m + 64])"),
        ("{numel} elements", "m elements"),
        ("{numel * itemsize}", "4*m"),
        ("{round_up(storage.size, 4096)}", "4096 B"),
        ("{{m}} is {tensor}", "{m} is alloc"),
    ],
)
def test_a_template_writes_names_and_expressions(template: str, expected: str) -> None:
    assert compile_template(template, SITE).render(VALUES) == expected


def test_help_may_use_what_the_proof_found() -> None:
    template = compile_template("{precondition}, else {counterexample}", SITE, IN_ADVICE)
    assert template.render(VALUES) == "m <= 4, else m = 5, n = 1"


def test_a_text_wins_over_a_quantity_of_the_same_name() -> None:
    assert compile_template("at {offset}", SITE).render({"offset": "the end"}) == "at the end"


@pytest.mark.parametrize("template", ["{consequence}", "{alignment}", "{offset + alignment}", "{noticed_at}"])
def test_a_name_without_a_value_is_not_rendered(template: str) -> None:
    assert compile_template(template, SITE, IN_ADVICE).render(VALUES) is None


@pytest.mark.parametrize(
    ("template", "problem", "suggestion"),
    [
        ("{tensr}", "unknown name `tensr`; a tensor-on-storage site offers offset, nbytes", "tensor"),
        ("{storage.sise}", "unknown name `storage.sise`", "storage.size"),
        ("{nbytes:hex}", "unknown style `hex`", "code"),
        ("{precondition}", "unknown name `precondition`", None),
        ("{tensor", "write {{ and }} for braces", None),
        ("tensor}", "write {{ and }} for braces", None),
        ("{}", "syntax error", None),
    ],
)
def test_a_faulty_template_is_refused(template: str, problem: str, suggestion: str | None) -> None:
    with pytest.raises(SizeSyntaxError) as error:
        compile_template(template, SITE)
    assert problem in str(error.value)
    assert error.value.suggestion == suggestion
