"""Whether the evidence of an evaluation is still current, and which parts changed."""

from __future__ import annotations

from planner import checklist
from planner.digests import digest
from planner.errors import Conflict
from planner.models import GateEvaluation, Plan
from planner.records import JsonObject
from planner.services.gate import evaluations
from planner.services.gate.evidence import collect_evidence
from planner.services.gate.preload import Preloaded

# Parts of the evidence, as pages name them.
_WORDS = {
    "destinations_up": "the destinations that are up",
    "capacity_up": "the speeds of the destinations",
    "replan": "the live plan that it starts from",
    "incumbent": "the plan that is live",
    "fingerprints": "the serving profile",
    "distribution": "the distribution of the rates",
    "policy": "the fleet's policy",
    "replay": "the replay",
    "what_ifs": "the what-if replays",
    "envelope": "the validated range",
    "blast_radius": "what bringing it to traffic would change",
    "waivers": "the waivers in force",
}
# Parts that follow from others: beside those they add nothing.
_FOLLOWS = {"blast_radius": ("incumbent",), "envelope": ("policy", "replay"), "incumbent": ("replan",)}


def changed_since(plan: Plan, evaluation: GateEvaluation) -> list[str]:
    """The parts of the evidence that are no longer as they were judged, in words; empty while all are current."""
    return _changed(collect_evidence(plan).document, evaluation)


def _changed(evidence: JsonObject, evaluation: GateEvaluation) -> list[str]:
    if digest(evidence) == evaluation.evidence_digest:
        return []
    if evaluation.evidence.get("format") != evidence["format"]:
        return ["the version of the evidence"]
    then = evaluation.evidence
    names = {k for k in {*evidence, *then} if evidence.get(k) != then.get(k)}
    if "incumbent" in names and _without_incumbent(evidence) == _without_incumbent(then):
        names.discard("replay")  # The replay is the same; another plan was active beside it.
    told = [name for name in sorted(names) if not names.intersection(_FOLLOWS.get(name, ()))]
    return [_told(name, evidence, then) for name in told]


def _without_incumbent(evidence: JsonObject) -> JsonObject:
    return {**(evidence.get("replay") or {}), "incumbent": None}


def _told(name: str, now: JsonObject, then: JsonObject) -> str:
    """A part of the evidence in words; for the policy, which values changed."""
    words = _WORDS.get(name, name)
    if name != "policy" or not then.get(name):
        return words
    changed = [k for k in sorted(now[name]) if k != "version" and now[name][k] != then[name].get(k)]
    fields = [k.replace("_", " ") for k in changed]
    return f"{words} ({', '.join(fields)})" if fields else f"{words} (version {now[name]['version']})"


def current_evaluation(plan: Plan, stored: Preloaded) -> GateEvaluation:
    """Return the latest evaluation if it passed and its evidence is still current.

    `stored` was read before the plan was locked (`preload.with_preloaded`).

    Raises
    ------
    Conflict
        If the evaluation is missing, did not pass, or is stale; the message says which.
    """
    evaluation = plan.gate_evaluations.order_by("-id").first()
    if evaluation is None:
        raise Conflict("the checklist is not evaluated yet; replay the plan first", code="gate-missing")
    if not evaluation.passed:
        open_items = [str(item) for item in evaluation.items.exclude(verdict=checklist.PASS).filter(waived=False)]
        raise Conflict(f"the checklist does not pass: {'; '.join(open_items)}", code="gate-not-passed")
    evidence = collect_evidence(plan, stored)
    if evaluation.evidence.get("format") != evidence.format:
        raise Conflict(
            "the checklist was evaluated by an older version of the console, with fewer checks; a user who may "
            "plan has to evaluate it again",
            code="evidence-stale",
        )
    if changed := _changed(evidence.document, evaluation):
        raise Conflict(
            f"the evidence changed since it was judged ({', '.join(changed)}); a user who may plan has to evaluate "
            "the checklist again",
            code="evidence-stale",
        )
    lapsed = [item.explanation for item in evaluations.judge(plan, evidence, stored) if not item.settled]
    if lapsed:
        raise Conflict(f"the checklist passed but no longer does: {lapsed[0]}", code="evidence-lapsed")
    return evaluation
