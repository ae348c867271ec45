#!/usr/bin/env bash
# A run that was killed continues with the steps of a run that was not: restart_test.sh PROGRAM, or restart_test.sh mpiexec -n 2 PROGRAM.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/killed" "$folder/whole"

"$@" "$folder/killed" 1000000 </dev/null >"$folder/killed.log" 2>&1 &
until [ -e "$folder/killed/heat.restart" ]; do
  kill -0 $! || { cat "$folder/killed.log"; echo "failed: the run ended before it was killed"; exit 1; }
  sleep 0.02
done
# With MPI, one of the ranks is killed, a child of mpiexec or of its helper; mpiexec then ends the others.
killed=$!
while child=$(cat "/proc/$killed/task"/*/children | cut -d ' ' -f 1 | head -n 1) && [ -n "$child" ]; do killed=$child; done
kill -KILL "$killed"
wait $! 2>/dev/null || true

saved=$(find "$folder/killed" -name 'surrogate-*.safetensors' | sed 's/.*-\([0-9]*\)\.safetensors$/\1/' | sort -n | tail -n 1)
last=$((saved + 40))
"$@" "$folder/killed" "$last" </dev/null >"$folder/resumed.log"
"$@" "$folder/whole" "$last" </dev/null >"$folder/whole.log"
lines=$(wc -l <"$folder/resumed.log")
[ "$lines" -gt 40 ] && [ "$lines" -le "$last" ] || { echo "failed: the run did not continue"; exit 1; }
# 17 digits tell all numbers of real64 apart.
diff <(tail -n "$lines" "$folder/whole.log") "$folder/resumed.log"
echo "continued after step $((last - lines + 1)): bit-identical"
