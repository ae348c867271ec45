#!/usr/bin/env bash
# Starts a SLURM cluster on this machine, in a folder of its own and on the loopback interface: munged, slurmctld and slurmd. Needs the
# packages slurm-wlm and munge. slurm_down.sh ends it.
#
#   scripts/clusters/slurm_up.sh DIR [KEY=VALUE...]
#   export SLURM_CONF=DIR/slurm.conf
#
# KEY=VALUE replaces a line of slurm.conf: KillWait=5, MpiDefault=pmi2.
#
# From the environment: CPUS, the cores that each node claims (default: those of the machine); NODES, the number of nodes, called n1, n2, …
# if there are several (programs must be able to resolve these names); CRED_EXPIRE, the seconds for which a requeued job waits (120).
set -euo pipefail

dir=${1:?usage: slurm_up.sh DIR [KEY=VALUE...]}
shift
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
if [ -e "$dir/slurmctld.pid" ]; then
  echo "slurm_up.sh: $dir is in use; run slurm_down.sh $dir first" >&2
  exit 1
fi
PATH=$PATH:/usr/sbin
for program in munged slurmctld slurmd sinfo; do
  command -v $program > /dev/null ||
    { echo "slurm_up.sh: no $program; apt-get install --no-install-recommends slurm-wlm munge" >&2; exit 1; }
done

host=$(hostname -s)
address=$(getent ahostsv4 "$host" | awk 'NR == 1 {print $1}' || true)
case " 127.0.0.1 127.0.1.1 $(hostname -I) " in
  *" ${address:-none} "*) ;;
  *) echo "slurm_up.sh: $host resolves to '$address', which is not this machine; add \"127.0.0.1 $host\" to /etc/hosts" >&2; exit 77 ;;
esac

# munged refuses folders that others cannot enter or may write to.
chmod 755 "$dir"
umask 022
mkdir -p "$dir/munge" "$dir/state"
dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 status=none
chmod 600 "$dir/munge.key"

free_port() {  # below the ephemeral ports
  local port
  for port in $(shuf -i 17000-29000 -n 50); do
    (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null || { echo "$port"; return; }
  done
}

cpus=${CPUS:-$(nproc)}
count=${NODES:-1}
names=()
if [ "$count" = 1 ]; then names=("$host"); else for i in $(seq "$count"); do names+=("n$i"); done; fi
{
  cat << END
ClusterName=one_machine
SlurmctldHost=$host($address)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
SlurmctldPort=$(free_port)
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket,cred_expire=${CRED_EXPIRE:-120}
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmdParameters=config_overrides
END
  for name in "${names[@]}"; do
    echo "NodeName=$name NodeHostname=$host NodeAddr=$address Port=$(free_port) CPUs=$cpus State=UNKNOWN"
  done
  echo "PartitionName=all Nodes=$(IFS=,; echo "${names[*]}") Default=YES MaxTime=INFINITE State=UP"
} > "$dir/slurm.conf"
for line in "$@"; do
  sed -i "/^${line%%=*}=/d" "$dir/slurm.conf"
  sed -i "1i $line" "$dir/slurm.conf"
done
export SLURM_CONF=$dir/slurm.conf

fail() {
  echo "slurm_up.sh: $*; the ends of the logs in $dir:" >&2
  for log in "$dir"/*.log "$dir"/munge/*log; do [ -e "$log" ] && tail -n 5 "$log"; done >&2
  "$(dirname "$0")/slurm_down.sh" "$dir" || true
  exit 1
}
munged --key-file "$dir/munge.key" --socket "$dir/munge/socket" --pid-file "$dir/munge/pid" \
  --seed-file "$dir/munge/seed" --log-file "$dir/munge/log" 2> "$dir/munge/start.log" || fail "munged did not start"
slurmctld || fail "slurmctld did not start"
for name in "${names[@]}"; do slurmd -N "$name" || fail "slurmd did not start"; done

for _ in $(seq 60); do
  idle=$(sinfo -h -N -t idle -o %N 2> /dev/null | wc -l)
  [ "$idle" = "$count" ] && break
  sleep 0.5
done
[ "$idle" = "$count" ] || fail "$idle of $count nodes are idle"
echo "$(slurmctld -V), ${names[*]} with $cpus cores each: export SLURM_CONF=$dir/slurm.conf"
