# Lists the largest files below a folder, largest first.
# usage: find_large_files.sh FOLDER SIZE_MB COUNT
set -eu

folder=$1 size_mb=$2 count=$3
case $folder in
/*) ;;
*) echo "the folder must be an absolute path" >&2; exit 1 ;;
esac
[ -d "$folder" ] || { echo "$folder is not a folder" >&2; exit 1; }

found=$(mktemp)
trap 'rm -f "$found"' EXIT
echo "0/2 looking for files" >&2
# What cannot be read is told on standard error, and does not spoil the rest.
find "$folder" -xdev -type f -size "+$((size_mb * 1048576 - 1))c" -printf '%s\t%p\n' >"$found" || true
echo "1/2 sorting" >&2
sort -rn "$found" | head -n "$count" | awk -F '\t' '{ printf "%10.1f MiB  %s\n", $1 / 1048576, $2 }'
echo "$(wc -l <"$found") files of at least $size_mb MiB"
echo "2/2 done" >&2
