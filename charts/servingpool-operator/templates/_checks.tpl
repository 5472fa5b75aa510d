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

{{- /* Fails for a profile whose fields do not go together: its path, the profile, its histograms, those with a name. */}}
{{- define "servingpool.profile" -}}
{{- $path := index . 0 }}
{{- $histograms := index . 2 }}
{{- $judged := index . 3 }}
{{- range $figure, $several := (index . 1).figures }}
{{- range $index, $given := $several }}
{{- $one := kindIs "string" $given | ternary (dict "name" $given) $given }}
{{- $where := printf "%s.figures.%s[%d]" $path $figure $index }}
{{- $summed := or $one.sum $one.count }}
{{- if or (and $one.name $summed) (not (or $one.name $summed)) (and $one.sum $one.labels) }}
{{- fail (printf "%s: must have either name, or sum, or sum and count; labels go with name alone" $where) }}
{{- end }}
{{- if and $one.less (or (not $one.name) $one.labels) }}
{{- fail (printf "%s: less goes with name alone, without labels" $where) }}
{{- end }}
{{- range list $one.sum $one.count }}
{{- if . }}
{{- $added := false }}
{{- range . }}{{ if not (hasPrefix "-" .) }}{{ $added = true }}{{ end }}{{ end }}
{{- if not $added }}{{ fail (printf "%s: must add a metric, got %s" $where (join ", " .)) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range $figure, $several := (index . 1).figures }}
{{- if not $several }}
{{- fail (printf "%s: figures.%s must name a series, got an empty list" $path $figure) }}
{{- end }}
{{- $histogram := has $figure $histograms }}
{{- range $given := $several }}
{{- $one := kindIs "string" $given | ternary (dict "name" $given) $given }}
{{- if ne (not $one.count) (not (and $histogram $one.sum)) }}
{{- fail (printf "%s: figures.%s must have name, or %s" $path $figure (ternary "sum and count together" "sum alone, without count" $histogram)) }}
{{- end }}
{{- if and (has $figure $judged) $histogram $one.labels }}
{{- fail (printf "%s: figures.%s must not have labels, as a histogram: use excluded" $path $figure) }}
{{- end }}
{{- if and (has $figure $judged) (not $one.name) }}
{{- fail (printf "%s: figures.%s must have a name: an SLO is judged by its buckets" $path $figure) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Not empty where a profile's TTFT leaves requests out by excluded labels. */}}
{{- define "servingpool.leavesOut" -}}
{{- range .figures.timeToFirstToken }}{{ if kindIs "map" . }}{{ with .excluded }}true{{ end }}{{ end }}{{ end }}
{{- end }}

{{- define "servingpool.checks" -}}
{{- $values := .Values }}
{{- include "servingpool.between" (list "interval" .Values.interval "1s" "1m") }}
{{- include "servingpool.between" (list "history" .Values.history "0s" "6h") }}
{{- include "servingpool.between" (list "leaderElection.duration" .Values.leaderElection.duration "3s" "5m") }}
{{- include "servingpool.between" (list "leaderElection.deadline" .Values.leaderElection.deadline "2s" "5m") }}
{{- include "servingpool.between" (list "leaderElection.retry" .Values.leaderElection.retry "500ms" "1m") }}
{{- $retry := include "servingpool.milliseconds" .Values.leaderElection.retry | int64 }}
{{- $deadline := include "servingpool.milliseconds" .Values.leaderElection.deadline | int64 }}
{{- $duration := include "servingpool.milliseconds" .Values.leaderElection.duration | int64 }}
{{- if not (and (lt $retry $deadline) (lt $deadline $duration)) }}
{{- fail (printf "leaderElection: needs retry < deadline < duration, got %s, %s and %s" (include "servingpool.seconds" .Values.leaderElection.retry) (include "servingpool.seconds" .Values.leaderElection.deadline) (include "servingpool.seconds" .Values.leaderElection.duration)) }}
{{- end }}
{{- $alone := not (or .Values.leaderElection.enabled .Values.shards.enabled) }}
{{- if and $alone (gt (int .Values.replicas) 1) }}
{{- fail (printf "replicas: must be 0 or 1 without leaderElection.enabled, got %d: every operator would write" (int .Values.replicas)) }}
{{- end }}
{{- if and $alone (ne (dig "type" "" (.Values.deploymentStrategy | default dict)) "Recreate") }}
{{- fail "deploymentStrategy: must be {type: Recreate} without leaderElection.enabled: in a rolling update two operators would write" }}
{{- end }}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}
{{- fail "podMonitor.enabled and serviceMonitor.enabled: enable one of the two, or Prometheus scrapes each operator pod twice" }}
{{- end }}
{{- range $name := list "podMonitor" "serviceMonitor" }}
{{- $monitor := get $values $name }}
{{- $every := include "servingpool.milliseconds" (toString $monitor.interval) | int64 }}
{{- if and $every (gt (include "servingpool.milliseconds" (toString $monitor.scrapeTimeout) | int64) $every) }}
{{- fail (printf "%s.scrapeTimeout: must be at most the interval, %s, got %s" $name $monitor.interval $monitor.scrapeTimeout) }}
{{- end }}
{{- end }}
{{- $names := list }}
{{- $twice := list }}
{{- $gateways := concat (list "envoy-ai-gateway" "inference-extension" "litellm" "llm-d-epp" "production-stack" "sglang-router" "vllm-router") (keys .Values.gateways | sortAlpha) | uniq }}
{{- range $index, $backend := .Values.backends }}
{{- $path := printf "backends[%d]" $index }}
{{- $port := regexFind ":[0-9]+$" (.url | trimPrefix "http://" | trimPrefix "https://" | splitList "/" | first) | trimPrefix ":" }}
{{- if and $port (or (gt (len $port) 5) (lt (atoi $port) 1) (gt (atoi $port) 65535)) }}
{{- fail (printf "%s.url: must have a port from 1 to 65535, or none" $path) }}
{{- end }}
{{- if not (urlParse .url).hostname }}
{{- fail (printf "%s.url: must be http:// or https:// with a host, got '%s'" $path .url) }}
{{- end }}
{{- include "servingpool.between" (list (printf "%s.timeout" $path) (.timeout | default "1s") "1s" "1m") }}
{{- include "servingpool.between" (list (printf "%s.staleness" $path) (.staleness | default "60s") "10s" "10m") }}
{{- $interval := $values.interval }}
{{- if and .timeout (gt (include "servingpool.milliseconds" .timeout | int64) (include "servingpool.milliseconds" $interval | int64)) }}
{{- fail (printf "backends: timeout of backend '%s' must be 1s to %s, which is the interval, got %s" (.name | default "default") (include "servingpool.seconds" $interval) (include "servingpool.seconds" .timeout)) }}
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
{{- $name := .name | default "default" }}
{{- if has $name $names }}{{ $twice = append $twice $name }}{{ end }}
{{- $names = append $names $name }}
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
{{- range $name, $profile := .Values.engines }}
{{- $path := printf "engines.%s" $name }}
{{- $figures := $profile.figures | default dict }}
{{- include "servingpool.profile" (list $path $profile (list "timeToFirstToken" "interTokenLatency" "timePerOutputToken" "queueTime") (list "timeToFirstToken" "timePerOutputToken" "queueTime")) }}
{{- range $figures.interTokenLatency }}
{{- if and (kindIs "map" .) .labels }}
{{- fail (printf "%s: figures.interTokenLatency must not have labels, as a histogram: use excluded" $path) }}
{{- end }}
{{- end }}
{{- if and (include "servingpool.leavesOut" (dict "figures" $figures)) (not (hasKey $figures "begun")) }}
{{- fail (printf "%s: figures.begun must be there too: figures.timeToFirstToken leaves requests out" $path) }}
{{- end }}
{{- $lacking := list }}
{{- range list "running" "waiting" "generationTokens" "promptTokens" "timeToFirstToken" "interTokenLatency" }}
{{- if not (hasKey $figures .) }}{{ $lacking = append $lacking . }}{{ end }}
{{- end }}
{{- $estimated := and (eq (join "," $lacking) "timeToFirstToken") (hasKey $figures "prefillSeconds") }}
{{- if and $figures $lacking (not $estimated) }}
{{- fail (printf "engines: %s.figures must have %s too: decisions need them" $name (join ", " $lacking)) }}
{{- end }}
{{- end }}
{{- range $name, $profile := .Values.gateways }}
{{- $path := printf "gateways.%s" $name }}
{{- include "servingpool.profile" (list $path $profile (list "interTokenLatency") list) }}
{{- range $profile.figures.timeToFirstToken }}
{{- if and (kindIs "map" .) (or .labels (not .name)) }}
{{- fail (printf "%s: figures.timeToFirstToken must have a name and no labels: use excluded" $path) }}
{{- end }}
{{- end }}
{{- if and (include "servingpool.leavesOut" $profile) (not (hasKey $profile.figures "arrivals")) }}
{{- fail (printf "%s: figures.arrivals must be there too: figures.timeToFirstToken leaves requests out" $path) }}
{{- end }}
{{- $shows := ($profile.atZero | default dict).shows | default list }}
{{- range $shows }}
{{- if or (not (hasKey $profile.figures .)) (not (has . (list "arrivals" "queue" "unserved"))) }}
{{- fail (printf "%s: atZero.shows must name arrivals, queue, unserved that figures has, got %s" $path (join ", " $shows)) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $price := .Values.prices }}
{{- if (toDate "2006-01-02" .noted).IsZero }}
{{- fail (printf "prices.%s.noted: must be a date such as 2026-11-01, got '%s'" $name .noted) }}
{{- end }}
{{- end }}
{{- end }}
