# Deletes a file or folder below a base folder, after a person said yes.
# usage: confirm_delete.sh BASE PATH
set -eu

refuse() {
    echo "refused: $1" >&2
    exit 1
}

base=$(realpath -e -- "$1") || refuse "there is no $1"
# The last part is not resolved: a link is deleted, not what it points at.
target=$base/$2
folder=$(realpath -e -- "$(dirname -- "$target")") || refuse "there is no $target"
target=$folder/$(basename -- "$target")

[ -d "$base" ] || refuse "$base is not a folder"
[ "$base" != / ] || refuse "the base may not be /"
for home in "${HOME:-/root}" /home /root; do
    home=$(realpath -m -- "$home")
    case $home/ in
    "$base"/*) refuse "the base may not be $base: it holds $home" ;;
    esac
done
case $(basename -- "$2") in
. | ..) refuse "name what to delete" ;;
esac
case $target in
"$base"/?*) ;;
*) refuse "$target is not below $base" ;;
esac
[ -e "$target" ] || [ -L "$target" ] || refuse "there is no $target"

count=$(find "$target" -xdev | wc -l)
size=$(du -shx -- "$target" | cut -f1)
answer=$(mktemp)
status=0
longhaul ask --text "Delete $target ($count entries, $size)?" --choices "keep,delete" --default keep >"$answer" || status=$?
choice=$(cat "$answer")
rm -f "$answer"
case $status in
0) ;;
10) echo "Nothing was deleted: the question was declined."; exit 0 ;;
11) echo "Nothing was deleted: the question was dismissed."; exit 0 ;;
12) echo "Nothing was deleted: nobody could answer."; exit 0 ;;
*) refuse "the question could not be asked (longhaul ask: $status)" ;;
esac

case $choice in
*delete*)
    rm -rf --one-file-system -- "$target"
    echo "Deleted $target ($count entries, $size)."
    ;;
*) echo "Nothing was deleted: the answer was to keep it." ;;
esac
