{{- /* The configuration part of docs/reference/configuration.md: for each kind a table of its fields, a table for each
field with fields of its own, and a table for each type of a list. hack/generate.sh adds the flags. */ -}}

{{- define "gvList" -}}
# Configuration reference

**In short:** all fields of the configuration files, and all flags of the controller and the extender. [Tune](../tuning.md) explains which
to change and why, and [Install](../install.md#change-the-configuration) how to apply a change.

`make generate` writes this page from the Go types and the programs, so do not edit it. Each program also has the flags for logs and
versions that all Kubernetes components have; `--help` lists them.

- The controller's file is `config/controller-config.yaml`, with `apiVersion: spot-aware-scheduler.io/v1beta1` and
  `kind: SpotControllerConfiguration`.
- Set ReplicaSafetyArgs and SpotPreferenceArgs in `args` of the plugin, in `pluginConfig` of a profile, in the scheduler's file
  (`config/scheduler-config.yaml`). The controller and the extender read ReplicaSafetyArgs from the same file. Only the scheduler reads
  SpotPreferenceArgs.
{{ range . }}
{{- $gv := . }}
{{- range .SortedKinds }}
{{- $kind := index $gv.Types . }}
## {{ $kind.Name }}
{{ template "text" (dict "name" $kind.Name "doc" $kind.Doc) }}

| field | values | meaning |
|---|---|---|
{{- template "rows" (dict "type" $kind "prefix" "" "gv" $gv) }}
{{ template "tables" (dict "type" $kind "prefix" "" "gv" $gv) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A comment in one line, about the name in YAML. "Enabled: the controller ..." is the comment of a boolean. */ -}}
{{- define "text" }}
{{- if not .doc }}{{ fail (printf "%s: expected a comment" .name) }}{{ end }}
{{- $doc := .doc | splitList "\n\n" | first | replace "\n" " " | replace "|" "\\|" | replace "<" "&lt;" | replace "*" "\\*" | replace "_" "\\_" }}
{{- if regexMatch "^\\w+: " $doc }}{{ regexReplaceAll "^\\w+: (if true, )?" $doc "If true, " }}
{{- else }}{{ regexReplaceAll "^\\w+" $doc (printf "`%s`" .name) }}{{ end }}
{{- end }}

{{- /* A row for each field. A struct in a kind has a table of its own. The fields of other structs are rows. */ -}}
{{- define "rows" }}
{{- $in := . }}
{{- $shared := list }}
{{- if eq .type.Name "Rule" }}{{ range (index .gv.Types "WorkloadSettings").Fields }}{{ $shared = append $shared .Name }}{{ end }}{{ end }}
{{- range .type.Fields }}
{{- $isOwn := and .Type.Fields (not .Type.Imported) (contains "spot-aware-scheduler" .Type.Package) (ne .Type.Name "DurationOrNever") }}
{{- if and $shared (eq .Name (first $shared)) }}
| `{{ .Name }}` to `{{ last $shared }}` | as in [ReplicaSafetyArgs](#replicasafetyargs) | These settings override the settings of the profile. maxPerPool "100%", fallbackAfter "never", rolloutRelief "never" and disruptionLimit "never" disable them. |
{{- else if has .Name $shared }}
{{- else if and $isOwn $in.prefix }}{{ template "rows" (dict "type" .Type "prefix" (printf "%s%s." $in.prefix .Name) "gv" $in.gv) }}
{{- else if not $isOwn }}
| `{{ $in.prefix }}{{ .Name }}` | {{ template "values" . }} | {{ template "text" (dict "name" .Name "doc" .Doc) }} |
{{- end }}
{{- end }}
{{- end }}

{{- define "tables" }}
{{- $in := . }}
{{- range .type.Fields }}
{{- $isList := hasSuffix " array" (markdownRenderType .Type) }}
{{- if and .Type.Fields (contains "spot-aware-scheduler" .Type.Package) (ne .Type.Name "DurationOrNever") }}
### {{ .Name }}
{{ template "text" (dict "name" .Name "doc" (default .Type.Doc .Doc)) }}

| field | values | meaning |
|---|---|---|
{{- template "rows" (dict "type" .Type "prefix" (printf "%s." .Name) "gv" $in.gv) }}
{{ range .Type.Fields }}
{{- if and (hasSuffix " array" (markdownRenderType .Type)) .Type.UnderlyingType .Type.UnderlyingType.Fields }}
### {{ .Type.Name }}
{{ template "text" (dict "name" .Type.Name "doc" .Type.UnderlyingType.Doc) }}

| field | values | meaning |
|---|---|---|
{{- template "rows" (dict "type" .Type.UnderlyingType "prefix" "" "gv" $in.gv) }}
{{ end }}
{{- end }}
{{- else if and $isList .Type.UnderlyingType.Fields }}
### {{ .Type.Name }}
{{ template "text" (dict "name" .Type.Name "doc" .Type.UnderlyingType.Doc) }}

| field | values | meaning |
|---|---|---|
{{- template "rows" (dict "type" .Type.UnderlyingType "prefix" "" "gv" $in.gv) }}
{{ end }}
{{- end }}
{{- end }}

{{- define "values" }}
{{- $name := markdownRenderType .Type }}
{{- $enum := .Type.EnumValues }}{{ if and (not $enum) .Type.UnderlyingType }}{{ $enum = .Type.UnderlyingType.EnumValues }}{{ end }}
{{- if $enum }}{{ range $i, $value := $enum }}{{ if $i }}, {{ end }}`{{ $value.Name }}`{{ end }}
{{- else if eq $name "boolean" }}`true`, `false`
{{- else if eq $name "integer" }}a whole number
{{- else if eq $name "float" }}a number
{{- else if eq $name "string" }}a string
{{- else if eq $name "object (keys:string, values:integer)" }}reasons and whole numbers
{{- else if eq $name "string array" }}list of strings
{{- else if hasSuffix " array" $name }}list of {{ trimSuffix " array" $name }}
{{- else if eq .Type.Name "Duration" }}a duration such as "30s"
{{- else if eq .Type.Name "DurationOrNever" }}a duration such as "30s", or "never"
{{- else if eq .Type.Name "IntOrString" }}a number or a string
{{- else if eq .Type.Name "LabelSelector" }}[label selector](https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors)
{{- else }}{{ fail (printf "%s: unknown type %s" .Name $name) }}
{{- end }}
{{- end }}
