from __future__ import annotations

from symalloc.report.plan_diff import compare_tensors
from symalloc.report.plan_json import TensorRecord
from symalloc.size.parse import parse_expr


def tensor(name: str, operator: str, size: str, offset: str = "0") -> TensorRecord:
    return TensorRecord(name=name, operator=operator, size=parse_expr(size), offset=parse_expr(offset))


def test_a_tensor_that_another_was_put_before_is_known_again() -> None:
    before = [tensor("alloc", "add", "64*n"), tensor("alloc1", "exp", "64*n")]
    after = [tensor("alloc", "take", "64"), tensor("alloc1", "add", "64*n"), tensor("alloc2", "exp", "64*n")]
    changes = compare_tensors(before, after)
    assert [one.operator for one in changes.new] == ["take"]
    assert not changes.gone and not changes.resized and not changes.moved


def test_sizes_and_offsets() -> None:
    before = [tensor("a", "add", "64*n"), tensor("b", "exp", "64", "0")]
    after = [tensor("a", "add", "128*n"), tensor("b", "exp", "64", "128*n")]
    changes = compare_tensors(before, after)
    assert [(str(p.before.size), str(p.after.size)) for p in changes.resized] == [("64*n", "128*n")]
    assert [p.after.name for p in changes.moved] == ["b"]


def test_of_equal_tensors_as_many_are_gone_as_there_were_more() -> None:
    changes = compare_tensors([tensor("a", "add", "64") for _ in range(3)], [tensor("a", "add", "64")])
    assert (len(changes.gone), len(changes.new)) == (2, 0)
