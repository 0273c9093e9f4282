# SPDX-License-Identifier: GPL-2.0-only
"""Debian's x264 in the virtual machine, and its films."""

import pathlib
import subprocess

from guest import root

LIBRARY = "usr/lib/x86_64-linux-gnu/libx264.so.164"
FUNCTION = "x264_encoder_encode"

# For the machine's script: `films N...` makes film.N each for a program x264-N, which is called so that it is told
# from others. $PHASE pictures are calm, as many again, and as many busy; odd films begin with the busy ones.
SHELL = """
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
					for part in $(seq $((PHASE / 16))); do cat film-$kind; done
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


def films(phase, pictures):
    """Variables of the script: phases of about so many pictures, films of so many at least."""
    phase = max(16, int(phase) // 16 * 16)
    return {"PHASE": phase, "ROUNDS": 1 + int(pictures) // (3 * phase), "LIBRARY": LIBRARY}
