"""Kills, scopes and uses of variables."""

from __future__ import annotations

from symalloc.analysis.feasibility import FeasiblePaths
from symalloc.analysis.handles import killed_variables, out_of_scope, used_variables, uses_after_kill
from symalloc.program.control_flow import control_flow_graph
from symalloc.program.ir import Function, Operand, TupleValue
from tests.program.build import Body, param


def kills(function: Function) -> list[tuple[str, str]]:
    return [
        (fault.kind, fault.var.name) for fault in uses_after_kill(FeasiblePaths(control_flow_graph(function)))
    ]


def strays(function: Function) -> list[str]:
    return [fault.var.name for fault in out_of_scope(FeasiblePaths(control_flow_graph(function)))]


def test_a_killed_variable_is_not_used_again() -> None:
    body = Body(param("x", 8))
    body.kill(body.params[0])
    body.call("read", body.params[0])
    assert kills(body.finish()) == [("use-after-kill", "x")]


def test_an_alias_outlives_the_variable_it_came_from() -> None:
    body = Body(param("x", 8))
    other = body.alias(body.params[0])
    body.kill(body.params[0])
    body.call("read", other)
    assert not kills(body.finish(other))


def test_a_tensor_outlives_the_handle_of_its_storage() -> None:
    body = Body()
    storage = body.storage(8, name="s")
    tensor = body.tensor(storage, 8)
    body.kill(storage)
    body.call("fill", tensor)
    assert not kills(body.finish())
    body.tensor(storage, 8)
    assert kills(body.finish()) == [("use-after-kill", "s")]


def test_killed_twice() -> None:
    body = Body(param("x", 8))
    body.kill(body.params[0])
    body.kill(body.params[0])
    assert kills(body.finish()) == [("double-kill", "x")]


def test_killed_on_one_side() -> None:
    def side(*, kill: bool) -> Operand:
        if kill:
            body.kill(body.params[0])
        else:
            body.call("read", body.params[0])
        return TupleValue(())

    body = Body(param("x", 8))
    body.branch(lambda: side(kill=True), lambda: side(kill=False))
    assert not kills(body.finish())
    assert kills(body.finish(body.params[0])) == [("use-after-kill", "x")]


def test_killed_once_on_either_side() -> None:
    def kill() -> Operand:
        body.kill(body.params[0])
        return TupleValue(())

    body = Body(param("x", 8))
    body.branch(kill, kill)
    assert not kills(body.finish())


def test_the_other_side_does_not_see_what_one_side_binds() -> None:
    made = []

    def bind() -> Operand:
        made.append(body.storage(8, name="s"))
        return TupleValue(())

    def use() -> Operand:
        return body.tensor(made[0], 8, name="t")

    body = Body()
    body.branch(bind, use)
    body.tensor(made[0], 8)
    assert strays(body.finish()) == ["s"]  # once, not for each use


def test_a_binding_of_what_nobody_uses_is_no_use() -> None:
    body = Body()
    storage = body.storage(8)
    tensor = body.tensor(storage, 8)
    body.alias(body.alias(tensor))
    body.kill(tensor)
    cfg = control_flow_graph(body.finish())
    assert tensor not in used_variables(cfg)
    assert storage in used_variables(cfg)
    assert killed_variables(cfg) == {tensor}
