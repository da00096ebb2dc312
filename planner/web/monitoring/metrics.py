"""`/metrics` for Prometheus: requests of this web process, and the state of the console in the database."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

from celery import current_app
from django.conf import settings
from django.db import DatabaseError, transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from django_prometheus.exports import ExportToDjangoView
from kombu.exceptions import KombuError, OperationalError
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from planner.selectors.monitoring import metrics as figures


class ConsoleCollector(Collector):
    """Reads database and broker at each scrape. A scrape costs three queries and one request per queue."""

    def describe(self) -> Iterator[Metric]:
        """No metrics, so that the registration does not read the database."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All metrics of the console, except those of an unavailable server."""
        try:
            with transaction.atomic():
                found = list(self._stored())
        except DatabaseError:
            found = []
        yield _gauge("cacheroute_database_up", "Whether the database answers", float(bool(found)))
        yield from found
        try:
            depth = dict(queue_depths())
        except (KombuError, OperationalError, OSError):
            depth = {}
        yield _gauge("cacheroute_broker_up", "Whether the broker answers", float(bool(depth)))
        if depth:
            family = GaugeMetricFamily(
                "cacheroute_queue_messages", "Messages in the broker that no worker took", labels=["queue"]
            )
            for queue, number in depth.items():
                family.add_metric([queue], number)
            yield family

    def _stored(self) -> Iterator[Metric]:
        now = timezone.now()
        jobs = GaugeMetricFamily("cacheroute_jobs", "Jobs by kind and state", labels=["kind", "state"])
        for labels, number in figures.jobs_by_kind_and_state().items():
            jobs.add_metric(list(labels), number)
        yield jobs
        oldest = figures.oldest_queued_at()
        waited = (now - oldest).total_seconds() if oldest else 0.0
        yield _gauge("cacheroute_oldest_queued_job_age_seconds", "Age of the oldest job that is queued", waited)
        version = GaugeMetricFamily("cacheroute_table_version", "Version of the published table", labels=["fleet"])
        issued = GaugeMetricFamily(
            "cacheroute_table_issued_timestamp_seconds", "Time of the published table", labels=["fleet"]
        )
        age = GaugeMetricFamily(
            "cacheroute_monitor_age_seconds", "Time since the monitor's last check of the fleet", labels=["fleet"]
        )
        for fleet in figures.fleet_figures():
            version.add_metric([fleet.slug], fleet.table_version)
            issued.add_metric([fleet.slug], fleet.table_issued_at.timestamp())
            if fleet.checked_at is not None:
                age.add_metric([fleet.slug], max(0.0, (now - fleet.checked_at).total_seconds()))
        yield from (version, issued, age)


def queue_depths() -> Iterator[tuple[str, int]]:
    """Name of each queue and the number of messages in it."""
    with current_app.connection_for_read() as connection:
        channel: Any = connection.default_channel  # the stubs know no methods of channels
        for queue in settings.CELERY_TASK_QUEUES:
            yield queue.name, channel.queue_declare(queue=queue.name).message_count


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


REGISTRY = CollectorRegistry(auto_describe=False)
REGISTRY.register(ConsoleCollector())


@never_cache
@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Request metrics of django-prometheus and metrics of the console."""
    if settings.METRICS_TOKEN:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secrets.compare_digest(given.encode(), settings.METRICS_TOKEN.encode()):
            refusal = HttpResponse(
                "This address requires the metrics token. Send Authorization: Bearer <token>.\n", "text/plain", 401
            )
            refusal["WWW-Authenticate"] = "Bearer"
            return refusal
    elif not _is_allowed(request):
        return HttpResponse(
            "Metrics are not allowed from this address. Set CACHEROUTE_METRICS_TOKEN or the allowed networks.\n",
            "text/plain",
            403,
        )
    response: HttpResponse = ExportToDjangoView(request)
    response.write(generate_latest(REGISTRY))
    return response


def _is_allowed(request: HttpRequest) -> bool:
    """Whether the client is in an allowed network.

    A request through a proxy has the address of the proxy unless CACHEROUTE_TRUSTED_PROXIES names the proxy. Such a
    request is refused: a proxy on this machine would open the loopback networks to all clients.
    """
    forwarded = "X-Forwarded-For" in request.headers or "Forwarded" in request.headers
    if forwarded and not settings.TRUSTED_PROXIES:
        return False
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    return any(address in ip_network(network, strict=False) for network in settings.METRICS_NETWORKS)
