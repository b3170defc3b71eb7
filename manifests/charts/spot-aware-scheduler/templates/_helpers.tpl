{{/*
Parameters of all templates below: root is the root context.

spot.manifests writes the objects of all YAML files in a folder below files/, except Deployments.
Parameters: folder; labels, for all objects, like labels in a kustomization; skip, a list of kinds
and KIND/NAMEs of objects to omit; values, of the program to which the objects belong, if to one.
*/}}
{{- define "spot.manifests" -}}
{{- $parameters := . -}}
{{- $skip := append .skip "Deployment" -}}
{{- if not .root.Values.networkPolicy.enabled }}{{ $skip = append $skip "NetworkPolicy" }}{{ end -}}
{{- range $path, $_ := .root.Files.Glob (printf "files/%s/*.yaml" .folder) -}}
{{- range splitList "\n---\n" ($parameters.root.Files.Get $path) -}}
{{- $object := fromYaml . -}}
{{- if not (or (has $object.kind $skip) (has (printf "%s/%s" $object.kind $object.metadata.name) $skip)) }}
{{- include "spot.settings" (dict "root" $parameters.root "object" $object "values" $parameters.values) }}
{{ include "spot.object" (dict "root" $parameters.root "object" $object "labels" $parameters.labels) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
spot.settings changes an object, other than a Deployment, to the values about its kind. Parameters:
object; values, of its program.
*/}}
{{- define "spot.settings" -}}
{{- $object := .object -}}
{{- if and (eq $object.kind "ServiceAccount") .values -}}
  {{- with .values.serviceAccount.annotations }}{{ $_ := set $object.metadata "annotations" . }}{{ end -}}
{{- else if eq $object.kind "PodDisruptionBudget" -}}
  {{- $budget := .values.podDisruptionBudget -}}
  {{- $limit := ternary "maxUnavailable" "minAvailable" (has $budget.minAvailable (list nil "")) -}}
  {{- if kindIs "invalid" (index $budget $limit) -}}
    {{- fail (printf "PodDisruptionBudget %s: expected podDisruptionBudget.maxUnavailable or minAvailable" $object.metadata.name) -}}
  {{- end -}}
  {{- $_ := merge (pick $budget $limit) (omit $object.spec "maxUnavailable") | set $object "spec" -}}
{{- else if eq $object.kind "ServiceMonitor" -}}
  {{- range $endpoint := $object.spec.endpoints -}}
    {{- range $field := list "interval" "relabelings" -}}
      {{- with get $.root.Values.monitoring.serviceMonitor $field }}{{ $_ := set $endpoint $field . }}{{ end -}}
    {{- end -}}
  {{- end -}}
{{- else if and (eq $object.kind "PrometheusRule") (eq (toString .root.Values.controller.replicas) "0") -}}
  {{- range $group := $object.spec.groups -}}
    {{- $rules := list -}}
    {{- range $group.rules }}{{ if ne (get . "alert") "SpotControllerAway" }}{{ $rules = append $rules . }}{{ end }}{{ end -}}
    {{- $_ := set $group "rules" $rules -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/*
spot.object writes an object with the labels of its manifest, labels, the labels of the chart, and
the names, labels and annotations of the values, in the namespace of the release. It uses the beta
version of MutatingAdmissionPolicies if the API server does not serve another one. Parameters:
object; labels.
*/}}
{{- define "spot.object" -}}
{{- $group := "admissionregistration.k8s.io" -}}
{{- $served := .root.Capabilities.APIVersions -}}
{{- $beta := and ($served.Has (printf "%s/v1beta1/%s" $group .object.kind)) (not ($served.Has (printf "%s/v1/%s" $group .object.kind))) -}}
{{- if and (hasPrefix "MutatingAdmissionPolicy" .object.kind) $beta -}}
  {{- $_ := set .object "apiVersion" (printf "%s/v1beta1" $group) -}}
{{- end -}}
{{- $labels := dict "app.kubernetes.io/managed-by" .root.Release.Service "app.kubernetes.io/instance" .root.Release.Name
    "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version) -}}
{{- $metadata := dict "labels" (merge $labels .labels (.root.Values.commonLabels | default dict)) -}}
{{- with .root.Values.commonAnnotations -}}
  {{- $_ := merge (dict) ($.object.metadata.annotations | default dict) . | set $metadata "annotations" -}}
{{- end -}}
{{- include "spot.rename" (dict "root" .root "object" .object) -}}
---
{{ toYaml (mergeOverwrite .object (dict "metadata" $metadata)) }}
{{- end -}}

{{/*
spot.names returns the names of the programs' objects, by their names in the manifests, as YAML.
Objects of the whole cluster, roles and leases have fixed names, because the programs and a second
release look for them, and Services, because certificates contain their names. Labels do not change
either: alerts and kubectl spot select by them.
*/}}
{{- define "spot.names" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if and .Values.nameOverride (not $name) -}}
  {{- $name = ternary .Release.Name (printf "%s-%s" .Release.Name .Values.nameOverride) (contains .Values.nameOverride .Release.Name) -}}
  {{- $name = $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
spot-aware-scheduler: {{ $name | default "spot-aware-scheduler" }}
{{- range $program := list "controller" "extender" "failsafe" }}
spot-{{ $program }}: {{ $name | default "spot" }}-{{ $program }}
{{- end -}}
{{- end -}}

{{/*
spot.serviceAccounts returns the names of the programs' ServiceAccounts, by their names in the
manifests, as YAML.
*/}}
{{- define "spot.serviceAccounts" -}}
{{- $names := include "spot.names" . | fromYaml -}}
{{- range $old, $program := dict "spot-aware-scheduler" "scheduler" "spot-controller" "controller" "spot-extender" "extender" }}
{{ $old }}: {{ (index $.Values $program).serviceAccount.name | default (get $names $old) }}
{{- end -}}
{{- end -}}

{{/*
spot.rename replaces the names in an object by spot.names and spot.serviceAccounts, and the
namespace of the manifests by that of the release. Parameters: object.
*/}}
{{- define "spot.rename" -}}
{{- $names := include "spot.names" .root | fromYaml -}}
{{- $accounts := include "spot.serviceAccounts" .root | fromYaml -}}
{{- $object := .object -}}
{{- if eq $object.kind "ServiceAccount" }}{{ $names = $accounts }}{{ end -}}
{{- if and (has $object.kind (list "Deployment" "NetworkPolicy" "PodDisruptionBudget" "ServiceAccount")) (hasKey $names $object.metadata.name) -}}
  {{- $_ := set $object.metadata "name" (get $names $object.metadata.name) -}}
{{- end -}}
{{- if eq $object.kind "Deployment" -}}
  {{- $_ := set $object.spec.template.spec "serviceAccountName" (get $accounts $object.spec.template.spec.serviceAccountName) -}}
{{- end -}}
{{- range $object.subjects -}}
  {{- if and (eq .kind "ServiceAccount") (hasKey $accounts .name) }}{{ $_ := set . "name" (get $accounts .name) }}{{ end -}}
{{- end -}}
{{- $places := $object.subjects | default list | concat (list $object.metadata) -}}
{{- range $object.webhooks }}{{ $places = append $places .clientConfig.service }}{{ end -}}
{{- range $places -}}
  {{- if .namespace }}{{ $_ := set . "namespace" $.root.Release.Namespace }}{{ end -}}
{{- end -}}
{{- end -}}

{{/*
spot.merge merges the fields of from over the fields of to, which it changes. Lists replace lists,
and a null removes a field. mergeOverwrite ignores false, 0 and empty lists. Parameters: to; from.
*/}}
{{- define "spot.merge" -}}
{{- range $field, $value := .from -}}
  {{- if kindIs "invalid" $value -}}
    {{- $_ := unset $.to $field -}}
  {{- else if and (kindIs "map" $value) (kindIs "map" (get $.to $field)) -}}
    {{- include "spot.merge" (dict "to" (get $.to $field) "from" $value) -}}
  {{- else -}}
    {{- $_ := set $.to $field $value -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/*
spot.override merges the values of a program over the fields of to, which it changes. A null means:
as in the manifest. Parameters: to; values; fields, the names of the values.
*/}}
{{- define "spot.override" -}}
{{- range .fields -}}
  {{- if and (hasKey $.values .) (not (kindIs "invalid" (get $.values .))) -}}
    {{- include "spot.merge" (dict "to" $.to "from" (pick $.values . | deepCopy)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* spot.image returns the image of a program. Parameters: values; name. */}}
{{- define "spot.image" -}}
{{- $image := .root.Values.image -}}
{{- $registry := .root.Values.global.imageRegistry | default $image.registry -}}
{{- if not (or .values.image $registry) -}}
  {{- fail "image.registry: required, because no images are published yet: build them, and name the registry that you pushed them to (docs/install.md)" -}}
{{- end -}}
{{ .values.image | default (printf "%s/%s:%s" $registry .name ($image.tag | default .root.Chart.AppVersion)) }}
{{- end -}}

{{/*
spot.goMemoryLimit returns the GOMEMLIMIT of a program: 80 % of its memory limit, because not all
memory is heap. Parameters: component, the name of its values; values.
*/}}
{{- define "spot.goMemoryLimit" -}}
{{- $limit := (((.values).resources).limits).memory -}}
{{- $units := dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 -}}
{{- if .values.goMemoryLimit -}}
  {{ .values.goMemoryLimit }}
{{- else if not $limit -}}
  off
{{- else -}}
  {{- $text := ternary $limit (int64 $limit | toString) (kindIs "string" $limit) -}}
  {{- $number := regexFind "^[0-9.]+" $text -}}
  {{- $bytes := mulf (float64 $number) (get $units (trimPrefix $number $text) | default 0 | float64) 0.8 -}}
  {{- if not $bytes }}{{ fail (printf "%s.resources.limits.memory: invalid value %q: expected a quantity such as 1Gi" .component $text) }}{{ end -}}
  {{ divf $bytes 1048576 | ceil | int64 }}MiB
{{- end -}}
{{- end -}}

{{/* spot.newestMinor is the newest minor version that make test-skew tests (docs/versions.md). */}}
{{- define "spot.newestMinor" -}}
37
{{- end -}}

{{/* spot.untested returns the minor version of the cluster if it is newer than that, or nothing. */}}
{{- define "spot.untested" -}}
{{- $minor := (semver .Capabilities.KubeVersion.Version).Minor -}}
{{- if gt (int $minor) (include "spot.newestMinor" . | int) }}{{ $minor }}{{ end -}}
{{- end -}}

{{/* spot.partOf is the label of all parts of the product, as YAML. */}}
{{- define "spot.partOf" -}}
app.kubernetes.io/part-of: spot-aware-scheduler
{{- end -}}

{{/*
spot.admission returns what gates new pods: policy, webhook, or nothing if the autoscaler mode is
off or the controller only logs. MutatingAdmissionPolicies are on by default from Kubernetes 1.36.
*/}}
{{- define "spot.admission" -}}
{{- $config := .Values.controller.config -}}
{{- if and (or (not .Values.scheduler.enabled) (dig "gating" "enabled" false $config)) (not $config.dryRun) -}}
{{ .Values.controller.admission | default (ternary "policy" "webhook" (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version)) }}
{{- end -}}
{{- end -}}

{{/*
spot.program writes the objects of a program. Parameters: component, the folder of the program in
files/components and the name of its values.
*/}}
{{- define "spot.program" -}}
{{- $folder := printf "components/%s" .component -}}
{{- $partOf := include "spot.partOf" .root | fromYaml -}}
{{- $values := index .root.Values .component -}}
{{- $skip := list -}}
{{- if not $values.serviceAccount.create }}{{ $skip = append $skip "ServiceAccount" }}{{ end -}}
{{- if not $values.podDisruptionBudget.enabled }}{{ $skip = append $skip "PodDisruptionBudget" }}{{ end -}}
{{- include "spot.manifests" (dict "root" .root "folder" $folder "labels" $partOf "skip" $skip "values" $values) }}
{{ include "spot.deployment" (merge (dict "file" (printf "%s/deployment.yaml" $folder)) .) }}
{{- end -}}

{{/*
spot.deployment writes the Deployment in a file below files/. Parameters: file; component, the name
of its values.
*/}}
{{- define "spot.deployment" -}}
{{- $partOf := include "spot.partOf" .root | fromYaml -}}
{{- $values := index .root.Values .component -}}
{{- $deployment := .root.Files.Get (printf "files/%s" .file) | fromYaml -}}
{{- $template := $deployment.spec.template -}}
{{- $container := first $template.spec.containers -}}

{{- $fields := list "revisionHistoryLimit" -}}
{{- if not .replicas }}{{ $fields = append $fields "replicas" }}{{ end -}}
{{- include "spot.override" (dict "to" $deployment.spec "values" $values "fields" $fields) -}}
{{- with $values.strategy }}{{ $_ := set $deployment.spec "strategy" . }}{{ end -}}

{{- $_ := set $container "image" (include "spot.image" (dict "root" .root "values" $values "name" $container.name)) -}}
{{- $_ := set $container "imagePullPolicy" .root.Values.image.pullPolicy -}}
{{- $_ := set $container "resources" $values.resources -}}
{{- $fields = list "securityContext" "livenessProbe" "readinessProbe" -}}
{{- include "spot.override" (dict "to" $container "values" $values "fields" $fields) -}}
{{- range $container.env -}}
  {{- if eq .name "GOMEMLIMIT" }}{{ $_ := set . "value" (include "spot.goMemoryLimit" (dict "component" $.component "values" $values)) }}{{ end -}}
{{- end -}}
{{- $_ := set $container "env" (concat $container.env ($values.extraEnv | default list)) -}}
{{- $_ := set $container "volumeMounts" (concat $container.volumeMounts ($values.extraVolumeMounts | default list)) -}}
{{- $args := $container.args -}}
{{- if .root.Values.gang.enabled -}}
  {{- $args = toYaml $args | replace "/scheduler-config.yaml" "/gang.yaml" | fromYamlArray -}}
{{- end -}}
{{- $_ := set $container "args" (concat $args ($values.extraArgs | default list)) -}}

{{- range $template.spec.volumes -}}
  {{- with .configMap }}{{ $_ := set . "name" (include "spot.configMapName" (dict "root" $.root "name" .name)) }}{{ end -}}
{{- end -}}
{{- $_ := set $template.spec "volumes" (concat $template.spec.volumes ($values.extraVolumes | default list)) -}}
{{- range .root.Values.global.imagePullSecrets -}}
  {{- $_ := ternary (dict "name" .) . (kindIs "string" .) | append ($template.spec.imagePullSecrets | default list) | set $template.spec "imagePullSecrets" -}}
{{- end -}}
{{- $fields = list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" -}}
{{- include "spot.override" (dict "to" $template.spec "values" $values "fields" $fields) -}}
{{- $labels := merge (dict) $template.metadata.labels $partOf ($values.podLabels | default dict) (.root.Values.commonLabels | default dict) -}}
{{- $metadata := dict "labels" $labels -}}
{{- with $values.podAnnotations }}{{ $_ := set $metadata "annotations" . }}{{ end -}}
{{- include "spot.merge" (dict "to" $template "from" (dict "metadata" $metadata)) -}}
{{- include "spot.merge" (dict "to" $template "from" (.root.Values.podTemplate | default dict | deepCopy)) }}
{{ include "spot.object" (dict "root" .root "object" $deployment "labels" $partOf) }}
{{- end -}}

{{/*
spot.policyFile returns a configuration of the scheduler in files/config, with the policy and the
settings of the values. Parameters: file.
*/}}
{{- define "spot.policyFile" -}}
{{- $config := .root.Files.Get (printf "files/config/%s" .file) | fromYaml -}}
{{- $args := dict "ReplicaSafety" .root.Values.policy "SpotPreference" .root.Values.preference -}}
{{- range $profile := $config.profiles -}}
  {{- range $profile.pluginConfig -}}
    {{- if hasKey $args .name }}{{ $_ := set . "args" (get $args .name) }}{{ end -}}
  {{- end -}}
{{- end -}}
{{ toYaml (mergeOverwrite $config (deepCopy .root.Values.scheduler.config)) }}
{{- end -}}

{{/* spot.configMapData returns the files of a ConfigMap as YAML. Parameters: name. */}}
{{- define "spot.configMapData" -}}
{{- if eq .name "spot-controller-config" -}}
{{- $header := dict "apiVersion" "spot-aware-scheduler.io/v1beta1" "kind" "SpotControllerConfiguration" -}}
{{- $config := merge $header .root.Values.controller.config -}}
{{- if not .root.Values.scheduler.enabled -}}
  {{- $config = mergeOverwrite $config (dict "gating" (dict "enabled" true)) -}}
{{- end -}}
{{- if eq (include "spot.admission" .root) "webhook" -}}
  {{- $config = mergeOverwrite $config (dict "gating" (dict "webhook" (dict "bindAddress" ":9443"))) -}}
{{- else if dig "gating" "webhook" "bindAddress" "" $config -}}
  {{- fail (printf "controller.config.gating.webhook.bindAddress: invalid value %q: expected no address unless controller.admission is webhook" $config.gating.webhook.bindAddress) -}}
{{- end -}}
{{- $files := dict -}}
{{- with .root.Values.controller.prices -}}
  {{- $_ := set $files "prices.yaml" (toYaml .) -}}
  {{- $config = mergeOverwrite $config (dict "costs" (dict "priceFile" "prices.yaml")) -}}
{{- end -}}
{{ toYaml (set $files "controller-config.yaml" (toYaml $config)) }}
{{- else -}}
{{- $files := dict -}}
{{- range $file := list "scheduler-config.yaml" "gang.yaml" -}}
  {{- $_ := set $files $file (include "spot.policyFile" (dict "root" $.root "file" $file)) -}}
{{- end -}}
{{ toYaml $files }}
{{- end -}}
{{- end -}}

{{/*
spot.configMapName returns the name of a ConfigMap with a hash of its files, so that a changed
configuration starts a rollout, and an invalid one does not affect the running replicas.
Parameters: name.
*/}}
{{- define "spot.configMapName" -}}
{{ .name }}-{{ include "spot.configMapData" . | sha256sum | trunc 10 }}
{{- end -}}
