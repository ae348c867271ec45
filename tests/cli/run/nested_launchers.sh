#!/usr/bin/env bash
# Launchers inside launchers, and incomplete launches, for real: nested_launchers.sh KINDLING SLURM_SCRIPTS PYTHON. Each one trains the ranks of one
# launcher, to the weights of `num_processes = 2`, or is refused; none trains two worlds, and none waits longer than `timeout_s`.
# Ends with 77 as launchers.sh does.
set -euo pipefail

kindling=$1 scripts=$2 python=${KINDLING_TORCH_PYTHON:-$3}

# shellcheck source=tests/cli/run/slurm_on_this_machine.sh
. "$(dirname "$0")/slurm_on_this_machine.sh"
# shellcheck source=tests/cli/run/launched_fits.sh
. "$(dirname "$0")/launched_fits.sh"

"$python" -c 'import torch.distributed.run' 2>"$folder/import.txt" || skip "there is no torchrun: KINDLING_TORCH_PYTHON can name a Python with PyTorch"
CPUS=16 start_slurm MaxStepCount=1000
export OMP_NUM_THREADS=1
# torchrun N: the words of its command, for N ranks.
torchrun() { echo "$python -m torch.distributed.run --standalone --no-python --nproc-per-node=$1"; }
open_mpi="$folder/apart.sh ${open_mpi[*]}"
mpich="mpiexec.hydra -launcher fork"  # in a step it would use srun
srun="srun --overlap"
# The other tests stop at the first failure.
failures=0
case_of() {
  local begin=$SECONDS
  if ( "$@" ) >"$folder/case" 2>&1; then
    sed 's/^[^ ]*: //' "$folder/case"
  else
    failures=$((failures + 1))
    grep FAILED "$folder/case"
    tail -n 20 "$folder/$2.txt"
  fi >"$folder/shown"
  printf '%-24s %3d s  %s\n' "$2" $((SECONDS - begin)) "$(cat "$folder/shown")"
}
world() { case_of expect_world "$@"; }
refusal() { case_of expect_refusal "$@"; }
train_two_ranks

# --- the launcher inside starts one process: the ranks are those of the one outside ---
world open_mpi-2+mpich-1 $open_mpi -np 2 $mpich -n 1
world open_mpi-2+srun-1 $open_mpi -np 2 $srun -n 1
world mpich-2+open_mpi-1 $mpich -n 2 $open_mpi -np 1
world mpich-2+srun-1 $mpich -genv MASTER_PORT 15777 -n 2 $srun -n 1
world srun-2+open_mpi-1 $srun -n 2 $open_mpi -np 1
world srun-2+mpich-1 $srun -n 2 $mpich -n 1
world torchrun-2+open_mpi-1 $(torchrun 2) $open_mpi -np 1
world torchrun-2+mpich-1 $(torchrun 2) $mpich -n 1
world torchrun-2+srun-1 $(torchrun 2) $srun -n 1

# --- the launcher outside starts one process ---
world open_mpi-1+mpich-2 $open_mpi -np 1 $mpich -n 2
world mpich-1+open_mpi-2 $mpich -n 1 $open_mpi -np 2
world srun-1+open_mpi-2 $srun -n 1 $open_mpi -np 2
world srun-1+mpich-2 $srun -n 1 $mpich -n 2
world srun-1+torchrun-2 $srun -n 1 $(torchrun 2)
world open_mpi-1+torchrun-2 $open_mpi -np 1 $(torchrun 2)
world mpich-1+srun-2 $mpich -n 1 $srun -n 2

