{{- /* What the operator's configuration check refuses, refused before anything is installed, in the same words. */}}

{{- /* Milliseconds of a duration such as 1m30s. */}}
{{- define "servingpool.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 }}
{{- $total := 0 }}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" . -1 }}
{{- $number := regexFind "[0-9]+" . }}
{{- $total = add $total (mul (atoi $number) (get $units (trimPrefix $number .))) }}
{{- end }}
{{- $total }}
{{- end }}

{{- /* Seconds of a duration, as the operator writes them: 5.5s. */}}
{{- define "servingpool.seconds" -}}
{{- printf "%gs" (divf (include "servingpool.milliseconds" . | float64) 1000) }}
{{- end }}

{{- /* Fails unless a duration, the second, lies between the third and the fourth; the first is its path. */}}
{{- define "servingpool.between" -}}
{{- $path := index . 0 }}
{{- $value := index . 1 }}
{{- $given := include "servingpool.milliseconds" $value | int64 }}
{{- $low := include "servingpool.milliseconds" (index . 2) | int64 }}
{{- $high := include "servingpool.milliseconds" (index . 3) | int64 }}
{{- if or (lt $given $low) (gt $given $high) }}
{{- fail (printf "%s: must be %s to %s, got %s" $path (index . 2) (index . 3) $value) }}
{{- end }}
{{- end }}

{{- define "servingpool.checks" -}}
{{- $values := .Values }}
{{- include "servingpool.between" (list "interval" .Values.interval "1s" "1m") }}
{{- include "servingpool.between" (list "history" .Values.history "0s" "6h") }}
{{- $election := .Values.leaderElection }}
{{- include "servingpool.between" (list "leaderElection.duration" $election.duration "3s" "5m") }}
{{- include "servingpool.between" (list "leaderElection.deadline" $election.deadline "2s" "5m") }}
{{- include "servingpool.between" (list "leaderElection.retry" $election.retry "500ms" "1m") }}
{{- $retry := include "servingpool.milliseconds" $election.retry | int64 }}
{{- $deadline := include "servingpool.milliseconds" $election.deadline | int64 }}
{{- $duration := include "servingpool.milliseconds" $election.duration | int64 }}
{{- if not (and (lt $retry $deadline) (lt $deadline $duration)) }}
{{- fail (printf "leaderElection: needs retry < deadline < duration, got %s, %s and %s" (include "servingpool.seconds" $election.retry) (include "servingpool.seconds" $election.deadline) (include "servingpool.seconds" $election.duration)) }}
{{- end }}
{{- if and (not $election.enabled) (gt (int .Values.replicas) 1) }}
{{- fail (printf "replicas: must be 0 or 1 without leaderElection.enabled, got %d: every operator would write" (int .Values.replicas)) }}
{{- end }}
{{- $names := list }}
{{- $twice := list }}
{{- $gateways := concat (list "envoy-ai-gateway" "inference-extension" "litellm" "llm-d-epp" "production-stack" "sglang-router" "vllm-router") (keys .Values.gateways | sortAlpha) | uniq }}
{{- range $index, $backend := .Values.backends }}
{{- $path := printf "backends[%d]" $index }}
{{- if not (urlParse .url).hostname }}
{{- fail (printf "%s.url: must be http:// or https:// with a host, got '%s'" $path .url) }}
{{- end }}
{{- include "servingpool.between" (list (printf "%s.timeout" $path) (.timeout | default "1s") "1s" "1m") }}
{{- include "servingpool.between" (list (printf "%s.staleness" $path) (.staleness | default "60s") "10s" "10m") }}
{{- $interval := $values.interval }}
{{- if and .timeout (gt (include "servingpool.milliseconds" .timeout | int64) (include "servingpool.milliseconds" $interval | int64)) }}
{{- fail (printf "backends: timeout of backend '%s' must be 1s to %s, which is the interval, got %s" .name (include "servingpool.seconds" $interval) (include "servingpool.seconds" .timeout)) }}
{{- end }}
{{- $ways := list }}
{{- if .bearerToken }}{{ $ways = append $ways "bearerTokenFile" }}{{ end }}
{{- if .basicAuth }}{{ $ways = append $ways "basicAuth" }}{{ end }}
{{- range $name, $_ := .headers }}
{{- if eq (lower $name) "authorization" }}{{ $ways = append $ways "an Authorization header" }}{{ end }}
{{- end }}
{{- if gt (len ($ways | uniq)) 1 }}
{{- fail (printf "%s: must have one way to authenticate, got %s" $path (join " and " ($ways | uniq))) }}
{{- end }}
{{- if has .name $names }}{{ $twice = append $twice .name }}{{ end }}
{{- $names = append $names .name }}
{{- with .gateway }}
{{- $gateway := kindIs "string" . | ternary . (get (kindIs "string" . | ternary dict .) "name") }}
{{- if not (has $gateway $gateways) }}
{{- fail (printf "backends[].gateway must be one of %s, got %s" (join ", " $gateways) $gateway) }}
{{- end }}
{{- $profile := get $values.gateways $gateway | default dict }}
{{- $labelled := hasKey $values.gateways $gateway | ternary (get $profile "modelLabel") (ne $gateway "vllm-router") }}
{{- if not $labelled }}
{{- fail (printf "backends[].gateway must be a gateway whose metrics name the model, got %s: set spec.metrics.gateway of each pool instead" $gateway) }}
{{- end }}
{{- end }}
{{- end }}
{{- with $twice | uniq | sortAlpha }}
{{- fail (printf "backends must have different names, got %s twice" (join ", " .)) }}
{{- end }}
{{- range $name, $price := .Values.prices }}
{{- if (toDate "2006-01-02" .noted).IsZero }}
{{- fail (printf "prices.%s.noted: must be a date such as 2026-11-01, got '%s'" $name .noted) }}
{{- end }}
{{- end }}
{{- end }}
