"""`manage.py calibrate` and `manage.py fit_profile` print figures."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from planner.models import Calibration, ServingProfile
from tests import factories as make

pytestmark = pytest.mark.django_db

SWEEP = "load_rps,p50_s,p99_s\n1,0.5,1.0\n4,0.9,6\n2,0.6,1.5\n"
TIMED = "load_rps,p99_s,prefill_tokens,decodes,context_tokens,iteration_s\n" + "".join(
    f"{n},1,{100 * n * n},{n + 3},{50 * n**3},{0.01 + 100 * n * n / 5000 + (n + 3) * 1e-4 + 50 * n**3 * 1e-7!r}\n"
    for n in range(1, 7)
)


def calibrate(fleet, *arguments):
    out = io.StringIO()
    call_command("calibrate", "--fleet", fleet.slug, "--user", "ada", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def csv(tmp_path):
    def write(content):
        path = tmp_path / "sweep.csv"
        path.write_text(content)
        return str(path)

    return write


def test_a_simulated_sweep_is_printed_with_its_points(cast, fleet):
    make.make_workload(cast, fleet)
    printed = json.loads(calibrate(fleet, "--loads", "1", "2", "--knee", "slo", "--slo-s", "60", "--json"))
    made = Calibration.objects.get()
    assert (printed["id"], printed["q_cap"], printed["source"]) == (made.pk, 2.0, "simulated")
    assert (printed["q_cap_censored"], printed["knee_method"]) == ("right", "p99 within 60 s")
    assert [p["load_rps"] for p in printed["points"]] == [1.0, 2.0]
    assert printed["warm_slots"] == int(0.8 * printed["slots_measured"]) > 0
    assert printed["warm_points"] == made.parameters["warm_points"] != []
    assert printed["fingerprint"] == fleet.serving_profile.fingerprint


def test_a_measured_sweep_is_imported_and_printed(cast, fleet, csv):
    lines = calibrate(fleet, "--from-csv", csv(SWEEP), "--slots-measured", "100").splitlines()
    made = Calibration.objects.get()
    assert made.source == Calibration.Source.MEASURED
    assert lines[0] == f"Calibration {made.pk}: q_cap 2/s, W 80 (measured)"
    assert lines[1] == "knee: p99 within 2 x p99 at the lowest load"
    assert [line.split() for line in lines[2:6]] == [
        ["load_rps", "p50_s", "p99_s"],
        ["1", "0.5", "1"],
        ["2", "0.6", "1.5", "<-", "q_cap"],
        ["4", "0.9", "6"],
    ]
    assert lines[6] == "  Rows were sorted by load_rps. (2x)"


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("load_rps,p99_s\n1,NaN\n", ["--slots-measured", "1"], r"sweep\.csv, row 2, p99_s: NaN is not finite"),
        (SWEEP, [], "say how many warm prefixes were kept"),
        (SWEEP, ["--slots-measured", "1", "--strict"], "A strict import allows no repair"),
        (SWEEP, ["--slots-measured", "1", "--q-cap", "3"], "Give one of the two"),
        (None, ["--from-csv", "/nowhere.csv"], "nowhere.csv: No such file"),
        (None, ["--slots-measured", "1"], "belongs to --from-csv"),
        (None, ["--q-cap", "1"], "belong together"),
        (None, ["--workload", "none"], "no such workload"),
    ],
)
def test_what_cannot_be_calibrated_is_one_clear_line(cast, fleet, csv, content, arguments, message):
    given = ["--from-csv", csv(content)] if content else []
    with pytest.raises(CommandError, match=message):
        calibrate(fleet, *given, *arguments)
    assert not Calibration.objects.exists()


def fit_profile(*arguments):
    out = io.StringIO()
    call_command("fit_profile", "--user", "ada", *arguments, stdout=out)
    return out.getvalue()


def test_fitted_constants_are_stored_and_printed(cast, fleet, csv):
    calibrate(fleet, "--from-csv", csv(TIMED), "--slots-measured", "1")
    number = str(Calibration.objects.get().pk)
    printed = json.loads(fit_profile("--calibration", number, "--name", "mine", "--json"))
    profile = ServingProfile.objects.get(name="mine")
    assert (printed["id"], printed["fingerprint"]) == (profile.pk, profile.fingerprint)
    expected = {"iteration_s": 0.01, "prefill_tokens_per_s": 5000, "sequence_s": 1e-4, "context_token_s": 1e-7}
    assert printed["constants"] == pytest.approx(expected, rel=1e-6)
    assert printed["provenance"]["iteration_s"].startswith("fitted: 6 points, rms error 0.00%")
    lines = fit_profile("--calibration", number, "--name", "again").splitlines()
    assert lines[0] == (
        f"Serving profile again, fitted to calibration {number} by its iterations: 6 points, rms error 0.00%"
    )
    assert lines[1].startswith("  iteration_s = 0.01  fitted: 6 points")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--calibration", "999999"], "there is no calibration 999999"),
        (["--workload", "none"], "no workload named 'none'"),
        ([], "this calibration has no points"),
    ],
)
def test_what_cannot_be_fitted_is_one_clear_line(cast, fleet, arguments, message):
    number = str(make.make_calibration(cast, fleet).pk)
    with pytest.raises(CommandError, match=message):
        fit_profile("--name", "mine", "--calibration", number, *arguments)
