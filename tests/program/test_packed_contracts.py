"""The contracts of packed functions: TVM's lines, what users state, and what follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm

import symalloc
from symalloc.errors import UsageError
from symalloc.program.packed_contracts import (
    OPERATIONS,
    UNKNOWN,
    PackedContract,
    contract_of,
    contracts,
    contracts_of_tvm,
    packed_contract,
    packed_function,
    stated_contracts,
)
from symalloc.relax.extract.calls import _CLOSURES, _PACKED
from symalloc.relax.files.load import read_one

TVM = Path(tvm.__file__).parent
ROWS = [(name, *contract.source.split(":")) for name, contract in contracts_of_tvm().items()]


@pytest.mark.parametrize(("name", "file", "line"), ROWS, ids=[name for name, _, _ in ROWS])
def test_each_row_names_the_line_that_defines_the_function(name: str, file: str, line: str) -> None:
    source = TVM / file
    if not source.is_file():
        pytest.skip("this TVM comes without its sources")
    assert f'"{name}"' in source.read_text(encoding="utf-8").splitlines()[int(line) - 1]


def test_defined_arguments_are_not_read() -> None:
    for name in contracts_of_tvm():
        contract = packed_contract(name)
        assert not any(map(contract.reads_argument, contract.defines))
        assert contract.written is not None


def test_what_is_not_known_may_do_anything() -> None:
    assert packed_contract("mylib.sort") is UNKNOWN
    assert PackedContract(returns="any", keeps=None, writes=None, takes="unknown") == UNKNOWN


def test_users_state_contracts() -> None:
    with contracts({}):
        packed_function("mylib.sort", defines=[1], takes="nothing", source="sort.cc:7")
        assert packed_contract("mylib.sort").written == {1}
        assert not packed_contract("mylib.sort").allocates
        packed_function("mylib.same", returns=0)
        assert packed_contract("mylib.same").returns == (0,)
        packed_function("vm.builtin.rnn_state_set", returns="any")
        assert packed_contract("vm.builtin.rnn_state_set").returns == "any"
        assert set(stated_contracts("`packed`", {"f": {"byte-offset": "ignored"}})) == {
            "mylib.sort",
            "mylib.same",
            "vm.builtin.rnn_state_set",
            "f",
        }
    assert not stated_contracts("`packed`", {})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"return": 0}, "unknown key `return` in f; did you mean 'returns'?"),
        ({"returns": "old"}, "`returns` in f is 'old'; it must be one of new, any"),
        ({"keeps": 1}, "`keeps` in f is 1; it must be a list of numbers of arguments, from 0 on"),
        ({"writes": [-1]}, "`writes` in f is -1"),
        ({"takes": "all"}, "`takes` in f is 'all'; it must be one of nothing, result, state, unknown"),
        ({"reads": [0], "defines": [0]}, "f both defines argument 0 and reads it"),
        ({"writes": [0], "defines": [0]}, "f both defines argument 0 and reads it"),
        ({"returns": []}, "must be one of new, any"),
        ("new", "f is 'new'; it must be a table"),
    ],
)
def test_tables_that_make_no_sense_are_refused(table: object, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        contract_of("f", table)


def test_operations_that_are_followed_have_no_contract_of_users() -> None:
    assert _PACKED.keys() | _CLOSURES == OPERATIONS
    for name in OPERATIONS:
        with pytest.raises(UsageError, match=f"`{name}` would have no effect"):
            packed_function(name, returns=0)
        with pytest.raises(UsageError, match=f"pyproject: `packed` of `{name}` would have no effect"):
            stated_contracts("pyproject: `packed`", {name: {"returns": 0}})


LOGGED = """
from tvm.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tuple():
        _ = R.call_packed("CALLED", x, ty_args=(R.Tuple,))
        return R.tuple()
"""


@pytest.mark.parametrize(
    ("stated", "called"),
    [("tests.asked.srot", "tests.asked.sort"), ("asks_sort", "ask_sort"), ("other.place.f_one", "f_one")],
)
def test_a_name_that_is_mistyped_is_asked_about_once(
    stated: str, called: str, caplog: pytest.LogCaptureFixture
) -> None:
    said = f"note: `{called}` has no contract; is that of `{stated}` meant for it?"
    with contracts({stated: contract_of("f", {"returns": "nothing"})}):
        for name in (called, called, "vm.builtin.debug_print"):
            symalloc.lint(read_one(Path("module.py"), data=LOGGED.replace("CALLED", name).encode()))
    assert [record.getMessage() for record in caplog.records] == [said]
