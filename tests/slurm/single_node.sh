#!/usr/bin/env bash
# A Slurm cluster of one node for tests: real slurmctld, slurmd and munge, make-believe GPUs. Needs root and the packages
# slurm-wlm and munge (Debian, Ubuntu); no systemd, no cgroups, no accounting database.
#
#   single_node.sh up [GPUS]   start it (default 2 GPUs of type h200; 0 = none)
#   single_node.sh check       one job per GPU: what did it see?
#   single_node.sh down        stop what `up` started and remove what it wrote; may be repeated
#
# A machine that belongs to a cluster or has a GPU is left alone: `up` refuses where a Slurm configuration that it did
# not write, a running Slurm daemon, or an NVIDIA device file exists.
set -euo pipefail

gpu_type=h200
etc=/etc/slurm
state=/run/xtrace-slurm-test # what `down` has to undo
log=/var/log/slurm
host=$(hostname -s)
signature="# single_node.sh of the Xtrace tests wrote this file"

fail() {
    echo "single_node.sh: $*" >&2
    exit 2
}

signed() { grep -qsF "$signature" "$1"; }

running() { grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status"; } # a zombie is none: who should reap it here?

alive() { [ -s "$1" ] && running "$(cat "$1")"; }

stop() { # pid file: ask, wait, insist
    alive "$1" || return 0
    local pid
    pid=$(cat "$1")
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 50); do
        running "$pid" || return 0
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
}

refuse_foreign() {
    local file
    for file in "$etc/slurm.conf" "$etc/gres.conf" "$etc/cgroup.conf"; do
        [ ! -e "$file" ] || signed "$file" || fail "$file was not written by this script: is this a node of a cluster?"
    done
    for file in slurmctld slurmd; do
        ! alive "/run/$file.pid" || fail "$file runs already: is this a node of a cluster?"
    done
    ! compgen -G '/dev/nvidia[0-9]*' >/dev/null || fail "/dev/nvidia* exists: make-believe GPUs would hide a real driver"
}

start_munge() {
    if munge -n 2>/dev/null | unmunge >/dev/null 2>&1; then return; fi # the machine's own: left running
    install -d -o munge -g munge -m 0755 /run/munge
    install -d -o munge -g munge -m 0700 /etc/munge /var/lib/munge /var/log/munge
    if [ ! -s /etc/munge/munge.key ]; then
        (umask 077 && head -c 1024 /dev/urandom >/etc/munge/munge.key)
        chown munge: /etc/munge/munge.key
    fi
    runuser -u munge -- /usr/sbin/munged
    touch "$state/munged"
}

make_gpus() { # GRES files have to be character devices; only their numbers reach the jobs
    local n
    for ((n = 0; n < $1; n++)); do
        mknod -m 0666 "/dev/nvidia$n" c 195 "$n"
        echo "/dev/nvidia$n" >>"$state/devices"
    done
    cat >"$etc/gres.conf" <<END
$signature
NodeName=$host Name=gpu Type=$gpu_type File=/dev/nvidia[0-$(($1 - 1))] Flags=nvidia_gpu_env
END
}

write_configuration() {
    local memory
    memory=$(awk '/^MemTotal/ { print int($2 / 1024) - 512 }' /proc/meminfo)
    cat >"$etc/slurm.conf" <<END
$signature
ClusterName=xtracetest
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# no cgroups, no accounting, no job network: a container is enough
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
# jobs share the node by cores, memory and GPUs
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
KillWait=2
# squeue has to know finished jobs until they were asked for
MinJobAge=86400
StateSaveLocation=$state/ctld
SlurmdSpoolDir=$state/d
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=$log/slurmctld.log
SlurmdLogFile=$log/slurmd.log
$([ "$1" = 0 ] || echo GresTypes=gpu)
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$memory$([ "$1" = 0 ] || echo " Gres=gpu:$gpu_type:$1")
PartitionName=debug Nodes=$host Default=YES MaxTime=60 State=UP
END
}

up() {
    local gpus=${1:-2}
    [[ $gpus =~ ^[0-8]$ ]] || fail "0 to 8 GPUs, not '$gpus'"
    [ "$(id -u)" = 0 ] || fail "only root can start a cluster"
    command -v slurmctld slurmd munge unmunge >/dev/null || fail "missing: apt-get install slurm-wlm munge"
    [ ! -e "$state" ] || fail "is up, or was left half done: say 'single_node.sh down' first"
    refuse_foreign
    mkdir -p "$etc" "$log" "$state/ctld" "$state/d"
    trap 'down >/dev/null' ERR
    echo "$gpus" >"$state/gpus"
    if ! getent hosts "$host" >/dev/null; then
        echo "127.0.0.1 $host $signature" >>/etc/hosts
    fi
    start_munge
    [ "$gpus" = 0 ] || make_gpus "$gpus"
    write_configuration "$gpus"
    slurmctld
    slurmd
    for _ in $(seq 150); do
        if [ "$(sinfo -h -o %T 2>/dev/null)" = idle ]; then
            sinfo -h -o 'partition %P, node %N %T, %c cores, %G'
            return
        fi
        sleep 0.2
    done
    tail -n 20 "$log"/slurm*d.log >&2 || true
    down >/dev/null
    fail "the node did not become idle within 30 s"
}

check() {
    [ -s "$state/gpus" ] || fail "not up"
    local n gpus
    gpus=$(cat "$state/gpus")
    if [ "$gpus" = 0 ]; then
        srun --ntasks=1 hostname
        return
    fi
    for ((n = 0; n < gpus; n++)); do
        srun --ntasks=1 --mem=50 --gpus="$gpu_type:1" \
            sh -c 'sleep 1; echo "job $SLURM_JOB_ID: CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"' &
    done
    wait
}

down() {
    local file
    if [ ! -e "$state" ]; then
        echo "not up"
        return
    fi
    if alive /run/slurmctld.pid; then scancel --partition=debug 2>/dev/null || true; fi
    stop /run/slurmd.pid
    stop /run/slurmctld.pid
    if [ -e "$state/munged" ]; then stop /run/munge/munged.pid; fi
    if [ -e "$state/devices" ]; then xargs -r rm -f -- <"$state/devices"; fi
    for file in "$etc/slurm.conf" "$etc/gres.conf"; do
        if signed "$file"; then rm -f "$file"; fi
    done
    if signed /etc/hosts; then # rewritten in place: in containers the file is a mount
        file=$(grep -vF "$signature" /etc/hosts)
        echo "$file" >/etc/hosts
    fi
    rm -rf "$state"
}

case "${1:-}" in
up | check | down) "$@" ;;
*)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
