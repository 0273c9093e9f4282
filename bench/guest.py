# SPDX-License-Identifier: GPL-2.0-only
"""The virtual hybrid machine for benchmarks."""

import os
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent


def boot(options, script, **variables):
    """Runs a shell script in the machine `options.machine` with the kernel `options.kernel`; the
    lines of its output. The release build of scx_hetero is there. Ends the program if it fails."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(script)
        file.flush()
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
        command = [root / "testbed/boot", "--kernel", options.kernel, "--machine", options.machine,
                   "--timeout", "1800", "--add-bin", f"{target}/release/scx_hetero:/bin/scx_hetero",
                   "--add", f"{file.name}:/root/script"]
        for name, value in variables.items():
            command += ["--env", f"{name}={value}"]
        done = subprocess.run([*command, "--", "sh", "/root/script"], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{sys.argv[0]}: the virtual machine ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout.splitlines()
