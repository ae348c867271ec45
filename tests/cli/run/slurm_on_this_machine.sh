# What tests with real launchers share; sourced by them, with $scripts, the folder of slurm_up.sh. Ends with 77 where a launcher is not
# installed, or nobody is root, who starts SLURM's daemons.

# KINDLING_NEEDS_LAUNCHERS: they must be there.
skip() {
  echo "skipped: $*"
  [ -n "${KINDLING_NEEDS_LAUNCHERS:-}" ] || exit 77
  exit 1
}

stop() {
  echo "FAILED: $*"
  tail -n 20 "$folder"/*.txt
  exit 1
}

[ "$(id -u)" -eq 0 ] || skip "SLURM's daemons are started by root"
PATH=$PATH:/usr/sbin
for program in mpirun.openmpi mpiexec.hydra slurmctld slurmd munged; do
  command -v "$program" >/dev/null || skip "there is no $program: apt-get install openmpi-bin mpich slurm-wlm munge"
done

folder=$(mktemp -d)
chmod 755 "$folder"  # munged wants to reach its socket as any user
clean_up() {
  "$scripts/slurm_down.sh" "$folder/cluster" >/dev/null 2>&1 || true
  rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# start_slurm [KEY=VALUE...]: with the variables of slurm_up.sh. Removes those of the job that runs the test.
start_slurm() {
  "$scripts/slurm_up.sh" "$folder/cluster" "$@" >"$folder/slurm_up.txt" 2>&1 || {
    local code=$?
    [ "$code" != 77 ] || { echo "skipped: $(cat "$folder/slurm_up.txt")"; exit 77; }
    stop "SLURM did not start"
  }
  unset "${!SLURM_@}" RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
  export SLURM_CONF=$folder/cluster/slurm.conf
}
