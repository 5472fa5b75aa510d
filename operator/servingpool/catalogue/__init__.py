"""Every name that users see, in one place: condition reasons, limits, events, metrics and alerts.

The code renders its messages from here. `make generate` writes the reference pages and the chart's alerts from here.
"""
