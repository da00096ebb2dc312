"""A file with an error: a 400 with file, row and field, and nothing is stored."""

import gzip
import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.test import override_settings

from planner.models import Artifact, AuditEvent, Workload

pytestmark = pytest.mark.django_db
URL = "/api/v1/workloads/"


def request(**values):
    return json.dumps({"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [1]} | values) + "\n"


# What is wrong -> (file name, content, code, row, field).
BAD = {
    "wrong columns": ("r.csv", "key,rps\na,1\n", "wrong-columns", 1, "rate"),
    "no file content": ("r.csv", "", "empty", None, None),
    "a header alone": ("r.csv", "key,rate\n", "empty", 1, None),
    "NaN": ("r.csv", "key,rate\na,1\nb,nan\n", "not-finite", 3, "rate"),
    "infinite": ("r.csv", "key,rate\na,inf\n", "not-finite", 2, "rate"),
    "negative": ("r.csv", "key,rate\na,1\nb,-2\n", "negative", 3, "rate"),
    "no number": ("r.csv", "key,rate\na,much\n", "not-a-number", 2, "rate"),
    "duplicate keys": ("r.csv", "key,rate\na,1\nb,2\na,3\n", "duplicate-key", 4, "key"),
    "a key over 512 characters": ("r.csv", f"key,rate\n{'k' * 513},1\n", "key-too-long", 2, "key"),
    "no key": ("r.csv", "key,rate\n,1\n", "empty", 2, "key"),
    "NUL in a key": ("r.csv", "key,rate\na\0b,1\n", "not-text", 2, None),
    "NUL in a tenant": ("r.csv", "key,rate,tenant\na,1,\0\n", "not-text", 2, None),
    "bytes that are no text": ("r.csv", b"key,rate\n\xff\xfe\xfa,1\n", "not-text", 2, None),
    "gz that is not gz": ("r.csv.gz", "key,rate\na,1\n", "not-gzip", None, None),
    "gz that is cut off": ("r.csv.gz", gzip.compress(b"key,rate\na,1\n" * 99)[:-9], "corrupt-gzip", None, None),
    "unknown content": ("r.bin", "hello\n", "unknown-format", 1, None),
    "trace: NaN": ("t.jsonl", request() + request(timestamp=float("nan")), "not-finite", 2, "timestamp"),
    "trace: no field": ("t.jsonl", '{"timestamp": 0}\n', "missing-field", 1, "input_length"),
    "trace: no JSON": ("t.jsonl", request() + "{\n", "not-json", 2, None),
    "trace: NUL": ("t.jsonl", request() + "\0\n", "not-text", 2, None),
}


@pytest.mark.parametrize(("name", "content", "code", "row", "field"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_named_and_nothing_is_stored(clients, fleet, problem, name, content, code, row, field):
    events = AuditEvent.objects.count()
    file = SimpleUploadedFile(name, content if isinstance(content, bytes) else content.encode())
    answer = problem(clients.ada.post(URL, {"fleet": fleet.slug, "file": file}, format="multipart"), 400, code, "/file")
    assert answer["file"] == name
    assert answer["detail"].startswith(name)
    assert (answer.get("row"), answer.get("field")) == (row, field)
    if row is not None:
        assert f"row {row}" in answer["detail"]
    assert not Workload.objects.exists()
    assert not Artifact.objects.exists()
    assert AuditEvent.objects.count() == events


def test_a_format_that_is_not_known_is_named(clients, fleet, problem):
    body = {"fleet": fleet.slug, "file": SimpleUploadedFile("r.csv", b"key,rate\na,1\n"), "format": "excel"}
    answer = problem(clients.ada.post(URL, body, format="multipart"), 400, "unknown-format")
    assert "rates-csv" in answer["detail"]
    assert not Workload.objects.exists()


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"fleet": "none"}, "/fleet"),
        ({"file": "text, not a file"}, "/file"),
        ({"key_depth": 0}, "/key_depth"),
        ({"block_tokens": "x"}, "/block_tokens"),
        ({"name": "n" * 121}, "/name"),
        ({"measured_at": "yesterday"}, "/measured_at"),
        ({"measured_at": "0001-01-01T00:00:00+14:00"}, "/measured_at"),
    ],
)
def test_a_setting_that_cannot_be_used_is_pointed_at(clients, fleet, problem, change, pointer):
    body = {"fleet": fleet.slug, "file": SimpleUploadedFile("r.csv", b"key,rate\na,1\n"), **change}
    problem(clients.ada.post(URL, body, format="multipart"), 400, "invalid", pointer)
    assert not Workload.objects.exists()


