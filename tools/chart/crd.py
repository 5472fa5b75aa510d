"""The CRDs as a template of the chart: Helm never upgrades what lies in a chart's crds/ folder."""

from __future__ import annotations

import re

_TOP = "{{- /* Generated from crds/ by `make generate`. */}}\n{{- if .Values.crds.enabled }}\n"
_METADATA = re.compile(r"^metadata:\n  name: [a-z]+\.servingpool\.dev\n", re.MULTILINE)
_MORE = """\
  labels:
    {{- include "servingpool.labels" . | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations:
    # Deleting it would delete every pool, and what it has learned.
    helm.sh/resource-policy: keep
  {{- end }}
"""


def template(*crds: str) -> str:
    """The template for the texts of the manifests.

    Raises:
        ValueError: a manifest's head is not the expected one.
    """
    body = "---\n".join(each[each.index("apiVersion:") :].replace("{{", '{{ "{{" }}') for each in crds)
    body, found = _METADATA.subn(lambda name: name[0] + _MORE, body)
    if found != len(crds):
        raise ValueError("a CRD has not the metadata that the chart adds its labels to")
    return f"{_TOP}{body}{{{{- end }}}}\n"
