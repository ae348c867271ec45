#!/usr/bin/env bash
# Compiles a program in C without warnings, and runs it in an empty folder.
#
#   run_c_program.sh SOURCE INCLUDE_FOLDER LIBRARY_FOLDER
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -std=c11 -O1 -Wall -Wextra -Wpedantic -Werror -I"$2" "$1" -L"$3" -lkindling_c -lm -Wl,-rpath,"$3" -o "$work/program"
cd "$work"
./program
