{{/* What the pods of both components have in common: a list of the context and the component. */}}

{{- define "policyd.image" -}}
{{- $version := printf ":%s" (.Values.image.tag | default .Chart.AppVersion) -}}
{{ .Values.image.repository }}{{ ternary (printf "@%s" .Values.image.digest) $version (ne .Values.image.digest "") }}
{{- end }}

{{- define "policyd.podMetadata" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
labels:
  {{- include "policyd.labels" . | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := deepCopy $values.podAnnotations }}
{{- with (index . 0).Values.controller.configuration }}
{{- /* Read at the start: a change starts new pods. */}}
{{- $_ := set $annotations "policyd.io/configuration" (toYaml . | sha256sum) }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "policyd.podSpec" -}}
{{- $context := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := index $context.Values $component -}}
serviceAccountName: {{ include (printf "policyd.%s" $component) $context }}
automountServiceAccountToken: true
# A Service that is named policyd must not become settings.
enableServiceLinks: false
{{- with $context.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $context.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
{{- with $values.affinity }}
  {{- toYaml . | nindent 2 }}
{{- else }}
  # Not topologySpreadConstraints: with two of them, nodes without a zone would count for neither.
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
{{- range $key, $weight := dict "kubernetes.io/hostname" 100 "topology.kubernetes.io/zone" 50 }}
    - weight: {{ $weight }}
      podAffinityTerm:
        topologyKey: {{ $key }}
        labelSelector:
          matchLabels:
            {{- include "policyd.selector" (list $context $component) | nindent 12 }}
{{- end }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "policyd.container" -}}
{{- $context := index . 0 -}}
{{- $values := index $context.Values (index . 1) -}}
image: {{ include "policyd.image" $context | quote }}
imagePullPolicy: {{ $context.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- with $values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where a component's metrics are scraped: a list of the context, the component, its port and the name of that. */}}
{{- define "policyd.metricsService" -}}
{{- $context := index . 0 -}}
{{- $both := list $context (index . 1) -}}
{{- if $context.Values.metrics.enabled }}
apiVersion: v1
kind: Service
metadata:
  name: {{ include (printf "policyd.%s" (index . 1)) $context }}-metrics
  namespace: {{ $context.Release.Namespace }}
  labels:
    {{- include "policyd.labels" $both | nindent 4 }}
spec:
  selector:
    {{- include "policyd.selector" $both | nindent 4 }}
  ports:
  - {name: metrics, port: {{ index . 2 }}, targetPort: {{ index . 3 }}}
{{- end }}
{{- end }}

{{- define "policyd.podDisruptionBudget" -}}
{{- $context := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := index $context.Values $component -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include (printf "policyd.%s" $component) $context }}
  namespace: {{ $context.Release.Namespace }}
  labels:
    {{- include "policyd.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ $values.podDisruptionBudget.maxUnavailable }}
  # A pod that never became ready must not keep a node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "policyd.selector" . | nindent 6 }}
{{- end }}

{{- define "policyd.serviceAccount" -}}
{{- $context := index . 0 -}}
{{- $component := index . 1 -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include (printf "policyd.%s" $component) $context }}
  namespace: {{ $context.Release.Namespace }}
  labels:
    {{- include "policyd.labels" . | nindent 4 }}
  {{- with (index $context.Values $component).serviceAccountAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}

{{/* Binds the ClusterRole and the Role of a component to its account. */}}
{{- define "policyd.bindings" -}}
{{- $context := index . 0 -}}
{{- $name := include (printf "policyd.%s" (index . 1)) $context -}}
{{- range $kind := index . 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- if eq $kind "Role" }}
  namespace: {{ $context.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "policyd.labels" $ | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ $kind }}, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ $context.Release.Namespace }}}]
{{- end }}
{{- end }}

{{/* Lets a component read params that are in one namespace only. */}}
{{- define "policyd.params" -}}
{{- $context := index . 0 -}}
{{- $name := include (printf "policyd.%s" (index . 1)) $context -}}
{{- range $index, $kind := $context.Values.webhooks.paramKinds }}
{{- if $kind.namespace }}
{{- $role := printf "%s-params-%d" $name $index }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $role }}
  namespace: {{ $kind.namespace }}
  labels:
    {{- include "policyd.labels" $ | nindent 4 }}
rules:
- {apiGroups: [{{ $kind.apiGroup | quote }}], resources: [{{ $kind.resource }}], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $role }}
  namespace: {{ $kind.namespace }}
  labels:
    {{- include "policyd.labels" $ | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $role }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ $context.Release.Namespace }}}]
{{- end }}
{{- end }}
{{- end }}

{{/* What reading Kyverno's policies takes. */}}
{{- define "policyd.kyvernoRules" -}}
{{- if .Values.webhooks.kyverno }}
- apiGroups: [policies.kyverno.io]
  resources: [validatingpolicies, namespacedvalidatingpolicies, mutatingpolicies, namespacedmutatingpolicies]
  verbs: [list, watch]
- {apiGroups: [kyverno.io], resources: [clusterpolicies, policies, globalcontextentries], verbs: [list, watch]}
{{- end }}
{{- end }}
