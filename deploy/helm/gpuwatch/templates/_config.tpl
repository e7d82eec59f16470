{{- /* Questions are answered with "true" or nothing. */ -}}
{{- define "gpuwatch.attributes" -}}
{{- if ne (dig "kubernetes" "attribution" "auto" .Values.config) "never" }}true{{ end -}}
{{- end -}}

{{- define "gpuwatch.asksApiServer" -}}
{{- if and (include "gpuwatch.attributes" .) (ne (dig "kubernetes" "api_server" "auto" .Values.config) "never") }}true{{ end -}}
{{- end -}}

{{- define "gpuwatch.kubeletRoot" -}}
{{- dig "kubernetes" "kubelet_root" "/var/lib/kubelet" .Values.config | trimSuffix "/" -}}
{{- end -}}

{{- define "gpuwatch.port" -}}
{{- dig "server" "port" 9838 .Values.config | int -}}
{{- end -}}

{{- /* The kubelet's socket and the kernel log are root's, and so is all that is privileged. */ -}}
{{- define "gpuwatch.isRoot" -}}
{{- if or (include "gpuwatch.attributes" .) .Values.kernelLog.enabled .Values.privileged }}true{{ end -}}
{{- end -}}

{{- /* Whether Pod Security must allow more than "restricted". */ -}}
{{- define "gpuwatch.needsPrivilegedNamespace" -}}
{{- if or (include "gpuwatch.isRoot" .) .Values.hostPID .Values.hostProc .Values.hostNetwork .Values.driver.hostPath }}true{{ end -}}
{{- end -}}

{{- define "gpuwatch.asksCredentials" -}}
{{- if or .Values.web.basicAuth.users (eq .Values.web.tls.clientAuthType "RequireAndVerifyClientCert") }}true{{ end -}}
{{- end -}}

{{- define "gpuwatch.webSecret" -}}
{{- if .Values.web.existingSecret -}}
{{- .Values.web.existingSecret -}}
{{- else if or .Values.web.tls.enabled .Values.web.basicAuth.users -}}
{{- include "gpuwatch.fullname" . }}-web
{{- end -}}
{{- end -}}

{{- define "gpuwatch.scheme" -}}
{{- ternary "https" "http" .Values.web.tls.enabled -}}
{{- end -}}

{{- /* The settings as given, over those that follow from other values. */ -}}
{{- define "gpuwatch.config" -}}
{{- $made := dict "read" dict "kubernetes" dict "server" dict -}}
{{- $_ := set $made.read "kernel_log" (ternary "/dev/kmsg" "" .Values.kernelLog.enabled) -}}
{{- $_ := set $made.kubernetes "processes" (or .Values.hostPID .Values.hostProc) -}}
{{- if .Values.hostProc }}{{ $_ := set $made.kubernetes "proc_root" "/host/proc" }}{{ end -}}
{{- if include "gpuwatch.webSecret" . }}{{ $_ := set $made.server "web_config_file" "/etc/gpuwatch-web/web-config.yml" }}{{ end -}}
{{- range $section, $value := .Values.config -}}
{{- if and (kindIs "map" $value) (hasKey $made $section) -}}
{{- range $key, $inner := $value }}{{ $_ := set (index $made $section) $key $inner }}{{ end -}}
{{- else -}}
{{- $_ := set $made $section $value -}}
{{- end -}}
{{- end -}}
{{- range $section := list "read" "kubernetes" "server" -}}
{{- if not (index $made $section) }}{{ $_ := unset $made $section }}{{ end -}}
{{- end -}}
{{- toYaml $made -}}
{{- end -}}

{{- /* Values that are each allowed and make no sense together. */ -}}
{{- define "gpuwatch.check" -}}
{{- range $told := list "events" "node_condition" -}}
{{- if and (dig "kubernetes" $told false $.Values.config) (not (include "gpuwatch.asksApiServer" $)) -}}
{{- fail (printf "config.kubernetes.%s is true, and config.kubernetes.attribution or api_server is never: it is the API server that is told" $told) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.hostPID .Values.hostProc -}}
{{- fail "hostPID and hostProc buy the same: choose one" -}}
{{- end -}}
{{- if and (dig "kubernetes" "processes" false .Values.config) (not .Values.hostPID) (not .Values.hostProc) (not (dig "kubernetes" "proc_root" "" .Values.config)) -}}
{{- fail "config.kubernetes.processes is true: it needs hostPID or hostProc" -}}
{{- end -}}
{{- if and (dig "read" "kernel_log" "" .Values.config) (not .Values.kernelLog.enabled) (not .Values.privileged) (not .Values.extraVolumeMounts) -}}
{{- fail "config.read.kernel_log is set: it needs kernelLog.enabled" -}}
{{- end -}}
{{- if (.Values.securityContext).privileged -}}
{{- fail "securityContext.privileged is true: set privileged, on which the other rights depend" -}}
{{- end -}}
{{- if and .Values.privileged (hasKey (default dict .Values.securityContext) "allowPrivilegeEscalation") (not .Values.securityContext.allowPrivilegeEscalation) -}}
{{- fail "securityContext.allowPrivilegeEscalation is false, and privileged is true: Kubernetes refuses the two together" -}}
{{- end -}}
{{- if and .Values.web.tls.enabled (not .Values.web.tls.secretName) (not .Values.web.existingSecret) -}}
{{- fail "web.tls.enabled is true: name the Secret with tls.crt and tls.key in web.tls.secretName" -}}
{{- end -}}
{{- if and (ne .Values.web.tls.clientAuthType "NoClientCert") (not .Values.web.tls.enabled) -}}
{{- fail "web.tls.clientAuthType asks for client certificates, and web.tls.enabled is false" -}}
{{- end -}}
{{- if and .Values.web.existingSecret (or .Values.web.tls.secretName .Values.web.basicAuth.users) -}}
{{- fail "web.existingSecret holds the whole web configuration: leave web.tls.secretName and web.basicAuth.users empty" -}}
{{- end -}}
{{- if and (include "gpuwatch.webSecret" .) (not (dig "server" "probes_without_credentials" true .Values.config)) -}}
{{- fail "config.server.probes_without_credentials is false: the kubelet has no credentials, so no probe would pass" -}}
{{- end -}}
{{- end -}}
