#!/usr/bin/env bash
# Installs prometheus and promtool in .local/bin, for the tests of the alerts and the dashboard. It
# links the programs on PATH, or unpacks Debian's package. It does not install the package, because
# that would start a service. It does nothing if both programs exist.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.local/bin
programs=(prometheus promtool)
mkdir -p "$bin"

missing=0
for program in "${programs[@]}"; do
  [ -x "$bin/$program" ] && continue
  if found=$(command -v "$program"); then ln -sf "$found" "$bin/$program"; else missing=1; fi
done
[ $missing = 0 ] && exit 0

refuse() { echo "prometheus: $1: put ${programs[*]} on PATH" >&2; exit 1; }
command -v apt-get dpkg-deb >/dev/null || refuse "this is no Debian"
echo "prometheus: unpacking Debian's package" >&2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
# The package lists may be missing or old, so update them and try again after a failure. The update
# requires root.
apt-get download -qq prometheus >log 2>&1 ||
  { apt-get -o DPkg::Lock::Timeout=300 update -qq && apt-get download -qq prometheus; } >>log 2>&1 || { cat log >&2; refuse "apt-get failed"; }
dpkg-deb -x prometheus_*.deb .
for program in "${programs[@]}"; do
  cp "usr/bin/$program" "$bin/.$program" && mv "$bin/.$program" "$bin/$program" # never install a partial file
done
