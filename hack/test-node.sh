#!/usr/bin/env bash
# Runs the shipped image from the shipped manifests on a real kubelet with Debian's containerd
# (test/node). It requires Linux, root, and permission to create cgroups and namespaces. On Debian
# it installs missing packages. All processes run in separate namespaces and end with the test
# program, even if that crashes.
#
# If the machine does not allow this, the script prints one line "test-node: NOT RUN" with the
# reason and exits with status 2, because a test that did not run has not passed. With
# IF_POSSIBLE=1, which .ci/run sets, it exits with status 0.
set -euo pipefail
cd "$(dirname "$0")/.."
not_run() {
  echo "test-node: NOT RUN: $1"
  [ "${IF_POSSIBLE:-}" = 1 ] || exit 2
  exit 0
}

[ "$(uname -s)" = Linux ] || not_run "a kubelet needs Linux, this is $(uname -s)"
[ "$(id -u)" = 0 ] || not_run "it needs root"
case $PWD/ in /run/* | /var/lib/* | /var/log/*) not_run "it has its own /run, /var/lib and /var/log, and the checkout is in there" ;; esac
missing() {
  local program
  for program in containerd containerd-shim-runc-v2 ctr runc buildah ip /usr/lib/cni/{bridge,host-local,loopback}; do
    command -v "$program" >/dev/null || echo "$program"
  done
}
if [ -n "$(missing)" ] && command -v apt-get >/dev/null; then
  hack/packages.sh containerd runc containernetworking-plugins buildah iproute2 || not_run "packages could not be installed"
fi
[ -z "$(missing)" ] || not_run "there is no $(missing | paste -sd ' ')"
unshare --fork --kill-child --pid --mount --net --ipc --mount-proc sh -c '
  ip link set lo up && ip link add probe type bridge && ip link add probe0 type veth peer name probe1 && ip link set probe0 master probe
' 2>/dev/null || not_run "namespaces or bridges cannot be made here"
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*; do
  [ -e "$hierarchy/cgroup.procs" ] || continue
  probe=$hierarchy/spot-node-probe-$$
  { mkdir "$probe" && rmdir "$probe"; } 2>/dev/null || not_run "no cgroup can be made in $hierarchy"
  cgroups=yes
  [ "$hierarchy" != /sys/fs/cgroup ] || break # cgroup version 2: the folders in it are cgroups, not hierarchies
done
[ -n "${cgroups:-}" ] || not_run "there are no cgroups in /sys/fs/cgroup"

hack/tools.sh kubelet
make --no-print-directory image ARCHS="$(go env GOHOSTARCH)" IMAGE=localhost/spot-aware-scheduler:dev PUSH=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -ldflags '-s -w' -o "$work/context/pause" ./test/node/pause
store=(--root "$work/root" --runroot "$work/run" --storage-driver vfs)
buildah "${store[@]}" bud --quiet --isolation chroot --file test/node/pause/Dockerfile --tag localhost/pause:1 "$work/context" >/dev/null
rm -f bin/images/pause.tar # buildah does not overwrite an archive
buildah "${store[@]}" push --quiet localhost/pause:1 "docker-archive:$PWD/bin/images/pause.tar:localhost/pause:1"
rm -rf "$work"

go test -tags node -count=1 -timeout 8m -v ./test/node
