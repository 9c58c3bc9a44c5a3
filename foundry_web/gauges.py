"""Figures of the queue and the runners, read from the database when somebody asks for the metrics."""

from collections.abc import Iterator

from django.db.models import Count
from django.utils import timezone
from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from evolution_app.models import Run, Runner


class FoundryCollector(Collector):
    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing is read when it is registered: there may be no table yet."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        runs = GaugeMetricFamily("foundry_runs", "Runs by state", labels=["state"])
        for state, count in Run.objects.values_list("state").annotate(Count("id")).order_by():
            runs.add_metric([state], count)
        yield runs
        alive = Runner.objects.alive().count()
        yield GaugeMetricFamily("foundry_runners_alive", "Runners with a heartbeat", value=alive)
        waiting = Run.objects.filter(state="queued").order_by("created_at").first()
        age = (timezone.now() - waiting.created_at).total_seconds() if waiting else 0.0
        yield GaugeMetricFamily(
            "foundry_oldest_queued_seconds", "Age of the first in the queue", value=age
        )


REGISTRY.register(FoundryCollector())
