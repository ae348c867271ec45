#!/usr/bin/env bash
# SLURM requeues fits at random moments: preemptions.sh KINDLING SLURM_SCRIPTS [COUNT (5)] [SEED]. Each job must end with the weights and the
# records of an undisturbed run, whether SIGUSR1, SLURM itself or SIGKILL to one of its ranks preempts it. Ends with 77 as launchers.sh does.
set -euo pipefail

kindling=$1 executable=$(readlink -f "$1") scripts=$2 count=${3:-5}
seed=${4:-$$}

# shellcheck source=tests/cli/run/slurm_on_this_machine.sh
. "$(dirname "$0")/slurm_on_this_machine.sh"

# A requeued job waits for the smallest cred_expire that SLURM accepts, and a second.
CPUS=16 CRED_EXPIRE=5 start_slurm SchedulerParameters=sched_interval=1,bf_interval=1
echo "seed $seed"
export OMP_NUM_THREADS=1

cat "$(dirname "$0")/small.toml" - >"$folder/small.toml" <<TOML
max_epochs = $((count > 5 ? 40 : 15))
log_every_n_steps = 5
[distributed]
timeout_s = 20
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

# ranks_of NAME TASK: the ranks of a job or of a task of an array, without the launchers, whose command lines name the program too.
ranks_of() {
  local process
  for process in $(pgrep -f " name=$1( |\$)"); do
    [ "$(readlink "/proc/$process/exe")" = "$executable" ] || continue
    [ -z "$2" ] || grep -qzx "SLURM_ARRAY_TASK_ID=${2#_}" "/proc/$process/environ" 2>/dev/null || continue
    echo "$process"
  done
}

# in_state JOB STATES: whether SLURM shows one of them, "FAILED|CANCELLED".
in_state() { squeue -h -t all -j "$1" -o %T 2>/dev/null | grep -qxE "$2"; }

# preempt KIND JOB NAME TASK NUMBER: after each start of the job, at a random moment of its training or, in one of three lives, of its start.
# SLURM does not requeue a job that has lost a rank, or that SIGUSR1 has ended before the program handles it.
preempt() {
  local i life way early ranks job=$2$4 out=$folder/$3$4.txt
  RANDOM=$(((seed + $(cksum <<<"$3$4" | cut -d' ' -f1)) % 32768))  # each subshell has other numbers otherwise
  for life in $(seq "$5"); do
    for ((i = 0; i < 1200; ++i)); do
      ! in_state "$job" COMPLETED || return 0
      [ "$(lives "$out")" -lt "$life" ] || break
      sleep 0.05
    done
    early=
    if [ $((RANDOM % 3)) = 0 ]; then
      early=1
      sleep "$((RANDOM % 2)).$((RANDOM % 10))"
    else
      while in_state "$job" RUNNING && [ "$(rows_of_life "$out")" = 0 ]; do sleep 0.05; done
      sleep "0.$((RANDOM % 6))"
    fi
    way=$((RANDOM % 3))
    mapfile -t ranks < <(ranks_of "$3" "$4")
    [ "$way.${#ranks[@]}" != 2.0 ] || way=1  # nothing to kill yet
    case $1.$way in
      srun.0 | mpich.0) scancel --signal=USR1 "$job" ;;
      *.0) scancel --batch --signal=USR1 "$job" ;;
      *.1) scontrol requeue "$job" ;;
      *.2) kill -KILL "${ranks[RANDOM % ${#ranks[@]}]}" ;;
    esac >>"$folder/preempt.txt" 2>&1 || true
    for ((i = 0; i < 1200; ++i)); do  # until the next start
      [ "$(lives "$out")" = "$life" ] || break
      ! in_state "$job" COMPLETED || return 0
      if in_state "$job" "FAILED|CANCELLED|NODE_FAIL"; then
        [ -n "$early" ] || [ "$way" = 2 ] || stop "$job, life $life: not requeued"
        scontrol requeue "$job" >>"$folder/preempt.txt" 2>&1 || true
      fi
      sleep 0.1
    done
    echo "$way" >>"$folder/ways"
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
  local id out task tasks=("") preempting=() i runs=$folder/runs/$2
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
  for task in "${tasks[@]}"; do
    preempt "$1" "$id" "$2" "$task" "$3" &
    preempting+=($!)
  done
  for task in "${preempting[@]}"; do wait "$task" || exit 1; done
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
ways() { grep -c "$1" "$folder/ways" || true; }
echo "$sum preemptions: $(ways 0) by SIGUSR1, $(ways 1) by scontrol requeue, $(ways 2) by SIGKILL to a rank"
for ranks in 1 2; do
  kinds=$([ "$ranks" = 1 ] && echo array || echo "srun open_mpi mpich")
  for kind in $kinds; do sha256sum "$folder/runs/$kind"*/*/weights.safetensors; done | cut -d' ' -f1 | sort | uniq -c |
    sed "s/^ */$ranks ranks: runs with the SHA-256 of their weights: /"
done
