#!/usr/bin/env bash
# Cancels all jobs of the cluster that slurm_up.sh started in DIR and ends its daemons. The folder stays.
#
#   scripts/clusters/slurm_down.sh DIR
set -uo pipefail

dir=$(cd "${1:?usage: slurm_down.sh DIR}" && pwd) || exit 1
export SLURM_CONF=$dir/slurm.conf
PATH=$PATH:/usr/sbin

if [ -e "$dir/slurmctld.pid" ]; then
  timeout 10 scancel --state=PENDING --user="$(id -un)" 2> /dev/null
  timeout 10 scancel --signal=KILL --full --user="$(id -un)" 2> /dev/null
  timeout 10 scancel --user="$(id -un)" 2> /dev/null
  for _ in $(seq 20); do
    [ -z "$(timeout 5 squeue -h -t RUNNING,COMPLETING 2> /dev/null)" ] && break
    sleep 0.5
  done
fi

# Ends the process of a pid file if it is still the named daemon.
end() {
  local pid name=$2
  pid=$(cat "$1" 2> /dev/null) || return 0
  [ "$(cat "/proc/$pid/comm" 2> /dev/null)" = "$name" ] || { rm -f "$1"; return 0; }
  kill "$pid"
  for _ in $(seq 40); do
    [ -e "/proc/$pid" ] || { rm -f "$1"; return 0; }
    sleep 0.25
  done
  kill -KILL "$pid"
  rm -f "$1"
}
for file in "$dir"/slurmd.*.pid; do end "$file" slurmd; done
end "$dir/slurmctld.pid" slurmctld
end "$dir/munge/pid" munged
