#!/usr/bin/env bash
# The module kindling_mpi with two ranks, under each MPI that is installed: mpi_test.sh REPOSITORY LIBRARIES WORK.
# Ends with 77 without an MPI for gfortran.
set -euo pipefail

repository=$1 libraries=$2 work=$3
module=$repository/src/bindings/fortran
export OMP_NUM_THREADS=1
rm -rf "$work"
session=$(mktemp -d)  # short, because Open MPI makes sockets in it
trap 'rm -rf "$session"' EXIT
num_tested=0
for mpi in openmpi mpich; do
  if ! command -v "mpif90.$mpi" >/dev/null || ! command -v "mpirun.$mpi" >/dev/null || ! command -v gfortran >/dev/null; then continue; fi
  mkdir -p "$work/$mpi"
  cd "$work/$mpi"
  "mpicc.$mpi" -std=c11 -Wall -Wextra -Werror -I"$repository/include" -c "$module/kindling_fortran.c" "$module/kindling_mpi_fortran.c"
  "mpif90.$mpi" -std=f2018 -Wall -Wextra -Werror -ffpe-trap=invalid,zero,overflow "$module/kindling.f90" "$module/kindling_mpi.f90" \
    "$repository/tests/bindings/fortran/mpi_test.f90" kindling_fortran.o kindling_mpi_fortran.o \
    -L"$libraries" -lkindling_c -Wl,-rpath,"$libraries" -o mpi_test
  options=()
  if [ "$mpi" = openmpi ]; then options=(--allow-run-as-root --oversubscribe); fi
  echo "$mpi:"
  TMPDIR=$session timeout -s KILL 120 "mpirun.$mpi" "${options[@]}" -np 2 ./mpi_test </dev/null
  num_tested=$((num_tested + 1))
done
if [ "$num_tested" -eq 0 ]; then
  echo "skipped: neither Open MPI nor MPICH is installed for gfortran"
  exit 77
fi
