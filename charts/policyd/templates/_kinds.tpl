{{/*
What to type for each kind that is installed otherwise than this chart has it, or missing at an upgrade,
for which Helm installs none. One with other versions is Kueue's own, and used as it is, but for a
v1beta1 that the webhooks added. Empty where there is no cluster to look at. Of full schemas, the chart
has those that differ from the slim ones.
*/}}
{{- define "policyd.outdatedKinds" -}}
{{- range $slim, $_ := .Files.Glob "crds/*.yaml" }}
{{- $full := printf "full-%s" $slim }}
{{- $path := ternary $full $slim (and (eq $.Values.crds.schema "full") (not (empty ($.Files.Get $full)))) }}
{{- $ours := $.Files.Get $path | fromYaml }}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $ours.metadata.name }}
{{- if $found }}
{{- $foundVersions := dict }}
{{- $added := printf "%s/v1beta1 %s is deprecated; use %s/v1beta2" $ours.spec.group $ours.spec.names.kind $ours.spec.group }}
{{- range $found.spec.versions }}
{{- if ne (.deprecationWarning | default "") $added }}
{{- $_ := set $foundVersions .name .schema }}
{{- end }}
{{- end }}
{{- $versions := dict }}
{{- range $ours.spec.versions }}
{{- $_ := set $versions .name .schema }}
{{- end }}
{{- if and (eq (keys $versions | sortAlpha | toJson) (keys $foundVersions | sortAlpha | toJson)) (ne (toJson $versions) (toJson $foundVersions)) }}
  kubectl apply --server-side --force-conflicts -f {{ $path }}
{{- end }}
{{- else if and $.Release.IsUpgrade (lookup "v1" "Namespace" "" $.Release.Namespace) }}
  kubectl apply --server-side --force-conflicts -f {{ $path }}
{{- end }}
{{- end }}
{{- end }}
