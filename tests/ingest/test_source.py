"""Opening files: compression, encodings, limits."""

import codecs
import gzip
import hashlib
import io
import pickle

import pytest

from planner.ingest import ImportProblem, open_text, read_workload
from planner.ingest import source as source_module
from tests.ingest.support import OWN, problem_of, read_bytes

TABLE = b"key,rate\na,1\nb,1\n"


def codes(workload):
    return [notice.code for notice in workload.notices]


def test_path_and_file_object_give_the_same_lines_digest_and_length():
    content = (OWN / "rates.csv").read_bytes()
    for file in (OWN / "rates.csv", str(OWN / "rates.csv"), io.BytesIO(content)):
        with open_text(file) as source:
            lines = list(source)
        assert "".join(lines) == content.decode()
        assert source.sha256 == hashlib.sha256(content).hexdigest()
        assert source.length == len(content)


def test_file_object_is_left_open():
    file = io.BytesIO(TABLE)
    with open_text(file, "x") as source:
        assert len(list(source)) == 3
    assert not file.closed


def test_first_line_is_seen_without_being_consumed_and_skips_blank_lines():
    with open_text(io.BytesIO(b"\n  \nkey,rate\nx\n"), "x") as source:
        assert source.first_line() == "key,rate\n"
        assert list(source) == ["\n", "  \n", "key,rate\n", "x\n"]


def test_only_newline_ends_a_line():
    text = "a\u2028b\x0cc\r\nd"
    with open_text(io.BytesIO(text.encode()), "x") as source:
        assert list(source) == ["a\u2028b\x0cc\r\n", "d"]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_characters_split_between_chunks_survive(monkeypatch, chunk, encoding):
    monkeypatch.setattr(source_module, "_CHUNK", max(chunk, 3))  # a byte order mark must fit the first chunk
    text = "é𝄞,ü\n漢字,1\n"
    with open_text(io.BytesIO(text.encode(encoding)), "x") as source:
        assert "".join(source) == text


def test_gzip_is_detected_from_its_content_not_its_name():
    workload = read_bytes(gzip.compress(TABLE), name="table.csv")
    assert workload.key_names == ["a", "b"]


def test_digest_of_a_gzip_file_is_of_the_compressed_bytes():
    content = gzip.compress(TABLE, mtime=0)
    workload = read_bytes(content, name="table.csv.gz")
    assert workload.source_sha256 == hashlib.sha256(content).hexdigest()
    assert workload.source_bytes == len(content)


def test_gzip_of_several_members_is_read_whole():
    workload = read_bytes(gzip.compress(b"key,rate\na,1\n") + gzip.compress(b"b,2\n"))
    assert workload.rates.tolist() == [1.0, 2.0]


def test_gz_name_over_plain_content_is_a_problem():
    problem = problem_of(TABLE, name="table.csv.gz")
    assert (problem.code, problem.row) == ("not-gzip", None)


def test_empty_gz_name_counts_as_empty():
    assert problem_of(b"", name="table.csv.gz").code == "empty"


@pytest.mark.parametrize("keep", [3, 12, -9, -4])
def test_truncated_gzip_is_a_problem(keep):
    problem = problem_of(gzip.compress(TABLE)[:keep], name="t.csv.gz", format="rates-csv")
    assert problem.code == "corrupt-gzip"
    assert "cut off" in problem.message


def test_truncated_gzip_is_a_problem_after_all_rows_were_read():
    rows = b"key,rate\n" + b"".join(b"k%d,1\n" % i for i in range(200_000))
    assert problem_of(gzip.compress(rows, 1)[:-2], format="rates-csv").code == "corrupt-gzip"


