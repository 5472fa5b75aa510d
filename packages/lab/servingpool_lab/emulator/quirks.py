"""How pages of other engines and simulators differ from that of vLLM 0.32, as options of the lab's programs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from servingpool_lab.emulator.engine_pages import PAGES

OLD_NAMES = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
}
"""Today's name to the one that it replaced."""


@dataclass(frozen=True, slots=True)
class PageQuirks:
    """What is unlike vLLM 0.32 on a page; nothing by default. All three are as in llm-d-inference-sim."""

    no_engine_label: bool = False
    """No series has the label `engine`."""
    old_names: bool = False
    """Metrics that were renamed stand there under both names."""
    absent_until_used: bool = False
    """A histogram without an observation and a counter at 0 are absent, as with client libraries that create a labelled
    series when it is first used."""

    def applied(self, families: Iterable[Metric]) -> list[Metric]:
        """The engine's families as such a page has them."""
        found = list(families)
        if self.absent_until_used:
            found = [used for family in found if (used := _used(family)).samples]
        if self.no_engine_label:
            found = [_without_label(family) for family in found]
        if self.old_names:
            found += [_renamed(family, OLD_NAMES[family.name]) for family in found if family.name in OLD_NAMES]
        return found

    @staticmethod
    def read(given: argparse.Namespace) -> PageQuirks:
        """From a command line whose parser has `add_options`."""
        return PageQuirks(
            no_engine_label=given.no_engine_label or given.page_quirks,
            old_names=given.old_metric_names or given.page_quirks,
            absent_until_used=given.absent_until_used or given.page_quirks,
        )


AS_VLLM = PageQuirks()
"""None."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of an engine that is unlike vLLM on a GPU."""
    add = parser.add_argument
    add("--engine", choices=["vllm", *PAGES], default="vllm", help="whose metrics, and conduct at its end")
    add("--ttft-from-admission", action="store_true", help="the TTFT histogram leaves out the engine's queue")
    add("--no-engine-label", action="store_true", help="no series has the label engine")
    add("--old-metric-names", action="store_true", help="renamed metrics stand there under both names")
    add("--absent-until-used", action="store_true", help="no histogram without an observation, no counter at 0")
    add("--page-quirks", action="store_true", help="the last three at once, as in llm-d-inference-sim")


def _used(family: Metric) -> Metric:
    """With the samples that were ever counted; a gauge keeps all of its own."""
    if family.type == "gauge":
        return family
    ever = "_count" if family.type == "histogram" else "_total"
    used = [sample.labels for sample in family.samples if sample.name.endswith(ever) and sample.value > 0]
    return _with(family, (sample for sample in family.samples if _base(sample) in used))


def _base(sample: Sample) -> dict[str, str]:
    return {name: value for name, value in sample.labels.items() if name != "le"}


def _without_label(family: Metric) -> Metric:
    return _with(
        family,
        (
            sample._replace(labels={name: value for name, value in sample.labels.items() if name != "engine"})
            for sample in family.samples
        ),
    )


def _renamed(family: Metric, name: str) -> Metric:
    copy = Metric(name, family.documentation, family.type)
    copy.samples = [sample._replace(name=sample.name.replace(family.name, name)) for sample in family.samples]
    return copy


def _with(family: Metric, samples: Iterable[Sample]) -> Metric:
    copy = Metric(family.name, family.documentation, family.type)
    copy.samples = list(samples)
    return copy