# --- both start several, or torchrun each a world of its own ---
refusal open_mpi-2+mpich-2 "mpirun -np 4 PROGRAM" $open_mpi -np 2 $mpich -n 2
refusal open_mpi-2+srun-2 "mpirun -np 4 PROGRAM" $open_mpi -np 2 $srun -n 2
refusal open_mpi-2+open_mpi-2 "does not support recursive calls" $open_mpi -np 2 $open_mpi -np 2
refusal mpich-2+srun-1:port "mpiexec -genv MASTER_PORT 29500" $mpich -n 2 $srun -n 1
refusal open_mpi-2+torchrun-1 "mpirun -np 2 PROGRAM" $open_mpi -np 2 $(torchrun 1)
refusal open_mpi-2+torchrun-2 "mpirun -np 4 PROGRAM" $open_mpi -np 2 $(torchrun 2)
refusal mpich-2+open_mpi-2 "mpiexec -n 4 PROGRAM" $mpich -n 2 $open_mpi -np 2
refusal mpich-2+mpich-2 "mpiexec -n 4 PROGRAM" $mpich -n 2 $mpich -n 2
refusal mpich-2+srun-2 "mpiexec -n 4 PROGRAM" $mpich -n 2 $srun -n 2
refusal mpich-2+torchrun-1 "mpiexec -n 2 PROGRAM" $mpich -n 2 $(torchrun 1)
refusal srun-2+open_mpi-2 "srun --ntasks=4 PROGRAM" $srun -n 2 $open_mpi -np 2
refusal srun-2+mpich-2 "srun --ntasks=4 PROGRAM" $srun -n 2 $mpich -n 2
refusal srun-2+torchrun-1 "srun --ntasks=2 PROGRAM" $srun -n 2 $(torchrun 1)
refusal srun-2+torchrun-2 "srun --ntasks=4 PROGRAM" $srun -n 2 $(torchrun 2)
refusal torchrun-1+open_mpi-2 "mpirun -np 2 PROGRAM" $(torchrun 1) $open_mpi -np 2
refusal torchrun-2+open_mpi-2 "mpirun -np 4 PROGRAM" $(torchrun 2) $open_mpi -np 2
refusal torchrun-1+mpich-2 "mpiexec -n 2 PROGRAM" $(torchrun 1) $mpich -n 2
refusal torchrun-1+srun-2 "srun --ntasks=2 PROGRAM" $(torchrun 1) $srun -n 2
refusal torchrun-2+torchrun-2 "--nproc-per-node=4 PROGRAM" $(torchrun 2) $(torchrun 2)
# srun inside of a step replaces all its variables, and slurmd is the parent of both: each step is a run of its own.

# --- incomplete launches ---
refusal open_mpi:other "mpirun -np 2 PROGRAM" $open_mpi -np 1 sleep 60 : -np 1
refusal mpich:other "mpiexec -n 2 PROGRAM" $mpich -n 1 sleep 1 : -n 1
# srun adds the words of the command to each line.
printf '#!/bin/sh\nexec sleep 60\n' >"$folder/other.sh"
printf '#!/bin/sh\nexec "%s" fit -c "%s" --run.dir "%s"\n' "$kindling" "$folder/small.toml" "$folder/srun--multi-prog:other" >"$folder/rank.sh"
chmod 755 "$folder/other.sh" "$folder/rank.sh"
printf '0 %s\n1 %s\n' "$folder/other.sh" "$folder/rank.sh" >"$folder/programs"
refusal srun--multi-prog:other "all ranks must run this program" $srun -n 2 --kill-on-bad-exit=1 --multi-prog "$folder/programs"
refusal RANK_alone "WORLD_SIZE" env RANK=0
refusal WORLD_SIZE_alone "RANK" env WORLD_SIZE=2
refusal no_MASTER_ADDR "MASTER_ADDR" env RANK=0 WORLD_SIZE=2 MASTER_PORT=29511
refusal no_second_rank "all ranks must run this program" env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511
refusal RANK_in_open_mpi "unset RANK" env RANK=5 $open_mpi -np 2
refusal TORCHELASTIC_alone "RANK" env TORCHELASTIC_RUN_ID=x
refusal OMPI_size_alone "OMPI_COMM_WORLD_RANK" env OMPI_COMM_WORLD_SIZE=2
[ "$failures" = 0 ] || exit 1
