"""Explanations as one sentence; every number in it is also in the figures."""

from __future__ import annotations

from planner.records import JsonObject


def amount(value: float | None) -> str:
    """A number to four significant digits, with thousands separators."""
    if value is None:
        return "an unknown number"
    if isinstance(value, int) or abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def plural(count: int, one: str, several: str = "") -> str:
    """Return the count with its noun.

    Parameters
    ----------
    count
        The number, shown with thousands separators.
    one, several
        The noun for one and for other counts; by default `several` is `one` with an s.

    Returns
    -------
    str
        Such as "1 key" or "2,000 keys".
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def listed(names: list[str], most: int = 4) -> str:
    """Names with "and" before the last; beyond `most` the others are counted."""
    if len(names) > most:
        names = [*names[:most], f"{len(names) - most:,} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def of_key(told: JsonObject) -> str:
    """The placement of a key and its reason."""
    start = (
        f"{told['name']} has rank {told['rank']:,} of {told['keys']:,} by rate "
        f"({amount(told['rate'])} requests/s, {_share(told['share_of_total'])} of all)"
    )
    text = f"{start} and is {_admitted(told)}" if told["admitted"] else f"{start} and is not kept warm: {_why(told)}."
    if told["cannot_fit"]:
        text += (
            f" It needs {plural(told['wanted'], 'destination')} at this q_cap, more than are available; "
            f"it is planned on {told['planned']:,}."
        )
    return text + _moved(told)


def _share(value: float) -> str:
    return "less than 0.001%" if 0 < value < 1e-5 else f"{value:.3%}"


def _admitted(told: JsonObject) -> str:
    members = told["members"]
    where = listed([member["destination"] for member in members])
    if len(members) == 1:
        text = f"kept warm on {where}{_place(told, members[0])}."
    else:
        text = (
            f"kept warm on {plural(len(members), 'destination')} ({where}), each with {amount(members[0]['share'])} "
            f"requests/s."
        )
    if told["backup"] is None:
        return text
    lost = "that is lost" if len(members) == 1 else "all of them are lost"
    return f"{text} If {lost}, it goes to {told['backup']}."


def _place(told: JsonObject, member: JsonObject) -> str:
    """The load of one destination when the key was placed on it."""
    heavier = plural(member["heavier_keys"], "heavier key")
    before = f"{amount(member['load_before'])} requests/s from cold traffic and {heavier}"
    if member["kept"]:
        return f", where it was warm already ({before} are there before it)"
    if member["rank"] > 1 or told["next_load"] is None:
        return f", which had {before}"
    if told["uneven"]:
        return (
            f", which had {before} and with it ends lowest for its speed, at {amount(member['level'])} requests/s per "
            f"unit of speed; on {told['next_destination']} it would have been {amount(told['next_level'])}"
        )
    return f", the lightest then with {before}; next was {told['next_destination']} with {amount(told['next_load'])}"


def _why(told: JsonObject) -> str:
    figures = told["figures"]
    if told["reason"] == "not_told":
        could = figures["could_be"]
        if not could:
            return "the inputs do not tell why"
        return "each of these alone would keep it out: " + "; ".join(_REASONS[name](figures) for name in could)
    return _REASONS[told["reason"]](figures)


def _slots_gone(f: JsonObject) -> str:
    if not f["keys_before"]:
        return f"the plan has {plural(f['slots'], 'warm slot')}"
    text = f"{plural(f['keys_before'], 'key')} before it took all {plural(f['slots'], 'warm slot')}"
    if f["reserved_keys"]:
        return f"{text}, {f['reserved_keys']:,} of them in slots reserved for their tenant"
    return f"{text}; the last of them has {amount(f['last_rate'])} requests/s"


def _slots_short(f: JsonObject) -> str:
    return (
        f"it needs {plural(f['needed'], 'slot')} and {f['left']:,} {'was' if f['left'] == 1 else 'were'} left after "
        f"{plural(f['keys_before'], 'key')}, so it was skipped"
    )


def _tokens_short(f: JsonObject) -> str:
    return f"it needs {amount(f['needed_tokens'])} KV tokens and {amount(f['left_tokens'])} were left in the fleet"


def _no_room(f: JsonObject) -> str:
    return (
        f"it needs {plural(f['needed'], 'destination')} with room for {amount(f['tokens'])} KV tokens; "
        f"{f['with_room']:,} had it in the end"
    )


def _quota_full(f: JsonObject) -> str:
    tenant = f["tenant"] or "(unnamed)"
    return (
        f"tenant {tenant} may take {plural(f['quota'], 'slot')} and its other keys took {f['used']:,} "
        f"(this one needs {f['needed']:,})"
    )


def _preferred(f: JsonObject) -> str:
    own, lowest, unit = amount(f["density"]), f["lowest_density"], f["unit"]
    if lowest is None:
        return f"no {unit} was left for its value of {own} a {unit}"
    if f["as_a_set"]:
        return (
            f"the admitted keys are worth more together than any set with it (its value is {own} a {unit}, "
            f"the lowest admitted {amount(lowest)})"
        )
    return f"others are worth more: its value is {own} a {unit}, the lowest that was taken before it {amount(lowest)}"


_REASONS = {
    "slots_gone": _slots_gone,
    "slots_short": _slots_short,
    "tokens_short": _tokens_short,
    "no_room": _no_room,
    "quota_full": _quota_full,
    "preferred_others": _preferred,
}


def _moved(told: JsonObject) -> str:
    """The changes from the incumbent."""
    if told["was"] is None:
        return ""
    plan = f"plan {told['incumbent']}"
    if not told["was"]:
        return f" In {plan} it was not warm." if told["admitted"] else f" Nor was it in {plan}."
    if not told["lost"] and not told["gained"]:
        return f" It stays where {plan} had it."
    parts = [f"leaves {listed(told['lost'])}"] if told["lost"] else []
    parts += [f"is new on {listed(told['gained'])}"] if told["gained"] else []
    return f" Against {plan} it {' and '.join(parts)}."


def of_destination(told: JsonObject) -> str:
    """The load of a destination, and the effect of its loss."""
    if not told["available"]:
        return f"{told['name']} takes nothing in this plan."
    text = (
        f"{told['name']} carries {amount(told['load'])} requests/s, {told['relative_load']:.3f} times the mean"
        f"{' for its speed' if told['capacity'] != 1 else ''}: "
        f"{plural(told['keys'], 'warm key')} and {amount(told['cold'])} requests/s of cold traffic."
    )
    if not told["receivers"]:
        return f"{text} It is the only one: without it nothing is left to serve."
    first = told["receivers"][0]
    more = first["backup_rate"] + first["member_rate"] + first["cold_rate"]
    after = told["imbalance_after"]
    text += (
        f" If it is lost, {_keys_of_the_lost(told)}; {first['destination']} takes most ({amount(more)} requests/s more)"
    )
    return text + ("." if after is None else f", and max/mean of the others is {after:.3f}.")


def _keys_of_the_lost(told: JsonObject) -> str:
    keys = sum(row["backup_keys"] for row in told["receivers"])
    rate = sum(row["backup_rate"] for row in told["receivers"])
    takers = sum(1 for row in told["receivers"] if row["backup_keys"])
    if not keys:
        return "no key has to go to its backup"
    if keys == 1:
        return f"1 key with {amount(rate)} requests/s goes to its backup"
    return f"{keys:,} keys with {amount(rate)} requests/s go to their backups on {plural(takers, 'destination')}"
