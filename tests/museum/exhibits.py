"""What hangs in the museum: every bug's module, where it comes from, what the linter must say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EXHIBITS", "MODULES", "Exhibit"]

MODULES = Path(__file__).parent / "modules"
PLANNER = "StaticPlanBlockMemory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """One bug.

    `name` is the module's file in `modules/`.  `on_line` is a piece of the source line that the finding
    points at, None where it lies in what TVM makes of the module; then `stage` names the pass that brings it
    in. `counterexample` is the smallest one.  `proof`: how TVM 0.27 shows the fault when the module runs
    (`wrong numbers`, `error`, `SIGSEGV`), None where it is hidden.
    """

    name: str
    origin: str
    rule: str
    verdict: str | None
    severity: str = "error"
    on_line: str | None = None
    stage: str | None = None
    counterexample: Mapping[str, int] | None = None
    proof: str | None = None

    @property
    def path(self) -> Path:
        """The module's file."""
        return MODULES / f"{self.name}.py"


EXHIBITS = (
    Exhibit(
        name="issue_17322",
        origin="apache/tvm#17322",
        rule="SYM101",
        verdict="runtime-check",
        on_line="alloc = R.memory.alloc_tensor",
        counterexample={"m": 5},
        proof="error",
    ),
    Exhibit(
        name="if_branches_add",
        origin="apache/tvm#17348",
        rule="SYM204",
        verdict="always-invalid",
        stage=PLANNER,
        proof="SIGSEGV",
    ),
    Exhibit(
        name="if_branches_reshape",
        origin="apache/tvm#20191",
        rule="SYM204",
        verdict="always-invalid",
        stage=PLANNER,
        proof="SIGSEGV",
    ),
    Exhibit(
        name="match_cast_alias",
        origin="apache/tvm#20190",
        rule="SYM203",
        verdict="always-invalid",
        on_line="Module.add_eighth(x, right)",
        proof="wrong numbers",
    ),
    Exhibit(
        name="match_cast_dropped",
        origin="seen on TVM 0.27",
        rule="SYM101",
        verdict="runtime-check",
        on_line="alloc = R.memory.alloc_tensor",
        counterexample={"m": 1, "n": 2},
        proof="error",
    ),
    Exhibit(
        name="reshape_alias",
        origin="apache/tvm#20134",
        rule="SYM203",
        verdict="always-invalid",
        on_line="Module.add_eighth(x, right)",
        proof="wrong numbers",
    ),
    Exhibit(
        name="packed_returns_argument",
        origin="seen on TVM 0.27",
        rule="SYM203",
        verdict="runtime-check",
        severity="warning",
        stage=PLANNER,
        proof="wrong numbers",
    ),
    Exhibit(
        name="declared_upper_bound",
        origin="seen on TVM 0.27",
        rule="SYM401",
        verdict="runtime-check",
        severity="warning",
        stage=PLANNER,
        counterexample={"m": 5},
        proof="error",
    ),
    Exhibit(
        name="neighbour_overwritten",
        origin="seen on TVM 0.27",
        rule="SYM203",
        verdict="runtime-check",
        on_line="Module.fill(a)",
        counterexample={"m": 17},
        proof="wrong numbers",
    ),
    Exhibit(
        name="negative_offset",
        origin="seen on TVM 0.27",
        rule="SYM102",
        verdict="runtime-check",
        on_line="placed = R.memory.alloc_tensor",
        counterexample={"m": 17},
    ),
    Exhibit(
        name="misaligned_offset",
        origin="seen on TVM 0.27",
        rule="SYM104",
        verdict="runtime-check",
        on_line="placed = R.memory.alloc_tensor",
        counterexample={"n": 1},
        proof="wrong numbers",
    ),
    Exhibit(
        name="issue_20269",
        origin="apache/tvm#20269",
        rule="SYM105",
        verdict="runtime-check",
        severity="warning",
        on_line="R.memory.alloc_storage",
        counterexample={"m": 1321123},
        proof="error",
    ),
    Exhibit(
        name="mlc_zero_byte_storage",
        origin="mlc-ai/mlc-llm#1987",
        rule="SYM101",
        verdict="runtime-check",
        on_line="hidden = R.memory.alloc_tensor",
        counterexample={"n": 1},
        proof="error",
    ),
    Exhibit(
        name="use_after_kill",
        origin="seen on TVM 0.27",
        rule="SYM201",
        verdict="always-invalid",
        on_line="Module.add_one(first, out)",
        proof="error",
    ),
    Exhibit(
        name="tvm_test_bounded_symbol",
        origin="TVM's test_transform_rewrite_cuda_graph",
        rule="SYM101",
        verdict="runtime-check",
        on_line="first = R.memory.alloc_tensor",
        counterexample={"m": 5},
        proof="error",
    ),
    Exhibit(
        name="tvm_test_elements_as_bytes",
        origin="TVM's test_transform_rewrite_cuda_graph",
        rule="SYM101",
        verdict="always-invalid",
        on_line="alloc = R.memory.alloc_tensor",
    ),
    Exhibit(
        name="storage_of_other_device",
        origin="seen on TVM 0.27",
        rule="SYM106",
        verdict=None,
        stage=PLANNER,
        proof="error",
    ),
    Exhibit(
        name="condition_at_offset",
        origin="seen on TVM 0.27",
        rule="SYM112",
        verdict="always-invalid",
        on_line="if yes",
        proof="wrong numbers",
    ),
    Exhibit(
        name="take_last_row",
        origin="TVM's torch importer",
        rule="SYM305",
        verdict="always-invalid",
        on_line="R.take(x, R.const(-1",
        proof="wrong numbers",
    ),
)
