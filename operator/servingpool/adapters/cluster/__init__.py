"""The cluster: what is watched, kept small in memory, and the few writes."""
