"""The OpenAPI document is complete, committed and matches the responses."""

import copy
import io
import json
from collections import Counter
from pathlib import Path

import pytest
import schemathesis
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.test import Client
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from cacheroute_web.wsgi import application
from planner.services.access import tokens
from tests import factories as make
from tests import scale

SNAPSHOT = Path(__file__).resolve().parents[3] / "docs" / "openapi.json"
PATHS = json.loads(SNAPSHOT.read_text())["paths"]
OPERATIONS = [(path, method) for path in PATHS for method in PATHS[path]]
EXAMPLES = scale.pick(1_000, 5_000)  # over the whole document, at least
HOW = "python manage.py spectacular --validate --fail-on-warn --format openapi-json --file docs/openapi.json"


def test_the_document_generates_without_a_warning_and_is_the_committed_one():
    out = io.StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json", stdout=out)
    assert json.loads(out.getvalue()) == json.loads(SNAPSHOT.read_text()), f"make it anew: {HOW}"


def test_the_document_and_its_browsable_form_are_served(client):
    assert client.get("/api/v1/schema/?format=json").json()["openapi"].startswith("3.")
    assert client.get("/api/v1/docs/").status_code == 200
    for query in ({"version": "x\r\ny"}, {"version": "\0"}, {"lang": "xx"}, {"format": "xml"}):
        assert client.get("/api/v1/schema/", query).status_code in (400, 404), query


@pytest.fixture
def one_connection():
    """Requests stay in the test's transaction (Django's own test client does the same)."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture(scope="module")
def raw():
    """The document as it is served, fetched once."""
    return json.loads(Client().get("/api/v1/schema/?format=json").content)


@pytest.fixture
def document(raw, one_connection, cast, fleet):
    """The document as it is served, and a console with something in it to ask about."""
    plan = make.built_plan(cast, fleet)
    served = schemathesis.openapi.from_dict(copy.deepcopy(raw))
    served.app = application

    @served.hook
    def map_path_parameters(context, path_parameters):
        """Half of the rows that are asked for are there."""
        for name, value in (path_parameters or {}).items():
            if len(str(value)) % 2:
                path_parameters[name] = fleet.slug if name == "slug" else plan.pk
        return path_parameters

    return served


@pytest.fixture(scope="module")
def asked():
    """Counts the requests of each operation; where all of them were asked for, there must be a thousand and more."""
    counts = Counter()
    yield counts
    if len(counts) == len(OPERATIONS):
        assert counts.total() >= EXAMPLES, counts.total()


@pytest.mark.django_db
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_response_is_in_the_document(cast, document, asked, path, method):
    scopes = ["read", "ingest", "plan", "deploy", "route"]
    _, secret = tokens.create_token(acting_user=cast.root, name="schema", scopes=scopes)

    @settings(
        max_examples=max(12, 2 * EXAMPLES // len(OPERATIONS)),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    @given(case=document[path][method].as_strategy())
    def ask(case):
        asked[path, method] += 1
        response = case.call(headers={"Authorization": f"Token {secret}", "Accept-Encoding": "identity"})
        case.validate_response(
            response,
            checks=[not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance],
        )

    ask()
