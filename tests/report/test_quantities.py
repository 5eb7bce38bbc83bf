from __future__ import annotations

import pytest

from symalloc.report.quantities import cut_place, human_bytes


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
            "text_model.encoder.layers.10.self_attention.query at m.py:3",
            "….encoder.layers.10.self_attention.query",
        ),
        ("/text_model/encoder/layers.10/attention/MatMul_1", "…/encoder/layers.10/attention/MatMul_1"),
        ("/home/me/projects/of/last/year/models/net.py:16", "…/projects/of/last/year/models/net.py:16"),
    ],
)
def test_a_long_place_keeps_what_the_author_named(place: str, text: str) -> None:
    assert cut_place(place) == text and len(text) <= 40
