"""An afternoon from an HPA to Auto and back on the local control plane, in real time, written down as a page."""
