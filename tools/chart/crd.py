"""The CRD as a template of the chart: Helm never upgrades what lies in a chart's crds/ folder."""

from __future__ import annotations

_TOP = "{{- /* Generated from crds/ by `make generate`. */}}\n{{- if .Values.crds.enabled }}\n"
_METADATA = """\
metadata:
  name: servingpools.servingpool.dev
"""
_MORE = """\
  labels:
    {{- include "servingpool.labels" . | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations:
    # Deleting it would delete every pool, and what it has learned.
    helm.sh/resource-policy: keep
  {{- end }}
"""


def template(crd: str) -> str:
    """The template for the text of the manifest.

    Raises:
        ValueError: the manifest's head is not the expected one.
    """
    if crd.count(_METADATA) != 1:
        raise ValueError("the CRD has not the metadata that the chart adds its labels to")
    body = crd[crd.index("apiVersion:") :].replace("{{", '{{ "{{" }}')
    return f"{_TOP}{body.replace(_METADATA, _METADATA + _MORE)}{{{{- end }}}}\n"
