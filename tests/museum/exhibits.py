"""The facts of the museum: each bug's module, its origin, its effect, and what the linter must say of it.

BUGS.md's table is made of these (`pytest tests/museum --update-golden` writes it).
"""

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

    `name` is the module's file in `modules/`; `today` says what TVM 0.27 does with it.  `on_line` is a piece
    of the source line that the finding points at, None where it lies in what TVM makes of the module; then
    `stage` names the pass that brings it in.  `counterexample` is the smallest one.
    """

    name: str
    origin: str = "seen on TVM 0.27"
    what: str
    today: str
    rule: str
    verdict: str | None = "runtime-check"
    severity: str = "error"
    on_line: str | None = None
    stage: str | None = None
    counterexample: Mapping[str, int] | None = None

    @property
    def path(self) -> Path:
        """The module's file."""
        return MODULES / f"{self.name}.py"

    @property
    def row(self) -> str:
        """The exhibit's row in BUGS.md."""
        link = f"[{self.name}](tests/museum/modules/{self.name}.py)"
        return f"| {link} | {self.origin} | {self.what} | {self.rule} | {self.today} |"


EXHIBITS = (
    Exhibit(
        name="issue_17322",
        origin="apache/tvm#17322",
        what="16 bytes reserved for m floats",
        today="runs up to m = 1024 on a page that was rounded up, then an internal error",
        rule="SYM101",
        on_line="alloc = R.memory.alloc_tensor",
        counterexample={"m": 5},
    ),
    Exhibit(
        name="if_branches_add",
        origin="apache/tvm#17348",
        what="the else-branch uses a storage that the then-branch allocates",
        today="the planner still emits it: SIGSEGV",
        rule="SYM204",
        verdict="always-invalid",
        stage=PLANNER,
    ),
    Exhibit(
        name="if_branches_reshape",
        origin="apache/tvm#20191",
        what="the same, through chains of reshapes",
        today="the planner still emits it: SIGSEGV",
        rule="SYM204",
        verdict="always-invalid",
        stage=PLANNER,
    ),
    Exhibit(
        name="match_cast_alias",
        origin="apache/tvm#20190",
        what="a storage is reused while a match_cast of its tensor is still read",
        today="the planner is repaired; the planned module still runs with wrong numbers",
        rule="SYM203",
        verdict="always-invalid",
        on_line="Module.add_eighth(x, right)",
    ),
    Exhibit(
        name="match_cast_dropped",
        what="a match_cast against a symbol that has a value is removed with its check",
        today="KillAfterLastUse drops it: 4000 bytes run on 20, then an internal error",
        rule="SYM101",
        on_line="alloc = R.memory.alloc_tensor",
        counterexample={"m": 1, "n": 2},
    ),
    Exhibit(
        name="reshape_alias",
        origin="apache/tvm#20134",
        what="a storage is reused while a view by vm.builtin.reshape is still read",
        today="the planner is repaired; the planned module still runs with wrong numbers",
        rule="SYM203",
        verdict="always-invalid",
        on_line="Module.add_eighth(x, right)",
    ),
    Exhibit(
        name="packed_returns_argument",
        what="a packed function returns its argument, whose storage is reused",
        today="the planner emits it: wrong numbers",
        rule="SYM203",
        severity="warning",
        stage=PLANNER,
    ),
    Exhibit(
        name="declared_upper_bound",
        what="storages sized by `tir_var_upper_bound`, which nothing checks",
        today="the planner emits it: m = 5 runs beyond what was reserved, m = 1025 is an internal error",
        rule="SYM401",
        severity="note",
        stage=PLANNER,
        counterexample={"m": 5},
    ),
    Exhibit(
        name="neighbour_overwritten",
        what="a tensor grows into its neighbour in one storage",
        today="wrong numbers from m = 17 on",
        rule="SYM203",
        on_line="Module.fill(a)",
        counterexample={"m": 17},
    ),
    Exhibit(
        name="negative_offset",
        what="a tensor that starts in front of its storage",
        today="runs, and writes in front of the buffer",
        rule="SYM102",
        on_line="placed = R.memory.alloc_tensor",
        counterexample={"m": 17},
    ),
    Exhibit(
        name="misaligned_offset",
        what="ensure_zero_offset copies where the offset is no multiple of 64",
        today="wrong numbers: the kernel fills the copy",
        rule="SYM104",
        on_line="placed = R.memory.alloc_tensor",
        counterexample={"n": 1},
    ),
    Exhibit(
        name="issue_20269",
        origin="apache/tvm#20269",
        what="a byte count beyond 2^63 wraps",
        today="runs: 2^66 elements in a buffer of 0 bytes, no error",
        rule="SYM105",
        severity="warning",
        on_line="R.memory.alloc_storage",
        counterexample={"m": 1321123},
    ),
    Exhibit(
        name="mlc_zero_byte_storage",
        origin="mlc-ai/mlc-llm#1987",
        what="a storage whose size rounds down to 0 bytes",
        today="the same internal error as reported",
        rule="SYM101",
        on_line="hidden = R.memory.alloc_tensor",
        counterexample={"n": 1},
    ),
    Exhibit(
        name="use_after_kill",
        what="a tensor is used after kill_tensor",
        today="builds; an error when it runs",
        rule="SYM201",
        verdict="always-invalid",
        on_line="Module.add_one(first, out)",
    ),
    Exhibit(
        name="tvm_test_bounded_symbol",
        origin="TVM's test_transform_rewrite_cuda_graph",
        what='16 bytes for m floats, "m is assumed to be bounded"',
        today="runs up to m = 1024, then an internal error",
        rule="SYM101",
        on_line="first = R.memory.alloc_tensor",
        counterexample={"m": 5},
    ),
    Exhibit(
        name="tvm_test_elements_as_bytes",
        origin="TVM's test_transform_rewrite_cuda_graph",
        what="elements counted where bytes are asked for",
        today="hidden by the page that a storage is rounded up to",
        rule="SYM101",
        verdict="always-invalid",
        on_line="alloc = R.memory.alloc_tensor",
    ),
    Exhibit(
        name="storage_of_other_device",
        what="storages are matched by size, element type and scope, but not by device",
        today="the planner emits it: an error when it runs, `Mismatched … device_id`",
        rule="SYM106",
        verdict=None,
        stage=PLANNER,
    ),
    Exhibit(
        name="condition_at_offset",
        what="the test of an If is read at its pointer (`read_if_cond`), its byte offset ignored",
        today="wrong numbers: the other branch runs",
        rule="SYM112",
        verdict="always-invalid",
        on_line="if yes",
    ),
    Exhibit(
        name="take_last_row",
        origin="TVM's torch importer",
        what='the constant index -1 of R.take(mode="fast")',
        today="wrong numbers: the row in front of the buffer",
        rule="SYM305",
        verdict="always-invalid",
        on_line="R.take(x, R.const(-1",
    ),
    Exhibit(
        name="mlc_topk_index",
        origin="mlc-ai/mlc-llm, op/moe_misc.py",
        what="the indices of the best experts are stored at [-1], in front of their buffer",
        today="runs, and writes in front of the buffer; a row of NaN gets the experts of the row before",
        rule="SYM306",
        verdict="always-invalid",
        on_line="Module.top2(x, out)",
    ),
    Exhibit(
        name="inplace_on_view",
        origin="apache/tvm#19577",
        what="DataflowUseInplaceCalls overwrites a view of a tensor that is read later",
        today="the pass still does: [6, 10, 14] for [5, 9, 13]",
        rule="SYM210",
        verdict=None,
        on_line="gv = R.add(more, y)",
    ),
)
