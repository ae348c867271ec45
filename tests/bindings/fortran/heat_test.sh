#!/usr/bin/env bash
# apps/heat_fortran, built by its Makefile: heat_test.sh REPOSITORY LIBRARIES WORK TWIN. A run that was killed continues bit-identically,
# and the losses are those of TWIN, the same program in C++. Ends with 77 where a tool is missing.
set -euo pipefail

for tool in gfortran make pkg-config; do
  if ! command -v "$tool" >/dev/null; then
    echo "skipped: $tool is not installed"
    exit 77
  fi
done
repository=$1 libraries=$2 work=$3 twin=$4
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
make FFLAGS='-O2 -g -std=f2018 -Wall -Wextra -Werror -ffpe-trap=invalid,zero,overflow' check

# compare PRECISION TOLERANCE: the columns of both are `step N loss L …`.
compare() {
  rm -rf folder
  mkdir folder
  ./heat_fortran folder 200 "$1" | grep '^step' >"fortran_$1.log"
  "$twin" 200 "$1" >"twin_$1.log"
  paste -d' ' "fortran_$1.log" "twin_$1.log" | awk -v tolerance="$2" -v precision="$1" '
    { difference = ($4 - $10) / $10; if (difference < 0) difference = -difference; if (difference > largest) largest = difference }
    $2 != $8 || !(difference <= tolerance) { print "failed: " $0; failed = 1 }
    END { printf "%s: %d losses, largest relative difference %g\n", precision, NR, largest; exit failed || NR != 200 }'
}
compare 32-true 1e-6
compare 64-true 1e-12
