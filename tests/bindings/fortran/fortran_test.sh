#!/usr/bin/env bash
# The Fortran module, compiled by gfortran with warnings as errors: fortran_test.sh REPOSITORY LIBRARIES WORK.
# Ends with 77 without gfortran.
set -euo pipefail

if ! command -v gfortran >/dev/null; then
  echo "skipped: gfortran is not installed"
  exit 77
fi
repository=$1 libraries=$2 work=$3
module=$repository/src/bindings/fortran tests=$repository/tests/bindings/fortran
fortran=(gfortran -std=f2018 -Wall -Wextra -Werror -g -O1 -fcheck=all -ffpe-trap=invalid,zero,overflow)
link=(-L"$libraries" -lkindling_c -Wl,-rpath,"$libraries")
rm -rf "$work"
mkdir -p "$work"
cd "$work"

fail() {
  echo "failed: $*"
  exit 1
}

"${fortran[@]}" -c "$module/kindling.f90"
gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -O1 -I"$repository/include" -c "$module/kindling_fortran.c" "$tests/recorder.c"

# The functions of recorder.c take the place of the library's.
"${fortran[@]}" "$tests/descriptors_test.f90" kindling.o kindling_fortran.o recorder.o "${link[@]}" -o descriptors_test
./descriptors_test
"${fortran[@]}" "$tests/training_test.f90" kindling.o kindling_fortran.o "${link[@]}" -o training_test
./training_test

"${fortran[@]}" "$tests/error_stop.f90" kindling.o kindling_fortran.o "${link[@]}" -o error_stop
if ./error_stop >error_stop.log 2>&1; then fail 'an error without stat= does not end the program'; fi
grep -q '^ERROR STOP input: an array of a type that Kindling does not support' error_stop.log || fail "$(cat error_stop.log)"

# Each call of must_not_compile.F90 is refused for its reason.
check_case() { gfortran -std=f2018 -fsyntax-only -DCASE="$1" "$tests/must_not_compile.F90" >"case_$1.log" 2>&1; }
check_case 0 || fail "$(cat case_0.log)"
mapfile -t cases < <(sed -n 's/.*! CASE \([0-9]*\): .*/\1/p' "$tests/must_not_compile.F90")
for number in "${cases[@]}"; do
  if check_case "$number"; then fail "case $number compiles"; fi
  words=$(sed -n "s/.*! CASE $number: //p" "$tests/must_not_compile.F90")
  grep -qF "$words" "case_$number.log" || fail "case $number: '$words' is not in $(cat "case_$number.log")"
done
echo "refused by the compiler: ${#cases[@]} calls"
