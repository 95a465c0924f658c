{{/* Names and labels. */}}

{{- define "policyd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* A release that has the chart's name in its own does not get it twice. */}}
{{- define "policyd.fullname" -}}
{{- $name := include "policyd.name" . }}
{{- $whole := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $whole .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "policyd.webhooks" -}}
{{ include "policyd.fullname" . }}-webhooks
{{- end }}

{{/* The name of both webhook configurations in the release before; to go with the next one. */}}
{{- define "policyd.formerConfigurations" -}}
door.policyd.io
{{- end }}

{{- define "policyd.controller" -}}
{{ include "policyd.fullname" . }}-controller
{{- end }}

{{/* Kueue's feature gates as the option of both processes, in the order of their names. */}}
{{- define "policyd.featureGates" -}}
{{- $gates := list }}
{{- range $name, $on := .Values.controller.featureGates }}{{ $gates = append $gates (printf "%s=%t" $name $on) }}{{ end }}
{{- join "," $gates }}
{{- end }}

{{- define "policyd.dashboard" -}}
{{ include "policyd.fullname" . }}-dashboard
{{- end -}}

{{- define "policyd.background" -}}
{{ include "policyd.fullname" . }}-background
{{- end -}}

{{- define "policyd.idleNotebooks" -}}
{{ include "policyd.fullname" . }}-idle-notebooks
{{- end }}

{{- define "policyd.certificate" -}}
{{ .Values.webhooks.certificate.existingSecret | default (include "policyd.webhooks" .) }}
{{- end }}

{{/* What a pod of a component is selected by: a list of the context and the component. */}}
{{- define "policyd.selector" -}}
{{- $context := index . 0 -}}
app.kubernetes.io/name: {{ include "policyd.name" $context }}
app.kubernetes.io/instance: {{ $context.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* The labels of an object: a list of the context and the component. */}}
{{- define "policyd.labels" -}}
{{- $context := index . 0 -}}
{{ include "policyd.selector" . }}
app.kubernetes.io/part-of: policyd
app.kubernetes.io/version: {{ $context.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $context.Release.Service }}
helm.sh/chart: {{ $context.Chart.Name }}-{{ $context.Chart.Version | replace "+" "_" }}
{{- with $context.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
