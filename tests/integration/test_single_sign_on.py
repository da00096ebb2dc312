"""Signing in by OpenID Connect against a real provider, with the server of `make run`."""

import re
import subprocess
import sys

import httpx
import pytest
from django.db import connection

from tests.integration.console import Console
from tests.integration.identity_provider import IdentityProvider
from tests.integration.workers import environment_of_tests

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.integration]


@pytest.fixture
def provider():
    running = IdentityProvider("cacheroute")
    yield running
    running.stop()


@pytest.fixture
def environment(provider):
    """A database of its own: the tables of single sign-on are there only where it is switched on."""
    name = connection.settings_dict["NAME"]
    mine = f"{name}_single_sign_on"
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {mine}")
        cursor.execute(f"CREATE DATABASE {mine}")
    there = environment_of_tests()["DATABASE_URL"].replace(f"/{name}", f"/{mine}")
    more = {
        "DATABASE_URL": there,
        "CACHEROUTE_OIDC_ISSUER": provider.issuer,
        "CACHEROUTE_OIDC_CLIENT_ID": "cacheroute",
        "CACHEROUTE_OIDC_CLIENT_SECRET": "shared",
        "CACHEROUTE_OIDC_NAME": "Example ID",
        "CACHEROUTE_OIDC_ROLES_CLAIM": "groups",
    }
    yield more
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {mine} WITH (FORCE)")


def manage(environment, *arguments):
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        env=environment_of_tests(**environment),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SHELL = """
from django.contrib.auth.models import User
from planner.services.access import tokens
root = User.objects.create_superuser("root", email="ada@example.test", password="x" * 20)
print(tokens.create_token(acting_user=root, name="t", scopes=["read"])[1])
"""
ROLES = """
from django.contrib.auth.models import User
from planner.models import AuditEvent
for user in User.objects.order_by("username"):
    print(user.username, sorted(user.groups.values_list("name", flat=True)), user.has_usable_password())
print(list(AuditEvent.objects.filter(after__by="single sign-on").order_by("id").values_list("action", flat=True)))
"""


def sign_in(console):
    with httpx.Client(base_url=f"http://127.0.0.1:{console.port}", follow_redirects=True) as browser:
        page = browser.get("/login/")
        assert "Sign in with Example ID" in page.text
        token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', page.text).group(1)
        answer = browser.post("/sso/oidc/login/", data={"csrfmiddlewaretoken": token, "next": "/tokens/"})
        return answer


def test_who_the_provider_knows_signs_in_with_the_roles_that_it_names(provider, environment):
    manage(environment, "migrate", "-v", "0")
    secret = manage(environment, "shell", "-v", "0", "-c", SHELL).strip().splitlines()[-1]
    with Console(secret, **environment) as console:
        provider.person = {
            "sub": "1", "preferred_username": "ada", "email": "ada@example.test", "email_verified": True,
            "groups": ["planner", "no such group"],
        }  # fmt: skip
        page = sign_in(console)
        assert (page.status_code, page.url.path) == (200, "/tokens/"), page.text[:2000]
        assert ">ada</a>" in page.text
        # The same address as the administrator's, and yet another account.
        assert "administrator" not in page.text
        provider.person["groups"] = ["operator"]
        sign_in(console)
        provider.person = {"sub": "2", "preferred_username": "ada"}
        sign_in(console)
    told = manage(environment, "shell", "-v", "0", "-c", ROLES).strip().splitlines()
    # The second ada has another name and nobody named a role for her; the administrator is untouched.
    assert told[:-1] == ["ada ['operator'] False", "root [] True", "user [] False"]
    assert told[-1] == str(["account.created", "access.granted", "access.granted", "access.removed", "account.created"])


def test_without_a_provider_there_is_no_such_address(client):
    assert client.get("/sso/oidc/login/").status_code == 404
    assert "Sign in with" not in client.get("/login/").content.decode()
