#!/usr/bin/env bash
# End the Slurm that start.sh brought up, the one that SLURM_CONF names, and remove its folder.
set -euo pipefail
folder=$(dirname "${SLURM_CONF:?is not set: eval the output of start.sh}")
[[ -e $folder/ours ]] || {
    echo "stop.sh: $SLURM_CONF is none of start.sh's" >&2
    exit 1
}

no_jobs() { [[ -z $(squeue --noheader 2> /dev/null) ]]; }

if [[ -e $folder/slurmctld.pid ]]; then
    scancel --user="$(id -un)" || true
    for _ in {1..100}; do
        no_jobs && break
        sleep 0.1
    done
fi
for daemon in slurmd slurmctld munged; do
    [[ -s $folder/$daemon.pid ]] || continue
    pid=$(< "$folder/$daemon.pid")
    kill "$pid" 2> /dev/null || true
    for _ in {1..100}; do
        kill -0 "$pid" 2> /dev/null || continue 2
        sleep 0.1
    done
    kill -KILL "$pid" 2> /dev/null || true
done
rm -rf "$folder"
