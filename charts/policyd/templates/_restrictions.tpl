{{/*
Parts of the policies on what our own accounts may write. CEL has no way to say `all but these
fields`, so each comparison goes through the keys of an object, and is written once, here.
*/}}

{{/*
Whether these policies are part of the release: they are wanted, and the API server has the kind.
Where helm asks no API server, it knows no kinds at all, and those of the oldest version are taken.
*/}}
{{- define "policyd.restricted" -}}
{{- $has := .Capabilities.APIVersions }}
{{- $unknown := not ($has.Has "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration") }}
{{- $served := or $unknown ($has.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") }}
{{- if and .Values.selfRestriction.enabled $served }}true{{ end }}
{{- end }}

{{/* Whether the controller deletes jobs: those that it has deactivated, where the Configuration says so. */}}
{{- define "policyd.deletesJobs" -}}
{{- if ((.Values.controller.configuration.objectRetentionPolicies).workloads).afterDeactivatedByKueue }}true{{ end }}
{{- end }}

{{- define "policyd.account" -}}
system:serviceaccount:{{ (index . 0).Release.Namespace }}:{{ include (printf "policyd.%s" (index . 1)) (index . 0) }}
{{- end }}

{{/* A policy and its binding: a list of the context, a name, the components that it binds, and the rest of its spec. */}}
{{- define "policyd.restriction" -}}
{{- $context := index . 0 }}
{{- $name := printf "%s-%s" (include "policyd.fullname" $context) (index . 1) }}
{{- $users := list }}
{{- range index . 2 }}
{{- $users = append $users (include "policyd.account" (list $context .)) }}
{{- end }}
{{- $labels := include "policyd.labels" (list $context "restrictions") }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  failurePolicy: Fail
  # Asked first: whoever else writes costs no more than this.
  matchConditions:
  - name: made-by-us
    expression: request.userInfo.username in {{ $users | toJson }}
  {{- index . 3 | nindent 2 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
{{- end }}

{{/* The same name for object and oldObject as values of any type, so that their keys can be gone through. */}}
{{- define "policyd.versions" -}}
- {name: after, expression: dyn(object)}
- {name: before, expression: dyn(oldObject)}
{{- end }}

{{/* CEL: two objects are the same but for some keys. A list of both and the keys. */}}
{{- define "policyd.sameBut" -}}
{{- $after := index . 0 }}{{- $before := index . 1 }}{{- $keys := index . 2 | toJson -}}
{{ $after }}.all(k, k in {{ $keys }} || k in {{ $before }} && {{ $after }}[k] == {{ $before }}[k]) && {{ $before }}.all(k, k in {{ $keys }} || k in {{ $after }})
{{- end }}

{{/* CEL: the same for one key of both, which need not be there. A list of both, the key, and keys of it. */}}
{{- define "policyd.sameButIn" -}}
{{- $key := index . 2 -}}
{{ include "policyd.sameBut" (list (printf "%s.?%s.orValue({})" (index . 0) $key) (printf "%s.?%s.orValue({})" (index . 1) $key) (index . 3)) }}
{{- end }}

{{/* CEL: metadata is the same but for some keys, and what the API server writes itself. */}}
{{- define "policyd.sameMetadata" -}}
{{ include "policyd.sameBut" (list "variables.after.metadata" "variables.before.metadata" (concat . (list "generation" "managedFields" "resourceVersion"))) }}
{{- end }}

{{/* The scheduling gates that are ours. */}}
{{- define "policyd.gates" -}}
["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology", "kueue.x-k8s.io/elastic-job"]
{{- end }}

{{/* CEL: every gate of one pod or template that is not ours is one of the other, too. A list of both specs. */}}
{{- define "policyd.otherGatesStay" -}}
{{- $gates := "%s.?schedulingGates.orValue([])" -}}
{{ printf $gates (index . 0) }}.all(g, g.name in {{ include "policyd.gates" . }} || g in {{ printf $gates (index . 1) }})
{{- end }}

{{/* CEL: of a pod template nothing has changed but what a start may change. A list of both. */}}
{{- define "policyd.sameTemplate" -}}
{{- $after := index . 0 }}{{- $before := index . 1 }}
{{- $specs := list (printf "%s.?spec.orValue({})" $after) (printf "%s.?spec.orValue({})" $before) -}}
({{ $after }} == {{ $before }} ||
{{ include "policyd.sameBut" (list $after $before (list "metadata" "spec")) }} &&
{{ include "policyd.sameButIn" (list $after $before "metadata" (list "labels" "annotations")) }} &&
{{ include "policyd.sameButIn" (list $after $before "spec" (list "nodeSelector" "tolerations" "schedulingGates")) }} &&
{{ include "policyd.otherGatesStay" $specs }} &&
{{ include "policyd.otherGatesStay" (reverse $specs) }})
{{- end }}

{{/*
CEL: two lists are of one length, and their items are as `holds` says of each pair. A list of both,
and `holds`, in which AFTER and BEFORE stand for the items. No workload has more than 18 pod sets.
*/}}
{{- define "policyd.eachItem" -}}
{{- $after := index . 0 }}{{- $before := index . 1 }}
{{- $holds := index . 2 | replace "AFTER" (printf "%s[i]" $after) | replace "BEFORE" (printf "%s[i]" $before) -}}
({{ $after }} == {{ $before }} ||
{{ $after }}.size() == {{ $before }}.size() && {{ $after }}.size() <= 18 &&
{{ untilStep 0 18 1 | toJson }}.all(i, i >= {{ $after }}.size() ||
{{ $holds }}))
{{- end }}

{{/* CEL: of a RayCluster's spec only templates have changed. A list of both, and keys that may change besides. */}}
{{- define "policyd.sameRayCluster" -}}
{{- $groups := "%s.?workerGroupSpecs.orValue([])" -}}
{{ include "policyd.sameBut" (list (index . 0) (index . 1) (concat (list "headGroupSpec" "workerGroupSpecs") (index . 2))) }} &&
{{ include "policyd.sameButIn" (list (index . 0) (index . 1) "headGroupSpec" (list "template")) }} &&
{{ include "policyd.eachItem" (list (printf $groups (index . 0)) (printf $groups (index . 1)) (include "policyd.sameBut" (list "AFTER" "BEFORE" (list "template")))) }}
{{- end }}

{{/* CEL: the templates of a RayCluster whose spec is SPEC. */}}
{{- define "policyd.rayTemplates" -}}
[SPEC.?headGroupSpec.?template.orValue({})] + SPEC.?workerGroupSpecs.orValue([]).map(w, w.?template.orValue({}))
{{- end }}
