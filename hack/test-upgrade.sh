#!/usr/bin/env bash
# Runs the upgrade tests: the previous version runs first, with its own manifests and configuration,
# and is upgraded to this checkout and back. Prints times and the numbers of ready pods. PREVIOUS is
# the previous version, a commit or tag of this repository. RUN selects tests by a regular
# expression.
set -euo pipefail
cd "$(dirname "$0")/.."
# There is no release yet. This is the last commit before SpotControllerConfiguration v1beta1.
previous=${PREVIOUS:-a53ddcba38208a26cde6764f53aebe9a431f0096}
if ! git cat-file -e "$previous^{commit}" 2>/dev/null; then
  echo "upgrade: this clone does not contain the previous version, commit $previous: expected a full clone." \
    "Run git fetch --unshallow --tags, or set PREVIOUS to a commit that this clone contains" >&2
  exit 1
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git archive "$previous" | tar -x -C "$folder"
ln -s "$PWD/.local" "$folder/.local"
for program in scheduler:spot-aware-scheduler controller:spot-controller extender:spot-extender; do
  go build -C "$folder" -o "bin/${program#*:}" "./cmd/${program%:*}"
done
SPOT_PREVIOUS=$folder go test -count=1 -v -tags upgrade -timeout 20m -p 1 -run "${RUN:-^(TestUpgrade|TestConfigurationOfOtherVersion)}" \
  ./test/controller ./test/extender
