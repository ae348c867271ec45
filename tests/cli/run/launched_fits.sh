# Fits that launchers of this machine start; sourced by tests after slurm_on_this_machine.sh, with $kindling.

open_mpi=(mpirun.openmpi --allow-run-as-root --oversubscribe)
mpich=(mpiexec.hydra)
# Two mpirun that start at once can fail in the folder of their user, "orte_session_dir failed", so each has its own.
cat >"$folder/apart.sh" <<'SH'
#!/bin/bash
TMPDIR=$(mktemp -d "$(dirname "$0")/apart.XXXXXX") exec "$@"
SH
chmod 755 "$folder/apart.sh"
inner_open_mpi=("$folder/apart.sh" "${open_mpi[@]}")

cat "$(dirname "$0")/small.toml" - >"$folder/small.toml" <<TOML
max_epochs = 1
[distributed]
timeout_s = 20
TOML

# fit NAME COMMAND...: the command starts the fit; what it prints goes to NAME.txt.
fit() {
  timeout -s KILL 60 "${@:2}" "$kindling" fit -c "$folder/small.toml" --run.dir "$folder/$1" \
    </dev/null >"$folder/$1.txt" 2>&1
}

# expect_world NAME COMMAND...: one run of two ranks, with the weights of the first one.
expect_world() {
  fit "$@" || stop "$1: exit code $?"
  [ "$(ls "$folder/$1/small")" = 0001 ] || stop "$1: not one run"
  grep -q '"processes": 2' "$folder/$1/small/0001/run.json" || stop "$1: not two ranks"
  cmp "$folder/$1/small/0001/weights.safetensors" "$folder/own/small/0001/weights.safetensors" || stop "$1: other weights"
  echo "$1: two ranks, the weights of num_processes = 2"
}

# expect_refusal NAME TEXT COMMAND...: no run, and the text in a message.
expect_refusal() {
  if fit "$1" "${@:3}"; then stop "$1 was not refused"; fi
  [ ! -e "$folder/$1/small" ] || stop "$1 has a run"
  grep -qF -e "$2" "$folder/$1.txt" || stop "$1 does not say '$2'"
  echo "$1: refused"
}

# What expect_world compares with.
train_two_ranks() {
  timeout -s KILL 60 env OMP_NUM_THREADS=1 "$kindling" fit -c "$folder/small.toml" --run.dir "$folder/own" trainer.num_processes=2 \
    >"$folder/own.txt" 2>&1 || stop "num_processes = 2"
}
