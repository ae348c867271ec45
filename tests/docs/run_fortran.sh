#!/usr/bin/env bash
# A page's Fortran program as a reader would build it: run_fortran.sh REPOSITORY LIBRARIES SOURCE [FOLDER]. It runs in FOLDER, or in an
# empty one. Ends with 77 without gfortran.
set -euo pipefail

if ! command -v gfortran >/dev/null; then
  echo "skipped: gfortran is not installed"
  exit 77
fi
module=$1/src/bindings/fortran
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cp "$3" program.f90
gcc -I"$1/include" -c "$module/kindling_fortran.c"
gfortran -std=f2018 -Wall -Wextra -Werror -ffpe-trap=invalid,zero,overflow "$module/kindling.f90" program.f90 kindling_fortran.o \
  -L"$2" -lkindling_c -Wl,-rpath,"$2" -o program
cd "${4:-$folder}"
"$folder/program"
