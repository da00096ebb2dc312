"""Pages of calibrations: order, import, show and fit."""

from __future__ import annotations

import io
import json
import math
import re

import pytest
from django.test import Client
from django.urls import reverse

from dashboards import share_curve, sweep
from planner.models import Calibration, Fleet, Job, ServingProfile
from planner.services.calibrations import calibrations
from planner.services.jobs import jobs
from planner.tasks import run_job
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


def test_an_invalid_order_is_reported_at_its_field(ada: Client, cast: Cast, fleet: Fleet) -> None:
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
def test_censoring_is_shown_in_chart_and_text(ada: Client, fleet: Fleet, content: str, sign: str, said: str) -> None:
    body = imported(ada, fleet, content).content.decode()
    assert sign in body
    assert f"! {said}" in body
    assert '"type": "rect"' in body
    assert '"type": "rect"' not in imported(ada, fleet).content.decode()


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


def test_a_failed_fit_shows_its_error(ada: Client, cast: Cast, fleet: Fleet) -> None:
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


def test_pages_belong_to_their_fleet_and_require_a_sign_in(ada: Client, cast: Cast, fleet: Fleet) -> None:
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


THEMES = ("light", "dark")


@pytest.mark.parametrize("theme", THEMES)
def test_the_chart_has_a_line_for_each_quantile_the_bound_and_the_knee(theme: str) -> None:
    figure = sweep.sweep(sweep.known_points(POINTS), 3.0, "", 1.5, theme)
    assert [(line["name"], len(line["x"])) for line in figure["data"]] == [("p50", 5), ("p99", 5)]
    layout = figure["layout"]
    assert [(s["type"], s["x0"], s["y0"]) for s in layout["shapes"]] == [("line", 0, 1.5), ("line", 3.0, 0)]
    assert [a["text"] for a in layout["annotations"]] == ["1.5 s", "<b>q_cap 3 requests/s</b>"]
    low, high = layout["yaxis"]["range"]
    assert low < math.log10(0.1) < layout["annotations"][0]["y"] < math.log10(5.0) < high
    json.dumps(figure, allow_nan=False)


def test_the_chart_is_said_in_words() -> None:
    said = "5 loads from 1 to 5 requests/s. p99 latency goes from 0.2 to 5 s. The knee lies at 3 requests/s."
    assert sweep.in_words(sweep.known_points(POINTS), 3.0, "") == said


@pytest.mark.parametrize(("censored", "q_cap", "sign"), [("left", 1.0, "&lt; 1"), ("right", 5.0, "≥ 5")])
def test_a_censored_knee_is_shaded_on_its_side(censored: str, q_cap: float, sign: str) -> None:
    layout = sweep.sweep(sweep.known_points(POINTS), q_cap, censored, None, "light")["layout"]
    shade, knee = layout["shapes"]
    assert (knee["x0"], knee["x1"]) == (q_cap, q_cap)
    assert (shade["x0"], shade["x1"]) == ((0, 1.0) if censored == "left" else (5.0, layout["xaxis"]["range"][1]))
    assert shade["x1"] - shade["x0"] > 0.05 * layout["xaxis"]["range"][1]
    assert layout["annotations"][0]["text"] == f"<b>q_cap {sign} requests/s</b>"


@pytest.mark.parametrize("points", [[], [{"load_rps": 1.0, "p99_s": 1.0}], [{"watts": 1.0}] * 3])
def test_there_is_no_chart_of_less_than_two_loads(points: list[dict[str, float]]) -> None:
    assert sweep.known_points(points) == []


def test_the_page_carries_the_figure_in_both_themes(ada: Client, cast: Cast, fleet: Fleet) -> None:
    made = make.make_calibration(cast, fleet, points=POINTS)
    body = ada.get(reverse("calibration", args=[fleet.slug, made.pk])).content.decode()
    carried = json.loads(re.findall(r'<script id="sweep" type="application/json">(.*?)</script>', body)[0])
    assert set(carried) == set(THEMES)
    assert 'data-figure="sweep"' in body
    assert "js/figures.js" in body
    assert "<svg class" not in body


def test_the_share_curve_is_drawn_in_percent_by_rank() -> None:
    points = [(1, 0.5), (10, 0.75), (1_000, 1.0)]
    for theme in THEMES:
        figure = share_curve.share_curve(points, theme)
        assert (figure["data"][0]["x"], figure["data"][0]["y"]) == ([1, 10, 1_000], [50, 75, 100])
        assert figure["layout"]["xaxis"]["range"] == [0, 3]
    assert share_curve.in_words(points) == "The busiest 1 of 1,000 keys carry half of the requests."
