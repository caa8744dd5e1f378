"""SHA-256 of every file below a folder, and one digest over all of them.

Prints JSON. Its progress lines go to standard error, where Longhaul reads them: `3/10 name`.
"""

import hashlib
import json
import os
import stat
import sys
import time

CHUNK_BYTES = 1 << 20
REPORT_SECONDS = 0.5


def files_below(root):
    """Every regular file, sorted, and what could not be read. Links are not followed."""
    found, unreadable = [], []
    for folder, folders, names in os.walk(root, onerror=lambda error: unreadable.append(error.filename)):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            try:
                if stat.S_ISREG(os.lstat(path).st_mode):
                    found.append(path)
            except OSError:
                unreadable.append(path)
    return found, unreadable


def sha256(path):
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return digest.digest(), size


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--"]
    if len(arguments) != 1:
        sys.exit("usage: checksum_tree.py -- FOLDER")
    root = os.path.abspath(arguments[0])
    if not os.path.isdir(root):
        sys.exit(f"{root} is not a folder")

    files, unreadable = files_below(root)
    total, size_total, whole, reported = len(files), 0, hashlib.sha256(), 0.0
    for index, path in enumerate(files):
        now = time.monotonic()
        if now - reported >= REPORT_SECONDS:
            reported = now
            print(f"{index}/{total} {os.path.relpath(path, root)!a}", file=sys.stderr, flush=True)
        try:
            digest, size = sha256(path)
        except OSError:
            unreadable.append(path)
            continue
        size_total += size
        # Name and digest, so that a renamed file changes the whole.
        whole.update(os.fsencode(os.path.relpath(path, root)) + b"\0" + digest)
    print(f"{total}/{total} done", file=sys.stderr, flush=True)

    result = {
        "folder": os.fsencode(root).decode(errors="replace"),
        "sha256": whole.hexdigest(),
        "files": total,
        "bytes": size_total,
        "unreadable": len(unreadable),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
