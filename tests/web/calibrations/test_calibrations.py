"""Pages of calibrations: ordered and followed, imported, looked at, fitted to."""

from __future__ import annotations

import io
import re
from itertools import pairwise

import pytest
from django.test import Client
from django.urls import reverse

from planner.models import Calibration, Fleet, Job, ServingProfile
from planner.services.calibrations import calibrations
from planner.services.jobs import jobs
from planner.tasks import run_job
from planner.web.calibrations.chart import sweep_chart
from tests import factories as make
from tests.factories import Cast
from tests.services.calibrations.test_commands import SWEEP, TIMED
from tests.web.conftest import texts

pytestmark = pytest.mark.django_db
KNEE = {"knee": "factor", "knee_factor": "2", "slo_s": ""}


@pytest.fixture
def ada(sign_in, cast: Cast) -> Client:
    return sign_in(cast.ada)


def prefixed(prefix: str, **fields: object) -> dict[str, object]:
    return {f"{prefix}-{name}": value for name, value in {**KNEE, **fields}.items()}


def imported(client: Client, fleet: Fleet, content: str = SWEEP, **fields: object):
    file = io.BytesIO(content.encode())
    file.name = "sweep.csv"
    form = prefixed("sweep", **{"file": file, "slots_measured": 60, "margin": "0.8", "keep_share": "0.95", **fields})
    return client.post(reverse("calibration-import", args=[fleet.slug]), form, follow=True)


def order(client: Client, cast: Cast, fleet: Fleet, **fields: object):
    workload = make.make_workload(cast, fleet)
    form = prefixed("simulate", **{"workload": workload.pk, "margin": "0.8", "loads": "1, 2", **fields})
    return client.post(reverse("calibration-simulate", args=[fleet.slug]), form, follow=True)


def test_a_simulated_calibration_is_followed_to_its_page(ada: Client, cast: Cast, fleet: Fleet) -> None:
    page = order(ada, cast, fleet)
    job = Job.objects.get()
    address = reverse("calibration-job", args=[fleet.slug, job.pk])
    assert page.redirect_chain == [(address, 302)]
    body = page.content.decode()
    assert f"0 of {job.total} steps" in body
    assert f'hx-get="{address}progress/"' in body
    assert f'<a href="{address}">' in ada.get(reverse("calibration-new", args=[fleet.slug])).content.decode()

    jobs.progress(jobs_claim(job), 1, "1 of 2 loads")
    part = ada.get(f"{address}progress/")
    assert "1 of 2 loads" in part.content.decode()
    assert not {"HX-Refresh", "HX-Redirect"} & set(part.headers)

    run_job(job.pk)
    made = Calibration.objects.get()
    done = reverse("calibration", args=[fleet.slug, made.pk])
    assert ada.get(f"{address}progress/")["HX-Redirect"] == done
    page = ada.get(address, follow=True)
    assert page.redirect_chain == [(done, 302)]
    body = page.content.decode()
    assert "simulated: one replica of a modelled engine" in body
    assert made.serving_profile.fingerprint in body
    assert made.parameters["inputs_digest"] in body
    assert (
        f'<a href="{address}">Calibration {made.pk}</a>'
        in ada.get(reverse("fleet", args=[fleet.slug])).content.decode()
    )


def jobs_claim(job: Job) -> Job:
    Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING)
    return Job.objects.get(pk=job.pk)


def test_a_failed_or_cancelled_job_is_shown_without_a_redirect(ada: Client, cast: Cast, fleet: Fleet) -> None:
    order(ada, cast, fleet)
    job = Job.objects.get()
    address = reverse("calibration-job", args=[fleet.slug, job.pk])
    page = ada.post(reverse("job-cancel", args=[fleet.slug, job.pk]), {"next": address}, follow=True)
    assert page.redirect_chain == [(address, 302)]
    assert "No result was stored." in page.content.decode()
    assert ada.get(f"{address}progress/")["HX-Refresh"] == "true"
    Job.objects.filter(pk=job.pk).update(state=Job.State.FAILED, error="too few requests")
    assert "✗ too few requests" in ada.get(address).content.decode()


def test_an_order_that_cannot_be_is_shown_beside_its_field(ada: Client, cast: Cast, fleet: Fleet) -> None:
    page = order(ada, cast, fleet, loads="1, 1", knee_factor="3")
    assert page.status_code == 400
    assert page.context["simulate_form"].errors == {"loads": ["At most 50 different loads"]}
    assert 'value="3"' in page.content.decode()
    assert not Job.objects.exists()


