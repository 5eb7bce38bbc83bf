"""Programs of torch.export as modules: names and ranges of dimensions, and what cannot be imported."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tvm

import symalloc
from symalloc.errors import UsageError
from symalloc.program.reading import ImportRefusedError, UnreadableError
from symalloc.relax.ir_types import bindings_in
from symalloc.relax.read.torch_program import import_torch, load_torch
from symalloc.relax.source_spans import source_of

torch = pytest.importorskip("torch", reason="torch is not installed (the extra `torch`)")
Dim = torch.export.Dim
BATCH, LENGTH, HALF = Dim("batch", min=1, max=64), Dim("length", min=2, max=512), Dim("half", max=100)


class Function(torch.nn.Module):  # type: ignore[misc]
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def exported(function: Any, inputs: tuple[Any, ...], dims: tuple[Any, ...]) -> Any:
    return torch.export.export(Function(function), inputs, dynamic_shapes=(dims,))


def from_file(program: Any, folder: Path) -> tvm.IRModule:
    torch.export.save(program, str(folder / "m.pt2"))
    return load_torch(folder / "m.pt2", (folder / "m.pt2").read_bytes())


def shapes(mod: tvm.IRModule) -> list[list[str]]:
    return [[str(e).replace("T.int64(1)", "1") for e in p.ty.shape.values] for p in mod["main"].params]


def bounds(mod: tvm.IRModule) -> Mapping[str, tuple[int | None, int | None]]:
    attributes = mod["main"].attrs
    lower, upper = (dict(attributes.get(f"tir_var_{side}_bound", {})) for side in ("lower", "upper"))
    return {name: (lower.get(name), upper.get(name)) for name in lower.keys() | upper.keys()}


def test_dimensions_keep_names_and_ranges_in_memory_and_are_called_after_inputs_in_a_file(
    tmp_path: Path,
) -> None:
    inputs = (torch.randn(3, 5, 4), torch.randn(3, 5))
    program = exported(
        lambda x, mask: torch.softmax(x, -1) * mask.unsqueeze(-1), inputs, ({0: BATCH, 1: LENGTH},) * 2
    )
    mod = import_torch(program)
    assert [extents[:2] for extents in shapes(mod)] == [["batch", "length"]] * 2
    assert bounds(mod) == {"batch": (1, 64), "length": (2, 512)}
    read = from_file(program, tmp_path)
    first = str(read["main"].params[0].name)
    assert [extents[:2] for extents in shapes(read)] == [[f"{first}_dim0", f"{first}_dim1"]] * 2
    assert set(bounds(read).values()) == {(1, 64), (2, 512)}


class Layers(torch.nn.Module):  # type: ignore[misc]
    """Two layers of one class, and something in the outermost module."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return torch.softmax(x, -1)


def test_calls_name_the_module_and_the_line_that_they_come_from(tmp_path: Path) -> None:
    program = torch.export.export(Layers().eval(), (torch.randn(3, 4),), dynamic_shapes=({0: BATCH},))
    first = Layers.forward.__code__.co_firstlineno
    file = "tests/relax/read/test_torch_program.py"
    for mod in (import_torch(program), from_file(program, tmp_path)):
        calls = [b for b in bindings_in(mod["main"].body) if isinstance(b.value, tvm.ir.Call)]
        found = [(str(b.value.op.name), source_of(b)) for b in calls]
        for layer in ("layers.0", "layers.1"):
            within = {operator for operator, place in found if place == f"{layer} at {file}:{first + 3}"}
            assert {"relax.matmul", "relax.add"} <= within
        assert found[-1] == ("relax.nn.softmax", f"{file}:{first + 4}")


