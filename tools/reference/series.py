"""How a profile's series are written in a table."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from reference.markdown import code
from servingpool.adapters.prometheus.engines.profile import HISTOGRAMS, Counted, EngineMetrics, Series


def counted_as(series: Collection[Series]) -> str:
    """When they are counted, in order of preference; a dash for none."""
    said = dict.fromkeys("at finish" if one.counted is Counted.AT_FINISH else "smooth" for one in series)
    return " or ".join(said) or "-"


def shown_as(series: Series) -> str:
    """Its metrics and which of them count."""
    rules = [f"the total over {code(label)}" for label in series.parts_by]
    rules += [f"not {code(f'{label}={value}')}" for label, values in series.excluded.items() for value in values]
    return ", ".join([code(series.text), *rules])


def keep_list(profile: EngineMetrics) -> str:
    """The regular expression of the metrics that the profile reads, for a monitor that keeps these alone."""
    several = [(figure in HISTOGRAMS and one.name, one) for figure, ones in profile.figures.items() for one in ones]
    read = ([f"{name}_(bucket|sum|count)"] if name else one.metrics(histogram=False) for name, one in several)
    return "|".join(dict.fromkeys(chain.from_iterable(read)))