def test_a_measured_sweep_is_imported_and_its_page_shows_all_of_it(ada: Client, fleet: Fleet) -> None:
    page = imported(ada, fleet, note="on Tuesday")
    made = Calibration.objects.get()
    assert page.redirect_chain == [(reverse("calibration", args=[fleet.slug, made.pk]), 302)]
    assert texts(page) == ["Imported 3 loads: q_cap 2/s, W 48 (measured)."]
    body = page.content.decode()
    for shown in (
        "measured on the real engine",
        "Knee: p99 within 2 x p99 at the lowest load.",
        "60 warm prefixes kept, as stated by ada.",
        "sweep.csv",
        made.parameters["source_sha256"],
        "Rows were sorted by load_rps.",
        "on Tuesday",
    ):
        assert shown in body, shown
    assert "</span> simulated" not in body  # the label of what was
    rows = re.findall(r'<tr( class="knee-row")?><td class="n">(.*?)([\d.]+)</td>', body)
    assert [(bool(marked), "q_cap:" in said, load) for marked, said, load in rows] == [
        (False, False, "1"), (True, True, "2"), (False, False, "4"),
    ]  # fmt: skip


def test_trials_of_w_are_shown_with_their_kept_share(ada: Client, fleet: Fleet) -> None:
    content = "load_rps,p99_s,prefixes,kept_share\n1,1,100,1\n2,1.1,200,.97\n4,9,400,.3\n"
    body = imported(ada, fleet, content, slots_measured="").content.decode()
    cells = (
        r'<td class="n">(?:<.*used:</span> )?([\d,]+)</td><td class="n">([\d.]+%)</td><td><span class="tag tag-(\w+)">'
    )
    assert re.findall(cells, body) == [("100", "100.0%", "good"), ("200", "97.0%", "good"), ("400", "30.0%", "bad")]
    assert re.findall(r"used:</span> (\d+)<", body) == ["200"]


@pytest.mark.parametrize(
    ("content", "sign", "said"),
    [
        ("load_rps,p99_s\n1,1\n2,9\n", "&lt;&nbsp;1<", "Left-censored"),
        ("load_rps,p99_s\n1,1\n2,1.1\n", "≥&nbsp;2<", "Right-censored"),
    ],
)
def test_censoring_is_drawn_and_said(ada: Client, fleet: Fleet, content: str, sign: str, said: str) -> None:
    body = imported(ada, fleet, content).content.decode()
    assert sign in body
    assert f"! {said}" in body
    assert 'class="censored"' in body
    assert 'class="censored"' not in imported(ada, fleet).content.decode()


def test_a_fault_of_the_file_is_shown_and_nothing_stored(ada: Client, fleet: Fleet) -> None:
    page = imported(ada, fleet, "load_rps,p99_s\n1,-1\n")
    assert page.status_code == 400
    assert page.context["sweep_form"].errors["file"] == ["sweep.csv, row 2, p99_s: -1 is negative."]
    page = imported(ada, fleet, slots_measured="")
    assert page.context["sweep_form"].errors["slots_measured"] == [
        "Say how many warm prefixes were kept, or add the columns prefixes and kept_share to the file"
    ]
    assert not Calibration.objects.exists()


def test_a_file_that_is_too_large_is_refused(ada: Client, fleet: Fleet, settings) -> None:
    settings.UPLOAD_MAX_BYTES = 10
    page = imported(ada, fleet)
    assert page.status_code == 413
    assert "The file is larger than 0 MiB." in page.content.decode()


def test_the_page_names_the_plans_made_from_it(ada: Client, cast: Cast, fleet: Fleet) -> None:
    plan = make.built_plan(cast, fleet)
    body = ada.get(reverse("calibration", args=[fleet.slug, plan.calibration_id])).content.decode()
    assert f'<a href="{reverse("plan", args=[fleet.slug, plan.number])}">{plan}</a>' in body
    assert "This calibration has no points." in body
    address = reverse("calibration", args=[fleet.slug, plan.calibration_id])
    assert address in ada.get(reverse("plan", args=[fleet.slug, plan.number])).content.decode()
    assert address in ada.get(reverse("fleet", args=[fleet.slug])).content.decode()


def test_constants_are_fitted_from_the_page_and_shown_there(ada: Client, sign_in, cast: Cast, fleet: Fleet) -> None:
    imported(ada, fleet, TIMED)
    made = Calibration.objects.get()
    address = reverse("calibration", args=[fleet.slug, made.pk])
    assert "workload" not in ada.get(address).context["fit_form"].fields
    page = ada.post(f"{address}fit/", {"name": "mine"}, follow=True)
    job = Job.objects.get()
    assert page.redirect_chain == [(reverse("calibration-job", args=[fleet.slug, job.pk]), 302)]
    assert "is in progress." in ada.get(address).content.decode()
    run_job(job.pk)
    body = ada.get(address).content.decode()
    assert "<h3>mine</h3>" in body
    assert "fitted: 6 points, rms error 0.00%" in body
    assert ServingProfile.objects.get(name="mine").fingerprint[:12] in body
    page = ada.post(f"{address}fit/", {"name": "mine"})
    assert page.status_code == 409
    assert page.context["fit_form"].errors["name"] == ["A serving profile named 'mine' exists already"]
    root = sign_in(cast.root)
    form = root.get(reverse("fleet-serving", args=[fleet.slug])).context["form"]
    assert ("mine", "mine") in form.fields["engine_profile"].choices
    root.post(reverse("fleet-serving", args=[fleet.slug]), {"engine_profile": "mine"})
    fleet.refresh_from_db()
    assert fleet.serving_profile.name == "mine"


