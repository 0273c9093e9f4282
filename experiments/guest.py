# SPDX-License-Identifier: GPL-2.0-only
"""The virtual hybrid machine for benchmarks."""

import os
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
binary = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "release/scx_hetero"


def command(options, script, more, **variables):
    """What boots the machine `options.machine` with the kernel `options.kernel` and runs the shell
    script in this file there. The release build of scx_hetero is there; `more` are further options
    of testbed/boot."""
    words = [root / "testbed/boot", "--kernel", options.kernel, "--machine", options.machine,
             "--add-bin", f"{binary}:/bin/scx_hetero", "--add", f"{script}:/root/script", *more]
    for name, value in variables.items():
        words += ["--env", f"{name}={value}"]
    return [str(word) for word in (*words, "--", "sh", "/root/script")]


# For a script there: starts what `$SCHEDULER` says, process `$scheduler`, and waits until it schedules; and, at the end, makes sure that it still does.
# `eas` is the kernel's own with energy-aware scheduling: on Intel's CPUs that takes schedutil (docs/decisions/eas.md).
SCHEDULER = """
if [ "$SCHEDULER" = eas ]; then
	SCHEDULER=
	echo passive >/sys/devices/system/cpu/intel_pstate/status
	for policy in /sys/devices/system/cpu/cpufreq/policy*; do
		echo schedutil >$policy/scaling_governor
	done
	sleep 1
	[ "$(cat /proc/sys/kernel/sched_energy_aware)" = 1 ] || { echo "energy-aware scheduling stays off"; exit 1; }
fi
if [ -n "$SCHEDULER" ]; then
	$SCHEDULER >/tmp/log 2>&1 &
	scheduler=$!
	until [ "$(cat /sys/kernel/sched_ext/state)" = enabled ]; do
		kill -0 $! || { cat /tmp/log; exit 1; }
		sleep 0.1
	done
fi
"""
STILL = """
[ -z "$SCHEDULER" ] || [ "$(cat /sys/kernel/sched_ext/state)" = enabled ] || { cat /tmp/log >&2; exit 1; }
"""


def scheduler_of(policy):
    """What `$SCHEDULER` is for a policy of scx_hetero, `scx_NAME` (experiments/peers), or the kernel's own ("default", "eas", and
    what else has no scheduler of its own), arguments included; and the options of testbed/boot that it needs."""
    if policy.startswith("scx_"):
        peers = subprocess.run([root / "experiments/peers"], stdout=subprocess.PIPE, text=True, check=True)
        return policy, ["--add-bin", f"{peers.stdout.strip()}/{policy.split()[0]}"]
    if policy in ("default", "nice", "cpu.max", "cpuset"):
        return "", []
    if policy == "eas":
        return policy, []
    return f"scx_hetero --policy {policy} --knowledge=off", []


def boot(options, script, more=(), **variables):
    """Runs a shell script in the machine, with `more` options of testbed/boot; the lines of its
    output. Ends the program if it fails."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(script)
        file.flush()
        words = command(options, file.name, ["--timeout", "1800", *more], **variables)
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{sys.argv[0]}: the virtual machine ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout.splitlines()
