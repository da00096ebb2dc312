"""A measured sweep: every fault named by file, row and field; every repair counted."""

from __future__ import annotations

import gzip
import io

import pytest

from planner.ingest import ImportProblem
from planner.ingest.sweep_csv import read_sweep

PLAIN = "load_rps,p50_s,p99_s\n1,0.5,1.0\n2,0.6,1.5\n4,0.9,6\n"


def read(content, **options):
    content = content if isinstance(content, bytes) else content.encode()
    return read_sweep(io.BytesIO(content), "sweep.csv", **options)


def codes(sweep):
    return {notice.code: notice.count for notice in sweep.notices}


def test_points_are_read_by_name_of_column():
    sweep = read(PLAIN)
    assert sweep.points == [
        {"load_rps": 1.0, "p50_s": 0.5, "p99_s": 1.0},
        {"load_rps": 2.0, "p50_s": 0.6, "p99_s": 1.5},
        {"load_rps": 4.0, "p50_s": 0.9, "p99_s": 6.0},
    ]
    assert (sweep.warm_points, sweep.notices) == ([], [])
    assert (sweep.source_name, sweep.source_bytes) == ("sweep.csv", len(PLAIN))


def test_all_optional_columns_in_any_order_and_case():
    header = (
        "P99_s, load_rps ,p95_s,p50_s,ttft_p99_s,hit_rate,requests,busy_share,"
        "prefill_tokens,decodes,context_tokens,iteration_s"
    )
    [point] = read(f"{header}\n3,2,2,1,0.5,0.8,1000,1,512.5,12,90000,0.02\n").points
    assert point == {
        "load_rps": 2.0, "p50_s": 1.0, "p95_s": 2.0, "p99_s": 3.0, "ttft_p99_s": 0.5, "hit_rate": 0.8,
        "requests": 1000.0, "busy_share": 1.0, "prefill_tokens": 512.5, "decodes": 12.0, "context_tokens": 90000.0,
        "iteration_s": 0.02,
    }  # fmt: skip


def test_trials_of_w_share_rows_with_loads_or_have_their_own():
    sweep = read("load_rps,p99_s,prefixes,kept_share\n1,1,100,1\n2,2,200,.97\n,,400,0.2\n3,3,,\n")
    assert [p["load_rps"] for p in sweep.points] == [1, 2, 3]
    assert sweep.warm_points == [
        {"prefixes": 100, "kept_share": 1}, {"prefixes": 200, "kept_share": 0.97}, {"prefixes": 400, "kept_share": 0.2},
    ]  # fmt: skip
    assert codes(sweep) == {}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("﻿" + PLAIN, {"byte-order-mark": 1}),
        (PLAIN.encode("utf-16"), {"utf-16": 1}),
        (PLAIN.replace(",", ";"), {"delimiter": 1}),
        (PLAIN.replace(",", "\t"), {"delimiter": 1}),
        (PLAIN.replace("\n", "\r\n"), {}),
        (gzip.compress(PLAIN.encode(), mtime=0), {}),
        (PLAIN.replace("\n2", "\n\n,,\n2"), {"blank-lines": 2}),
        (PLAIN.replace("p50_s", "colour"), {"extra-columns": 1}),
        ("load_rps,p50_s,p99_s\n4,0.9,6\n1,0.5,1.0\n2,0.6,1.5\n", {"unsorted-rows": 3}),
        ("load_rps,p50_s,p99_s\n2,0.6,1.5\n1,0.5,1.0\n4,0.9,6\n", {"unsorted-rows": 2}),
    ],
)
def test_repairs_are_counted(content, expected):
    sweep = read(content)
    assert codes(sweep) == expected
    assert [(p["load_rps"], p["p99_s"]) for p in sweep.points] == [(1, 1), (2, 1.5), (4, 6)]


def test_empty_optional_cells_are_not_measured_and_counted():
    sweep = read("load_rps,p50_s,p99_s\n1,,1\n2,1,2\n")
    assert "p50_s" not in sweep.points[0]
    assert codes(sweep) == {"empty-cells": 1}


