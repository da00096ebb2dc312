"""Chain the audit events that there are, and write down what the fleets' policies, tables and rollouts are now.

Safe to repeat: going back to 0008 leaves what was written here, and going forward again adds what is missing.
"""

from django.db import migrations
from django.db.migrations.exceptions import IrreversibleError

# The text of an event as it was when this was written: later columns are not of these events.
TEXT = (
    "jsonb_build_array(place, e.id, e.fleet_id, e.action, e.actor_id, e.actor_name, e.token_number, e.token_prefix, "
    "e.request_id, host(e.ip_address), e.subject_type, e.subject_id, e.subject_label, e.before, e.after, e.reason, "
    "e.evidence_digest, to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'))::text"
)
CHAIN = f"""
DO $$
DECLARE
    e planner_auditevent%ROWTYPE;
    place BIGINT;
    earlier TEXT;
    this TEXT;
BEGIN
    PERFORM pg_advisory_xact_lock(7303, 0);
    SELECT position, digest INTO place, earlier FROM planner_auditlink ORDER BY position DESC LIMIT 1;
    place := COALESCE(place, 0);
    earlier := COALESCE(earlier, repeat('0', 64));
    FOR e IN
        SELECT * FROM planner_auditevent WHERE id NOT IN (SELECT event_id FROM planner_auditlink) ORDER BY id
    LOOP
        place := place + 1;
        this := encode(sha256(convert_to(earlier || {TEXT}, 'UTF8')), 'hex');
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
    def model(name):
        return apps.get_model('planner', name)

    for fleet in model('Fleet').objects.all():
        values = {name: getattr(fleet, name) for name in POLICY}
        model('PolicyVersion').objects.get_or_create(
            fleet=fleet, number=fleet.policy_version, defaults={'values': values}
        )
        write_down_table(model, fleet)
        write_down_roles(apps, model, fleet)
    for rollout in model('Rollout').objects.select_related('fleet', 'plan'):
        write_down_rollout(model, rollout)


def write_down_table(model, fleet):
    live = {r.state: r for r in fleet.rollouts.filter(state__in=['active', 'canary']).select_related('plan')}
    share = live['canary'].weight if 'canary' in live else 0.0
    arms = []
    for name, state, weight in (('incumbent', 'active', round(1.0 - share, 9)), ('canary', 'canary', share)):
        if state in live:
            row = live[state]
            arms.append(
                {'name': name, 'plan': row.plan_id, 'number': row.plan.number, 'rollout': row.pk, 'weight': weight}
            )
    model('Publication').objects.get_or_create(
        fleet=fleet, version=fleet.table_version, defaults={'arms': arms, 'issued_at': fleet.table_issued_at}
    )


def write_down_roles(apps, model, fleet):
    """New groups only: one of that name may be there already, and its members are nobody here."""
    groups = apps.get_model('auth', 'Group').objects
    for role in ROLES:
        if model('FleetRole').objects.filter(fleet=fleet, role=role).exists():
            continue
        name, n = f'{fleet.slug}: {role}', 1
        while groups.filter(name=name).exists():
            n += 1
            name = f'{fleet.slug}: {role} ({n})'
        model('FleetRole').objects.create(fleet=fleet, role=role, group=groups.create(name=name))


def write_down_rollout(model, rollout):
    """What it was approved on is what the monitor watches it by, and what the timeline shows."""
    last = model('RolloutStep').objects.filter(rollout=rollout).order_by('-number').first()
    rollout.step_started_at = rollout.step_started_at or (last.entered_at if last else rollout.created_at)
    if rollout.plan.kind == 'flat':
        rollout.kind = 'fallback'
    elif not rollout.evidence_digest:
        began = rollout.activated_at or rollout.created_at
        given = model('Approval').objects.filter(plan=rollout.plan_id, decision='approve', created_at__lte=began)
        rollout.evidence_digest = given.order_by('-id').values_list('evidence_digest', flat=True).first() or ''
    if rollout.state == 'canary' and not rollout.planned_steps:
        rollout.planned_steps = [{'weight': w, 'hold_s': 0.0} for w in rollout.fleet.canary_weights]
        active = rollout.fleet.rollouts.filter(state='active').values_list('plan_id', flat=True)
        rollout.incumbent_id = active.first()
    rollout.save(update_fields=['step_started_at', 'kind', 'evidence_digest', 'planned_steps', 'incumbent'])


def refuse_while_governed(apps, schema_editor):
    """An older release has no place for these, would forget who decided what, or could not read them."""
    def rows(noun):
        return apps.get_model('planner', noun).objects

    nouns = ('Waiver', 'PlanComment', 'Freeze', 'BreakGlass', 'RolloutAnalysis', 'AuditCheckpoint', 'Webhook')
    counts = {noun: rows(noun).count() for noun in nouns}
    counts['scheduled Rollout'] = rows('Rollout').filter(state='scheduled').count()
    counts['paused Rollout'] = rows('Rollout').exclude(paused_at=None).filter(state='canary').count()
    counts['withdrawn Approval'] = rows('Approval').exclude(withdrawn_at=None).count()
    counts['silent DriftCheck'] = rows('DriftCheck').filter(verdict='silent').count()
    counts['ApiToken bound to networks'] = rows('ApiToken').exclude(allowed_networks=[]).count()
    names = rows('ApiToken').values_list('user_id', 'name')
    counts['ApiToken of a name that is there twice'] = len(names) - len(set(names))
    counts['role on a single fleet'] = sum(
        group.user_set.count() for group in (r.group for r in rows('FleetRole').select_related('group'))
    )
    if held := ', '.join(f'{count} {noun}' for noun, count in counts.items() if count):
        raise IrreversibleError(f'undoing this migration would forget or misread: {held}')


class Migration(migrations.Migration):

    dependencies = [
        ('planner', '0008_governance'),
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.RunSQL(CHAIN, migrations.RunSQL.noop),
        migrations.RunPython(write_down, refuse_while_governed),
    ]
