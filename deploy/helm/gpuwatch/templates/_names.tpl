{{- define "gpuwatch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "gpuwatch.fullname" -}}
{{- $name := include "gpuwatch.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gpuwatch.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- /* What is in the cluster once: two releases of one name in two namespaces must not share it. */ -}}
{{- define "gpuwatch.clusterName" -}}
{{- list (include "gpuwatch.namespace" .) (include "gpuwatch.fullname" .) | uniq | join "-" -}}
{{- end -}}

{{- define "gpuwatch.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gpuwatch.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "gpuwatch.sharedLabels" -}}
{{- with .Values.commonLabels }}
{{- toYaml . }}
{{ end -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gpuwatch
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end -}}

{{- define "gpuwatch.labels" -}}
{{ include "gpuwatch.selectorLabels" . }}
app.kubernetes.io/component: agent
{{ include "gpuwatch.sharedLabels" . }}
{{- end -}}

{{- define "gpuwatch.serviceAccountName" -}}
{{- default (ternary (include "gpuwatch.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "gpuwatch.image" -}}
{{- $registry := default .Values.image.registry (.Values.global).imageRegistry -}}
{{- $name := ternary .Values.image.repository (printf "%s/%s" $registry .Values.image.repository) (empty $registry) -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $name .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "gpuwatch.pullSecrets" -}}
{{- $secrets := list -}}
{{- range concat (default list .Values.imagePullSecrets) (default list (.Values.global).imagePullSecrets) -}}
{{- $secrets = append $secrets (ternary . (dict "name" .) (kindIs "map" .)) -}}
{{- end -}}
{{- with $secrets }}{{ toYaml (uniq .) }}{{ end -}}
{{- end -}}

{{- /* Other ones than the agent's, so that no Service and no monitor takes the test for an agent. */ -}}
{{- define "gpuwatch.testLabels" -}}
app.kubernetes.io/name: {{ include "gpuwatch.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "gpuwatch.localLabels" -}}
app.kubernetes.io/name: {{ include "gpuwatch.name" . }}-local
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}
