{{- define "servingpool.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "servingpool.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "servingpool.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "servingpool.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* A name and a suffix, cut to the 63 characters that a label or a Service may have. */}}
{{- define "servingpool.derived" -}}
{{- $name := first . }}
{{- $suffix := last . }}
{{- $name | trunc (int (sub 63 (len $suffix))) | trimSuffix "-" }}{{ $suffix }}
{{- end }}

{{- define "servingpool.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "servingpool.fullname" .) }}
{{- else }}
{{- required "serviceAccount.name: needed where serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "servingpool.selector" -}}
app.kubernetes.io/name: {{ include "servingpool.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- /* What every object carries besides its name. */}}
{{- define "servingpool.common" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "servingpool.labels" -}}
{{ include "servingpool.selector" . }}
{{ include "servingpool.common" . }}
{{- end }}

{{- define "servingpool.image" -}}
{{- $repository := required "image.repository: needed, such as --set image.repository=your-registry/servingpool-operator. No image has been published yet: `make image IMAGE=your-registry/servingpool-operator:TAG` in a clone of the repository builds one, docker push brings it where the cluster can pull it, and image.tag is its TAG" .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- define "servingpool.secretDirectory" -}}
/var/run/secrets/servingpool/{{ .name | default "default" }}
{{- end }}

{{- /* A backend as the operator's configuration has it: what is a Secret's name in the values is a file's path there. */}}
{{- define "servingpool.backend" -}}
{{- $directory := include "servingpool.secretDirectory" . }}
{{- $backend := pick (dict "name" "default" | merge (deepCopy .)) "name" "url" "namespaces" "timeout" "staleness" "concurrency" "headers" "labels" "gateway" }}
{{- if .bearerToken }}
{{- $_ := set $backend "bearerTokenFile" (printf "%s/token" $directory) }}
{{- end }}
{{- with .basicAuth }}
{{- $_ := set $backend "basicAuth" (dict "username" .username "passwordFile" (printf "%s/password" $directory)) }}
{{- end }}
{{- with .tls }}
{{- $tls := dict }}
{{- if .ca }}
{{- $_ := set $tls "caFile" (printf "%s/ca.crt" $directory) }}
{{- end }}
{{- if .clientCertificate }}
{{- $_ := set $tls "certFile" (printf "%s/tls.crt" $directory) }}
{{- $_ := set $tls "keyFile" (printf "%s/tls.key" $directory) }}
{{- end }}
{{- $_ := set $backend "tls" $tls }}
{{- end }}
{{- toYaml $backend }}
{{- end }}

{{- /* Sources of the projected volume with a backend's secrets; empty where it has none. */}}
{{- define "servingpool.secretSources" -}}
{{- with .bearerToken }}
{{- if .secret }}
- secret:
    name: {{ .secret.name }}
    items: [{key: {{ .secret.key }}, path: token}]
{{- else }}
- serviceAccountToken:
    {{- toYaml .serviceAccountToken | nindent 4 }}
    path: token
{{- end }}
{{- end }}
{{- with .basicAuth }}
- secret:
    name: {{ .passwordSecret.name }}
    items: [{key: {{ .passwordSecret.key }}, path: password}]
{{- end }}
{{- with .tls }}
{{- with .ca }}
{{- range $kind, $source := . }}
- {{ $kind }}:
    name: {{ $source.name }}
    items: [{key: {{ $source.key }}, path: ca.crt}]
{{- end }}
{{- end }}
{{- with .clientCertificate }}
- secret:
    name: {{ .secret }}
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
{{- end }}
{{- end }}
{{- end }}

{{- /* Not empty where the operator's pod patches are limited: the API came with Kubernetes 1.30. */}}
{{- define "servingpool.admissionPolicy" -}}
{{- if and .Values.rbac.create .Values.podDeletionCost.enabled .Values.podDeletionCost.admissionPolicy (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) -}}
true
{{- end }}
{{- end }}

{{- /* The configuration and all that it names, as the operator and its test read them. */}}
{{- define "servingpool.volumeMounts" -}}
- name: config
  mountPath: /etc/servingpool
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- range $index, $backend := .Values.backends }}
{{- if include "servingpool.secretSources" $backend }}
- name: backend-{{ $index }}
  mountPath: {{ include "servingpool.secretDirectory" $backend }}
  readOnly: true
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "servingpool.volumes" -}}
- name: config
  configMap:
    name: {{ include "servingpool.fullname" . }}
- name: tmp
  emptyDir:
    sizeLimit: 16Mi
{{- range $index, $backend := .Values.backends }}
{{- with include "servingpool.secretSources" $backend }}
- name: backend-{{ $index }}
  projected:
    # Readable by the pod's group, which fsGroup makes the owner.
    defaultMode: 0440
    sources:
      {{- . | trim | nindent 6 }}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Ports of the backends' URLs that the network policy does not open anyway, as a comma-separated list. */}}
{{- define "servingpool.prometheusPorts" -}}
{{- $ports := list }}
{{- range .Values.networkPolicy.prometheusPorts }}
{{- $ports = append $ports (toString .) }}
{{- end }}
{{- range .Values.backends }}
{{- $url := urlParse .url }}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (ternary "443" "80" (eq $url.scheme "https")) }}
{{- $ports = append $ports $port }}
{{- end }}
{{- $ports | uniq | join "," }}
{{- end }}

{{- /* A probe's fields; /healthz is asked unless the values name another way. */}}
{{- define "servingpool.probe" -}}
{{- if not (pick . "exec" "grpc" "httpGet" "tcpSocket") -}}
httpGet: {path: /healthz, port: health}
{{ end }}
{{- with . }}{{ toYaml . }}{{ end }}
{{- end }}

{{- define "servingpool.testNamespace" -}}
{{- .Values.tests.namespace | default (first .Values.watchNamespaces) | default .Release.Namespace }}
{{- end }}
