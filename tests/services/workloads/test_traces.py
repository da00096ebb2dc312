"""Requests of workloads: generated in parts, read only where they are needed, and cached for a limited time."""

import threading
import time

import numpy as np
import pytest
from django.db import connection

from planner.errors import Conflict
from planner.models import ReplayCell
from planner.services.base.memo import Memo
from planner.services.replays import orders as replay_orders
from planner.services.replays.cell_runs import figures_of
from planner.services.workloads import traces
from planner.simulation.synthetic import synthetic_trace
from tests import factories as make
from tests.services.plans.test_order_locks import held  # noqa: F401 - a fixture
from tests.speed import usual_seconds

SECONDS = 20


class NotWantedError(Exception):
    """As a worker raises it."""


@pytest.fixture(autouse=True)
def nothing_held():
    traces.release()
    yield
    traces.release()


@pytest.mark.parametrize("requests", [1, 700, 701, 2_500])
def test_requests_made_in_parts_are_those_made_at_once(monkeypatch, requests):
    monkeypatch.setattr(traces, "PART", 700)
    rates = np.random.default_rng(0).random(300)
    given = {"requests": requests, "active_keys": 90, "load_rps": 7.0, "seed": 5, **traces.SYNTHETIC_LENGTHS}
    # Prefixes about as long as a block, and many shorter.
    given["prefix_tokens"] = given["prefix_tokens"]._replace(median=600, low=100)
    at_once, in_parts = synthetic_trace(rates, **given), traces.made_of(rates, **given)
    for name in ("arrival_s", "key", "prompt_tokens", "output_tokens"):
        assert np.array_equal(getattr(at_once, name), getattr(in_parts, name)), name
    assert all(np.array_equal(a, b) for a, b in zip(at_once.blocks, in_parts.blocks, strict=True))


def test_a_cancel_is_heard_between_the_parts(monkeypatch):
    monkeypatch.setattr(traces, "PART", 100)
    asked = []
    options = {"requests": 1_000, "active_keys": 3, "load_rps": 1.0, "seed": 1, **traces.SYNTHETIC_LENGTHS}
    traces.made_of(np.ones(3), **options, checkpoint=lambda: asked.append(1))
    assert len(asked) == 22  # ten parts are drawn, and the blocks of ten are numbered


@pytest.mark.django_db
@pytest.mark.parametrize("arrivals", ["bootstrap", "scaled"])
def test_an_order_makes_no_requests(cast, fleet, arrivals):
    plan = make.built_plan(cast, fleet, workload=make.make_workload(cast, fleet, with_trace=False))
    options = {"requests": 5_000_000, "arrivals": arrivals, "seeds": [1]}
    rows = []
    order = usual_seconds(
        lambda: rows.append(replay_orders.start_replay(acting_user=cast.ada, plan=plan, **options)[0]), times=1
    )
    assert order < 2
    (row,) = rows
    assert row.parameters["synthetic_trace"]["requests"] == 5_000_000
    make.order_plan(cast, fleet, workload=plan.workload, replay=options)
    assert (len(traces._sources), len(traces._retimed)) == (0, 0)


@pytest.mark.django_db
def test_a_replay_that_the_state_of_its_plan_refuses_reads_no_file(cast, fleet, held):  # noqa: F811
    plan = make.built_plan(cast, fleet)
    replay_orders.start_replay(acting_user=cast.ada, plan=plan, **make.REPLAY)
    unbuilt, _ = make.order_plan(cast, fleet)
    storage = held()
    storage.go_on.set()
    fault = {"kind": "slow", "destination": "d1", "start": 0.5}
    for refused, options in ((plan, {}), (unbuilt, {}), (unbuilt, {"faults": [fault]})):
        with pytest.raises(Conflict):
            replay_orders.start_replay(acting_user=cast.ada, plan=refused, arrivals="bootstrap", **options)
    assert storage.opened == 0


@pytest.mark.django_db
def test_a_cell_that_nobody_wants_any_more_leaves_no_requests_behind(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row, _ = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **make.REPLAY)
    cell = ReplayCell.objects.filter(replay=row).first()
    figures_of(cell)
    assert (len(traces._sources), len(traces._retimed)) == (1, 1)

    def stop():
        raise NotWantedError

    with pytest.raises(NotWantedError):
        figures_of(cell, stop)
    assert (len(traces._sources), len(traces._retimed)) == (0, 0)


