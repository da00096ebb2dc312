"""A freeze stops every rollout of its fleets, and nothing that takes something off traffic."""

import datetime as dt

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from planner.errors import Conflict, Invalid, NotAllowed
from planner.models import AuditEvent, Freeze
from planner.services.rollouts import freezes
from planner.services.rollouts.freezes import lift_freeze, unfreeze
from planner.services.rollouts.rollback import roll_back
from planner.services.rollouts.starts import start_rollout
from planner.services.rollouts.steps import advance_rollout, pause_rollout, promote_rollout, resume_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["this fleet", "all fleets"])
def frozen(request, cast, fleet):
    """A canary ready to go on, and then a freeze."""
    rollout = make.pass_step(make.canary(cast, fleet))
    of = fleet if request.param == "this fleet" else None
    return rollout, freezes.freeze(acting_user=cast.root, fleet=of, reason="holidays")


def test_nothing_moves(cast, fleet, frozen):
    rollout, freeze = frozen
    other = make.approved_plan(cast, fleet)
    fleet.refresh_from_db()
    version = fleet.table_version
    paused = pause_rollout(acting_user=cast.linus, rollout=rollout)
    later = timezone.now() + dt.timedelta(hours=1)
    for call, values in (
        (start_rollout, {"plan": other}),
        (start_rollout, {"plan": other, "scheduled_for": later}),
        (advance_rollout, {"rollout": rollout}),
        (promote_rollout, {"rollout": rollout, "reason": "now"}),
        (resume_rollout, {"rollout": paused}),
        (roll_back, {"fleet": fleet, "plan": other, "reason": "now"}),
    ):
        with pytest.raises(Conflict) as refusal:
            call(acting_user=cast.linus, **values)
        assert refusal.value.code == "frozen", call
        assert "holidays" in refusal.value.message
    with pytest.raises(Conflict, match="frozen"):
        advance_rollout(acting_user=None, rollout=rollout)  # the console neither
    fleet.refresh_from_db()
    assert fleet.table_version == version
    lift_freeze(acting_user=cast.root, freeze=freeze)
    resume_rollout(acting_user=cast.linus, rollout=paused)
    assert advance_rollout(acting_user=cast.linus, rollout=rollout).state == "active"


def test_a_freeze_of_one_fleet_leaves_the_others_alone(cast, fleet):
    freezes.freeze(acting_user=cast.linus, fleet=fleet, reason="holidays")
    assert make.canary(cast, make.make_fleet(cast, "beta")).state == "canary"


def test_who_operates_a_fleet_freezes_it_and_only_admins_freeze_all(cast, fleet):
    freezes.freeze(acting_user=cast.linus, fleet=fleet, reason="holidays")
    with pytest.raises(NotAllowed):
        freezes.freeze(acting_user=cast.linus, fleet=None, reason="holidays")
    everywhere = freezes.freeze(acting_user=cast.root, fleet=None, reason="holidays")
    with pytest.raises(NotAllowed):
        lift_freeze(acting_user=cast.linus, freeze=everywhere)


def test_a_fleet_is_frozen_once_at_a_time(cast, fleet):
    first = freezes.freeze(acting_user=cast.linus, fleet=fleet, reason="holidays")
    with pytest.raises(Conflict, match="holidays") as refusal:
        freezes.freeze(acting_user=cast.grace, fleet=fleet, reason="more holidays")
    assert refusal.value.code == "frozen"
    with pytest.raises(IntegrityError, match="freeze_one_a_fleet"), transaction.atomic():
        Freeze.objects.create(fleet=fleet, reason="once more", frozen_by=cast.linus)
    unfreeze(acting_user=cast.grace, fleet=fleet, reason="back at work")
    with pytest.raises(Conflict):
        lift_freeze(acting_user=cast.linus, freeze=first)
    assert freezes.freeze(acting_user=cast.linus, fleet=fleet, reason="again").pk != first.pk


def test_unfreeze_of_a_fleet_does_not_lift_that_of_all(cast, fleet):
    with pytest.raises(Conflict) as refusal:
        unfreeze(acting_user=cast.linus, fleet=fleet)
    assert refusal.value.code == "not-frozen"
    freezes.freeze(acting_user=cast.root, fleet=None, reason="holidays")
    with pytest.raises(Conflict) as refusal:
        unfreeze(acting_user=cast.linus, fleet=fleet)
    assert refusal.value.code == "frozen-for-all"


def test_it_wants_a_reason_and_both_ends_are_audited(cast, fleet):
    with pytest.raises(Invalid):
        freezes.freeze(acting_user=cast.linus, fleet=fleet, reason=" ")
    freezes.freeze(acting_user=cast.linus, fleet=fleet, reason="holidays")
    unfreeze(acting_user=cast.grace, fleet=fleet, reason="back at work")
    freezes.freeze(acting_user=cast.root, fleet=None, reason="audit week")
    events = AuditEvent.objects.filter(action__in=["fleet.frozen", "fleet.unfrozen"]).order_by("id")
    assert [(e.action, e.actor_name, e.fleet, e.reason) for e in events] == [
        ("fleet.frozen", "linus", fleet, "holidays"),
        ("fleet.unfrozen", "grace", fleet, "back at work"),
        ("fleet.frozen", "root", None, "audit week"),
    ]