def test_damaged_gzip_is_a_problem():
    content = bytearray(gzip.compress(b"key,rate\n" + b"".join(b"k%d,1\n" % i for i in range(999)), mtime=0))
    content[len(content) // 2] ^= 0xFF
    assert problem_of(bytes(content)).code == "corrupt-gzip"


def test_garbage_after_gzip_is_a_problem():
    assert problem_of(gzip.compress(TABLE) + b"garbage").code == "corrupt-gzip"


@pytest.mark.parametrize("head", [b"", b"key,rate\na,1\n"])
def test_compressed_blank_lines_are_refused_early(head):
    problem = problem_of(gzip.compress(head + b"\n" * 50_000_000))
    assert problem.code in ("blank-lines", "empty")


def test_long_blank_lines_at_the_front_are_not_kept():
    problem = problem_of(gzip.compress((b" " * 10_000_000 + b"\n") * 20))
    assert problem.code == "empty"


def test_gzip_bomb_stops_at_the_limit():
    bomb = gzip.compress(b"key,rate\n" + b"".join(b" \n" * 5_000 + b"k%d,1\n" % i for i in range(2_000)))
    assert len(bomb) < 100_000
    problem = problem_of(bomb, max_bytes=2_000_000)
    assert problem.code == "too-large"
    assert "2,000,000" in problem.message
    assert "decompressed" in problem.message


def test_limit_counts_plain_bytes_and_is_inclusive():
    assert problem_of(TABLE, max_bytes=len(TABLE) - 1).code == "too-large"
    assert read_bytes(TABLE, max_bytes=len(TABLE)).rows == 2


def test_utf8_byte_order_mark_is_removed_and_counted():
    workload = read_bytes(codecs.BOM_UTF8 + TABLE)
    assert workload.key_names == ["a", "b"]
    assert [(n.code, n.count, n.first_row) for n in workload.notices] == [("byte-order-mark", 1, 1)]


@pytest.mark.parametrize(("bom", "encoding"), [(codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")])
def test_utf16_with_its_mark_is_converted_and_counted(bom, encoding):
    workload = read_bytes(bom + "key,rate\nürgröße𝄞,1.5\nb,1.5\n".encode(encoding))
    assert workload.key_names == ["ürgröße𝄞", "b"]
    assert codes(workload) == ["utf-16"]


def test_utf16_cut_in_the_middle_of_a_character_is_a_problem():
    problem = problem_of(codecs.BOM_UTF16_LE + "key,rate\na,1\nb,2".encode("utf-16-le")[:-1])
    assert (problem.code, problem.row) == ("not-text", 3)


@pytest.mark.parametrize(
    "content",
    [
        "key,rate\na,1\n".encode("utf-16-le"),  # no mark: every second byte is NUL
        "key,rate\na,1\n".encode("utf-32"),
        b"key,rate\nb\x00,1\n",
        b"PK\x03\x04rest",
        b"PAR1rest",
        gzip.compress(gzip.compress(TABLE, mtime=0), mtime=0),
    ],
)
def test_binary_content_is_a_problem(content):
    assert problem_of(content).code == "not-text"


def test_nul_and_undecodable_bytes_name_their_row():
    assert problem_of(b"key,rate\na,1\nb\x00,1\n").row == 3
    problem = problem_of(b"key,rate\na,1\nb,2\ncaf\xe9,1\n")
    assert (problem.code, problem.row) == ("not-text", 4)
    assert "xe9" in problem.value


def test_row_of_undecodable_bytes_is_right_far_into_a_file():
    rows = b"key,rate\n" + b"".join(b"k%d,1\n" % i for i in range(300_000))
    assert problem_of(rows + b"\xff,1\n").row == 300_002


def test_over_long_line_is_a_problem(monkeypatch):
    monkeypatch.setattr(source_module, "MAX_LINE_CHARS", 1_000)
    problem = problem_of(b"key,rate\nx,1\n" + b"y" * 1_001 + b",1\n", format="rates-csv")
    assert (problem.code, problem.row) == ("line-too-long", 3)
    assert len(problem.value) == 80


def test_over_long_line_without_an_end_does_not_fill_memory():
    with open_text(io.BytesIO(b"x" * (20 * 2**20)), "x") as source, pytest.raises(ImportProblem) as caught:
        list(source)
    assert (caught.value.code, caught.value.row) == ("line-too-long", 1)


def test_missing_file_and_folder_are_problems(tmp_path):
    for path in (tmp_path / "absent.csv", tmp_path):
        with pytest.raises(ImportProblem) as caught, open_text(path):
            pass
        assert caught.value.code == "cannot-read"


def test_text_mode_file_is_a_programming_error():
    with pytest.raises(TypeError, match="binary"), open_text(io.StringIO("key,rate\n")):
        pass


class Trickle(io.BytesIO):
    """Gives one byte at a time, as a slow pipe may."""

    def read(self, size=-1):
        return super().read(min(size, 1))


def test_file_that_gives_a_byte_at_a_time_is_read_the_same():
    for content in (codecs.BOM_UTF8 + TABLE, gzip.compress(TABLE)):
        assert read_workload(Trickle(content)).key_names == ["a", "b"]


def test_problem_survives_pickling():
    problem = problem_of(b"key,rate\na,-1\n")
    again = pickle.loads(pickle.dumps(problem))
    assert str(again) == str(problem)
    assert again.as_dict() == problem.as_dict()
    assert again.as_dict()["row"] == 2
