"""rates-csv: reading, refusals and repairs."""

import csv
import io

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.ingest import read_workload
from tests.ingest.support import OWN, problem_of, read_bytes
from tests.speed import usual_seconds


def test_own_small_file():
    workload = read_workload(OWN / "rates.csv")
    assert workload.format == "rates-csv"
    assert workload.key_names == ["acme/support-bot", "acme/code-review", "globex/faq, v2", "globex/retired"]
    assert workload.rates.dtype == np.float64
    assert workload.rates.tolist() == [12.5, 3.25, 0.75, 0.0]
    assert workload.tenants == ["acme", "acme", "globex", "globex"]
    assert workload.prefix_tokens.tolist() == [2048, 8192, 512, 512]
    assert (workload.trace, workload.requests, workload.window_s, workload.rows) == (None, 0, 0.0, 4)
    assert [n.code for n in workload.notices] == ["one-key-dominates"]
    assert "75.8%" in workload.notices[0].message


def test_optional_columns_absent_are_none_not_empty():
    workload = read_bytes(b"rate,key\n1,a\n1,b\n")
    assert workload.tenants is None
    assert workload.prefix_tokens is None
    assert workload.notices == []


def test_crlf_quotes_header_case_and_blank_lines():
    workload = read_bytes(b'Key , RATE\r\n"a ""1"", x",1e1\r\n\r\nb, 2 \r\n')
    assert workload.key_names == ['a "1", x', "b"]
    assert workload.rates.tolist() == [10.0, 2.0]
    assert [(n.code, n.count, n.first_row) for n in workload.notices if n.code == "blank-lines"] == [
        ("blank-lines", 1, 3)
    ]


def test_rows_after_a_key_over_several_lines_are_still_named_by_line():
    problem = problem_of('key,rate\n"two\nlines",1\nb,-1\n')
    assert (problem.code, problem.row) == ("negative", 4)
    assert problem_of('key,rate\na,1\n"two\nlines",nan\n').row == 3


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("nan", "not-finite"),
        ("-NaN", "not-finite"),
        ("inf", "not-finite"),
        ("-Infinity", "not-finite"),
        ("1e999", "not-finite"),
        ("-1", "negative"),
        ("-1e-300", "negative"),
        ("", "empty"),
        ("   ", "empty"),
        ("many", "not-a-number"),
        ("1_000", "not-a-number"),
        ("0x10", "not-a-number"),
        ('"1,5"', "not-a-number"),
        ("1.5/s", "not-a-number"),
    ],
)
def test_bad_rate_names_row_and_field(text, code):
    problem = problem_of(f"key,rate\na,1\nb,{text}\n", name="rates.csv")
    assert (problem.code, problem.row, problem.field, problem.file) == (code, 3, "rate", "rates.csv")
    assert problem.value == text.strip('"')


def test_negative_zero_is_zero():
    rates = read_bytes(b"key,rate\na,-0.0\nb,1\n").rates
    assert not np.signbit(rates).any()


def test_rates_that_overflow_together_are_a_problem():
    assert problem_of("key,rate\na,1e308\nb,1e308\n").code == "not-finite"


def test_all_rates_zero_is_a_notice():
    notices = read_bytes(b"key,rate\na,0\nb,0\n").notices
    assert [(n.code, n.count) for n in notices] == [("no-traffic", 2)]


def test_duplicate_key_names_both_rows():
    problem = problem_of("key,rate\na,1\nb,1\n\na,2\n")
    assert (problem.code, problem.row, problem.field, problem.value) == ("duplicate-key", 5, "key", "a")
    assert "row 2" in problem.message


@pytest.mark.parametrize("key", ["", "  ", '""'])
def test_empty_key_is_a_problem(key):
    problem = problem_of(f"key,rate\na,1\n{key},1\n")
    assert (problem.code, problem.row, problem.field) == ("empty", 3, "key")


def test_key_of_512_characters_passes_and_513_do_not():
    assert read_bytes(f"key,rate\n{'é' * 512},1\n".encode()).rows == 1
    problem = problem_of(f"key,rate\n{'é' * 513},1\n")
    assert (problem.code, problem.row, problem.field) == ("key-too-long", 2, "key")
    assert "513" in problem.message
    assert len(problem.value) == 80


@pytest.mark.parametrize(("content", "row"), [("", None), ("\n \n", None), ("key,rate\n", 1), ("\nkey,rate\n\n", 2)])
def test_empty_file_is_a_problem(content, row):
    problem = problem_of(content, format="rates-csv")
    assert (problem.code, problem.row) == ("empty", row)


