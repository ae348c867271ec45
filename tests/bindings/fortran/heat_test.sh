#!/usr/bin/env bash
# apps/heat_fortran, built by its Makefile: heat_test.sh REPOSITORY LIBRARIES WORK TWIN [RANKS]. A run that was killed continues
# bit-identically, and the losses are those of TWIN, the same program in C++; with RANKS, of the ranks of an MPI. Ends with 77 where a tool
# is missing.
set -euo pipefail

for tool in gfortran make pkg-config; do
  if ! command -v "$tool" >/dev/null; then
    echo "skipped: $tool is not installed"
    exit 77
  fi
done
repository=$1 libraries=$2 work=$3 twin=$4 ranks=${5:-1}
mpi=''
if [ "$ranks" -gt 1 ]; then
  for candidate in mpich openmpi; do
    if command -v "mpif90.$candidate" >/dev/null && command -v "mpirun.$candidate" >/dev/null; then mpi=$candidate; fi
  done
  if [ -z "$mpi" ]; then
    echo "skipped: neither Open MPI nor MPICH is installed for gfortran"
    exit 77
  fi
  export TMPDIR
  TMPDIR=$(mktemp -d)  # short, because Open MPI makes sockets in it
  trap 'rm -rf "$TMPDIR"' EXIT
fi
rm -rf "$work"
mkdir -p "$work"
cp "$repository"/apps/heat_fortran/* "$work"
cd "$work"
cat >kindling_c.pc <<EOF
fortrandir=$repository/src/bindings/fortran

Name: kindling_c
Description: the library of a build folder
Version: 0
Cflags: -I$repository/include
Libs: -L$libraries -lkindling_c -Wl,-rpath,$libraries
EOF
export PKG_CONFIG_PATH=$work
flags='-O2 -g -std=f2018 -Wall -Wextra -Werror -ffpe-trap=invalid,zero,overflow'
if [ "$ranks" -eq 1 ]; then
  make FFLAGS="$flags" check
  program=(./heat_fortran)
else
  launcher=("mpirun.$mpi")
  if [ "$mpi" = openmpi ]; then launcher+=(--allow-run-as-root --oversubscribe --bind-to none); fi
  make FFLAGS="$flags" MPIFC="mpif90.$mpi" MPICC="mpicc.$mpi" MPIEXEC="${launcher[*]}" check_mpi
  program=("${launcher[@]}" -n "$ranks" ./heat_fortran_mpi)
fi

# compare PRECISION TOLERANCE RANKS_OF_TWIN: the columns of both are `step N loss L …`.
compare() {
  rm -rf folder
  mkdir folder
  "${program[@]}" folder 200 "$1" </dev/null | grep '^step' >"fortran_$1.log"
  "$twin" 200 "$1" "$3" >"twin_$1.log"
  paste -d' ' "fortran_$1.log" "twin_$1.log" | awk -v tolerance="$2" -v name="$1, $ranks and $3 ranks" '
    { difference = ($4 - $10) / $10; if (difference < 0) difference = -difference; if (difference > largest) largest = difference }
    $2 != $8 || !(difference <= tolerance) { print "failed: " $0; failed = 1 }
    END { printf "%s: %d losses, largest relative difference %g\n", name, NR, largest; exit failed || NR != 200 }'
}
compare 32-true 1e-6 "$ranks"
# One process trains on the samples of all ranks. In 32 bits the order of the sums of two ranks changes the losses by 5e-6.
compare 64-true 1e-12 1
