#!/usr/bin/env bash
# Replays the recorded traces and writes their figures into docs/results.md. It takes some hours.
# The reports are in the folder $1 (replay-results by default). Complete reports that exist there
# are not repeated.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-replay-results}
failed=0

# replay runs one replay: dataset, notice, start-up, seed, and further flags.
replay() {
  local folder="$out/$1-$2-$3-$4"
  if [ -e "$folder/report.json" ] && ! grep -q '"partial": true' "$folder/report.json"; then
    return
  fi
  hack/replay.sh --dataset "$1" --notice "$2" --startup "$3" --seed "$4" --out "$folder" "${@:5}" || failed=1 # the other replays still run
}

# replays runs all traces: notice, start-up and seed. aws_p3_bamboo has 11 hours.
replays() {
  replay aws_p3_bamboo "$@" --hours 0
  replay aws_v100x16_3z "$@"
  replay aws_v100x4_3z "$@"
  replay gcp_v100_bamboo "$@" --vms-per-node 2
}

replays 120s 5s 1
replays 30s 5s 1
replays 120s 5s 2
replays 120s 5s 3
# With a start-up of 60 s, each arm takes many times as long. So only the main arms are replayed.
replays 120s 60s 1 --arms on-demand,preferred,scheduler,controller
replays 30s 60s 1 --arms on-demand,preferred,scheduler,controller
bin/spot-lab replay --results "$out,docs/results.md"
exit "$failed"
