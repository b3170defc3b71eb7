{{/*
Parameters of all templates below: root is the root context.

spot.manifests writes the objects of all YAML files in a folder below files/, except Deployments.
Parameters: folder; labels, for all objects, like labels in a kustomization; skip, a list of
KIND/NAME of objects to omit.
*/}}
{{- define "spot.manifests" -}}
{{- $parameters := . -}}
{{- range $path, $_ := .root.Files.Glob (printf "files/%s/*.yaml" .folder) -}}
{{- range splitList "\n---\n" ($parameters.root.Files.Get $path) -}}
{{- $object := fromYaml . -}}
{{- if not (or (eq $object.kind "Deployment") (has (printf "%s/%s" $object.kind $object.metadata.name) $parameters.skip)) }}
{{ include "spot.object" (dict "root" $parameters.root "object" $object "labels" $parameters.labels) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
spot.object writes an object with the labels of its manifest, labels, and the labels of the chart, in
the namespace of the release. kube-system is the namespace of the manifests.
It uses the beta version of MutatingAdmissionPolicies if the API server does not serve another
one. Parameters: object; labels.
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
---
{{ toYaml (mergeOverwrite .object (dict "metadata" (dict "labels" (merge $labels .labels))))
    | replace "namespace: kube-system" (printf "namespace: %s" (quote .root.Release.Namespace)) }}
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
{{- include "spot.manifests" (dict "root" .root "folder" $folder "labels" $partOf "skip" list) }}
{{ include "spot.deployment" (merge (dict "file" (printf "%s/deployment.yaml" $folder)) .) }}
{{- end -}}

{{/*
spot.deployment writes the Deployment in a file below files/. Parameters: file; component, the name
of its values.
*/}}
{{- define "spot.deployment" -}}
{{- $partOf := include "spot.partOf" .root | fromYaml -}}
{{- $values := index .root.Values .component -}}
{{- $image := .root.Values.image -}}
{{- $deployment := .root.Files.Get (printf "files/%s" .file) | fromYaml -}}
{{- $template := $deployment.spec.template -}}
{{- $container := first $template.spec.containers -}}
{{- if not .replicas }}{{ $_ := set $deployment.spec "replicas" $values.replicas }}{{ end -}}
{{- $_ := set $container "image" ($values.image | default (printf "%s/%s:%s" $image.registry $container.name ($image.tag | default .root.Chart.AppVersion))) -}}
{{- $_ := set $container "imagePullPolicy" $image.pullPolicy -}}
{{- $_ := set $container "resources" $values.resources -}}
{{- range $container.env -}}
  {{- if eq .name "GOMEMLIMIT" }}{{ $_ := set . "value" $values.goMemoryLimit }}{{ end -}}
{{- end -}}
{{- $args := $container.args -}}
{{- if .root.Values.gang.enabled -}}
  {{- $args = toYaml $args | replace "/scheduler-config.yaml" "/gang.yaml" | fromYamlArray -}}
{{- end -}}
{{- $_ := set $container "args" (concat $args $values.extraArgs) -}}
{{- range $template.spec.volumes -}}
  {{- with .configMap }}{{ $_ := set . "name" (include "spot.configMapName" (dict "root" $.root "name" .name)) }}{{ end -}}
{{- end -}}
{{- $_ := mergeOverwrite $template (dict "metadata" (dict "labels" $partOf)) (deepCopy .root.Values.podTemplate) }}
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
