#!/usr/bin/env bash
# Two machines, here network namespaces that a cable joins, train as one: two_hosts.sh KINDLING PYTHON.
# Ends with 77 where nobody may make namespaces; a Python without PyTorch has no torchrun to try.
set -euo pipefail

kindling=$1 python=${KINDLING_TORCH_PYTHON:-$2}
# A namespace for each host, and the end of the cable that is its eth0.
hosts=("kindling$$a" "kindling$$b") ends=("kd$$a" "kd$$b")
addresses=(10.77.0.1 10.77.0.2)
readonly timeout_s=4

skip() {
  echo "skipped: $*"
  exit 77
}

stop() {
  echo "FAILED: $*"
  tail -n 20 "$folder"/*.txt
  exit 1
}

folder=$(mktemp -d)
pids=()
clean_up() {
  local pid host
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  wait
  for host in "${hosts[@]}"; do ip netns del "$host" 2>/dev/null || true; done
  ip link del "${ends[0]}" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# --- the hosts ---
command -v ip >/dev/null || skip "there is no ip: apt-get install iproute2"
[ "$(id -u)" -eq 0 ] || skip "network namespaces are root's"
ip netns add "${hosts[0]}" 2>"$folder/ip.txt" || skip "no network namespaces: $(cat "$folder/ip.txt")"
ip netns add "${hosts[1]}"
ip link add "${ends[0]}" type veth peer name "${ends[1]}" 2>"$folder/ip.txt" || skip "no veth: $(cat "$folder/ip.txt")"
for i in 0 1; do
  ip link set "${ends[i]}" netns "${hosts[i]}" name eth0
  ip -n "${hosts[i]}" addr add "${addresses[i]}/24" dev eth0
  ip -n "${hosts[i]}" link set lo up
  ip -n "${hosts[i]}" link set eth0 up
done
ip netns exec "${hosts[0]}" true 2>"$folder/ip.txt" || skip "nothing runs in a namespace: $(cat "$folder/ip.txt")"

cat "$(dirname "$0")/small.toml" - >"$folder/small.toml" <<TOML
[distributed]
timeout_s = $timeout_s
TOML

# on HOST NAME COMMAND...: begins it there; what it prints goes to NAME.HOST.txt. None has more than a minute.
on() {
  timeout -s KILL 60 ip netns exec "${hosts[$1]}" "${@:3}" </dev/null >"$folder/$2.$1.txt" 2>&1 &
  pids+=("$!")
}

# fit_on_both NAME PORT WORDS...: one process on each host, by plain variables alone. $master is what the first host calls itself.
master=${addresses[0]}
fit_on_both() {
  local rank at=("$master" "${addresses[0]}")
  pids=()
  for rank in 0 1; do
    on "$rank" "$1" env RANK="$rank" WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR="${at[rank]}" MASTER_PORT="$2" "$kindling" fit "${@:3}"
  done
}

# Exit codes of both hosts, in $codes.
wait_for_both() {
  local i
  codes=(0 0)
  for i in 0 1; do wait "${pids[i]}" || codes[i]=$?; done
  pids=()
}

weights() { echo "$folder/$1/small/0001/weights.safetensors"; }
expect_same() { cmp "$(weights "$1")" "$(weights "$2")" || stop "the weights of $1 are not those of $2"; }
on_one_host() {
  "$kindling" fit -c "$folder/small.toml" --run.dir "$folder/$1" trainer.num_processes=2 "${@:2}" \
    >"$folder/$1.txt" 2>&1 || stop "two processes on one host"
}

# --- what one host computes, two compute ---
on_one_host one trainer.max_epochs=2
fit_on_both plain 29500 -c "$folder/small.toml" --run.dir "$folder/plain" trainer.max_epochs=2
wait_for_both
[ "${codes[*]}" = "0 0" ] || stop "plain variables: exit codes ${codes[*]}"
expect_same plain one
echo "plain variables: the weights of one host"

if "$python" -c 'import torch.distributed.run' 2>"$folder/import.txt"; then
  for rank in 0 1; do
    # Both hosts have the machine's name, by which torchrun would find out where it is.
    on "$rank" torchrun "$python" -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-id=two_hosts \
      --rdzv-endpoint="${addresses[0]}:29400" --rdzv-conf="is_host=$((1 - rank)),join_timeout=30" \
      --local-addr="${addresses[rank]}" --no-python \
      "$kindling" fit -c "$folder/small.toml" --run.dir "$folder/torchrun" trainer.max_epochs=2
  done
  wait_for_both
  [ "${codes[*]}" = "0 0" ] || stop "torchrun: exit codes ${codes[*]}"
  expect_same torchrun one
  echo "torchrun: the weights of one host"
else
  echo "there is no torchrun (KINDLING_TORCH_PYTHON can name a Python with PyTorch): not tried"
fi

# --- the cable is pulled ---
fit_on_both cut 29501 -c "$folder/small.toml" --run.dir "$folder/cut" trainer.max_epochs=1000000 checkpoint.every_n_epochs=1
run=$folder/cut/small/0001
until [ "$(cat "$run/metrics.jsonl" 2>/dev/null | wc -l)" -ge 2 ]; do
  kill -0 "${pids[@]}" 2>/dev/null || stop "a process has ended before the cable was pulled"
  sleep 0.05
done
ip -n "${hosts[1]}" link set eth0 down
SECONDS=0
wait_for_both
# Ten times as long for what stands behind the timeout, on a busy machine; a connection that hangs takes minutes.
[ "$SECONDS" -le $((10 * timeout_s)) ] || stop "they left after $SECONDS s"
for rank in 0 1; do
  [ "${codes[rank]}" -eq 1 ] || stop "process $rank has left with ${codes[rank]}"
  grep -q "rank $rank of 2: .*another rank did not answer for $timeout_s s" "$folder/cut.$rank.txt" "$run/log.rank$rank.txt" \
    2>/dev/null || stop "process $rank does not say what has become of it"
done
echo "a cable that is pulled: both have left after $SECONDS s"

# --- and they go on ---
ip -n "${hosts[1]}" link set eth0 up
last=$(find "$run/checkpoints" -name '*.safetensors' | sort | tail -n 1)
master=127.0.1.1  # as the name of many a machine on that machine itself
epochs=$(("$(wc -l <"$run/metrics.jsonl")" + 2))
fit_on_both again 29502 --resume "$run" trainer.max_epochs="$epochs"
wait_for_both
[ "${codes[*]}" = "0 0" ] || stop "after ${last##*/}: exit codes ${codes[*]}"
on_one_host whole trainer.max_epochs="$epochs"
expect_same cut whole
echo "resumed: the weights of $epochs epochs without a cut"
