# SPDX-License-Identifier: GPL-2.0-only
"""Debian's x264 in the virtual machine, and its films."""

import pathlib
import subprocess

from guest import root

LIBRARY = "usr/lib/x86_64-linux-gnu/libx264.so.164"
FUNCTION = "x264_encoder_encode"

# The encoder of PARSEC, which Sironi et al. (2013) have: what its input "native" gives (`--qp 20 --partitions b8x8,i4x4 --ref 5
# --direct auto --b-pyramid --weightb --mixed-refs --no-fast-pskip --me umh --subme 7`), and of what has another default today
# what the x264 of 2008 had: no B-pictures, so that the options about them change nothing, and no look ahead. With as many threads as CPUs, at
# least which the paper has (section 3.4): x264 itself takes half as many more, and has as many pictures in work at once.
PARSEC = ("--qp 20 --partitions b8x8,i4x4 --ref 5 --no-fast-pskip --me umh --subme 7 --bframes 0 --weightp 0 "
          "--no-8x8dct --trellis 0 --no-psy --no-mbtree --rc-lookahead 0 --sync-lookahead 0 --threads CPUS")

KINDS = ("calm", "calm", "busy")

# So often a picture waits for none before it, whatever is in the film (x264's --keyint). What waits for it in turn comes out with it at once.
KEY = 250

# For the machine's script: `films N...` makes film.N each for a program x264-N, which is called so that it is told
# from others: $ROUNDS times $PHASE pictures of each of KINDS; odd films begin with the last.
SHELL = """
OPTIONS=$(echo "$OPTIONS" | sed "s/CPUS/$(nproc)/")
some() { for part in $(seq $((PHASE / 16))); do cat film-$1; done; }
films() {
	mkdir -p /usr/lib
	ln -s /real/$LIBRARY /usr/lib/
	cd /real
	for n in "$@"; do
		ln usr/bin/x264 usr/bin/x264-$n
		{
			cat film-head
			for round in $(seq $ROUNDS); do
				for kind in $([ $((n % 2)) = 0 ] && echo calm calm busy || echo busy calm calm); do
					some $kind
				done
			done
		} >film.$n
	done
	cd
}
"""


def fetch():
    """The folder with x264."""
    told = subprocess.run([root / "experiments/real-programs", "x264"], stdout=subprocess.PIPE, text=True, check=True)
    return pathlib.Path(told.stdout.strip())


def needs(folder):
    """Options of testbed/boot."""
    return ["--add-tree", f"{folder}:/real", "--add-bin", f"{root}/experiments/real/real:/bin/real", "--mem", "2G"]


def kind(film, phase, picture):
    """Of which kind a picture of film.N is."""
    return KINDS[(picture // phase - film % 2) % len(KINDS)]


def films(phase, pictures):
    """Variables of the script: phases of about so many pictures, films of so many at least."""
    phase = max(16, int(phase) // 16 * 16)
    return {"PHASE": phase, "ROUNDS": 1 + int(pictures) // (3 * phase), "LIBRARY": LIBRARY}
