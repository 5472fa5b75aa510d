"""An hour of three pools with priorities under one budget on the local control plane, written down as a page."""
