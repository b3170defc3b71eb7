#!/usr/bin/env bash
# Builds the image of the scheduler for each of ARCHS, with docker if an engine answers and with buildah otherwise, and has
# hack/checkimage prove what is in it. Called by make image, which sets IMAGE, ARCHS, PUSH, VERSION and LDFLAGS.
#
# It leaves bin/images/spot-aware-scheduler-linux-ARCH.tar (docker-archive) to be loaded into docker, podman or containerd under the
# name IMAGE. docker also has the image of this machine's architecture under that name; buildah works in a store of its own that is
# thrown away. With PUSH=1 one image for all ARCHS goes to IMAGE's registry.
set -euo pipefail
cd "$(dirname "$0")/.."
refuse() { echo "image: $1" >&2; exit 2; }
# Names as registries take them (the distribution reference grammar), and a tag.
[[ $IMAGE =~ ^[a-zA-Z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}$ ]] ||
  refuse "IMAGE=$IMAGE: expected a name and a tag, such as registry.example/team/spot-aware-scheduler:v1"
case $PUSH in '' | 0 | 1) ;; *) refuse "PUSH=$PUSH: expected 1, or nothing" ;; esac
[[ $PUSH != 1 || $IMAGE != localhost/* ]] || refuse "IMAGE=$IMAGE: expected the name of a registry, as in registry.example/..., with PUSH=1"
[ -n "$ARCHS" ] || refuse "ARCHS is empty: expected amd64, arm64 or both"
for arch in $ARCHS; do
  case $arch in amd64 | arm64) ;; *) refuse "ARCHS=$ARCHS: $arch: expected amd64, arm64 or both, with a space between them" ;; esac
done
# BuildKit, because docker's first builder cannot make an image for another architecture out of nothing. No attestations: they would
# make an image of one architecture a list of two.
export DOCKER_BUILDKIT=1 BUILDX_NO_DEFAULT_ATTESTATIONS=1
# Clients before 23 have BuildKit built in, later ones as the plugin buildx.
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

build() { # architecture, archive to write
  local args=(--file Dockerfile --target scheduler --platform "linux/$1" --build-arg "TARGETARCH=$1" --build-arg "VERSION=$VERSION")
  if [ $builder = docker ]; then
    docker build --quiet "${args[@]}" --tag "$IMAGE" . >/dev/null
    docker save --output "$2" "$IMAGE"
  else
    # Without namespaces, so that it also works inside a container. The timestamp makes equal binaries equal images.
    buildah "${store[@]}" bud --quiet --isolation chroot --timestamp 0 "${args[@]}" --tag "$IMAGE" . >/dev/null
    buildah "${store[@]}" push --quiet "$IMAGE" "docker-archive:$2:$IMAGE"
  fi
}

push() { # of the archives that were checked: what was proven is what is pushed
  local arch parts=()
  for arch in $ARCHS; do
    local archive=bin/images/spot-aware-scheduler-linux-$arch.tar
    if [ $builder = docker ]; then
      docker load --quiet --input "$archive" >/dev/null
      docker tag "$IMAGE" "$IMAGE-$arch"
      docker push --quiet "$IMAGE-$arch"
      parts+=("$IMAGE-$arch")
    else
      parts+=("docker-archive:$PWD/$archive")
    fi
  done
  if [ $builder = docker ]; then
    docker manifest create --amend "$IMAGE" "${parts[@]}" >/dev/null
    docker manifest push --purge "$IMAGE"
  else
    buildah "${store[@]}" manifest create "$IMAGE-all" >/dev/null
    for archive in "${parts[@]}"; do buildah "${store[@]}" manifest add "$IMAGE-all" "$archive" >/dev/null; done
    buildah "${store[@]}" manifest push --all --format v2s2 "$IMAGE-all" "docker://$IMAGE"
  fi
  echo "image: pushed $IMAGE for $ARCHS"
}

mkdir -p bin/images
for arch in $ARCHS; do
  GOOS=linux GOARCH=$arch go build -ldflags "$LDFLAGS" -o "bin/linux-$arch/spot-aware-scheduler" ./cmd/scheduler
  archive=bin/images/spot-aware-scheduler-linux-$arch.tar
  want="$IMAGE $VERSION $(cat "bin/linux-$arch/spot-aware-scheduler" Dockerfile .dockerignore hack/image.sh | sha256sum)"
  if [ ! -e "$archive" ] || [ "$(cat "$archive.made" 2>/dev/null)" != "$want" ]; then
    rm -f "$archive" "$archive.made"
    build "$arch" "$PWD/$archive"
    echo "$want" >"$archive.made"
  fi
  go run ./hack/checkimage -arch "$arch" -version "$VERSION" -name "$IMAGE" "$archive"
done
if [ "$PUSH" = 1 ]; then push; fi
# Of all that went through docker under one name, this machine's own stays.
own=bin/images/spot-aware-scheduler-linux-$(go env GOHOSTARCH).tar
if [ $builder = docker ] && [[ " $ARCHS " = *" $(go env GOHOSTARCH) "* ]]; then docker load --quiet --input "$own" >/dev/null; fi
