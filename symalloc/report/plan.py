"""Plans for a person, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from symalloc.plan.summary import Sample, Summary

__all__ = ["plans_as_json", "plans_as_text"]

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def plans_as_text(summaries: Sequence[Summary]) -> str:
    """One paragraph for each function: arena, bytes beside the floor, guards, what is left unplanned and
    why.
    """
    return "\n".join("".join(f"{line}\n" for line in _function(s)) for s in summaries)


def plans_as_json(summaries: Sequence[Summary]) -> str:
    """`{"version": 1, "functions": [...]}`; sizes and offsets are Python expressions, in bytes."""
    document = {"version": 1, "functions": [_function_json(s) for s in summaries]}
    return json.dumps(document, indent=2) + "\n"


def human_bytes(count: int) -> str:
    """`count` bytes in the largest unit that leaves at least one: 1.5 KiB."""
    value = float(count)
    for unit in UNITS:
        if value < 1024 or unit == UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise ValueError(count)


def _function(summary: Summary) -> Iterator[str]:
    total = summary.planned + len(summary.unplanned)
    yield f"{summary.function}: {summary.planned} of {total} tensors planned"
    for arena in summary.arenas:
        yield f"  arena on device {arena.device} ({arena.scope}): {arena.size} B"
    yield from _table(summary.samples)
    for guard in summary.guards:
        yield f"  checked at entry: {guard.condition}"
    for left in summary.unplanned:
        size = "size unknown" if left.nbytes is None else f"{left.nbytes} B"
        yield f"  not planned: `{left.name}` ({size}): {left.reason}"


def _table(samples: Sequence[Sample]) -> Iterator[str]:
    if not samples:
        return
    rows: list[tuple[str, list[str]]] = [
        (_heading(samples[0].binding), [_extent(s.binding) for s in samples]),
        ("arena", [human_bytes(s.arena) for s in samples]),
        ("floor", [human_bytes(s.floor) for s in samples]),
        ("arena / floor", [f"{s.ratio:.3f}" for s in samples]),
        ("without reuse", [human_bytes(s.unshared) for s in samples]),
    ]
    if any(s.tvm is not None for s in samples):
        rows.append(("TVM's plan", ["-" if s.tvm is None else human_bytes(s.tvm) for s in samples]))
    for name, cells in rows:
        yield f"  {name:<14}{''.join(f'{cell:>12}' for cell in cells)}".rstrip()


def _heading(binding: Mapping[str, int]) -> str:
    return f"{', '.join(binding)} =" if binding else "static"


def _extent(binding: Mapping[str, int]) -> str:
    return str(next(iter(binding.values()))) if binding else ""


def _function_json(summary: Summary) -> dict[str, object]:
    return {
        "function": summary.function,
        "arenas": [
            {
                "device": arena.device,
                "scope": arena.scope,
                "bytes": str(arena.size),
                "buffers": [
                    {
                        "name": p.buffer.name,
                        "offset": str(p.offset),
                        "bytes": str(p.buffer.size),
                        "live": [list(interval) for interval in p.buffer.live],
                    }
                    for p in arena.placements
                ],
            }
            for arena in summary.arenas
        ],
        "guards": [str(g.condition) for g in summary.guards],
        "unplanned": [
            {"name": u.name, "bytes": None if u.nbytes is None else str(u.nbytes), "reason": u.reason}
            for u in summary.unplanned
        ],
        "samples": [
            {
                "binding": dict(s.binding),
                "bytes": s.arena,
                "floor": s.floor,
                "ratio": s.ratio,
                "unshared": s.unshared,
                "tvm": s.tvm,
            }
            for s in summary.samples
        ],
    }
