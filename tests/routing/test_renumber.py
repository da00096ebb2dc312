"""Other numbers, the same table."""

import numpy as np
import pytest

from planner.routing import build_table
from planner.routing.renumber import with_destinations, with_keys

RATES = np.array([9.0, 1.0, 5.0, 2.0, 3.0])


@pytest.fixture
def table():
    return build_table(RATES, destinations=3, q_cap=4.0, slots=6)


def homes(table, names):
    return {names[key]: table.members_of(key).tolist() for key in table.admitted.tolist()}


def test_keys_keep_their_homes_under_new_indices_and_removed_keys_leave(table):
    old, new = ["a", "b", "c", "d", "e"], ["x", "e", "a", "y", "b", "d", "z"]
    moved = with_keys(table, np.array([new.index(k) if k in new else -1 for k in old]), len(new))
    expected = {name: members for name, members in homes(table, old).items() if name != "c"}
    assert homes(moved, new) == expected
    assert "c" in homes(table, old)
    assert moved.keys == 7
    assert moved.slots_used == moved.offsets[-1] == sum(map(len, expected.values()))
    assert [new[i] for i in moved.admitted] == [old[i] for i in table.admitted if old[i] != "c"]
    assert moved.backup.tolist() == [
        backup for key, backup in zip(table.admitted.tolist(), table.backup.tolist(), strict=True) if old[key] != "c"
    ]


def test_identity_renumbering_gives_the_same_table(table):
    same = with_keys(table, np.arange(5), 5)
    for name in ("admitted", "offsets", "members", "replicas", "backup", "load", "after_loss", "cannot_fit"):
        assert np.array_equal(getattr(same, name), getattr(table, name))
    assert (same.keys, same.slots_used) == (table.keys, table.slots_used)
    assert (same.warm_tokens, same.admitted_value, len(same.tenant_slots)) == (None, 0.0, 0)  # not known any more
    assert with_destinations(table, [0, 1, 2]) == table


def test_keys_that_cannot_fit_get_new_indices():
    table = build_table([9.0, 1.0, 30.0], destinations=2, q_cap=4.0, slots=9)
    assert table.cannot_fit.tolist() == [0, 2]
    assert with_keys(table, [3, -1, 1], 4).cannot_fit.tolist() == [1, 3]
    assert with_keys(table, [-1, 0, 1], 4).cannot_fit.tolist() == [1]


@pytest.mark.parametrize(
    ("new", "keys", "message"),
    [
        ([0, 1, 2], 5, r"new_index_of_old: expected shape \(5,\), got \(3,\)"),
        ([0.0, 1, 2, 3, 4], 5, "whole numbers expected"),
        ([0, 1, 2, 3, 5], 5, r"new_index_of_old\[4\] = 5"),
        ([0, -2, 2, 3, 4], 5, r"new_index_of_old\[1\] = -2"),
        ([0, 1, 1, 3, 4], 5, "2 keys share the new index 1"),
        ([0, 1, 2, 3, 4], -1, "keys = -1"),
    ],
)
def test_invalid_key_indices_are_refused_by_index(table, new, keys, message):
    with pytest.raises(ValueError, match=message):
        with_keys(table, new, keys)


def test_destinations_in_another_order_hold_the_same_keys(table):
    names = ["d0", "d1", "d2"]
    order = [2, 0, 1]
    turned = with_destinations(table, order)
    turned_names = [names[i] for i in order]
    for row, key in enumerate(table.admitted.tolist()):
        assert {turned_names[m] for m in turned.members_of(key)} == {names[m] for m in table.members_of(key)}
        assert turned.members_of(key).tolist() == sorted(turned.members_of(key).tolist())
        if table.backup[row] < 0:
            assert turned.backup[row] == -1
        else:
            assert turned_names[turned.backup[row]] == names[table.backup[row]]
    assert turned.load.tolist() == table.load[order].tolist()
    assert turned.imbalance == table.imbalance
    assert with_destinations(turned, [1, 2, 0]) == table


def test_destination_without_keys_and_load_may_be_omitted():
    table = build_table(
        [5.0], destinations=3, q_cap=9.0, slots=1, cold_load=[0.0, 1.0, 0.0], available=[True, True, False]
    )
    assert (table.members.tolist(), table.backup.tolist()) == ([0], [1])
    assert with_destinations(table, [1, 0]).members.tolist() == [1]
    assert with_destinations(table, [1, 0]).imbalance == table.imbalance
    with pytest.raises(ValueError, match="destination 1 is omitted, but is a backup"):
        with_destinations(table, [0, 2])
    with pytest.raises(ValueError, match="destination 0 is omitted, but is a member"):
        with_destinations(table, [1, 2])
    loaded = build_table([5.0], destinations=3, q_cap=9.0, slots=1, cold_load=[0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match=r"destination 2 is omitted, but carries 2\.0 requests/s"):
        with_destinations(loaded, [1, 0])


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([], "not empty"),
        ([0.5], "whole numbers"),
        ([0, 1, 3], r"positions\[2\] = 3: the table has 3 destinations"),
        ([0, 1, -1], r"positions\[2\] = -1"),
        ([0, 1, 0], r"positions\[0\] = 0: the destination is given twice"),
    ],
)
def test_invalid_positions_are_refused_by_index(table, positions, message):
    with pytest.raises(ValueError, match=message):
        with_destinations(table, positions)
