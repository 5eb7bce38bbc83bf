"""The use of a pool, and how amounts are written."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from symalloc.pool import statistics
from symalloc.pool.instrumented_pool import Holding, InstrumentedPool
from symalloc.pool.native_pool import PoolStatistics
from symalloc.pool.statistics_scope import ScopeStatistics, TagCount
from symalloc.report.document import as_json
from symalloc.report.pool_use import PoolDocument, pool_report, use_as_text
from symalloc.report.quantities import cut, cut_place, human_bytes

MIB = 2**20
NOW = PoolStatistics(
    live=70 * MIB,
    allocs=1200,
    frees=1100,
    used=72 * MIB,
    peak_used=96 * MIB,
    reserved=80 * MIB,
    peak_reserved=100 * MIB,
    commits=12,
    committed=120 * MIB,
    decommits=4,
    decommitted=40 * MIB,
    threads=3,
    refused=2,
)
HELD = (
    Holding(tag="main.weights float32[4096, 4096]", blocks=1, nbytes=64 * MIB),
    Holding(tag="", blocks=99, nbytes=6 * MIB),
)
TALLY = ScopeStatistics(
    live=70 * MIB,
    peak_live=90 * MIB,
    peak_used=96 * MIB,
    peak_reserved=100 * MIB,
    tags={
        "main.a_rather_long_name_of_a_variable float32[n, 4096, 4096]": TagCount(
            allocs=10, allocated=300 * MIB, frees=9, freed=270 * MIB, left=30 * MIB, peak=60 * MIB
        ),
        "": TagCount(allocs=1000, allocated=10 * MIB, frees=1001, freed=11 * MIB, left=0, peak=MIB),
    },
)
USE = PoolDocument(limit=128 * MIB, statistics=NOW, held=HELD, counted=TALLY)


def test_text(golden: Callable[[str, str], None]) -> None:
    golden("pool_use.txt", use_as_text(USE))


def test_many_tags_are_cut() -> None:
    held = tuple(Holding(tag=f"t{i}", blocks=1, nbytes=100 - i) for i in range(30))
    assert "… and 10 more tags" in use_as_text(
        PoolDocument(limit=None, statistics=NOW, held=held, counted=None)
    )


def test_json() -> None:
    document = json.loads(as_json(USE))
    assert (document["version"], document["limit"]) == (1, 128 * MIB)
    assert document["statistics"]["peak_reserved"] == 100 * MIB
    assert document["held"][0] == {"tag": "main.weights float32[4096, 4096]", "blocks": 1, "nbytes": 64 * MIB}
    assert next(iter(document["counted"]["tags"].values()))["peak"] == 60 * MIB
    with InstrumentedPool(limit=MIB) as pool:
        assert json.loads(pool_report(pool, form="json"))["counted"] is None


def test_of_a_pool() -> None:
    with InstrumentedPool(limit=MIB) as pool:
        with statistics(pool) as counted:
            kept = pool.alloc(1000, tag="kept")
        assert "kept" in pool_report(pool, counted.figures())
        assert json.loads(pool_report(pool, form="json"))["limit"] == MIB
        with pytest.raises(ValueError, match="form is 'html'; it must be one of text, json"):
            pool_report(pool, form="html")
        pool.free(kept)


def test_a_report_over_one_pool_counts_that_pool() -> None:
    with InstrumentedPool(limit=MIB) as pool, InstrumentedPool(limit=MIB) as other:
        with statistics() as counted:
            kept, others = pool.alloc(1000, tag="kept"), other.alloc(3000, tag="others")
            assert set(json.loads(pool_report(pool, counted, form="json"))["counted"]["tags"]) == {"kept"}
        for each, tag, nbytes in ((pool, "kept", 1000), (other, "others", 3000)):
            found = json.loads(pool_report(each, counted, form="json"))["counted"]
            assert (found["peak_live"], set(found["tags"])) == (nbytes, {tag})
        assert counted.figures().peak_live >= 4000
        pool.free(kept)
        other.free(others)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20, "1.0 MiB"),
        (3 * 2**40, "3.0 TiB"),
        (2**63 - 1, "8.0 EiB"),
        (2**126, "7.4e+19 EiB"),
        (None, "-"),
    ],
)
def test_bytes(count: int | None, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("", ""),
        ("layers.0 at model.py:12", "layers.0 at model.py:12"),
        ("blocks.0.qkv at /home/me/projects/models/net.py:16", "blocks.0.qkv at …/models/net.py:16"),
        ("encoder.layers.0.attention.query at src/modeling.py:321", "encoder.layers.0.attention.query"),
        (
            "model.encoder.layers.10.self_attention.query at m.py:3",
            "….encoder.layers.10.self_attention.query",
        ),
        ("/text_model/encoder/layers.10/attention/MatMul_1", "…/encoder/layers.10/attention/MatMul_1"),
        ("/home/me/projects/of/last/year/models/net.py:16", "…/projects/of/last/year/models/net.py:16"),
    ],
)
def test_a_long_place_keeps_what_the_author_named(place: str, text: str) -> None:
    assert cut_place(place) == text and len(text) <= 40


def test_what_fits_its_width_is_not_cut() -> None:
    assert [cut("four", width) for width in (5, 4, 3)] == ["four", "four", "fo…"]
