"""What Prometheus asks for. With several workers, PROMETHEUS_MULTIPROC_DIR joins their counts."""

import os
from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)
from starlette.types import Scope

_SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 20, 60)


class Metrics:
    """Counts of one app."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ("method", "route")
        self._requests = Counter(
            "planner_requests",
            "Requests by route and status.",
            (*labels, "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "planner_request_seconds",
            "Time to the end of an answer.",
            labels,
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._waiting = Gauge(
            "planner_waiting",
            "Requests that wait for a process.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request under its route's template: paths of clients are no labels."""
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in {"GET", "POST", "HEAD"} else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def text(self, waiting: int) -> bytes:
        """Return what Prometheus reads."""
        self._waiting.set(waiting)
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        of_all_workers = CollectorRegistry()
        collect: Callable[[CollectorRegistry], object] = multiprocess.MultiProcessCollector
        collect(of_all_workers)
        return generate_latest(of_all_workers)
