"""The page's evaluator gives what Python's gives, on any formula."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from symalloc.report.map.page import FormulaTable, exact
from symalloc.size.choice import maximum, minimum, select
from symalloc.size.condition import Condition, conjunction, disjunction, eq, le, ne
from symalloc.size.expr import Expr, constant, floordiv, mod, symbol
from tests.report.map.scripts import needs_node, run_scripts
from tests.scale import NIGHTLY

NAMES = ("n", "m", "</script>", "__proto__")
VALUES = (0, 1, 2, 3, 7, 63, 64, 65, -1, -5, 2**31, 2**53 + 1, 2**63 - 1)
CODE = """given.bindings.map((binding) => {
  const whole = Object.fromEntries(binding.map(([name, value]) => [name, BigInt(value)]));
  const values = evaluated(given.nodes, whole);
  return given.numbers.map((number) => values[given.formulas[number][1]]);
})"""


def _expr(rng: random.Random, depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.1:
        return symbol(rng.choice(NAMES)) if rng.random() < 0.6 else constant(rng.choice(VALUES))
    a, b = (_expr(rng, depth - 1) for _ in range(2))
    match rng.randrange(9):
        case 0 | 1:
            return a + b * rng.choice((1, -1, 64, 2**60))
        case 2:
            return a * b
        case 3:
            return floordiv(a, b) if b.as_constant != 0 else a
        case 4:
            return mod(a, b) if b.as_constant != 0 else b
        case 5:
            return minimum(a, b, _expr(rng, depth - 1))
        case 6:
            return maximum(a, b)
        case 7:
            return select(_condition(rng, depth - 1), a, b)
    return select(_condition(rng, depth - 1), a, b, whole=True)


def _condition(rng: random.Random, depth: int) -> Condition:
    if depth > 0 and rng.random() < 0.5:
        join = rng.choice((conjunction, disjunction))
        return join(_condition(rng, depth - 1) for _ in range(rng.randint(1, 3)))
    return rng.choice((le, eq, ne))(_expr(rng, depth), _expr(rng, depth))


def _python(formula: Expr | Condition, binding: Mapping[str, int]) -> object:
    try:
        value = formula.evaluate(binding)
    except ZeroDivisionError:
        return None
    return value if isinstance(value, bool) else str(value)


def random_formulas(count: int) -> tuple[dict[str, Any], list[list[object]]]:
    """Return what `CODE` takes, and the values of each formula at each binding, as it should give them."""
    rng = random.Random(None if NIGHTLY else 12)
    formulas: list[Expr | Condition] = [_expr(rng, 4) for _ in range(count)]
    formulas += [_condition(rng, 3) for _ in range(100)]
    bindings = [{name: rng.choice(VALUES) for name in NAMES} for _ in range(12)]
    table = FormulaTable()
    given = {
        "numbers": [table.add(formula) for formula in formulas],
        "nodes": table.nodes,
        "formulas": table.formulas,
        "bindings": [[[name, exact(value)] for name, value in one.items()] for one in bindings],
    }
    return given, [[_python(formula, binding) for formula in formulas] for binding in bindings]


@needs_node
def test_javascript_agrees_with_python_on_random_formulas() -> None:
    given, expected = random_formulas(3000 if NIGHTLY else 300)
    assert run_scripts(("formulas.js",), CODE, given) == expected
    flat = [value for values in expected for value in values]
    assert None in flat and True in flat and False in flat
    assert any(isinstance(value, str) and abs(int(value)) > 2**64 for value in flat)
    assert {node[0] for node in given["nodes"]} == {
        *("s", "+", "//", "%", "min", "max", "if", "<=", "==", "!=", "and", "or")
    }