def test_a_program_that_symalloc_saves_keeps_the_names_of_its_dimensions(tmp_path: Path) -> None:
    inputs = (torch.randn(10, 4), torch.randn(5, 3, 4))
    program = exported(
        lambda x, y: x.reshape(-1, 2, 4).sum(1) + y.sum(1), inputs, ({0: 2 * HALF}, {0: HALF, 1: LENGTH})
    )
    file = tmp_path / "named.pt2"
    symalloc.save_program(program, file)
    mod = load_torch(file, file.read_bytes())
    assert shapes(mod) == shapes(import_torch(program))
    assert shapes(mod)[1][:2] == ["half", "length"] and "half" in shapes(mod)[0][0]
    assert bounds(mod) == bounds(import_torch(program))
    assert torch.equal(torch.export.load(str(file)).module()(*inputs), program.module()(*inputs))


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"x": "batch"}', '{"x": [1]}', '{"x": ["batch"'])
def test_names_that_are_none_are_told(text: str, tmp_path: Path) -> None:
    program = exported(torch.relu, (torch.randn(3, 4),), ({0: BATCH},))
    archive = io.BytesIO()
    torch.export.save(program, archive, extra_files={"symalloc.dims": text})
    with pytest.raises(UnreadableError, match=r"the archive's symalloc\.dims is damaged: "):
        load_torch(tmp_path / "m.pt2", archive.getvalue())


def test_names_may_be_any_text_and_too_few(tmp_path: Path) -> None:
    program = exported(torch.relu, (torch.randn(3, 4, 5),), ({0: BATCH, 1: LENGTH},))
    name = "inputs_0"
    archive = io.BytesIO()
    extra = {"symalloc.dims": json.dumps({name: ["a batch", None, "unused", "no axis"], "no input": ["x"]})}
    torch.export.save(program, archive, extra_files=extra)
    (extents,) = shapes(load_torch(tmp_path / "m.pt2", archive.getvalue()))
    assert extents[:2] == ["a_batch", f"{name}_dim1"]


def test_what_cannot_be_saved_is_told(tmp_path: Path) -> None:
    program = exported(torch.relu, (torch.randn(3, 4),), ({0: BATCH},))
    said = r"cannot save Linear objects: give a torch\.export\.ExportedProgram"
    with pytest.raises(UsageError, match=said):
        symalloc.save_program(torch.nn.Linear(2, 2), tmp_path / "m.pt2")
    with pytest.raises(UsageError, match="path is 3; it must be a path"):
        symalloc.save_program(program, 3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"cannot write .*: No such file or directory"):
        symalloc.save_program(program, tmp_path / "no folder" / "m.pt2")
    assert list(tmp_path.iterdir()) == []


def test_derived_dimensions_are_sizes(tmp_path: Path) -> None:
    inputs = (torch.randn(10, 4), torch.randn(5, 4))
    program = exported(lambda x, y: x.reshape(-1, 2, 4).sum(1) + y, inputs, ({0: 2 * HALF}, {0: HALF}))
    for mod in (import_torch(program), from_file(program, tmp_path)):
        tvm.relax.analysis.well_formed(mod)
        (twice, _), (half, _) = shapes(mod)
        assert half in twice and twice != half
    assert shapes(import_torch(program))[1][0] == "half"


def test_a_derived_dimension_alone_is_a_symbol(tmp_path: Path) -> None:
    program = exported(lambda x: x.reshape(-1, 2, 4).sum(1), (torch.randn(10, 4),), ({0: 2 * HALF},))
    for mod in (import_torch(program), from_file(program, tmp_path)):
        tvm.relax.analysis.well_formed(mod)
        ((extent, _),) = shapes(mod)
        assert extent.isidentifier() and bounds(mod)[extent][1] == 200


def test_what_cannot_be_imported_is_said_with_its_place() -> None:
    program = exported(torch.special.bessel_j0, (torch.randn(3),), ({0: BATCH},))
    with pytest.raises(ImportRefusedError, match=r"operator aten\.special_bessel_j0\.default \(node `spec"):
        import_torch(program)
    traced = exported(lambda x, k: x * k, (torch.randn(3), 2), (None, Dim.DYNAMIC))
    with pytest.raises(ImportRefusedError, match="is no tensor; TVM imports tensors only"):
        import_torch(traced)


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    program = exported(torch.relu, (torch.randn(3),), ({0: BATCH},))
    torch.export.save(program, str(tmp_path / "m.pt2"))
    data = (tmp_path / "m.pt2").read_bytes()
    for broken in (data[:-40], data.replace(b"aten.relu.default", b"aten.rulu.default")):
        with pytest.raises(UnreadableError):
            load_torch(tmp_path / "m.pt2", broken)


# -- state that calls update --------------------------------------------------------------------------------


class Stateful(torch.nn.Module):  # type: ignore[misc]
    """Has statistics of what it has seen, room for what it was given, and a number of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("kept", torch.zeros(8, 4))
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))


class Kept(Stateful):
    """Keeps what it was given."""

    def forward(self, x: Any) -> Any:
        self.kept[0:3].copy_(x)
        self.calls.add_(1)
        return self.kept.sum(0)


class Normalised(Stateful):
    """Updates its statistics, unless it is in eval mode."""

    def forward(self, x: Any) -> Any:
        return self.norm(x) + self.kept[0]


class Updated(Stateful):
    """Writes over its input, and over memory of its own."""

    def forward(self, x: Any) -> Any:
        y = torch.zeros_like(x)
        y.add_(x.add_(1))
        return y * 2


class Silent(Stateful):
    """Adds to a buffer, and returns nothing."""

    def forward(self, x: Any) -> None:
        self.kept[0].add_(x[0])


@pytest.mark.parametrize(
    ("model", "lost"),
    [
        (Kept(), r"the buffer `kept`, the buffer `calls`"),
        (Normalised(), r"the buffer `norm\.running_mean`, .*\.running_var`, .*\.num_batches_tracked`"),
        (Updated(), r"the user input `x`"),
        (Silent(), r"the buffer `kept`"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_state_that_the_importer_drops_is_refused(model: Any, lost: str, tmp_path: Path) -> None:
    program = torch.export.export(model, (torch.randn(3, 4),))
    for load in (import_torch, lambda one: from_file(one, tmp_path)):
        with pytest.raises(UnreadableError, match=f"a call updates {lost}, and TVM's importer drops that"):
            load(program)


def test_memory_of_the_model_s_own_may_be_updated() -> None:
    import_torch(torch.export.export(Normalised().eval(), (torch.randn(3, 4),)))
