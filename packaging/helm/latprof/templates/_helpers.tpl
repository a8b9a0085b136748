{{- define "latprof.name" -}}
{{- if contains "latprof" .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-latprof" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "latprof.selector" -}}
app.kubernetes.io/name: latprof
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "latprof.labels" -}}
{{ include "latprof.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "latprof.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "latprof.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}
