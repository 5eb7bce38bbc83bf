from __future__ import annotations

import json
from collections.abc import Callable

from symalloc.pool.replaying import Replayed
from symalloc.report.pool_use import replays_as_json, replays_as_text

MIB = 2**20


def _result(trace: str, policy: str, reserved: int, *, failed: str | None = None) -> Replayed:
    paged = policy == "pool"
    return Replayed(
        trace=trace,
        policy=policy,
        operations=1000,
        peak_live=100 * MIB,
        peak_reserved=reserved,
        seconds=0.5,
        commits=7 * paged,
        decommits=3 * paged,
        bytes_given_back=2 * MIB * paged,
        out_of_memory=failed,
        ratio=reserved / (100 * MIB),
        operations_per_second=2000,
    )


RESULTS = [
    _result("a", "pool", 105 * MIB),
    _result("a", "best-fit", 200 * MIB),
    _result("b", "pool", 120 * MIB, failed="event 9: no room"),
    _result("b", "best-fit", 450 * MIB),
]


def test_text(golden: Callable[[str, str], None]) -> None:
    golden("pool.txt", replays_as_text(RESULTS))


def test_a_single_trace_needs_no_summary() -> None:
    assert "mean" not in replays_as_text(RESULTS[:2])


def test_json() -> None:
    document = json.loads(replays_as_json(RESULTS))
    assert document["version"] == 1
    assert [r["ratio"] for r in document["results"]] == [1.05, 2.0, 1.2, 4.5]
    assert document["results"][2]["out_of_memory"] == "event 9: no room"
    assert document["totals"][1] == {"policy": "best-fit", "geometric_mean": 3.0, "worst": 4.5}
