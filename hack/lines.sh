#!/usr/bin/env bash
# Counts the lines of Go of this checkout that the shipped programs link, whichever module they are
# in. Files for other operating systems count. Tests and generated code do not. It prints the count
# to standard error, and fails if there are more lines than hack/lines.txt allows.
set -euo pipefail
cd "$(dirname "$0")/.."
# The packages of other projects are outside of the checkout.
files=$(go list -deps -f '{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}
{{end}}{{range .CgoFiles}}{{$dir}}/{{.}}
{{end}}{{range .IgnoredGoFiles}}{{$dir}}/{{.}}
{{end}}' ./cmd/... | grep "^$PWD/" | grep -Ev '_test\.go$|/zz_generated[^/]*$')
lines=0
while read -r file; do
  grep -q '^// Code generated .* DO NOT EDIT\.$' "$file" || lines=$((lines + $(wc -l <"$file")))
done <<<"$files"
read -r limit removed < <(grep -v '^#' hack/lines.txt)
echo "the shipped programs have $lines lines, at most $limit are allowed" >&2
[ "$lines" -le "$limit" ] && [ -n "$removed" ]
