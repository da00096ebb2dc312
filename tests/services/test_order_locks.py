"""An order reads large files, and nobody waits for it who must not."""

from __future__ import annotations

import threading

import pytest
from django.core.files.storage import FileSystemStorage
from django.db import connection

from planner import artifacts
from planner.models import Plan
from planner.services import rollouts
from tests import factories as make

SECONDS = 20


class HeldStorage(FileSystemStorage):
    """A folder whose files open when it is told so."""

    opening = threading.Event()
    go_on = threading.Event()
    opened = 0

    def open(self, name, mode="rb"):
        type(self).opened += 1
        self.opening.set()
        assert self.go_on.wait(SECONDS)
        return super().open(name, mode)


@pytest.fixture
def held(settings):
    """Hand it to the settings when the files are there."""
    HeldStorage.opening.clear()
    HeldStorage.go_on.clear()
    HeldStorage.opened = 0

    def hold():
        kept = settings.STORAGES["default"]["OPTIONS"]
        backend = f"{HeldStorage.__module__}.{HeldStorage.__qualname__}"
        settings.STORAGES = {**settings.STORAGES, "default": {"BACKEND": backend, "OPTIONS": kept}}
        return HeldStorage

    yield hold
    HeldStorage.go_on.set()


def known(cast, fleet):
    return make.import_rates(cast, fleet, "key,rate,tenant,prefix_tokens\na,5,acme,60\nb,4,bolt,50\n")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "options", [{"tokens_per_destination": 90}, {"tenant_quota": {"acme": 1}}], ids=["tokens", "tenants"]
)
def test_falling_back_does_not_wait_for_the_files_that_an_order_reads(cast, fleet, held, options):
    workload, calibration = known(cast, fleet), make.make_calibration(cast, fleet)
    storage = held()

    def order():
        try:
            make.order_plan(cast, fleet, workload=workload, calibration=calibration, **options)
        finally:
            connection.close()

    thread = threading.Thread(target=order)
    thread.start()
    try:
        assert storage.opening.wait(SECONDS)
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '1s'")
        assert rollouts.fall_back(acting_user=cast.linus, fleet=fleet).plan.kind == Plan.Kind.FLAT
        assert not storage.go_on.is_set()
    finally:
        storage.go_on.set()
        thread.join()
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")
    assert fleet.plans.filter(kind=Plan.Kind.CACHEROUTE).count() == 1


@pytest.mark.django_db
def test_an_order_and_a_build_read_the_rates_once_each(cast, fleet, held):
    workload, calibration = known(cast, fleet), make.make_calibration(cast, fleet)
    options = {"tokens_per_destination": 90, "tenant_quota": {"acme": 1}, "tenant_floor": {"bolt": 1}}
    storage = held()
    storage.go_on.set()
    plan, job = make.order_plan(cast, fleet, workload=workload, calibration=calibration, **options)
    assert storage.opened == 1
    make.build(job)
    assert storage.opened == 2
    plan.refresh_from_db()
    assert len(artifacts.load_table(plan.table)[1]) == plan.summary["admitted"]