@pytest.mark.parametrize("field", ["fleet", "name", "format", "measured_at", "strict", "key_depth"])
def test_a_NUL_in_any_field_of_the_form_is_a_400(clients, fleet, problem, field):
    body = {"fleet": fleet.slug, "file": SimpleUploadedFile("r.csv", b"key,rate\na,1\n"), field: "a\0b"}
    response = clients.ada.post(URL, body, format="multipart", headers={"Idempotency-Key": "nul"})
    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    "name", ["a\0b.csv", "../../etc/passwd.csv", "n" * 400 + ".csv", "ключ.csv", "..csv", "\u202e.csv"]
)
def test_a_weird_file_name_is_stored_as_text_or_refused(clients, fleet, name):
    boundary, content = "x", b"key,rate\na,1\n"
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="fleet"\r\n\r\n{fleet.slug}\r\n--{boundary}\r\n'
    head += f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
    response = clients.ada.generic("POST", URL, body, content_type=f"multipart/form-data; boundary={boundary}")
    assert response.status_code in (201, 400), response.content
    if response.status_code == 201:
        assert "/" not in response.json()["source_name"]


@pytest.mark.parametrize("disposition", ["filename*=nonsense''x", "filename*=utf-8''%00", "filename*=utf-8''%ff"])
def test_a_file_name_in_an_unknown_encoding_is_no_500(clients, fleet, disposition):
    body = f'--x\r\nContent-Disposition: form-data; name="file"; {disposition}\r\n\r\nkey,rate\na,1\r\n--x--\r\n'
    response = clients.ada.generic("POST", URL, body, content_type="multipart/form-data; boundary=x")
    assert response.status_code == 400, response.content


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=é", "multipart/form-data; boundary=x"]
)
def test_a_broken_form_is_a_400(clients, fleet, kind):
    response = clients.ada.generic("POST", URL, b"--y\r\nnonsense", content_type=kind)
    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"


@override_settings(UPLOAD_MAX_BYTES=1000)
@pytest.mark.parametrize("size", [1001, 3_000_000])
def test_a_file_over_the_limit_is_refused(clients, cast, fleet, problem, size):
    for client in (clients.ada, clients.token(cast.ada)):
        body = {"fleet": fleet.slug, "file": SimpleUploadedFile("r.csv", b"x" * size)}
        problem(client.post(URL, body, format="multipart"), 400, "invalid", "/file")
    assert not Workload.objects.exists()


@override_settings(UPLOAD_MAX_BYTES=1000)
def test_a_file_of_exactly_the_limit_is_taken(clients, fleet):
    content = b"key,rate\n" + b"a" * 400 + b",1\n" + b"b" * 400 + b",1\n"
    content += b"c" * (1000 - len(content) - 3) + b",1\n"
    assert len(content) == 1000
    body = {"fleet": fleet.slug, "file": SimpleUploadedFile("r.csv", content)}
    assert clients.ada.post(URL, body, format="multipart").status_code == 201


class Watched(TemporaryFileUploadHandler):
    """Keeps what it opened, so that nothing is closed by being collected."""

    opened = []

    def new_file(self, *args, **kwargs):
        super().new_file(*args, **kwargs)
        self.opened.append(self.file)


def _upload(form, end=b"--x--\r\n"):
    parts = [f'--x\r\nContent-Disposition: form-data; name="{name}"{rest}\r\n\r\n{value}' for name, rest, value in form]
    return "\r\n".join(parts).encode() + b"\r\n" + end


FILE = ("file", '; filename="r.csv"', "key,rate\na,1\n")
REFUSED = {
    "an unknown fleet": ("ada", _upload([("fleet", "", "nowhere"), FILE])),
    "an unknown field": ("ada", _upload([("fleet", "", "alpha"), FILE, ("stray", "", "1")])),
    "a file that cannot be imported": (
        "ada",
        _upload([("fleet", "", "alpha"), ("file", FILE[1], "key,rate\na,nan\n")]),
    ),
    "a file too many": ("ada", _upload([FILE, ("other", FILE[1], "x")])),
    "somebody who may not": ("vera", _upload([("fleet", "", "alpha"), FILE])),
    "a file over the limit": ("ada", _upload([("fleet", "", "alpha"), ("file", FILE[1], "x" * 200_000)])),
    "a form that breaks off": ("ada", _upload([FILE, ("file", FILE[1], "y" * 3_000)], end=b"")),
    "fields beyond the most": ("ada", _upload([FILE] + [(f"f{n}", "", "1") for n in range(60)])),
}


@pytest.mark.parametrize(("person", "body"), REFUSED.values(), ids=REFUSED)
def test_no_file_of_a_refused_upload_stays_open(clients, fleet, person, body):
    Watched.opened.clear()
    handlers = ["planner.web.core.uploads.BoundedUploadHandler", f"{__name__}.Watched"]
    with override_settings(FILE_UPLOAD_HANDLERS=handlers, UPLOAD_MAX_BYTES=100_000, DATA_UPLOAD_MAX_NUMBER_FIELDS=50):
        response = getattr(clients, person).generic("POST", URL, body, content_type="multipart/form-data; boundary=x")
    assert 400 <= response.status_code < 500, response.content
    if person == "ada":
        assert Watched.opened
    assert all(file.closed for file in Watched.opened)
