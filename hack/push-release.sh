#!/usr/bin/env bash
# Pushes the images of a release to the registry in install.yaml, and prints one line per image:
# NAME DIGEST. The arguments are the folder of the release and its version. Log in to the registry
# first, for example with docker login.
#
# A push keeps the bytes of the images, so their digests are those in install.yaml.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 2 ] || { echo "push-release: expected two arguments, such as dist/v0.1.0 v0.1.0" >&2; exit 2; }
crane=github.com/google/go-containerregistry/cmd/crane@$(go list -m -f '{{.Version}}' github.com/google/go-containerregistry)
registry=$(sed -n "s|^ *image: \(.*\)/spot-controller:$2@.*|\1|p" "$1/install.yaml")
[ -n "$registry" ] || { echo "push-release: $1/install.yaml names no image of $2" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for archive in "$1"/*_"$2"_image.tar; do
  name=$(basename "$archive" "_$2_image.tar")
  mkdir "$work/$name"
  tar -xf "$archive" -C "$work/$name"
  digest=$(sed -n 's/.*"digest": *"\([^"]*\)".*/\1/p' "$work/$name/index.json" | head -1)
  go run "$crane" push "$work/$name" "$registry/$name:$2" >&2
  pushed=$(go run "$crane" digest "$registry/$name:$2")
  [ "$pushed" = "$digest" ] || { echo "push-release: $name has the digest $pushed, expected $digest" >&2; exit 1; }
  echo "$registry/$name $digest"
done
