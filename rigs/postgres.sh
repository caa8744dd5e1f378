#!/usr/bin/env bash
# A PostgreSQL of this workspace alone, for tests: `postgres.sh start [FOLDER]` starts it and prints how to connect on the
# last line; `postgres.sh stop [FOLDER]` ends it and deletes its data. It listens on a socket in its folder in /tmp, where
# its data are too, and on a free loopback port. `initdb` refuses root, so as root it runs as the user `postgres`.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
home="${2:-/tmp/longhaul-postgres-$(id -u)-$(printf %s "$root" | cksum | cut -d' ' -f1)}"
readonly root home

programs() {
    local folder
    folder="$(find /usr/lib/postgresql -maxdepth 2 -name bin -type d 2>/dev/null | sort -V | tail -n 1)"
    if [[ -z "$folder" ]]; then
        folder="$(dirname "$(command -v initdb)")" || { echo "PostgreSQL is not installed" >&2; exit 1; }
    fi
    echo "$folder"
}

as_owner() {
    if [[ $(id -u) -eq 0 ]]; then
        runuser -u postgres -- "$@"
    else
        "$@"
    fi
}

# Nothing is deleted that this script did not make.
ours() {
    [[ ! -e "$home" || -f "$home/initdb.log" ]] || { echo "$home is something else" >&2; exit 1; }
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start() {
    local bin port
    bin="$(programs)"
    if [[ -f "$home/port" ]] && as_owner "$bin/pg_ctl" -D "$home/data" status >/dev/null; then
        port="$(cat "$home/port")"
    else
        ours && rm -rf "$home"
        mkdir -p "$home"
        [[ $(id -u) -ne 0 ]] || chown postgres "$home"
        port="$(free_port)"
        cd "$home"
        as_owner "$bin/initdb" -D "$home/data" -U longhaul --auth=trust --encoding=UTF8 --locale=C >"$home/initdb.log"
        as_owner "$bin/pg_ctl" -D "$home/data" -l "$home/data/server.log" -w -t 60 \
            -o "-p $port -k $home -c listen_addresses=127.0.0.1 -c max_connections=200" start >/dev/null
        as_owner "$bin/createdb" -h 127.0.0.1 -p "$port" -U longhaul longhaul
        echo "$port" >"$home/port"
    fi
    echo "host=$home port=$port user=longhaul dbname=longhaul"
}

stop() {
    [[ -d "$home/data" ]] || return 0
    cd "$home"
    as_owner "$(programs)/pg_ctl" -D "$home/data" -m immediate -w stop >/dev/null || true
    cd /
    ours && rm -rf "$home"
}

case "${1:-}" in
    start) start ;;
    stop) stop ;;
    *)
        echo "say: postgres.sh start|stop [FOLDER]" >&2
        exit 2
        ;;
esac
