{{- define "gpuwatch.podSecurityContext" -}}
{{- $made := dict "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- if not (include "gpuwatch.isRoot" .) }}{{ $_ := set $made "fsGroup" 65534 }}{{ end -}}
{{- range $key, $value := .Values.podSecurityContext }}{{ $_ := set $made $key $value }}{{ end -}}
{{- toYaml $made -}}
{{- end -}}

{{- define "gpuwatch.securityContext" -}}
{{- $root := include "gpuwatch.isRoot" . -}}
{{- $id := ternary 0 65534 (not (empty $root)) -}}
{{- $made := dict "runAsUser" $id "runAsGroup" $id "runAsNonRoot" (empty $root) "readOnlyRootFilesystem" true "privileged" .Values.privileged -}}
{{- /* The API server refuses a privileged container that may not gain privileges. */ -}}
{{- if not .Values.privileged -}}
{{- $capabilities := dict "drop" (list "ALL") -}}
{{- if .Values.kernelLog.enabled }}{{ $_ := set $capabilities "add" (list "SYSLOG") }}{{ end -}}
{{- $_ := set $made "allowPrivilegeEscalation" false -}}
{{- $_ := set $made "capabilities" $capabilities -}}
{{- end -}}
{{- /* A capability that is asked for comes to ours: it must neither bring all those of the runtime back nor take the kernel log away. */ -}}
{{- range $key, $value := .Values.securityContext -}}
{{- if and (eq $key "capabilities") (hasKey $made $key) -}}
{{- $_ := set $made.capabilities "drop" (default $made.capabilities.drop $value.drop) -}}
{{- with concat (default list $made.capabilities.add) (default list $value.add) }}{{ $_ := set $made.capabilities "add" (uniq .) }}{{ end -}}
{{- else -}}
{{- $_ := set $made $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $made -}}
{{- end -}}

{{- define "gpuwatch.affinity" -}}
{{- $made := deepCopy (default dict .Values.affinity) -}}
{{- if and .Values.gpuNodes.anyOf (not $made.nodeAffinity) -}}
{{- $terms := list -}}
{{- range .Values.gpuNodes.anyOf }}{{ $terms = append $terms (dict "matchExpressions" (list .)) }}{{ end -}}
{{- $required := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- $_ := set $made "nodeAffinity" $required -}}
{{- end -}}
{{- with $made }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "gpuwatch.env" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: PYTHONDONTWRITEBYTECODE
  value: "1"
{{- if .Values.driver.runtime }}
- name: NVIDIA_VISIBLE_DEVICES
  value: all
- name: NVIDIA_DRIVER_CAPABILITIES
  value: utility
{{- end }}
{{- if .Values.driver.hostPath }}
- name: LD_LIBRARY_PATH
  value: {{ printf "/usr/local/nvidia/%s" .Values.driver.libraryPath | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gpuwatch.probe" -}}
httpGet:
  path: {{ .path }}
  port: metrics
  scheme: {{ .scheme | upper }}
{{ toYaml .times }}
{{- end -}}

{{- define "gpuwatch.volumeMounts" -}}
- name: config
  mountPath: /etc/gpuwatch
  readOnly: true
{{- if include "gpuwatch.attributes" . }}
- name: pod-resources
  mountPath: {{ include "gpuwatch.kubeletRoot" . }}/pod-resources
  readOnly: true
{{- end }}
{{- if .Values.hostProc }}
- name: proc
  mountPath: /host/proc
  readOnly: true
{{- end }}
{{- if .Values.kernelLog.enabled }}
- name: kmsg
  mountPath: /dev/kmsg
  readOnly: true
{{- end }}
{{- if .Values.driver.hostPath }}
# A driver that is installed later appears in the running container.
- name: driver
  mountPath: /usr/local/nvidia
  readOnly: true
  mountPropagation: HostToContainer
{{- end }}
{{- if include "gpuwatch.webSecret" . }}
- name: web
  mountPath: /etc/gpuwatch-web
  readOnly: true
{{- end }}
{{- if .Values.web.tls.secretName }}
- name: tls
  mountPath: /etc/gpuwatch-tls
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gpuwatch.volumes" -}}
- name: config
  configMap:
    name: {{ include "gpuwatch.fullname" . }}
{{- if include "gpuwatch.attributes" . }}
# The directory, not the socket: a kubelet that restarts makes a new one.
- name: pod-resources
  hostPath:
    path: {{ include "gpuwatch.kubeletRoot" . }}/pod-resources
    type: Directory
{{- end }}
{{- if .Values.hostProc }}
- name: proc
  hostPath:
    path: /proc
    type: Directory
{{- end }}
{{- if .Values.kernelLog.enabled }}
- name: kmsg
  hostPath:
    path: /dev/kmsg
    type: CharDevice
{{- end }}
{{- if .Values.driver.hostPath }}
- name: driver
  hostPath:
    path: {{ .Values.driver.hostPath }}
{{- end }}
{{- with include "gpuwatch.webSecret" . }}
- name: web
  secret:
    secretName: {{ . }}
    defaultMode: 288 # 0440
{{- end }}
{{- with .Values.web.tls.secretName }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 288 # 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
