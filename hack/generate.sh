#!/usr/bin/env bash
# Writes the files that are made from Go types into the checkout, or with an argument into that folder.
set -euo pipefail
cd "$(dirname "$0")/.."
to=${1:-.}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
# The kind that the gang plugin reads, as the pinned version of scheduler-plugins has it. Its package holds another kind as well.
.local/bin/controller-gen crd paths=sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1 output:crd:dir="$made"
mkdir -p "$to/manifests/overlays/gang"
cp "$made/scheduling.x-k8s.io_podgroups.yaml" "$to/manifests/overlays/gang/podgroups.yaml"
