{{- define "servingpool.testMetadata" }}
  labels:
    # Not the operator's own name: its Service must not select the tests. Its network policy does.
    app.kubernetes.io/name: {{ include "servingpool.testLabel" . }}
    app.kubernetes.io/instance: {{ .Release.Name | quote }}
    {{- include "servingpool.common" . | nindent 4 }}
  annotations:
    helm.sh/hook: test
{{- end }}

{{- define "servingpool.testLabel" -}}
{{ include "servingpool.derived" (list (include "servingpool.name" .) "-test") }}
{{- end }}

{{- /* Where and as whom the operator's pods run too. */}}
{{- define "servingpool.testPlacement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
