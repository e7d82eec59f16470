{{- define "gpuwatch.wanted" -}}
{{- $known := .root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1" -}}
{{- if or (eq (toString .value) "true") (and (eq (toString .value) "auto") $known) }}true{{ end -}}
{{- end -}}

{{- define "gpuwatch.monitored" -}}
{{- include "gpuwatch.wanted" (dict "root" . "value" .Values.monitor.enabled) -}}
{{- end -}}

{{- define "gpuwatch.endpoint" -}}
{{- $monitor := .Values.monitor -}}
{{- if and .Values.web.basicAuth.users (not $monitor.basicAuth.secretName) -}}
{{- fail "web.basicAuth.users is set: name the Secret with the user and password of Prometheus in monitor.basicAuth.secretName" -}}
{{- end -}}
{{- if and (eq .Values.web.tls.clientAuthType "RequireAndVerifyClientCert") (not $monitor.tls.clientSecretName) -}}
{{- fail "web.tls.clientAuthType is RequireAndVerifyClientCert: name the Secret with the certificate of Prometheus in monitor.tls.clientSecretName" -}}
{{- end -}}
port: metrics
path: /metrics
scheme: {{ include "gpuwatch.scheme" . }}
# The agent's namespace, pod and container are those of the job that holds the GPU.
honorLabels: true
{{- with $monitor.interval }}
interval: {{ . }}
{{- end }}
{{- with $monitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with $monitor.basicAuth }}
{{- if .secretName }}
basicAuth:
  username:
    name: {{ .secretName }}
    key: {{ .usernameKey }}
  password:
    name: {{ .secretName }}
    key: {{ .passwordKey }}
{{- end }}
{{- end }}
{{- if .Values.web.tls.enabled }}
tlsConfig:
  serverName: {{ default (printf "%s.%s.svc" (include "gpuwatch.fullname" .) (include "gpuwatch.namespace" .)) $monitor.tls.serverName }}
  {{- if $monitor.tls.insecureSkipVerify }}
  insecureSkipVerify: true
  {{- else }}
  {{- with default .Values.web.tls.secretName $monitor.tls.caSecretName }}
  ca:
    secret:
      name: {{ . }}
      key: ca.crt
  {{- end }}
  {{- end }}
  {{- with $monitor.tls.clientSecretName }}
  cert:
    secret:
      name: {{ . }}
      key: tls.crt
  keySecret:
    name: {{ . }}
    key: tls.key
  {{- end }}
{{- end }}
relabelings:
  # Of the agent's own pod nothing but the node may stand beside the labels of the hardware and of the job.
  - action: labeldrop
    regex: pod|container|namespace|endpoint|service
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: node
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: instance
  {{- with $monitor.relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $monitor.metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
