"""Mooncake traces: keys from leading blocks, rates from the window, faults and repairs."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.ingest import read_workload
from tests.ingest.support import OWN, problem_of, read_bytes, real, request
from tests.speed import usual_seconds


def codes(workload):
    return {notice.code: notice for notice in workload.notices}


def two(**changes):
    """Two sound requests, the second with changes: its row is 2."""
    return request(0, ids=[1]) + request(**({"timestamp": 1000, "ids": [2]} | changes))


def test_own_small_file():
    workload = read_workload(OWN / "mooncake.jsonl")
    trace = workload.trace
    assert workload.format == "mooncake"
    assert workload.key_names == ["b0-b1", "b0-b3", "b5"]
    assert trace.key_names == workload.key_names
    assert trace.key.tolist() == [0, 1, 0, 2, 1]
    assert trace.arrival_s.tolist() == [0.0, 0.0, 1.5, 2.0, 4.0]
    assert trace.prompt_tokens.tolist() == [1100, 600, 1700, 300, 1100]
    assert trace.output_tokens.tolist() == [20, 5, 31, 7, 12]
    assert trace.blocks.offsets.tolist() == [0, 3, 5, 9, 10, 13]
    assert trace.blocks.ids.tolist() == [0, 1, 2, 0, 3, 0, 1, 2, 4, 5, 0, 3, 6]
    assert trace.block_tokens == 512
    assert (workload.window_s, workload.requests, workload.rows) == (4.0, 5, 5)
    assert workload.rates.tolist() == [0.5, 0.5, 0.25]
    assert workload.notices == []
    assert workload.parameters == {"key_depth": 2, "block_tokens": 512, "strict": False, "origin_ms": 0.0}
    json.dumps(workload.parameters)


def test_gzip_gives_the_same_workload():
    content = (OWN / "mooncake.jsonl").read_bytes()
    plain, packed = read_bytes(content), read_bytes(gzip.compress(content), name="m.jsonl.gz")
    assert packed.key_names == plain.key_names
    assert packed.rates.tolist() == plain.rates.tolist()


@pytest.mark.parametrize(
    ("depth", "names"), [(1, ["b0", "b5"]), (3, ["b0-b1-b2", "b0-b3", "b5", "b0-b3-b6"]), (9, None)]
)
def test_key_depth_joins_that_many_blocks_and_short_prompts_use_all_they_have(depth, names):
    workload = read_workload(OWN / "mooncake.jsonl", key_depth=depth)
    assert workload.key_names == (names or ["b0-b1-b2", "b0-b3", "b0-b1-b2-b4", "b5", "b0-b3-b6"])
    assert workload.rates.sum() == pytest.approx(5 / 4.0)


def test_arrivals_count_from_the_first_timestamp():
    workload = read_bytes((request(1_700_000_000_500) + request(1_700_000_002_000, ids=[2])).encode())
    assert workload.trace.arrival_s.tolist() == [0.0, 1.5]
    assert workload.parameters["origin_ms"] == 1_700_000_000_500
    assert workload.window_s == 1.5


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"timestamp": -250}, "negative", "timestamp"),
        ({"timestamp": float("nan")}, "not-finite", "timestamp"),
        ({"timestamp": float("-inf")}, "not-finite", "timestamp"),
        ({"timestamp": "604452"}, "not-a-number", "timestamp"),
        ({"timestamp": None}, "not-a-number", "timestamp"),
        ({"timestamp": True}, "not-a-number", "timestamp"),
        ({"timestamp": 10**400}, "too-large", "timestamp"),
        ({"prompt": "512"}, "not-a-number", "input_length"),
        ({"prompt": 512.0}, "not-whole", "input_length"),
        ({"prompt": float("inf")}, "not-finite", "input_length"),
        ({"prompt": -1}, "negative", "input_length"),
        ({"prompt": 0, "ids": []}, "zero-length", "input_length"),
        ({"prompt": 2**31}, "too-large", "input_length"),
        ({"output": 1.5}, "not-whole", "output_length"),
        ({"output": -3}, "negative", "output_length"),
        ({"output": 10**30}, "too-large", "output_length"),
        ({"output": [1]}, "not-a-number", "output_length"),
        ({"ids": [2, 3]}, "does-not-tile", "hash_ids"),
        ({"ids": []}, "does-not-tile", "hash_ids"),
        ({"prompt": 513}, "does-not-tile", "hash_ids"),
        ({"ids": 2}, "not-whole", "hash_ids"),
        ({"ids": ["2"]}, "not-whole", "hash_ids"),
        ({"ids": [2.0]}, "not-whole", "hash_ids"),
        ({"ids": [True]}, "not-whole", "hash_ids"),
        ({"ids": [float("nan")]}, "not-finite", "hash_ids"),
        ({"ids": [-2]}, "negative", "hash_ids"),
        ({"ids": [2**63]}, "too-large", "hash_ids"),
        ({"note": {"deep": [float("nan")]}}, "not-finite", "note"),
    ],
)
def test_bad_value_names_row_and_field(changes, code, field):
    problem = problem_of(two(**changes), name="trace.jsonl")
    assert (problem.code, problem.row, problem.field) == (code, 2, field)
    assert problem.value is not None


def test_timestamp_too_large_for_json_numbers_is_not_finite():
    problem = problem_of(two().replace("1000", "1e999"))
    assert (problem.code, problem.row, problem.field) == ("not-finite", 2, "timestamp")


@pytest.mark.parametrize("field", ["timestamp", "input_length", "output_length", "hash_ids"])
def test_missing_field_is_named(field):
    record = json.loads(request(5))
    del record[field]
    problem = problem_of(request() + json.dumps(record) + "\n")
    assert (problem.code, problem.row, problem.field) == ("missing-field", 2, field)


@pytest.mark.parametrize(
    "line", ["{", "[1]", "7", "null", '{"timestamp": 1,}', "not json", "[" * 100_000, '{"a": ' + "9" * 5000 + "}"]
)
def test_line_that_is_not_a_json_object_is_a_problem(line):
    problem = problem_of(request() + line + "\n")
    assert (problem.code, problem.row) == ("not-json", 2)
    assert len(problem.value) <= 80


def test_field_given_twice_is_a_problem():
    problem = problem_of(request() + '{"timestamp": 1, "timestamp": 2}\n')
    assert (problem.code, problem.row, problem.field) == ("repeated-field", 2, "timestamp")


def test_rows_are_lines_even_after_blank_ones():
    content = request() + "\n  \n" + request(5, ids=[2]) + request(-1)
    assert problem_of(content).row == 5
    workload = read_bytes((request() + "\n  \n" + request(5, ids=[2])).encode())
    notice = codes(workload)["blank-lines"]
    assert (notice.count, notice.first_row, workload.rows) == (2, 2, 2)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_no_requests_is_a_problem(content):
    assert problem_of(content, format="mooncake").code == "empty"


def test_block_size_is_a_parameter():
    content = request(0, 20, ids=[0, 1]) + request(9, 16, ids=[0])
    problem = problem_of(content)
    assert problem.code == "does-not-tile"
    assert "block_tokens" in problem.message
    assert read_bytes(content.encode(), block_tokens=16).trace.block_tokens == 16


def test_unsorted_arrivals_are_sorted_stably_and_counted():
    content = (
        request(2000, 600, 1, [4, 5])
        + request(1000, 512, 2, [1])
        + request(1000, 512, 3, [2])
        + request(0, 512, 4, [3])
    )
    workload = read_bytes(content.encode(), key_depth=1)
    trace = workload.trace
    assert trace.arrival_s.tolist() == [0.0, 1.0, 1.0, 2.0]
    assert trace.output_tokens.tolist() == [4, 2, 3, 1]
    assert trace.blocks.ids.tolist() == [3, 1, 2, 4, 5]
    assert trace.blocks.offsets.tolist() == [0, 1, 2, 3, 5]
    assert [workload.key_names[k] for k in trace.key] == ["b3", "b1", "b2", "b4"]
    notice = codes(workload)["unsorted"]
    assert (notice.count, notice.first_row) == (2, 2)
    problem = problem_of(content, strict=True)
    assert (problem.code, problem.row, problem.field) == ("unsorted", 2, "timestamp")


def test_zero_output_counts_as_one_token_and_is_a_problem_when_strict():
    content = two(output=0)
    workload = read_bytes(content.encode())
    assert workload.trace.output_tokens.tolist() == [5, 1]
    assert (codes(workload)["zero-output"].count, codes(workload)["zero-output"].first_row) == (1, 2)
    problem = problem_of(content, strict=True)
    assert (problem.code, problem.row, problem.field) == ("zero-output", 2, "output_length")


def test_equal_rows_are_kept_and_counted():
    content = request(0) + request(5, ids=[2]) + request(0).replace("\n", "\r\n") + request(5, ids=[2]) + request(5)
    workload = read_bytes(content.encode())
    assert workload.requests == 5
    assert (codes(workload)["duplicate-rows"].count, codes(workload)["duplicate-rows"].first_row) == (2, 3)


def test_unknown_fields_are_counted():
    notice = codes(read_bytes(two(chat_id=7).encode()))["extra-fields"]
    assert (notice.count, notice.first_row) == (1, 2)
    assert "chat_id" in notice.message


@pytest.mark.parametrize("far", [0, 10**15])
def test_block_after_different_blocks_is_a_notice(far):
    chained = request(0, 1024, ids=[far + 1, far + 2]) + request(9, 1024, ids=[far + 1, far + 3])
    assert "not-chained" not in codes(read_bytes(chained.encode()))
    broken = chained + request(10, 1024, ids=[far + 4, far + 2])
    notice = codes(read_bytes(broken.encode()))["not-chained"]
    assert (notice.count, notice.first_row) == (1, 1)


@pytest.mark.parametrize("count", [1, 3])
def test_one_instant_gives_no_rate(count):
    problem = problem_of(request(77) * count)
    assert (problem.code, problem.field) == ("zero-window", "timestamp")


def test_key_of_over_half_the_requests_is_a_notice_with_a_larger_depth():
    content = request(0, 1024, ids=[1, 2]) * 2 + request(9, 1024, ids=[1, 3]) + request(9, ids=[4])
    notice = codes(read_bytes(content.encode(), key_depth=1))["one-key-dominates"]
    assert notice.count == 3
    for part in ("b1,", "75.0%", "2 or more"):
        assert part in notice.message
    assert "one-key-dominates" not in codes(read_bytes(content.encode(), key_depth=2))  # exactly half


def test_limits_name_the_row():
    content = request(0) + request(1, ids=[2]) + request(2, ids=[3])
    for limit, code in (
        ("max_keys", "too-many-keys"),
        ("max_requests", "too-many-requests"),
        ("max_blocks", "too-many-blocks"),
    ):
        assert read_bytes(content.encode(), **{limit: 3}).requests == 3
        problem = problem_of(content, **{limit: 2})
        assert (problem.code, problem.row) == (code, 3)


def test_key_name_beyond_512_characters_is_a_problem():
    ids = list(range(10**6, 10**6 + 80))
    content = request(0, 512 * 80, ids=ids) + request(1)
    assert read_bytes(content.encode(), key_depth=50).rows == 2
    assert problem_of(content, key_depth=80).code == "key-too-long"


requests_drawn = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(1, 4000), st.integers(1, 99), st.integers(0, 5)),
    min_size=2,
    max_size=30,
).filter(lambda rows: len({row[0] for row in rows}) > 1)


@given(rows=requests_drawn, depth=st.integers(1, 4))
def test_requests_are_read_as_written_in_order_of_arrival(rows, depth):
    def ids(prompt, key):  # chained: position and key decide the id
        return [key * 100 + position for position in range(-(-prompt // 512))]

    content = "".join(request(stamp, prompt, output, ids(prompt, key)) for stamp, prompt, output, key in rows)
    workload = read_bytes(content.encode(), key_depth=depth)
    trace, rows = workload.trace, sorted(rows, key=lambda row: row[0])
    assert trace.prompt_tokens.tolist() == [row[1] for row in rows]
    assert trace.output_tokens.tolist() == [row[2] for row in rows]
    for at, (_, prompt, _, key) in enumerate(rows):
        own = trace.blocks.ids[trace.blocks.offsets[at] : trace.blocks.offsets[at + 1]].tolist()
        assert own == ids(prompt, key)
        assert workload.key_names[trace.key[at]] == "-".join(f"b{block}" for block in own[:depth])
    assert np.allclose(workload.rates * workload.window_s, np.bincount(trace.key))
    assert "not-chained" not in codes(workload)


@pytest.mark.parametrize(("depth", "keys"), [(1, 1), (2, 7_373)])
def test_conversation_trace(depth, keys):
    file = real("mooncake/conversation_trace.jsonl.gz")
    read = []
    assert usual_seconds(lambda: read.append(read_workload(file, key_depth=depth)), times=1) < 3.0
    (workload,) = read
    assert (workload.requests, len(workload.key_names)) == (12_031, keys)
    assert round(int(workload.trace.prompt_tokens.sum()) / 1e6, 1) == 144.8
    assert workload.requests / workload.window_s == pytest.approx(3.40, abs=0.005)
    expected = {"duplicate-rows"} | ({"one-key-dominates"} if depth == 1 else set())
    assert set(codes(workload)) == expected


def test_synthetic_trace_of_the_same_release():
    workload = read_workload(real("mooncake/synthetic_trace.jsonl.gz"), key_depth=1)
    assert (workload.requests, len(workload.key_names), workload.notices) == (3_993, 2_211, [])


def test_field_names_from_the_file_are_safe_to_store_and_send():
    problem = problem_of(request() + '{"a\\u0000\\ud800": NaN}\n')
    assert (problem.code, problem.row, problem.field) == ("not-finite", 2, "a\\x00\\ud800")
    notices = codes(read_bytes(two().replace("{", '{"\\ud800\\u0000": 1, ').encode()))
    assert "\0" not in notices["extra-fields"].message
    assert notices["extra-fields"].message.encode()
