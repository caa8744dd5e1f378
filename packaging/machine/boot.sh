#!/bin/sh
# Boots a Debian root with systemd as process 1, in namespaces and a control group of its own, without a network.
# Called as `boot.sh ROOT GROUP`; `cargo xtask packages` does, as root. It ends when its caller kills it, and with it all
# that was started inside.
set -eu
root=$1 group=$2
mkdir -p "$group"
echo $$ >"$group/cgroup.procs"
export root
exec unshare --mount --pid --net --ipc --uts --cgroup --fork --kill-child sh -euc '
    mount --make-rprivate /
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mount -t tmpfs tmpfs "$root/tmp"
    hostname longhaul
    ip link set lo up
    cd "$root"
    exec env -i container=longhaul PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /lib/systemd/systemd --log-target=console
'
