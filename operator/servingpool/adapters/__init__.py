"""The edge: the only code that speaks to Prometheus and to the cluster, and catches what their clients raise."""
