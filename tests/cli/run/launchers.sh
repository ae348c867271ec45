#!/usr/bin/env bash
# Real launchers start a fit on this machine: launchers.sh KINDLING SLURM_SCRIPTS PYTHON. Open MPI, MPICH and SLURM must train with the ranks that
# they have started, to the weights of `num_processes = 2`; launchers inside of launchers must be refused.
# Ends with 77 where one of them is not installed, or nobody is root, who starts SLURM's daemons.
set -euo pipefail

kindling=$1 scripts=$2 python=${KINDLING_TORCH_PYTHON:-$3}

# shellcheck source=tests/cli/run/slurm_on_this_machine.sh
. "$(dirname "$0")/slurm_on_this_machine.sh"

CPUS=2 start_slurm
unset OMP_NUM_THREADS MKL_NUM_THREADS
# shellcheck source=tests/cli/run/launched_fits.sh
. "$(dirname "$0")/launched_fits.sh"
train_two_ranks
export OMP_NUM_THREADS=1  # the machine may have more cores than two
expect_world srun srun -n 2
expect_world srun_pmi2 srun --mpi=pmi2 -n 2
expect_world open_mpi "${open_mpi[@]}" -np 2
expect_world mpich "${mpich[@]}" -n 2
expect_world open_mpi_in_mpich "${mpich[@]}" -n 2 "${inner_open_mpi[@]}" -np 1
expect_world open_mpi_in_srun srun -n 2 "${inner_open_mpi[@]}" -np 1
expect_world open_mpi_in_srun_pmi2 srun --mpi=pmi2 -n 2 "${inner_open_mpi[@]}" -np 1

expect_refusal mpich_in_open_mpi "MPICH (rank 0 of 2) runs inside Open MPI (rank" "${open_mpi[@]}" -np 2 "${mpich[@]}" -n 2
expect_refusal open_mpi_in_step "srun --ntasks=4 PROGRAM" srun -n 2 "${inner_open_mpi[@]}" -np 2
expect_refusal two_programs "mpirun -np 2 PROGRAM" "${open_mpi[@]}" -np 1 sleep 60 : -np 1
expect_refusal two_programs_of_mpich "mpiexec -n 2 PROGRAM" "${mpich[@]}" -n 1 sleep 1 : -n 1  # waited for

# A batch script that a task of a step has submitted inherits the step's variables, and trains alone.
cat >"$folder/batch.sh" <<SH
#!/bin/bash
exec "$kindling" fit -c "$folder/small.toml" --run.dir "$folder/batch"
SH
srun -n 2 bash -c "[ \$SLURM_PROCID = 1 ] || sbatch -n 2 -o '$folder/batch.txt' '$folder/batch.sh'" >"$folder/sbatch.txt" 2>&1
for _ in $(seq 120); do
  [ -n "$(squeue -h)" ] || break
  sleep 0.25
done
grep -q '"processes": 1' "$folder/batch/small/0001/run.json" || stop "a batch script submitted from a step"
echo "a batch script submitted from a step: one rank"

# --- threads ---
unset OMP_NUM_THREADS
# expect_threads NAME TEXT COMMAND...: in the log.
expect_threads() {
  fit "$1" "${@:3}" || stop "$1: exit code $?"
  grep -qE "threads: $2" "$folder/$1/small/0001/log.txt" || stop "$1: the log does not say '$2'"
  echo "$1: $2"
}
cores=$(nproc)
expect_threads srun_threads "[0-9]+ threads? for operators, because 2 ranks share $cores cores? of this machine" srun -n 2
expect_threads mpich_threads "[0-9]+ threads? for operators, because 1 rank has $cores cores? of this machine" "${mpich[@]}" -n 1

# --- torchrun that ends before its ranks ---
if "$python" -c 'import torch.distributed.run' 2>"$folder/import.txt"; then
  run=$folder/orphans/small/0001
  "$python" -m torch.distributed.run --standalone --nproc-per-node=2 --no-python timeout -s KILL 120 "$kindling" fit \
    -c "$folder/small.toml" --run.dir "$folder/orphans" trainer.max_epochs=1000000 checkpoint.every_n_epochs=0 >"$folder/orphans.txt" 2>&1 &
  torchrun=$!
  disown "$torchrun"
  # wait_for TEXT FILE: for a minute at most.
  wait_for() {
    local i
    for i in $(seq 600); do
      if grep -q "$1" "$2" 2>/dev/null; then return; fi
      sleep 0.1
    done
    stop "$2 does not say '$1'"
  }
  wait_for '"epoch"' "$run/metrics.jsonl"
  kill -USR1 "$torchrun"  # ends torchrun alone
  wait_for '"status": "stopped"' "$run/run.json"
  wait_for 'torchrun has ended before its ranks' "$run/log.txt"
  wait_for 'torchrun has ended before its ranks' "$run/log.rank1.txt"
  [ -n "$(ls "$run/checkpoints")" ] || stop "the ranks of torchrun have saved nothing"
  echo "torchrun that ends before its ranks: they save and stop"
else
  echo "there is no torchrun (KINDLING_TORCH_PYTHON can name a Python with PyTorch): not tried"
fi
