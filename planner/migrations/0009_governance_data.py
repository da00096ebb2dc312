"""Chain the audit events that there are, and write down what the fleets' policies and tables are now."""

from django.db import migrations
from django.db.migrations.exceptions import IrreversibleError

from planner.models.audit_chain import CHAIN_SPACE, GENESIS, event_text

CHAIN = f"""
DO $$
DECLARE
    e planner_auditevent%ROWTYPE;
    place BIGINT := 0;
    earlier TEXT := '{GENESIS}';
    this TEXT;
BEGIN
    PERFORM pg_advisory_xact_lock({CHAIN_SPACE}, 0);
    FOR e IN SELECT * FROM planner_auditevent ORDER BY id LOOP
        place := place + 1;
        this := encode(sha256(convert_to(earlier || {event_text("e", "place")}, 'UTF8')), 'hex');
        INSERT INTO planner_auditlink (position, event_id, previous, digest) VALUES (place, e.id, earlier, this);
        earlier := this;
    END LOOP;
END $$;
"""
# As they were when this was written: what is added to the policy later is not part of a first version.
POLICY = (
    'slo_p99_s', 'min_approvals', 'approval_days', 'max_rates_age_days', 'min_loads', 'min_seeds', 'min_requests',
    'max_imbalance', 'max_loss_imbalance', 'accept_simulated', 'canary_weights', 'canary_holds_s', 'canary_warmup_s',
    'canary_min_requests', 'max_error_rate', 'auto_advance', 'auto_abort', 'auto_fall_back', 'breaches_to_fall_back',
    'cool_down_s', 'telemetry_stale_s',
)
ROLES = ('viewer', 'planner', 'approver', 'operator', 'admin')


def write_down(apps, schema_editor):
    model = lambda name: apps.get_model('planner', name)
    Group = apps.get_model('auth', 'Group')
    for fleet in model('Fleet').objects.all():
        values = {name: getattr(fleet, name) for name in POLICY}
        model('PolicyVersion').objects.create(fleet=fleet, number=1, values=values)
        live = {r.state: r for r in fleet.rollouts.filter(state__in=['active', 'canary']).select_related('plan')}
        share = live['canary'].weight if 'canary' in live else 0.0
        arms = []
        for name, state, weight in (('incumbent', 'active', round(1.0 - share, 9)), ('canary', 'canary', share)):
            if state in live:
                row = live[state]
                arms.append({'name': name, 'plan': row.plan_id, 'number': row.plan.number, 'rollout': row.pk, 'weight': weight})
        model('Publication').objects.create(
            fleet=fleet, version=fleet.table_version, arms=arms, issued_at=fleet.table_issued_at
        )
        for role in ROLES:
            group, _ = Group.objects.get_or_create(name=f'{fleet.slug}: {role}')
            model('FleetRole').objects.create(fleet=fleet, role=role, group=group)
    for rollout in model('Rollout').objects.select_related('fleet'):
        last = model('RolloutStep').objects.filter(rollout=rollout).order_by('-number').first()
        rollout.step_started_at = last.entered_at if last else rollout.created_at
        if rollout.state == 'canary':
            rollout.planned_steps = [{'weight': w, 'hold_s': 0.0} for w in rollout.fleet.canary_weights]
            rollout.incumbent_id = rollout.fleet.rollouts.filter(state='active').values_list('plan_id', flat=True).first()
        rollout.save(update_fields=['step_started_at', 'planned_steps', 'incumbent'])


def refuse_while_governed(apps, schema_editor):
    """An older release has no place for these, and would forget who decided what."""
    nouns = ('Waiver', 'PlanComment', 'Freeze', 'BreakGlass', 'RolloutAnalysis', 'AuditCheckpoint', 'Webhook')
    counts = {noun: apps.get_model('planner', noun).objects.count() for noun in nouns}
    counts['scheduled Rollout'] = apps.get_model('planner', 'Rollout').objects.filter(state='scheduled').count()
    counts['withdrawn Approval'] = apps.get_model('planner', 'Approval').objects.exclude(withdrawn_at=None).count()
    if held := ', '.join(f'{count} of {noun}' for noun, count in counts.items() if count):
        raise IrreversibleError(f'undoing this migration would forget {held}')


class Migration(migrations.Migration):

    dependencies = [
        ('planner', '0008_governance'),
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.RunSQL(CHAIN, migrations.RunSQL.noop),
        migrations.RunPython(write_down, refuse_while_governed),
    ]
