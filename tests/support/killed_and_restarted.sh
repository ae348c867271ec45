#!/usr/bin/env bash
# Runs a solver that trains while it runs, PROGRAM FOLDER STEPS [KILL_AT], once undisturbed and once killed and restarted: both print the
# same losses, in all digits, after the restart, and the network has learned.
#
#   killed_and_restarted.sh PROGRAM
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
mkdir "$work/whole" "$work/killed"
"$1" "$work/whole" 3000 >"$work/whole.txt"
if "$1" "$work/killed" 3000 1777 >"$work/first.txt" 2>&1; then
  echo "the killed run ended as if it were finished" && exit 1
fi
"$1" "$work/killed" 3000 >"$work/killed.txt"
cat "$work/whole.txt"
grep -q '^restarted at step 1750$' "$work/killed.txt"
# From step 2000 on, and the error at the end.
[ "$(grep -c '^step' "$work/killed.txt")" -eq 3 ]
diff <(tail -n 4 "$work/whole.txt") <(tail -n 4 "$work/killed.txt")
awk '/^relative error/ { exit !($NF < 0.3) }' "$work/whole.txt"
