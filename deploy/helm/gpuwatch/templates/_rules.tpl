{{- /* Threshold name to text: the pack's, the chart's name as job, and the values given. */ -}}
{{- define "gpuwatch.thresholds" -}}
{{- $made := deepCopy .defaults -}}
{{- $_ := set $made "job" (include "gpuwatch.name" .root) -}}
{{- range $name, $value := .root.Values.prometheusRule.thresholds -}}
{{- if not (hasKey $.defaults $name) -}}
{{- fail (printf "prometheusRule.thresholds: there is no %q; expected one of: %s" $name (keys $.defaults | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $default := toString (index $.defaults $name) -}}
{{- /* As Prometheus reads one: larger units first, each once, and a window of nothing is refused. */ -}}
{{- $duration := "^([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$" -}}
{{- $number := "^[0-9]+(\\.[0-9]+)?(e[+-]?[0-9]+)?$" -}}
{{- $text := "^[A-Za-z0-9._:/?&=%~@+-]*$" -}}
{{- $kinds := ternary (list $duration "a duration such as 10m or 1h30m, above 0") (ternary (list $number "a number") (list $text "text without spaces and quotes") (regexMatch $number $default)) (regexMatch "^[0-9]+[a-z]" $default) -}}
{{- if or (not (regexMatch (first $kinds) (toString $value))) (and (eq (first $kinds) $duration) (not (regexMatch "[1-9]" (toString $value)))) -}}
{{- fail (printf "prometheusRule.thresholds.%s: %q is not allowed; expected %s" $name (toString $value) (last $kinds)) -}}
{{- end -}}
{{- $_ := set $made $name (toString $value) -}}
{{- end -}}
{{- toYaml $made -}}
{{- end -}}

{{- define "gpuwatch.filled" -}}
{{- $text := .text -}}
{{- range $name, $value := .values -}}
{{- $text = replace (printf "${%s}" $name) $value $text -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{- define "gpuwatch.ruleGroups" -}}
{{- $pack := .Files.Get "files/rules.yaml" | fromYaml -}}
{{- $values := include "gpuwatch.thresholds" (dict "defaults" $pack.defaults "root" .) | fromYaml -}}
{{- $known := list -}}
{{- range $pack.groups }}{{ range .rules }}{{ if .alert }}{{ $known = append $known .alert }}{{ end }}{{ end }}{{ end -}}
{{- $own := .Values.prometheusRule -}}
{{- $disabled := default list $own.disabled -}}
{{- $severity := default dict $own.severity -}}
{{- range concat $disabled (keys $severity | sortAlpha) -}}
{{- if not (has . $known) -}}
{{- fail (printf "prometheusRule: there is no alert %q; expected one of: %s" . ($known | uniq | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- $groups := list -}}
{{- range $pack.groups -}}
{{- $rules := list -}}
{{- range .rules -}}
{{- if not (has .alert $disabled) -}}
{{- $rule := dict -}}
{{- range $field, $value := . -}}
{{- if kindIs "map" $value -}}
{{- $inner := dict -}}
{{- range $key, $text := $value }}{{ $_ := set $inner $key (include "gpuwatch.filled" (dict "text" $text "values" $values)) }}{{ end -}}
{{- $_ := set $rule $field $inner -}}
{{- else -}}
{{- $_ := set $rule $field (include "gpuwatch.filled" (dict "text" $value "values" $values)) -}}
{{- end -}}
{{- end -}}
{{- if .alert -}}
{{- range $key, $text := $own.alertLabels }}{{ $_ := set $rule.labels $key $text }}{{ end -}}
{{- if hasKey $severity .alert -}}
{{- /* Two tiers of one severity would be one alert to Alertmanager, which ends when either does. */ -}}
{{- if gt (sub (len $known) (len (without $known .alert))) 1 }}{{ $_ := set $rule.labels "tier" .labels.severity }}{{ end -}}
{{- $_ := set $rule.labels "severity" (index $severity .alert) -}}
{{- end -}}
{{- end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- if $rules }}{{ $groups = append $groups (dict "name" .name "rules" $rules) }}{{ end -}}
{{- end -}}
{{- with $own.pricesPerHour -}}
{{- $rules := list -}}
{{- range $model, $price := . -}}
{{- $record := dict "record" "gpuwatch:gpu_price_dollars_per_hour:info" "expr" (printf "vector(%v)" $price) "labels" (dict "model" $model) -}}
{{- $rules = append $rules $record -}}
{{- end -}}
{{- $groups = append $groups (dict "name" "gpuwatch-prices" "rules" $rules) -}}
{{- end -}}
{{- toYaml $groups -}}
{{- end -}}
