#!/usr/bin/env bash
# Runs spot-lab replay with the recorded traces in the folder SPOT_DATA. If the folder does not
# exist, it replays the project's own sample. The arguments are further flags, and override these.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${SPOT_DATA:-../shared/data}
if [ -d "$data" ]; then
  echo "replay: recorded traces in $data"
  exec bin/spot-lab replay \
    --capacity "$data/spot/capacity_changes.csv" --pools "$data/spot/pools.csv" --dataset aws_v100x16_3z \
    --prices "$data/prices/aws_us_east_1_instances.csv" \
    --services "$data/workload/services.csv" --changes "$data/workload/replica_changes.csv" "$@"
fi
echo "replay: $data does not exist, so this replays the project's own sample"
exec bin/spot-lab replay "$@"
