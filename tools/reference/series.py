"""How a profile's series are written in a table."""

from __future__ import annotations

from collections.abc import Collection

from reference.markdown import code
from servingpool.adapters.prometheus.engines.profile import Counted, Series


def counted_as(series: Collection[Series]) -> str:
    """When they are counted, in order of preference; a dash for none."""
    said = dict.fromkeys("at finish" if one.counted is Counted.AT_FINISH else "smooth" for one in series)
    return " or ".join(said) or "-"


def shown_as(series: Series) -> str:
    """Its metrics and which of them count."""
    rules = [f"without {code(label)}" for label in series.without]
    rules += [f"not {code(f'{label}={value}')}" for label, values in series.excluded.items() for value in values]
    return ", ".join([code(series.text), *rules])
