#!/usr/bin/env bash
# Builds mpi_ranks.c, and kindling_mpi.h, with the wrappers of Open MPI and of MPICH, as far as they are installed, and runs it with three
# ranks. Exits with 77 if neither is installed.
#
#   mpi_ranks.sh INCLUDE_FOLDER LIBRARY_FOLDER LIBTORCH
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ran=0
for mpi in openmpi mpich; do
  if ! command -v mpicc.$mpi >/dev/null || ! command -v mpiexec.$mpi >/dev/null; then continue; fi
  mpicc.$mpi -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$1" "$here/mpi_ranks.c" -L"$2" -lkindling_c -Wl,-rpath,"$2" -o "$work/ranks"
  options=()
  if [ $mpi = openmpi ]; then options=(--oversubscribe --bind-to none); fi
  echo "$mpi"
  timeout 120 mpiexec.$mpi -n 3 "${options[@]}" "$work/ranks"
  ran=1
done
if [ $ran -eq 0 ]; then
  echo "neither Open MPI nor MPICH has its compiler wrapper here: skipped" && exit 77
fi
