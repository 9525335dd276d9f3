"""Metrics. Each declares its main score, `primary`, and its direction, `greater_is_better`."""

from collections.abc import Callable, Iterable
from typing import Any


def best_first(items: Iterable[Any], figure: Callable[[Any], Any], metric: Any) -> list[Any]:
    """Items sorted by a metric that declares `greater_is_better`, best first; ties keep their order."""
    return sorted(items, key=figure, reverse=metric.greater_is_better)


def metric_info(kind: Any, description: str | None, inputs: str, citation: str) -> Any:
    """The `MetricInfo` of an `evaluate` metric; predictions and references are features of that kind."""
    import datasets
    import evaluate

    features = datasets.Features({"predictions": kind, "references": kind})
    texts = {"description": description, "inputs_description": inputs, "citation": citation}
    return evaluate.MetricInfo(features=features, **texts)
