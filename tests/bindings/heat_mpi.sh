#!/usr/bin/env bash
# The solver on two ranks of MPI, and on three with different numbers of cells, has the losses of the solver on one process, 1e-12 relative.
#
#   heat_mpi.sh HEAT_MPI HEAT_C MPIEXEC
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=()
if "$3" --version 2>&1 | grep -q 'OpenRTE\|Open MPI'; then options=(--oversubscribe --bind-to none); fi
"$2" "$work" 500 | grep '^step' >"$work/one.txt"
for ranks in 2 3; do
  timeout 120 "$3" -n $ranks "${options[@]}" "$1" 500 >"$work/several.txt"
  cat "$work/several.txt"
  paste "$work/one.txt" "$work/several.txt" | awk '
    { ++rows; if ($2 != $6 || ($4 - $8) ^ 2 > (1e-12 * $4) ^ 2) { print "differs: " $0; bad = 1 } } END { exit bad || rows != 1 }'
done
