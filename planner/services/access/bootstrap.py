"""Create the first accounts of an installation."""

from __future__ import annotations

import secrets

from django.contrib.auth.models import Group, User
from django.db import transaction

# Account -> group. Three people, because the author of a plan never approves it.
FIRST_ACCOUNTS = {"admin": "admin", "planner": "planner", "approver": "approver"}


@transaction.atomic
def create_first_accounts() -> dict[str, str]:
    """Create the first accounts if the installation has none; return their passwords.

    The passwords are stored nowhere else. If any account exists, nothing is created: an account that was renamed or
    removed on purpose is not created again.
    """
    if User.objects.exists():
        return {}
    made = {}
    for name, group in FIRST_ACCOUNTS.items():
        made[name] = password = secrets.token_urlsafe(12)
        if name == "admin":
            user = User.objects.create_superuser(name, password=password)
        else:
            user = User.objects.create_user(name, password=password)
        user.groups.add(Group.objects.get(name=group))
    return made
