#!/usr/bin/env bash
# Puts prometheus and promtool into .local/bin, for the tests of the alerts and the dashboard: those of PATH, or else Debian's. That package
# is unpacked and not installed, because it would start a service. Does nothing when they are there.
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
# The lists of packages may be missing or old, so a second try comes after fetching them, which needs root.
apt-get download -qq prometheus >log 2>&1 ||
  { apt-get -o DPkg::Lock::Timeout=300 update -qq && apt-get download -qq prometheus; } >>log 2>&1 || { cat log >&2; refuse "apt-get failed"; }
dpkg-deb -x prometheus_*.deb .
for program in "${programs[@]}"; do
  cp "usr/bin/$program" "$bin/.$program" && mv "$bin/.$program" "$bin/$program" # never half a program
done
