from __future__ import annotations

from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


def create_groups(**_: Any) -> None:
    """Update the groups and their rights to match `services.rights.GROUPS`."""
    from django.contrib.auth.models import Group, Permission

    from planner.selectors.access.rights import GROUPS

    for name, rights in GROUPS.items():
        group, _created = Group.objects.get_or_create(name=name)
        codenames = [right.split(".")[1] for right in rights]
        group.permissions.set(Permission.objects.filter(content_type__app_label="planner", codename__in=codenames))


class PlannerConfig(AppConfig):
    name = "planner"
    verbose_name = "Planner"

    def ready(self) -> None:
        """Update the groups at every migrate, and import the modules that register job kinds."""
        post_migrate.connect(create_groups, sender=self)
        # Imported because they register job kinds.
        import_module("planner.services.plans.builds")
        import_module("planner.services.plans.studies")
        import_module("planner.services.calibrations.calibrations")
        import_module("planner.services.calibrations.fits")
        import_module("planner.services.replays.cells")
        from django.conf import settings

        if settings.OIDC_NAME:
            from allauth.account.signals import user_logged_in

            from planner.web.access.single_sign_on import renew_roles

            user_logged_in.connect(renew_roles, dispatch_uid="renew_roles")
