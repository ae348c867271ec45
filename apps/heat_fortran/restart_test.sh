#!/usr/bin/env bash
# A run that was killed continues with the steps of a run that was not: restart_test.sh PROGRAM.
set -euo pipefail

program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/killed" "$folder/whole"

"$program" "$folder/killed" 1000000 >"$folder/killed.log" &
until [ -e "$folder/killed/heat.restart" ]; do
  kill -0 $! || { echo "failed: the run ended before it was killed"; exit 1; }
  sleep 0.02
done
kill -KILL $!
wait $! 2>/dev/null || true

saved=$(find "$folder/killed" -name 'surrogate-*.safetensors' | sed 's/.*-\([0-9]*\)\.safetensors$/\1/' | sort -n | tail -n 1)
last=$((saved + 40))
"$program" "$folder/killed" "$last" >"$folder/resumed.log"
"$program" "$folder/whole" "$last" >"$folder/whole.log"
lines=$(wc -l <"$folder/resumed.log")
[ "$lines" -gt 40 ] && [ "$lines" -le "$last" ] || { echo "failed: the run did not continue"; exit 1; }
# 17 digits tell all numbers of real64 apart.
diff <(tail -n "$lines" "$folder/whole.log") "$folder/resumed.log"
echo "continued after step $((last - lines + 1)): bit-identical"
