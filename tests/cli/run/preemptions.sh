#!/usr/bin/env bash
# SLURM requeues fits at random moments: preemptions.sh KINDLING SLURM_SCRIPTS [COUNT (5)] [SEED]. Each job must end with the weights and the
# records of an undisturbed run, whether SIGUSR1 or SLURM itself preempts it. Ends with 77 as launchers.sh does.
set -euo pipefail

kindling=$1 scripts=$2 count=${3:-5}
RANDOM=${4:-$$}

# shellcheck source=tests/cli/run/slurm_on_this_machine.sh
. "$(dirname "$0")/slurm_on_this_machine.sh"

# A requeued job waits for the smallest cred_expire that SLURM accepts, and a second.
CPUS=16 CRED_EXPIRE=5 start_slurm SchedulerParameters=sched_interval=1,bf_interval=1
export OMP_NUM_THREADS=1

cat "$(dirname "$0")/small.toml" - >"$folder/small.toml" <<TOML
max_epochs = $((count > 5 ? 40 : 15))
log_every_n_steps = 5
[distributed]
timeout_s = 60
[run]
on_usr1 = "requeue"
TOML
fit="$kindling fit -c $folder/small.toml --run.dir $folder/runs --color never"

for ranks in 1 2; do
  $fit name=ranks$ranks trainer.num_processes=$ranks run.on_usr1=save >"$folder/ranks$ranks.txt" 2>&1 || stop "$ranks ranks"
done

# The command that each kind of job runs.
declare -A start=(
  [srun]="srun -n 2"
  [open_mpi]="exec mpirun.openmpi --allow-run-as-root --oversubscribe -np 2"
  [mpich]="exec mpiexec.hydra -n 2"
  [array]="exec"
)

# The lines of the job's latest life that are rows of epochs.
rows_of_life() { awk '/^life / {rows = 0} / [0-9]+\.[0-9]+s /{++rows} END {print rows + 0}' "$1" 2>/dev/null || echo 0; }
lives() { awk '/^life / {++lives} END {print lives + 0}' "$1" 2>/dev/null || echo 0; }

# preempt KIND JOB OUTPUT NUMBER: after each start of the job, at a random moment of its training.
preempt() {
  local i life
  for life in $(seq "$4"); do
    for ((i = 0; i < 1200; ++i)); do
      [ -n "$(squeue -h -j "$2" 2>/dev/null)" ] || return 0  # it has finished
      [ "$(lives "$3")" -lt "$life" ] || [ "$(rows_of_life "$3")" = 0 ] || break
      sleep 0.05
    done
    sleep "0.$((RANDOM % 6))"
    case $1.$((RANDOM % 2)) in
      srun.0 | mpich.0) scancel --signal=USR1 "$2" ;;
      *.0) scancel --batch --signal=USR1 "$2" ;;
      *) scontrol requeue "$2" ;;
    esac >>"$folder/preempt.txt" 2>&1 || true
  done
}

# Without times. An epoch that was interrupted after its last step has no step times in its next life.
records() { sed -E 's/, "(epoch_time_s|samples_per_s|data_wait_share|step_time_s\/rank[0-9])": [^,}]*//g' "$1/metrics.jsonl"; }

# expect_same RUN RANKS: as if nothing had happened.
expect_same() {
  local undisturbed=$folder/runs/ranks$2/0001
  cmp "$1/weights.safetensors" "$undisturbed/weights.safetensors" || stop "$1: other weights"
  cmp <(records "$1") <(records "$undisturbed") || stop "$1: other records"
}

# job KIND NAME PREEMPTIONS: runs it to its end; adds the number of its preemptions to the file KIND.
job() {
  local id out task tasks=("") i runs=$folder/runs/$2
  cat >"$folder/$2.sh" <<SH
#!/bin/bash
echo "life \${SLURM_RESTART_COUNT:-0}"
${start[$1]} $fit name=$2
SH
  out=$folder/$2
  if [ "$1" = array ]; then
    tasks=(_0 _1)
    id=$(sbatch --parsable --requeue --open-mode=append --array=0-1 -o "${out}_%a.txt" "$folder/$2.sh")
  else
    id=$(sbatch --parsable --requeue --open-mode=append -n 2 -o "$out.txt" "$folder/$2.sh")
  fi
  for task in "${tasks[@]}"; do preempt "$1" "$id$task" "$out$task.txt" "$3" & done
  wait
  for ((i = 0; i < 1200; ++i)); do
    [ -n "$(squeue -h -j "$id" 2>/dev/null)" ] || break
    sleep 0.1
  done
  [ "$(ls "$runs" | wc -l)" = "${#tasks[@]}" ] || stop "$2: not ${#tasks[@]} runs"
  for ((i = 1; i <= ${#tasks[@]}; ++i)); do
    grep -q '"status": "finished"' "$runs/000$i/run.json" || stop "$2: run $i has not finished"
    expect_same "$runs/000$i" $([ "$1" = array ] && echo 1 || echo 2)
  done
  for task in "${tasks[@]}"; do echo $(($(lives "$out$task.txt") - 1)) >>"$folder/$1"; done
}

total() { awk '{sum += $1} END {print sum + 0}' "$folder/$1"; }

# Each kind has its part of the preemptions, an array twice as many: at most 5 per job.
workers=()
for kind in srun open_mpi mpich array; do
  : >"$folder/$kind"
  part=$(((count + 4) / 5)) tasks=1
  [ "$kind" != array ] || tasks=2
  (
    for ((n = 1; n <= part + 20; ++n)); do
      left=$((part - $(total "$kind") / tasks))
      [ "$left" -gt 0 ] || break
      job "$kind" "$kind$n" $((left < 5 ? left : 5))
    done
    [ "$(total "$kind")" -ge $((part * tasks)) ] || stop "$kind: only $(total "$kind") preemptions"
    echo "$kind: $(total "$kind") preemptions, the weights and records of an undisturbed run"
  ) &
  workers+=($!)
done
for worker in "${workers[@]}"; do wait "$worker" || exit 1; done
sum=$(($(total srun) + $(total open_mpi) + $(total mpich) + $(total array)))
hashes=$(sha256sum "$folder"/runs/{srun,open_mpi,mpich}*/0001/weights.safetensors "$folder/runs/ranks2/0001/weights.safetensors" |
  cut -d' ' -f1 | sort -u)
echo "$sum preemptions; SHA-256 of the weights of two ranks: $hashes"
