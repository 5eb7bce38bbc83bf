from __future__ import annotations

import re
from dataclasses import fields

import pytest

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.metrics import prometheus_text
from symalloc.pool.native_pool import PoolStatistics

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{pool="((?:[^"\\\n]|\\["\\n])*)"\} (\d+)')
MIB = 2**20


def _parsed(text: str) -> dict[str, dict[str, int]]:
    """Values by metric and pool; every metric must be introduced by one HELP and one TYPE, in that order."""
    metrics: dict[str, dict[str, int]] = {}
    assert text.endswith("\n")
    lines = iter(text.splitlines())
    current = kind = ""
    for line in lines:
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in metrics, "samples of a metric stand together"
            assert len(line.split(" ", 3)[3]) > 5
            metrics[current] = {}
            typed = next(lines).split(" ")
            assert typed[:3] == ["#", "TYPE", current]
            kind = typed[3]
            assert kind == ("counter" if current.endswith("_total") else "gauge")
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        assert match[1] == current
        label = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], match[2])
        metrics[current][label] = int(match[3])
    return metrics


def _statistics(start: int) -> PoolStatistics:
    return PoolStatistics(**{f.name: start + i for i, f in enumerate(fields(PoolStatistics))})


def test_every_field_is_a_metric() -> None:
    metrics = _parsed(prometheus_text({"a": _statistics(100), "b": _statistics(200)}, {"a": 4096, "b": None}))
    shown = {name: values for name, values in metrics.items() if name != "symalloc_pool_limit_bytes"}
    assert sorted(v["a"] for v in shown.values()) == [100 + i for i in range(len(fields(PoolStatistics)))]
    assert all(v["b"] == v["a"] + 100 for v in shown.values())
    assert metrics["symalloc_pool_limit_bytes"] == {"a": 4096}
    assert all(name.startswith("symalloc_pool_") for name in metrics)


@pytest.mark.parametrize("name", ('quo"te', "back\\slash", "two\nlines", "plain", "Straße"))
def test_labels_are_escaped(name: str) -> None:
    assert _parsed(prometheus_text({name: _statistics(0)}))["symalloc_pool_live_bytes"] == {name: 0}


@pytest.mark.usefixtures("native")
def test_of_a_pool() -> None:
    pool = InstrumentedPool(limit=4 * MIB)
    kept = pool.alloc(3 * MIB)
    metrics = _parsed(prometheus_text({"serving": pool.statistics()}, {"serving": pool.limit}))
    assert metrics["symalloc_pool_live_bytes"]["serving"] == 3 * MIB
    assert metrics["symalloc_pool_allocations_total"]["serving"] == 1
    assert metrics["symalloc_pool_limit_bytes"]["serving"] == 4 * MIB
    pool.free(kept)
