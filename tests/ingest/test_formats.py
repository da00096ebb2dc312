"""Telling formats apart, and the kinds of broken file met in public data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.ingest import FORMATS, ImportProblem, detect_format, read_workload
from tests.ingest.support import OWN, problem_of, read_bytes, real, request


@pytest.mark.parametrize(
    ("head", "form"),
    [
        ("key,rate\n", "rates-csv"),
        ("tenant, Rate ,KEY\n", "rates-csv"),
        ("key,qps\n", "rates-csv"),
        (request(), "mooncake"),
        ('{"input_length": 1}', "mooncake"),
        ('{"timestamp": 0,', "mooncake"),
    ],
)
def test_format_is_detected_from_the_first_line(head, form):
    assert detect_format("whatever.bin", head) == form


def test_own_files_are_recognised_under_any_name():
    for file, form in (("rates.csv", "rates-csv"), ("mooncake.jsonl", "mooncake")):
        assert read_bytes((OWN / file).read_bytes(), name="upload").format == form
        assert read_workload(OWN / file, format=form).format == form


@pytest.mark.parametrize("head", ["a,b,c\n", "hello", '{"other": 1}', "[1, 2]", '"'])
def test_unknown_first_line_lists_the_known_formats(head):
    problem = problem_of(head)
    assert (problem.code, problem.row) == ("unknown-format", 1)
    assert all(name in problem.message for name in FORMATS)


@pytest.mark.parametrize("form", ["xml", "", "MOONCAKE"])
def test_unknown_format_name_lists_the_known_formats(form):
    problem = problem_of("key,rate\na,1\n", format=form)
    assert problem.code == "unknown-format"
    assert all(name in problem.message for name in FORMATS)


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_empty_file_is_empty_not_unknown(content):
    assert problem_of(content).code == "empty"


@pytest.mark.parametrize("name", ["key_depth", "block_tokens", "max_keys"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_bad_setting_is_a_value_error_that_names_it(name, value):
    with pytest.raises(ValueError, match=name):
        read_bytes(b"key,rate\na,1\n", **{name: value})


@given(content=st.binary(max_size=300), form=st.sampled_from(["auto", *FORMATS]))
def test_any_bytes_are_read_or_refused_with_a_problem(content, form):
    try:
        workload = read_bytes(content, format=form)
    except ImportProblem as problem:
        refused = problem
    else:
        assert np.isfinite(workload.rates).all()
        return
    assert refused.file == "upload.txt"
    assert len(refused.value or "") <= 80
    assert refused.message.endswith(".")


# file: (code, row, field) under `auto`. Formats with no reader here are unknown; nothing imports by accident.
MALFORMED = {
    "01_empty_and_blank_session.jsonl": ("missing-field", 1, "hash_ids"),
    "03_azure_100ns_ticks.csv": ("unknown-format", 1, None),
    "05_negative_nan_timestamp.jsonl": ("negative", 2, "timestamp"),
    "07_hash_ids_do_not_tile.jsonl": ("does-not-tile", 2, "hash_ids"),
    "09_week_wrap.jsonl": ("missing-field", 1, "hash_ids"),
    "11_bom_header.csv": ("unknown-format", 1, None),
    "13_utf16le_bom.csv": ("unknown-format", 1, None),
    "15_duplicate_request_ids.jsonl": ("missing-field", 1, "hash_ids"),
}


@pytest.mark.parametrize(("file", "expected"), MALFORMED.items())
def test_broken_files_of_public_data_are_problems(file, expected):
    path = real(f"malformed/{file}")
    with pytest.raises(ImportProblem) as caught:
        read_workload(path)
    problem = caught.value
    assert (problem.code, problem.row, problem.field) == expected
    assert str(problem).startswith(file)


@pytest.mark.parametrize("file", ["11_bom_header.csv", "13_utf16le_bom.csv"])
def test_encodings_with_a_byte_order_mark_are_read(file):
    with pytest.raises(ImportProblem) as caught:
        read_workload(real(f"malformed/{file}"), format="rates-csv")
    assert caught.value.code == "wrong-columns"
    assert "'timestamp', 'tenant'" in caught.value.message