@pytest.mark.parametrize(
    ("header", "field"),
    [("key,qps", "rate"), ("name,rate", "key"), ("a,b", "key"), ("key;rate", "key"), ("key,rate,rate", "rate")],
)
def test_wrong_columns_list_found_and_wanted(header, field):
    problem = problem_of(f"{header}\na,1\n", format="rates-csv")
    assert (problem.code, problem.row, problem.field) == ("wrong-columns", 1, field)
    assert repr(header.replace(";", ",").split(",")[1])[1:-1] in problem.message
    assert "wanted key, rate" in problem.message


def test_extra_columns_are_a_counted_notice():
    workload = read_bytes(b"region,key,rate,note\neu,a,1,x\nus,b,1,y\n")
    assert workload.key_names == ["a", "b"]
    assert [(n.code, n.count, n.first_row) for n in workload.notices] == [("extra-columns", 2, 1)]
    assert "'region', 'note'" in workload.notices[0].message


@pytest.mark.parametrize("row", ["b", "b,1,2", "b;1"])
def test_row_of_another_width_is_a_problem(row):
    problem = problem_of(f"key,rate\na,1\n{row}\n")
    assert (problem.code, problem.row) == ("wrong-row-width", 3)


@pytest.mark.parametrize(
    "content", ['key,rate\na,1\n"b,1\nc,1\n', 'key,rate\na,1\n"b"x,1\n', "key,rate\na,1\nb,1\rc,1\n"]
)
def test_broken_csv_is_a_problem(content):
    problem = problem_of(content)
    assert (problem.code, problem.row) == ("bad-csv", 3)


def test_quote_that_never_closes_stops_early():
    content = b'key,rate\n"a,1\n' + b"".join(b"k%d,1\n" % i for i in range(200_000))
    assert problem_of(content).code == "bad-csv"


def test_empty_tenant_is_a_counted_repair_and_a_problem_when_strict():
    content = b"key,rate,tenant\na,1,acme\nb,1,\nc,1, \n"
    workload = read_bytes(content)
    assert workload.tenants == ["acme", "", ""]
    assert [(n.code, n.count, n.first_row) for n in workload.notices] == [("empty-tenant", 2, 3)]
    problem = problem_of(content, strict=True)
    assert (problem.code, problem.row, problem.field) == ("empty-tenant", 3, "tenant")


def test_over_long_tenant_is_a_problem():
    problem = problem_of(f"key,rate,tenant\na,1,{'t' * 513}\n")
    assert (problem.code, problem.field) == ("key-too-long", "tenant")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"),
        ("-5", "negative"),
        ("1.5", "not-whole"),
        ("nan", "not-whole"),
        ("٣", "not-whole"),
        ("--1", "not-whole"),
        ("2147483648", "too-large"),
        ("9" * 5000, "too-large"),
    ],
)
def test_bad_prefix_tokens_name_row_and_field(text, code):
    problem = problem_of(f"key,rate,prefix_tokens\na,1,0\nb,1,{text}\n")
    assert (problem.code, problem.row, problem.field) == (code, 3, "prefix_tokens")


def test_too_many_keys_names_the_row():
    content = "key,rate\na,1\nb,1\nc,1\n"
    assert read_bytes(content.encode(), max_keys=3).rows == 3
    problem = problem_of(content, max_keys=2)
    assert (problem.code, problem.row) == ("too-many-keys", 4)


# NUL is refused as binary, lone surrogates are not text, and a blank key is refused.
keys = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40).filter(
    lambda key: not key.isspace()
)
rates = st.floats(min_value=0, max_value=1e300, allow_nan=False)


@given(table=st.dictionaries(keys, rates, min_size=1, max_size=20), end=st.sampled_from(["\n", "\r\n"]))
@example(table={'a,"b"\nc': 1.0, "d\r\ne": 2.0, "\ufeffx": 0.5, " y ": 0.1}, end="\n")
def test_any_key_and_rate_are_read_as_written(table, end):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=end, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(["key", "rate"])
    writer.writerows(table.items())
    workload = read_bytes(out.getvalue().encode())
    assert workload.key_names == list(table)
    assert workload.rates.tolist() == list(table.values())


def test_source_sized_table_takes_well_under_a_second():
    content = b"key,rate,tenant\n" + b"".join(b"k%06d,%f,t%d\n" % (i, 100 / (i + 1), i % 12) for i in range(128_824))
    read = []
    assert usual_seconds(lambda: read.append(read_bytes(content))) < 1.0
    assert len(read[-1].key_names) == 128_824