@pytest.mark.django_db
def test_equal_requests_are_kept_once(cast, fleet):
    workload = make.make_workload(cast, fleet)
    assert traces.trace_of(workload, None) is traces.trace_of(workload, None, requests=999_999)
    assert len(traces.trace_of(workload, None, requests=300)) == 300
    made = make.make_workload(cast, fleet, with_trace=False)
    settings = traces.synthetic_settings(made, 500)
    assert traces.trace_of(made, settings, requests=500) is traces.trace_of(made, settings)
    assert len(traces._sources) == 3


@pytest.mark.django_db
def test_the_first_of_many_requests_do_not_keep_the_rest(cast, fleet):
    few = traces.trace_of(make.make_workload(cast, fleet), None, requests=10)
    for array in (few.arrival_s, few.key, few.prompt_tokens, *few.blocks):
        assert (array if array.base is None else array.base).nbytes <= array.nbytes


def values(max_bytes, idle_s=60.0):
    return Memo(max_bytes, len, idle_s)


def test_values_are_bounded_by_their_bytes_and_the_newest_is_kept_whatever_its_size():
    kept = values(10)
    kept.get("a", lambda: b"a" * 3)
    kept.get("b", lambda: b"b" * 2)
    kept.get("c", lambda: b"c" * 4)
    assert (len(kept), kept.size) == (3, 9)
    kept.get("a", lambda: pytest.fail("it is kept"))
    kept.get("d", lambda: b"d" * 1)  # while it is made, half is kept: what was used longest ago goes
    assert (len(kept), kept.size) == (2, 4)
    kept.get("large", lambda: b"l" * 99)
    assert (len(kept), kept.size) == (1, 99)
    kept.get("a", lambda: b"a" * 3)
    assert (len(kept), kept.size) == (1, 3)


def test_a_value_that_could_not_be_made_is_made_by_the_next_who_asks():
    kept = values(10)
    with pytest.raises(NotWantedError):
        kept.get("a", lambda: (_ for _ in ()).throw(NotWantedError))
    assert kept.get("a", lambda: b"a") == b"a"


def test_a_value_is_made_once_while_others_wait_and_a_waiting_one_hears_a_cancel():
    kept, made, began, done = values(10), [], threading.Event(), threading.Event()

    def make_it():
        began.set()
        assert done.wait(SECONDS)
        made.append(1)
        return b"a"

    threads = [threading.Thread(target=kept.get, args=("a", make_it)) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert began.wait(SECONDS)

    def stop():
        raise NotWantedError

    with pytest.raises(NotWantedError):
        kept.get("a", make_it, stop)
    done.set()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_what_nobody_asks_for_is_not_kept():
    kept = values(10, idle_s=0.3)
    kept.get("a", lambda: b"a")
    ends = time.monotonic() + SECONDS
    while len(kept) and time.monotonic() < ends:
        time.sleep(0.02)
    assert len(kept) == 0
    kept.get("a", lambda: b"a")
    assert len(kept) == 1


@pytest.mark.django_db(transaction=True)
def test_a_build_reads_nothing_for_its_replay_while_the_plan_is_locked(cast, fleet, monkeypatch, settings):
    from django.core.files.storage import FileSystemStorage

    opened = []
    plain = FileSystemStorage.open

    def watched(self, name, mode="rb"):
        opened.append((name, connection.in_atomic_block))
        return plain(self, name, mode)

    older = make.built_plan(cast, fleet, workload=make.import_rates(cast, fleet, "key,rate\nk000001,3\nother,2\n"))
    workload = make.make_workload(cast, fleet, with_trace=False)
    plan, job = make.order_plan(cast, fleet, workload=workload, replay={**make.REPLAY, "also": [older.number]})
    monkeypatch.setattr(FileSystemStorage, "open", watched)
    make.build(job)
    row = plan.replays.get()
    assert [(other["keys"], other["unknown"]) for other in row.parameters["also"]] == [(2, 1)]
    assert opened
    assert not any(within for _, within in opened)
