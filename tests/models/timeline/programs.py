"""A function for each construct that decides when the machine lets go of memory, as TVMScript text."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent, indent

TENSOR = 'R.Tensor(("p", 16), "float32")'
FLAG = 'R.Tensor((), "bool")'
FLAGS = ("c", "d")
PAIR = f"R.Tuple({TENSOR}, {TENSOR})"
TAIL = """
d0 = R.exp({0})
d1 = R.tanh(d0)
d2 = R.concat((d1, d1), axis=0)
return R.sum(R.exp(d2))
"""

CALLED: Mapping[str, tuple[str, str, str]] = {
    "one": (f"x: {TENSOR}", TENSOR, "return R.abs(x)"),
    "same": (f"x: {TENSOR}", TENSOR, "return x"),
    "longer": (f"x: {TENSOR}", TENSOR, "a = R.negative(x); b = R.exp(a); c = R.tanh(b); return c"),
    "two": (f"x: {TENSOR}", PAIR, "a = R.abs(x); b = R.negative(x); return (a, b)"),
    "pair_of_one": (f"x: {TENSOR}", PAIR, "a = R.abs(x); return (a, a)"),
    "nested": (
        f"x: {TENSOR}",
        f"R.Tuple({PAIR}, {TENSOR})",
        "a = R.abs(x); b = R.negative(x); return ((a, b), x)",
    ),
    "of_tuple": (f"t: {PAIR}", TENSOR, "return R.add(t[0], t[1])"),
    "first_of": (f"t: {PAIR}", TENSOR, "return t[0]"),
    "outer": (
        f"x: {TENSOR}",
        TENSOR,
        "a = R.negative(x); b = cls.longer(a); c = R.exp(b); d = R.tanh(c); return d",
    ),
    "drops_inside": (
        f"x: {TENSOR}",
        TENSOR,
        "a = cls.one(x); b = R.exp(a); c = R.tanh(b); d = cls.one(c); e = R.exp(d); return R.tanh(e)",
    ),
    "gives_a_scalar": (
        f"x: {TENSOR}",
        'R.Tensor((), "float32")',
        "a = R.concat((x, x), axis=0); b = R.exp(a); return R.sum(b)",
    ),
}
"""Functions that others call: parameters, result, body."""

# the name that the last line of a body binds goes on to TAIL, where there is no return
STRAIGHT: Mapping[str, str] = {
    "call": "a = R.exp(x); b = cls.one(a)",
    "calls_in_a_row": "a = R.exp(x); b = cls.one(a); c = cls.one(b); e = cls.longer(c)",
    "call_whose_result_nothing_uses": "a = R.exp(x); b = cls.one(a); e = R.tanh(x)",
    "call_that_returns_its_argument": "a = R.exp(x); b = cls.same(a); e = R.tanh(b)",
    "call_that_returns_a_parameter": "b = cls.same(x); e = R.tanh(b)",
    "call_within_a_call": "a = R.exp(x); b = cls.outer(a)",
    "call_that_lets_go_of_the_last_result": "a = cls.longer(x); b = R.tanh(a); e = cls.drops_inside(b)",
    "large_work_within_a_call": (
        "a = R.exp(x); b = cls.one(a); e = R.tanh(b); s = cls.gives_a_scalar(e); f = R.exp(x);"
        "g = R.tanh(f); return R.add(R.sum(g), s)"
    ),
    "one_of_two_results_used": "a = R.exp(x); t = cls.two(a); b = t[0]",
    "two_results_that_are_one": "a = R.exp(x); t = cls.pair_of_one(a); b = t[1]; e = R.tanh(b)",
    "none_of_two_results_used": "a = R.exp(x); t = cls.two(a); e = R.tanh(x)",
    "result_with_a_tuple_in_it": "a = R.exp(x); t = cls.nested(a); u = t[0]; b = u[1]; e = R.tanh(b)",
    "tuple_as_an_argument": "a = R.exp(x); b = R.abs(x); t = (a, b); e = cls.of_tuple(t)",
    "tuple_written_as_an_argument": "a = R.exp(x); b = R.abs(x); e = cls.of_tuple((a, b))",
    "field_of_an_argument_returned": "a = R.exp(x); b = R.abs(x); e = cls.first_of((a, b)); f = R.tanh(e)",
    "tuple_taken_apart": "a = R.exp(x); b = R.abs(x); t = (a, b); e = R.add(t[0], t[1]); f = R.tanh(e)",
    "tuple_in_a_tuple": "a = R.exp(x); b = R.abs(x); t = ((a, b), a); u = t[0]; e = R.add(u[0], u[1])",
    "tuple_returned": "a = R.exp(x); b = R.concat((a, a), axis=0); t = (a, R.sum(R.tanh(b))); return t",
    "tuple_of_parameters": "t = (x, x); a = R.add(t[0], t[1])",
    "tuple_with_a_shape": "a = R.exp(x); t = (a, R.shape([3, 4])); e = R.tanh(t[0])",
    "split_in_two": "a = R.exp(x); t = R.split(a, 2, axis=1); b = R.concat((t[0], t[0]), axis=1)",
    "names_for_one_tensor": "a = R.exp(x); b = a; e = b; f = R.add(e, a)",
    "views_of_one_tensor": (
        "a = R.exp(x); b = R.reshape(a, R.shape([16, n])); e = R.reshape(b, R.shape([n, 16])); f = R.tanh(e)"
    ),
    "view_that_nothing_uses": "a = R.exp(x); b = R.reshape(a, R.shape([16, n])); e = R.tanh(x)",
    "kernel_whose_result_nothing_uses": "a = R.exp(x); b = R.negative(a); e = R.tanh(x)",
    "result_made_first": (
        "r = R.exp(x); a = R.concat((x, x), axis=0); b = R.exp(a); s = R.sum(R.tanh(b)); return (r, s)"
    ),
    "result_returned_twice": "r = R.exp(x); a = R.concat((x, x), axis=0); return (r, R.sum(R.tanh(a)), r)",
    "parameter_returned": "a = R.exp(x); s = R.sum(R.tanh(a)); return (x, s)",
    "cast": 'a = R.exp(x); b = R.match_cast(a, R.Tensor((n, 16), "float32")); e = R.tanh(b)',
    "packed_that_returns_its_argument": (
        'a = R.exp(x); b = R.call_pure_packed("vm.builtin.copy", a, '
        'ty_args=(R.Tensor((n, 16), "float32"),)); e = R.tanh(b)'
    ),
}

CHOOSES = """
if c:
    a = R.concat((x, x), axis=0)
    b = R.sum(a, axis=0, keepdims=True)
    y = R.add(x, b)
