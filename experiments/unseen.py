# SPDX-License-Identifier: GPL-2.0-only
"""A model of programs that are not in mixes, by which scheduler rank goes in experiments/campaign."""

import csv
import io
import re
import subprocess

from guest import binary


def train(table, commands, model, *options):
    """Learns a model from a table, without the programs that these commands run."""
    known = {line.split(",")[0] for line in table.read_text().splitlines()[1:]}
    unseen = sorted(known & set(re.findall(r"(?:hetero-programs|real) (\S+)", " ".join(commands))))
    subprocess.run([binary, "train", table, "--leave-out", ",".join(unseen), "-o", model, *options],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def largest(estimates):
    """Of what such a model says of those programs (`train --estimates`), as text, the lines of each one's largest
    data: mixes run it with that."""
    size = {}
    rows = list(csv.DictReader(io.StringIO(estimates)))
    for row in rows:
        number = re.match(r"\d+|$", row["variant"])[0]
        row["size"] = int(number or 0)
        size[row["program"]] = max(row["size"], size.get(row["program"], 0))
    lines = [line for line, row in zip(estimates.splitlines()[1:], rows) if row["size"] == size[row["program"]]]
    return "\n".join([estimates.splitlines()[0], *lines]) + "\n"
