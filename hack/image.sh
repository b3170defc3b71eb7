#!/usr/bin/env bash
# Builds the images of the scheduler, the controller and the extender for each of ARCHS, with docker
# if an engine is available and otherwise with buildah. hack/release verifies the contents. make
# image calls this script and sets IMAGE, CONTROLLER_IMAGE, EXTENDER_IMAGE, ARCHS, PUSH, VERSION and
# LDFLAGS.
#
# The results are bin/images/spot-aware-scheduler-linux-ARCH.tar, spot-controller-linux-ARCH.tar and
# spot-extender-linux-ARCH.tar (docker-archive). docker, podman and containerd load them as IMAGE,
# CONTROLLER_IMAGE and EXTENDER_IMAGE. docker also has the images of this machine's architecture
# under these names; buildah uses a temporary store. With PUSH=1 the script pushes each image, as
# one image for all ARCHS, to the registry in its name.
set -euo pipefail
cd "$(dirname "$0")/.."
refuse() { echo "image: $1" >&2; exit 2; }
# A name that registries accept (the distribution reference grammar), with a tag.
for name in IMAGE CONTROLLER_IMAGE EXTENDER_IMAGE; do
  [[ ${!name} =~ ^[a-zA-Z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}$ ]] ||
    refuse "$name=${!name}: expected a name and a tag, such as registry.example/team/spot-aware-scheduler:v1"
  [[ $PUSH != 1 || ${!name} != localhost/* ]] ||
    refuse "$name=${!name}: expected the name of a registry, as in registry.example/..., with PUSH=1"
done
[ "$IMAGE" != "$CONTROLLER_IMAGE" ] || refuse "CONTROLLER_IMAGE=$CONTROLLER_IMAGE: expected another name than IMAGE"
[[ $EXTENDER_IMAGE != "$IMAGE" && $EXTENDER_IMAGE != "$CONTROLLER_IMAGE" ]] ||
  refuse "EXTENDER_IMAGE=$EXTENDER_IMAGE: expected another name than IMAGE and CONTROLLER_IMAGE"
case $PUSH in '' | 0 | 1) ;; *) refuse "PUSH=$PUSH: expected 1, or nothing" ;; esac
[ -n "$ARCHS" ] || refuse "ARCHS is empty: expected amd64, arm64 or both"
for arch in $ARCHS; do
  case $arch in amd64 | arm64) ;; *) refuse "ARCHS=$ARCHS: $arch: expected amd64, arm64 or both, with a space between them" ;; esac
done
# Use BuildKit, because docker's classic builder cannot build an image for another architecture from
# scratch. Disable attestations, because they would turn an image of one architecture into a list of
# two.
export DOCKER_BUILDKIT=1 BUILDX_NO_DEFAULT_ATTESTATIONS=1
# BuildKit is built into clients before version 23; later clients need the plugin buildx.
docker_builds() {
  docker info && { docker buildx version || [ "$(docker version --format '{{.Client.Version}}' | cut -d. -f1)" -lt 23 ]; }
}

if docker_builds >/dev/null 2>&1; then
  builder=docker
elif command -v buildah >/dev/null || { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && hack/packages.sh buildah; }; then
  builder=buildah
else
  echo "image: no docker engine with buildx answers and there is no buildah:" \
    "start docker, or install buildah (Debian: apt-get install buildah)" >&2
  exit 1
fi

work=$(mktemp -d)
store=(--root "$work/root" --runroot "$work/run" --storage-driver vfs)
trap 'rm -rf "$work"' EXIT

build() { # target of the Dockerfile, image name, architecture, output archive
  local args=(--file Dockerfile --target "$1" --platform "linux/$3" --build-arg "TARGETARCH=$3" --build-arg "VERSION=$VERSION")
  if [ $builder = docker ]; then
    docker build --quiet "${args[@]}" --tag "$2" . >/dev/null
    docker save --output "$4" "$2"
  else
    # Do not use namespaces, so this also works inside a container. The fixed timestamp makes images
    # of equal binaries equal.
    buildah "${store[@]}" bud --quiet --isolation chroot --timestamp 0 "${args[@]}" --tag "$2" . >/dev/null
    buildah "${store[@]}" push --quiet "$2" "docker-archive:$4:$2"
  fi
}

push() { # binary, image name; pushes the verified archives, so exactly the verified contents are pushed
  local arch parts=()
  for arch in $ARCHS; do
    local archive=bin/images/$1-linux-$arch.tar
    if [ $builder = docker ]; then
      docker load --quiet --input "$archive" >/dev/null
      docker tag "$2" "$2-$arch"
      docker push --quiet "$2-$arch"
      parts+=("$2-$arch")
    else
      parts+=("docker-archive:$PWD/$archive")
    fi
  done
  if [ $builder = docker ]; then
    docker manifest create --amend "$2" "${parts[@]}" >/dev/null
    docker manifest push --purge "$2"
  else
    buildah "${store[@]}" manifest create "$2-all" >/dev/null
    for archive in "${parts[@]}"; do buildah "${store[@]}" manifest add "$2-all" "$archive" >/dev/null; done
    buildah "${store[@]}" manifest push --all --format v2s2 "$2-all" "docker://$2"
  fi
  echo "image: pushed $2 for $ARCHS"
}

make_image() { # target of the Dockerfile and folder in cmd, binary, image name
  local arch archive want
  for arch in $ARCHS; do
    GOWORK=off GOOS=linux GOARCH=$arch go build -ldflags "$LDFLAGS" -o "bin/linux-$arch/$2" "./cmd/$1"
    go run ./hack/release licenses -arch "$arch" -out "bin/linux-$arch/licenses/$2" "./cmd/$1"
    archive=bin/images/$2-linux-$arch.tar
    want="$3 $VERSION $(cat "bin/linux-$arch/$2" Dockerfile .dockerignore hack/image.sh | sha256sum)"
    if [ ! -e "$archive" ] || [ "$(cat "$archive.made" 2>/dev/null)" != "$want" ]; then
      rm -f "$archive" "$archive.made"
      build "$1" "$3" "$arch" "$PWD/$archive"
      echo "$want" >"$archive.made"
    fi
    go run ./hack/release check-image -arch "$arch" -version "$VERSION" -name "$3" "$archive"
  done
}

mkdir -p bin/images
make_image scheduler spot-aware-scheduler "$IMAGE"
make_image controller spot-controller "$CONTROLLER_IMAGE"
make_image extender spot-extender "$EXTENDER_IMAGE"
if [ "$PUSH" = 1 ]; then
  push spot-aware-scheduler "$IMAGE"
  push spot-controller "$CONTROLLER_IMAGE"
  push spot-extender "$EXTENDER_IMAGE"
fi
# docker has loaded several architectures under one name. Load this machine's architecture last.
own=$(go env GOHOSTARCH)
if [ $builder = docker ] && [[ " $ARCHS " = *" $own "* ]]; then
  for binary in spot-aware-scheduler spot-controller spot-extender; do docker load --quiet --input "bin/images/$binary-linux-$own.tar" >/dev/null; done
fi
