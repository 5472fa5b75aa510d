"""The operator's own record in Prometheus, read by the command line and by the dashboard."""
