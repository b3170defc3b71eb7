#!/usr/bin/env bash
# Generates files from Go types, the reference of the configuration from Go types and flags, the
# tables of metrics and events from the code, the manifests and the README of the chart, and a
# picture from the page about the demo, into the checkout or into the folder given as an argument.
set -euo pipefail
cd "$(dirname "$0")/.."
to=${1:-.}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
# The PodGroup kind of the gang plugin, in the pinned version of scheduler-plugins. Its package
# contains another kind too.
.local/bin/controller-gen crd paths=sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1 output:crd:dir="$made"
mkdir -p "$to/manifests/overlays/gang"
cp "$made/scheduling.x-k8s.io_podgroups.yaml" "$to/manifests/overlays/gang/podgroups.yaml"
# The manifests and the configuration that the chart renders. They are copies, because Windows, Flux
# and parent charts do not follow links.
chart=manifests/charts/spot-aware-scheduler
files=$made/files
mkdir -p "$files/config"
cp config/{scheduler-config,gang}.yaml "$files/config"
cp -R manifests/components manifests/overlays "$files"
cp "$made/scheduling.x-k8s.io_podgroups.yaml" "$files/overlays/gang/podgroups.yaml"
rm -r "$files"/overlays/example-workloads*
find "$files" \( -name kustomization.yaml -o -name controller-config.yaml \) -delete
find "$files" -type d -empty -delete
mkdir -p "$to/$chart"
rm -rf "$to/$chart/files"
mv "$files" "$to/$chart/files"
# Deep copies of the arguments of the plugins.
.local/bin/controller-gen object paths=./pkg/apis/config output:object:dir="$made"
mkdir -p "$to/pkg/apis/config"
cp "$made/zz_generated.deepcopy.go" "$to/pkg/apis/config/zz_generated.deepcopy.go"
# The README of the chart, with a table of its values. helm-docs logs errors and exits with 0.
.local/bin/helm-docs --chart-search-root "$chart" --sort-values-order file --log-level warning --dry-run >"$made/README.md" 2>"$made/errors"
if [ -s "$made/errors" ]; then
  cat "$made/errors" >&2
  exit 1
fi
cp "$made/README.md" "$to/$chart/README.md"
# The reference of the configuration: kinds and fields from the Go types of pkg/apis, flags from the
# programs.
flags() { # program; prints its own flags, before the flags of all components
  go run "./cmd/$1" --help >"$made/help"
  awk '/^Logs flags:/ { exit } / flags:$/ { own = 1; next } own && NF' "$made/help"
}
.local/bin/crd-ref-docs --log-level WARN --source-path pkg/apis --config hack/crd-ref-docs/config.yaml --renderer markdown \
  --templates-dir hack/crd-ref-docs/templates --output-path "$made/kinds.md"
{
  cat "$made/kinds.md"
  printf '\n## Flags of %s\n%s\n\n```text\n' spot-controller 'Its other settings are in the file of `--config`.'
  flags controller
  printf '```\n\n## Flags of %s\n%s\n\n```text\n' spot-extender 'The flags are its whole configuration. The policy is in the file of `--scheduler-config`.'
  flags extender
  echo '```'
} >"$made/configuration.md"
mkdir -p "$to/docs/reference"
cp "$made/configuration.md" "$to/docs/reference/configuration.md"
# The tables of metrics and events, in pages with other text.
for kind in metrics events; do
  go run ./hack/tables $kind docs/$kind.md >"$made/$kind.md"
  cp "$made/$kind.md" "$to/docs/$kind.md"
done
# The picture of the effect, from the table of the demo.
go run ./hack/effect docs/demo.md >"$made/effect.svg"
cp "$made/effect.svg" "$to/docs/effect.svg"
