"""Every name that users see, in one place: condition reasons, limits, events, metrics and alerts.

Conditions, limits and events are rendered from here; the decision's sentence is made in `decision/explain.py`.
`make generate` writes the reference pages and the chart's alerts from here.
"""
