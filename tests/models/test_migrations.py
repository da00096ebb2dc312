"""A reverse migration loses nothing silently, and a forward migration corrects what it must."""

import math

import pgtrigger
import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from planner.models import (
    AuditLink,
    DriftCheck,
    Plan,
    PolicyVersion,
    Publication,
    Rollout,
    RolloutAnalysis,
    Study,
    TelemetryWindow,
)
from planner.selectors.access import rights
from planner.selectors.audit.timeline import live_at
from planner.selectors.monitoring.queries import envelope_of
from planner.services.access import roles, tokens
from planner.services.access.break_glass import open_break_glass
from planner.services.audit import chain
from planner.services.calibrations import calibrations
from planner.services.plans import studies
from planner.services.replays import orders as replay_orders
from planner.services.rollouts.freezes import freeze
from planner.services.rollouts.starts import start_rollout
from planner.services.webhooks import webhooks
from planner.tasks import run_job
from tests import factories as make

# PostgreSQL changes tables within transactions, so the end of each test takes its migrations back.
pytestmark = pytest.mark.django_db


def migrate(*name):
    """To the named migration; to the newest when none is named. As the command does it, without its signals."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a table with checks to come cannot be altered
    executor = MigrationExecutor(connection)
    targets = (
        [executor.loader.get_migration_by_prefix("planner", *name)]
        if name
        else executor.loader.graph.leaf_nodes("planner")
    )
    with transaction.atomic():
        executor.migrate([(migration.app_label, migration.name) if name else migration for migration in targets])


def schema():
    """Migrations that are applied, columns and triggers."""
    applied = {name for app, name in MigrationRecorder(connection).applied_migrations() if app == "planner"}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_name LIKE 'planner_%'"
        )
        columns = set(cursor.fetchall())
        cursor.execute("SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname LIKE 'pgtrigger_%'")
        return applied, columns, set(cursor.fetchall())


def test_undoing_replans_is_refused_while_there_are_some_and_changes_nothing(cast, fleet):
    incumbent = make.built_plan(cast, fleet)
    replan = make.built_plan(cast, fleet, incumbent=incumbent)
    migrate("0002")
    before = schema()
    with pytest.raises(IrreversibleError, match="1 plans are replans"):
        migrate("0001")
    assert schema() == before
    assert Plan.objects.get(pk=replan.pk).incumbent == incumbent


def test_undoing_studies_is_refused_while_there_are_some_and_changes_nothing(cast, fleet):
    job = studies.order_study(acting_user=cast.ada, plan=make.built_plan(cast, fleet))
    migrate("0003")
    before = schema()
    with pytest.raises(IrreversibleError, match="0 studies and 1 jobs"):
        migrate("0002")
    migrate()  # the code of today needs the tables of today
    run_job(job.pk)
    migrate("0003")
    with pytest.raises(IrreversibleError, match="1 studies and 1 jobs"):
        migrate("0002")
    assert schema() == before
    assert Study.objects.count() == 1


def test_without_replans_and_studies_the_way_back_and_forth_is_open(cast, fleet):
    plan = make.built_plan(cast, fleet)
    before = schema()
    migrate("0001")
    assert ("planner_plan", "incumbent_id") not in schema()[1]
    migrate()
    assert schema() == before
    assert Plan.objects.get(pk=plan.pk).table_id == plan.table_id


def test_weights_out_of_bounds_are_corrected_counted_and_shown(cast, fleet, capsys):
    migrate("0003")
    for index, weight in enumerate((math.nan, math.inf, 1e-9, 2.5)):
        fleet.destinations.filter(index=index).update(weight=weight)
    migrate("0004")
    assert "3 destinations had a weight outside" in capsys.readouterr().out
    assert list(fleet.destinations.values_list("weight", "version")) == [(1.0, 2), (100.0, 2), (0.01, 2), (2.5, 1)]


def test_undoing_jobs_of_calibrations_is_refused_while_there_are_some_and_changes_nothing(cast, fleet):
    calibrations.order_calibration(acting_user=cast.ada, fleet=fleet, workload=make.make_workload(cast, fleet))
    migrate("0005")
    before = schema()
    with pytest.raises(IrreversibleError, match="1 jobs of calibrations and fits and 0 fitted serving profiles"):
        migrate("0004")
    assert schema() == before


def test_undoing_options_of_replays_is_refused_while_older_code_would_take_a_what_if_for_evidence(cast, fleet):
    plan = make.built_plan(cast, fleet)
    fault = {"kind": "down", "destination": "d1", "start": 0.5}
    replay_orders.start_replay(
        acting_user=cast.ada, plan=plan, loads_rps=[4.0], seeds=[1], requests=500, faults=[fault]
    )
    migrate()
    before = schema()
    with pytest.raises(IrreversibleError, match="1 replays with faults or a plan switch"):
        migrate("0005")
    assert schema() == before


def _old_console(cast, fleet):
    """A console of the release before, with an active plan, an older rollout and a canary."""
    plan = make.active_plan(cast, fleet)
    canary = make.approved_plan(cast, fleet)
    start_rollout(acting_user=cast.linus, plan=canary)
    Rollout.objects.update(evidence_digest="", kind="canary", planned_steps=[], step_started_at=None, incumbent=None)
    with pgtrigger.ignore():
        DriftCheck.objects.all().delete()
        RolloutAnalysis.objects.all().delete()
        TelemetryWindow.objects.all().delete()
    return plan, canary


def test_rollouts_of_the_release_before_are_watched_and_shown_with_their_approvals(cast, fleet):
    plan, canary = _old_console(cast, fleet)
    migrate("0007")
    migrate()
    for one in (plan, canary):
        rollout = one.rollouts.latest("id")
        assert rollout.evidence_digest == one.approvals.latest("id").evidence_digest
        assert envelope_of(rollout)["p99_limit_s"] == fleet.slo_p99_s
        assert rollout.step_started_at is not None
    assert [step["weight"] for step in canary.rollouts.get().planned_steps] == fleet.canary_weights
    assert canary.rollouts.get().incumbent_id == plan.pk
    assert fleet.rollouts.filter(plan__kind="flat").exclude(kind="fallback").count() == 0
    live = live_at(fleet, timezone.now())
    assert [(arm.plan.pk, [a.approver.username for a in arm.approvals]) for arm in live.arms] == [
        (plan.pk, ["grace"]), (canary.pk, ["grace"]),
    ]  # fmt: skip
    assert chain.verify().intact
    assert set(fleet.roles.values_list("role", flat=True)) == set(rights.GROUPS)


def test_going_back_one_migration_and_forward_again_repeats_nothing(cast, fleet):
    def counts():
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # links come at the commit
        return [model.objects.count() for model in (AuditLink, PolicyVersion, Publication, Group)]

    before = counts()
    migrate("0008")
    migrate()
    assert chain.verify().intact
    assert counts() == before


GOVERNED = {
    "Freeze": lambda cast, fleet: freeze(acting_user=cast.linus, fleet=fleet, reason="night"),
    "BreakGlass": lambda cast, fleet: open_break_glass(
        acting_user=cast.linus, fleet=fleet, reason="the routers lost their tables"
    ),
    "silent DriftCheck": lambda cast, fleet: DriftCheck.objects.create(
        fleet=fleet, plan=fleet.plans.get(kind="flat"), verdict="silent"
    ),
    "ApiToken bound to networks": lambda cast, fleet: tokens.create_token(
        acting_user=cast.ada, name="t", scopes=["read"], allowed_networks=["10.0.0.0/8"]
    ),
    "ApiToken of a name that is there twice": lambda cast, fleet: tokens.rotate_token(
        acting_user=cast.ada, token=tokens.create_token(acting_user=cast.ada, name="t", scopes=["read"])[0]
    ),
    "role on a single fleet": lambda cast, fleet: roles.grant_role(
        acting_user=cast.root, user=cast.vera, role="operator", fleet=fleet
    ),
    "Webhook": lambda cast, fleet: webhooks.create_webhook(
        acting_user=cast.root, name="w", url="https://example.com/", fleet=fleet
    ),
}


@pytest.mark.parametrize("noun", GOVERNED)
def test_undoing_governance_is_refused_while_there_is_some_and_changes_nothing(cast, fleet, noun):
    GOVERNED[noun](cast, fleet)
    migrate("0009")
    before = schema()
    with pytest.raises(IrreversibleError, match=f"1 {noun}"):
        migrate("0007")
    assert schema() == before
    migrate()
