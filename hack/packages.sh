#!/usr/bin/env bash
# Installs the Debian packages named as arguments unless they are installed. It requires root and
# reports what it installs.
set -euo pipefail

missing=()
for package in "$@"; do
  dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} = 0 ] && exit 0

refuse() { printf 'packages: missing: %s; %s\n' "${missing[*]}" "$1" >&2; exit 1; }
command -v apt-get >/dev/null || refuse "this is no Debian: install what holds the same programs"
[ "$(id -u)" = 0 ] || refuse "run as root: apt-get install --no-install-recommends ${missing[*]}"

echo "packages: installing Debian's ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Wait if another apt-get has the lock.
install() {
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -qq --no-install-recommends "${missing[@]}"
}
# The package lists may be missing or old, so update them and try again after a failure.
install >"$log" 2>&1 || { apt-get -o DPkg::Lock::Timeout=300 update -qq && install; } >>"$log" 2>&1 || {
  cat "$log" >&2
  refuse "apt-get failed, see above"
}