def test_a_fit_that_failed_says_why(ada: Client, cast: Cast, fleet: Fleet) -> None:
    make.make_workload(cast, fleet)
    imported(ada, fleet, "load_rps,p99_s\n1,1\n2,9\n")
    made = Calibration.objects.get()
    address = reverse("calibration", args=[fleet.slug, made.pk])
    ada.post(f"{address}fit/", {"name": "mine", "workload": fleet.workloads.get().pk})
    run_job(Job.objects.get().pk)
    assert "1 of 2 loads up to the knee; two or more are needed" in ada.get(address).content.decode()


def test_simulated_points_and_people_without_the_right_get_no_form_to_fit(
    ada: Client, sign_in, cast: Cast, fleet: Fleet
) -> None:
    workload = make.make_workload(cast, fleet)
    simulated = calibrations.simulate_calibration(acting_user=cast.ada, fleet=fleet, workload=workload, loads=[1.0])
    body = ada.get(reverse("calibration", args=[fleet.slug, simulated.pk])).content.decode()
    assert "Fit constants" not in body
    assert "these points were simulated" in body
    imported(ada, fleet)
    address = reverse("calibration", args=[fleet.slug, Calibration.objects.latest("id").pk])
    assert "Fit constants" in ada.get(address).content.decode()
    vera = sign_in(cast.vera)
    assert "Fit constants" not in vera.get(address).content.decode()
    assert vera.post(f"{address}fit/", {"name": "mine"}).status_code == 403


def test_pages_are_of_their_fleet_and_want_somebody_signed_in(ada: Client, cast: Cast, fleet: Fleet) -> None:
    imported(ada, fleet)
    made, other = Calibration.objects.get(), make.make_fleet(cast)
    assert ada.get(reverse("calibration", args=[other.slug, made.pk])).status_code == 404
    order(ada, cast, fleet)
    job = Job.objects.get()
    assert ada.get(reverse("calibration-job", args=[other.slug, job.pk])).status_code == 404
    for address in (
        reverse("calibration", args=[fleet.slug, made.pk]),
        reverse("calibration-job", args=[fleet.slug, job.pk]),
        reverse("calibration-job-progress", args=[fleet.slug, job.pk]),
    ):
        assert Client().get(address).url == f"/login/?next={address}"


def test_points_that_were_recorded_under_any_name_are_shown(ada: Client, cast: Cast, fleet: Fleet) -> None:
    made = make.make_calibration(cast, fleet, points=[{"load_rps": 1, "p99_s": 2, "<b>": 3}, {"watts": -5}])
    body = ada.get(reverse("calibration", args=[fleet.slug, made.pk])).content.decode()
    assert "&lt;b&gt;" in body
    assert "watts" in body
    assert "A chart needs at least two loads with a latency." in body


POINTS = [{"load_rps": float(n), "p50_s": 0.1 * n, "p99_s": 0.2 * n**2} for n in range(1, 6)]


def test_the_chart_is_drawn_wide_and_narrow_and_said_in_words() -> None:
    chart = sweep_chart(POINTS, 3.0, "", 1.5)
    assert chart is not None
    assert chart.count("<svg") == 2
    assert chart.count('class="line p99"') == chart.count('class="line p50"') == 2
    assert "p95" not in chart
    assert "5 loads from 1 to 5 requests/s. p99 goes from 0.2 to 5 s. The knee lies at 3 requests/s." in chart
    assert chart.count('class="bound"') == 2
    numbers = [float(n) for n in re.findall(r' (?:x|y|x1|x2|y1|y2|cx|cy|width|height)="([^"]+)"', chart)]
    assert all(0 <= n <= 640 for n in numbers)


def test_names_of_lines_that_end_together_do_not_cover_each_other() -> None:
    chart = sweep_chart([{**p, "p95_s": 0.999 * p["p99_s"], "p50_s": 0.998 * p["p99_s"]} for p in POINTS], 3.0, "")
    assert chart is not None
    ends = [float(y) for y in re.findall(r'<text class="p\d\d" x="[\d.]+" y="([\d.]+)">', chart)][:3]
    assert all(b - a >= 13 for a, b in pairwise(ends))


@pytest.mark.parametrize("censored", ["left", "right"])
def test_a_censored_knee_is_shaded_on_its_side(censored: str) -> None:
    chart = sweep_chart(POINTS, 1.0 if censored == "left" else 5.0, censored)
    assert chart is not None
    [wide, _] = re.findall(r'class="censored" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', chart)
    knee = float(re.findall(r'class="knee" x1="([\d.]+)"', chart)[0])
    start, width = map(float, wide)
    assert (start + width == pytest.approx(knee)) if censored == "left" else (start == knee and width >= 14)
    assert f"q_cap {'&lt; 1' if censored == 'left' else '≥ 5'}/s" in chart


@pytest.mark.parametrize("points", [[], [{"load_rps": 1.0, "p99_s": 1.0}], [{"watts": 1.0}] * 3])
def test_there_is_no_chart_of_less_than_two_loads(points: list[dict[str, float]]) -> None:
    assert sweep_chart(points, 1.0, "") is None
