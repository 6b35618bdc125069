{{- define "mcp-a2a.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name }}{{ end }}
{{- end }}

{{- define "mcp-a2a.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mcp-a2a.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "mcp-a2a.selector" . }}
{{- end }}

{{- /* The files, without those that somebody has set to null. */}}
{{- define "mcp-a2a.files" -}}
{{- range $name, $text := .Values.files }}
{{- if $text }}
{{ $name }}: {{ $text | quote }}
{{- end }}
{{- end }}
{{- end }}