else:
    e = R.tanh(x)
    y = R.multiply(e, x)
"""
CALLED_BRANCHING: Mapping[str, tuple[str, str, str]] = {name: CALLED[name] for name in ("one", "longer")} | {
    "chooses": (f"x: {TENSOR}, c: {FLAG}", TENSOR, f"{CHOOSES}z = R.exp(y)\nreturn z"),
    "returns_its_argument_or_not": (
        f"x: {TENSOR}, c: {FLAG}",
        TENSOR,
        "if c:\n    a = R.exp(x)\n    y = a\nelse:\n    y = x\nreturn y",
    ),
}


def _if(then: str, otherwise: str, *, test: str = "c") -> str:
    sides = (indent(_lines(side), "    ") for side in (then, otherwise))
    return "\nif {}:\n{}\nelse:\n{}\n".format(test, *sides)


def _wide(given: str, made: str, number: int = 0) -> str:
    """A side that takes much memory for a while."""
    return (
        f"w{number} = R.concat(({given}, {given}), axis=0); s{number} = R.sum(w{number}, axis=0, "
        f"keepdims=True); {made} = R.add({given}, s{number})"
    )


def _lines(text: str) -> str:
    """The statements of a text one on a line."""
    found = []
    for line in text.splitlines():
        margin = " " * (len(line) - len(line.lstrip()))
        found += [margin + statement.strip() for statement in line.split(";")]
    return "\n".join(found)


BRANCHING: Mapping[str, str] = {
    "equal_results": "a = R.exp(x)" + _if(_wide("a", "y"), "f = R.tanh(a); y = R.multiply(f, a)"),
    "operand_dead_behind_it": "a = R.exp(x)"
    + _if("f = R.abs(a); g = R.exp(f); y = R.tanh(g)", "h = R.negative(a); y = h"),
    "operand_of_one_side": "a = R.exp(x)" + _if("y = R.abs(a)", _wide("x", "y")),
    "yields_what_was_there": "a = R.exp(x); b = R.tanh(a)" + _if(_wide("b", "y"), "y = a"),
    "yields_a_parameter": "a = R.exp(x)" + _if("y = R.abs(a)", "y = x"),
    "yields_a_tuple": "a = R.exp(x)"
    + _if("f = R.abs(a); y = (f, a)", "g = R.tanh(a); h = R.exp(g); y = (g, h)")
    + "q = y[0]; r = y[1]; s = R.add(q, r)",
    "is_returned": "a = R.exp(x)" + _if("y = R.abs(a)", _wide("a", "y")) + "return y",
    "behind_another": "a = R.exp(x)"
    + _if(_wide("a", "y"), "f = R.tanh(a); y = R.multiply(f, a)")
    + _if(_wide("y", "z", 1), "g = R.tanh(y); z = R.multiply(g, y)", test="d"),
    "on_the_same_condition": "a = R.exp(x)"
    + _if(_wide("a", "y"), "f = R.tanh(a); y = R.multiply(f, a)")
    + _if("g = R.tanh(y); z = R.multiply(g, y)", _wide("y", "z", 1)),
    "within_another": "a = R.exp(x)"
    + _if(
        "f = R.abs(a)\n" + _if(_wide("f", "v"), "g = R.tanh(f); v = R.add(g, a)", test="d") + "y = R.exp(v)",
        "y = R.negative(a)",
    ),
    "call_in_a_branch": "a = R.exp(x)"
    + _if("f = cls.longer(a); g = R.exp(f); y = R.tanh(g)", "y = R.tanh(a)"),
    "yields_what_a_call_returns": "a = R.exp(x)" + _if("y = cls.one(a)", "y = cls.longer(a)"),
    "behind_a_call": "a = cls.one(x); b = R.tanh(a)"
    + _if("f = cls.longer(b); y = R.exp(f)", "g = R.exp(b); y = R.tanh(g)"),
    "within_a_callee": "a = R.exp(x); b = cls.chooses(a, c); y = cls.chooses(b, d)",
    "callee_returns_its_argument_or_not": "a = R.exp(x); b = cls.returns_its_argument_or_not(a, c);"
    " y = R.tanh(b)",
    "two_results": "a = R.exp(x); b = R.concat((a, a), axis=0); e = R.sum(R.exp(b))"
    + _if("y = R.abs(a)", "y = x")
    + "return (y, e)",
}  # fmt: skip


def text(called: Mapping[str, tuple[str, str, str]], mains: Mapping[str, str], flags: tuple[str, ...]) -> str:
    """The module with these functions."""
    functions = [
        f"@R.function(private=True)\ndef {name}({params}) -> {result}:\n    p = T.int64()\n{_body(body)}"
        for name, (params, result, body) in called.items()
    ]
    given = "".join(f", {flag}: {FLAG}" for flag in flags)
    for name, body in mains.items():
        last = _lines(body).strip().splitlines()[-1]
        tail = "" if last.startswith("return") else TAIL.format(last.split(" = ")[0].strip())
        head = f'@R.function\ndef {name}(x: R.Tensor(("n", 16), "float32"){given}):\n    n = T.int64()\n'
        functions.append(head + _body(f"{body}\n{dedent(tail)}"))
    return "@I.ir_module\nclass Module:\n" + indent("\n".join(functions), "    ")


def _body(text_: str) -> str:
    return indent("cls = Module\n" + _lines(text_), "    ") + "\n"
