#!/bin/sh
# Makes and removes a small disk for the tests of what happens when it is full. Needs root.
#
#   rigs/small-disk.sh start DIR    mounts 1,500 KiB of memory at DIR and prints DIR for LONGHAUL_TEST_SMALL_DISK
#   rigs/small-disk.sh stop DIR     unmounts and removes DIR
set -eu

[ $# -eq 2 ] || { echo "usage: rigs/small-disk.sh start|stop DIR" >&2; exit 2; }

case $1 in
start)
    mkdir -p "$2"
    dir=$(cd "$2" && pwd)
    mount -t tmpfs -o size=1500k,mode=0700 longhaul-small-disk "$dir"
    echo "$dir"
    ;;
stop)
    [ -d "$2" ] || exit 0
    umount "$2"
    rmdir "$2"
    ;;
*)
    echo "usage: rigs/small-disk.sh start|stop DIR" >&2
    exit 2
    ;;
esac
