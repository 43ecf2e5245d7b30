#!/usr/bin/env bash
# Bring up a Slurm of one node with two CPUs, beside whatever is installed:
#
#     eval "$(tests/slurm/start.sh)"   # sets SLURM_CONF, by which sbatch and the others find it
#     tests/slurm/stop.sh              # ends it and removes all that it wrote
#
# It takes the programs of Debian's slurm-wlm and munge, and neither root nor systemd. All that it
# writes lies in one temporary folder: configuration, key, socket, state, spool, logs. The ports are
# free ones, on this machine only.
set -euo pipefail
umask 022
PATH=$PATH:/usr/sbin:/sbin

for program in munged slurmctld slurmd sbatch; do
    type -P "$program" > /dev/null || {
        echo "start.sh: $program is missing: apt-get install slurm-wlm munge" >&2
        exit 1
    }
done

folder=$(mktemp -d "${TMPDIR:-/tmp}/slurm.XXXXXX")
export SLURM_CONF=$folder/slurm.conf
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

give_up() {
    tail -n 20 "$folder"/*.log >&2 || true
    "$here/stop.sh" || true
    echo "start.sh: Slurm did not come up" >&2
    exit 1
}

within() { # SECONDS COMMAND...: try until it succeeds
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}

node_is_up() { [[ $(sinfo --noheader --format=%T 2> /dev/null) == idle ]]; }

chmod 711 "$folder" # munged wants its socket to be reachable by all
mkdir "$folder"/{state,spool}
touch "$folder/ours"
head -c 128 /dev/urandom > "$folder/munge.key"
chmod 400 "$folder/munge.key"

user=$(id -un)
node=$(uname -n | cut -d. -f1)
read -r controller worker < <(python3 -c '
import socket
ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(port.getsockname()[1] for port in ports))')

cat > "$SLURM_CONF" << END
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$controller
SlurmdPort=$worker
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
MailProg=/bin/true
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
ReturnToService=2
KillWait=5
NodeName=$node NodeAddr=127.0.0.1 CPUs=2
PartitionName=short Nodes=$node Default=YES MaxTime=60 State=UP
END

munged --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" \
    --seed-file="$folder/munged.seed" >&2 || give_up
slurmctld >&2 || give_up
slurmd >&2 || give_up
within 30 node_is_up || give_up
printf 'export SLURM_CONF=%q\n' "$SLURM_CONF"