def test_strict_import_allows_no_repair():
    with pytest.raises(ImportProblem, match="A strict import allows no repair") as caught:
        read("load_rps,p99_s\n2,1\n1,1\n", strict=True)
    assert (caught.value.code, caught.value.row, caught.value.field) == ("unsorted-rows", 2, "load_rps")


@pytest.mark.parametrize(
    ("content", "code", "row", "field"),
    [
        ("", "empty", None, None),
        ("load_rps,p99_s\n", "empty", 1, "load_rps"),
        ("load_rps,p99\n1,1\n", "wrong-columns", 1, "p99_s"),
        ("load_rps,p99_s,p99_s\n1,1,1\n", "wrong-columns", 1, "p99_s"),
        ("load_rps,p99_s,prefixes\n1,1,1\n", "wrong-columns", 1, "kept_share"),
        ("load_rps,p99_s,decodes\n1,1,1\n", "wrong-columns", 1, "prefill_tokens"),
        ("load_rps,p99_s\n1,1\n2\n", "wrong-row-width", 3, None),
        ('load_rps,p99_s\n1,"1\n', "bad-csv", 2, None),
        ("load_rps,p99_s\n1,fast\n", "not-a-number", 2, "p99_s"),
        ("load_rps,p99_s\n1_0,1\n", "not-a-number", 2, "load_rps"),
        ("load_rps;p99_s\n1;1,5\n", "not-a-number", 2, "p99_s"),
        ("load_rps,p99_s\n1,1\n2,NaN\n", "not-finite", 3, "p99_s"),
        ("load_rps,p99_s\ninf,1\n", "not-finite", 2, "load_rps"),
        ("load_rps,p99_s\n1,-1\n", "negative", 2, "p99_s"),
        ("load_rps,p99_s\n0,1\n", "zero", 2, "load_rps"),
        ("load_rps,p99_s\n1e-9,1\n", "zero", 2, "load_rps"),
        ("load_rps,p99_s\n1e9,1\n", "too-large", 2, "load_rps"),
        ("load_rps,p99_s,hit_rate\n1,1,80\n", "too-large", 2, "hit_rate"),
        ("load_rps,p99_s,requests\n1,1,2.5\n", "not-whole", 2, "requests"),
        ("load_rps,p99_s\n1,1\n1.0,2\n", "duplicate-load", 3, "load_rps"),
        ("load_rps,p99_s,prefixes,kept_share\n1,1,5,1\n2,2,5,1\n", "duplicate-trial", 3, "prefixes"),
        ("load_rps,p99_s,prefixes,kept_share\n1,1,5,\n", "incomplete", 2, "kept_share"),
        ("load_rps,p99_s,prefixes,kept_share\n,,5,1\n", "empty", 1, "load_rps"),
        ("load_rps,p99_s\n1,\n", "incomplete", 2, "p99_s"),
        ("load_rps,p99_s,p50_s\n,,3\n", "incomplete", 2, "load_rps"),
        ("load_rps,p50_s,p99_s\n1,2,1\n", "percentiles-fall", 2, "p99_s"),
        ("load_rps,p95_s,p50_s,p99_s\n1,1,2,3\n", "percentiles-fall", 2, "p95_s"),
        (
            "load_rps,p99_s,prefill_tokens,decodes,context_tokens,iteration_s\n1,1,5,5,5,\n",
            "incomplete", 2, "iteration_s",
        ),
        ("load_rps,p99_s\n" + "".join(f"{n},1\n" for n in range(1, 1002)), "too-many-rows", 1002, None),
        (b"PK\x03\x04 and the rest", "not-text", 1, None),
    ],
)  # fmt: skip
def test_faults_name_file_row_and_field(content, code, row, field):
    with pytest.raises(ImportProblem) as caught:
        read(content)
    found = caught.value
    assert (found.code, found.file, found.row, found.field) == (code, "sweep.csv", row, field), str(found)
