#!/usr/bin/env bash
# Builds the documentation site from docs/ into dist/site. The checkout is "latest (main)". Each
# release, a tag such as v0.1.0, is built from its own files into a folder of its name. SITE_BASE is
# the path of the site on its host, with a slash at the end.
#
# The build fails if a page has a link to a page or file that does not exist. make test checks the
# headings in links (test/docs).
#
# npm installs the packages in site/package-lock.json. It connects to a registry only for packages
# that are not in its cache.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v npm >/dev/null || { echo "site: npm not found: install Node.js 20 or newer" >&2; exit 1; }
base=${SITE_BASE:-/}
case $base in /*/ | /) ;; *) echo "site: SITE_BASE: expected a path such as /docs/, got $base" >&2; exit 1 ;; esac
out=$PWD/dist/site

build() { # checkout version base folder
  # npm writes this file at the end of an installation.
  if [ ! "$1/site/node_modules/.package-lock.json" -nt "$1/site/package-lock.json" ]; then
    npm ci --prefix "$1/site" --prefer-offline --loglevel error
  fi
  SITE_VERSION=$2 SITE_BASE=$3 npm run --prefix "$1/site" --silent build -- --outDir "$4"
}
# A release must contain the site, and must not be a release candidate.
releases=()
for tag in $(git tag --list 'v*' --sort=-version:refname | grep -v -- -); do
  if git cat-file -e "$tag:site/package.json" 2>/dev/null; then releases+=("$tag"); fi
done
export SITE_RELEASES="${releases[*]}"

rm -rf "$out"
build . main "$base" "$out"
for tag in "${releases[@]}"; do
  checkout=$(mktemp -d)
  git archive "$tag" | tar -x -C "$checkout"
  build "$checkout" "$tag" "$base$tag/" "$out/$tag"
  rm -rf "$checkout"
done
# The site must be complete: a browser loads no image, script or style from another host.
if grep -rnoE --include='*.html' '<(script|img|link)[^>]* (src|href)="([a-z]+:)?//[^"]*"' "$out" >&2; then
  echo "site: expected only parts from the site itself" >&2
  exit 1
fi
