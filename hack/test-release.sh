#!/usr/bin/env bash
# Builds the commit HEAD as a release twice and compares the digests of all files. The two builds
# use different clones and different build caches. SECOND_CACHE is the folder of the second cache;
# by default it is new, so the second build compiles Kubernetes for six platforms.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v0.0.0-test
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
hack/tools.sh helm
[ -z "$(git status --porcelain)" ] || echo "test-release: changes that are not committed are not part of the test" >&2

build() { # folder, build cache
  git clone --quiet --shared . "$1"
  ln -s "$PWD/.local" "$1/.local"
  GOCACHE=$2 make --no-print-directory -C "$1" release VERSION=$version
}
build "$work/first" "$(go env GOCACHE)"
build "$work/a/second" "${SECOND_CACHE:-$work/cache}"
diff "$work/first/dist/$version/checksums.txt" "$work/a/second/dist/$version/checksums.txt" || {
  echo "test-release: the digests above differ" >&2
  exit 1
}
cat "$work/first/dist/$version/checksums.txt"
echo "test-release: passed: equal digests of $(wc -l <"$work/first/dist/$version/checksums.txt") files"
