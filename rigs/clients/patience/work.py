"""The slow tool: `work.py words|shape SECONDS`. Writes a line to `starts` beside it when it begins, reports progress
each second, and ends with a sentence or with the counts as JSON."""

import json
import pathlib
import sys
import time

from lh import progress

kind, seconds = sys.argv[1], int(sys.argv[2])
with open(pathlib.Path(__file__).with_name("starts"), "a", encoding="utf-8") as starts:
    starts.write(f"{kind} {seconds}\n")
for second in range(1, seconds + 1):
    time.sleep(1)
    progress(second, seconds, f"folder {second}")
counts = {"files": 5 * seconds, "problems": 0}
print(json.dumps(counts) if kind == "shape" else f"{counts['files']} files, no problems")
