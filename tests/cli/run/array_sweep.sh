#!/usr/bin/env bash
# The tasks of an array of SLURM share a sweep: array_sweep.sh KINDLING SLURM_SCRIPTS [RUNS (6)]. One task is killed, another one is requeued; the
# table and the weights are those of a sweep in one process. Ends with 77 as launchers.sh does.
set -euo pipefail

kindling=$1 scripts=$2 count=${3:-6}

# shellcheck source=tests/cli/run/slurm_on_this_machine.sh
. "$(dirname "$0")/slurm_on_this_machine.sh"

CPUS=16 CRED_EXPIRE=5 start_slurm SchedulerParameters=sched_interval=1,bf_interval=1
export OMP_NUM_THREADS=1

cat "$(dirname "$0")/small.toml" - >"$folder/small.toml" <<TOML
max_epochs = 40
TOML
cat >"$folder/sweep.toml" <<TOML
[sweep]
config = ["small.toml"]
dir = "$folder"
[parameters]
seed = "1..$count"
TOML
"$kindling" sweep "$folder/sweep.toml" name=alone >"$folder/alone.txt" 2>&1 || stop "one process"

cat >"$folder/array.sh" <<SH
#!/bin/bash
exec "$kindling" sweep "$folder/sweep.toml" name=array
SH
job=$(sbatch --parsable --array=0-2 --requeue --open-mode=append -o "$folder/array_%a.txt" "$folder/array.sh")

# wait_for COMMAND...: for two minutes at most.
wait_for() {
  local i
  for ((i = 0; i < 1200; ++i)); do
    if "$@"; then return; fi
    sleep 0.1
  done
  stop "waited for $*"
}
# The processes of the sweep, without the runs.
process_of() {
  local process
  for process in $(pgrep -f " sweep $folder/sweep.toml name=array"); do
    ! grep -qzx "SLURM_ARRAY_TASK_ID=$1" "/proc/$process/environ" 2>/dev/null || echo "$process"
  done
}
have_started() { [ "$(find "$folder/array" -name metrics.csv 2>/dev/null | wc -l)" -ge 3 ]; }
has_ended() { [ -z "$(squeue -h -j "$job" 2>/dev/null)" ]; }

wait_for have_started
kill -KILL "$(process_of 0)"
scontrol requeue "${job}_1"
wait_for has_ended

for run in "$folder"/alone/0*; do
  name=$(basename "$run")
  [ ! -e "$folder/array/$name/0002" ] || stop "$name has started twice"
  cmp "$run/0001/weights.safetensors" "$folder/array/$name/0001/weights.safetensors" || stop "$name: other weights"
done
cmp "$folder/alone/table.csv" "$folder/array/table.csv" || stop "another table"
resumed=$(grep -l '"resumed_from_step": [1-9]' "$folder"/array/*/0001/run.json | wc -l || true)
[ "$resumed" -ge 1 ] || stop "no run was continued"
starts=$(cat "$folder"/array/*/0001/command.txt | wc -l)
echo "an array of 3 tasks, one killed and one requeued: $count runs, $starts starts, $resumed continued, the table and weights of one process"
