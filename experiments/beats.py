# SPDX-License-Identifier: GPL-2.0-only
"""Beats of programs and what they spend, as the kernel of the virtual machine sees them, whatever schedules."""

import collections
import re
import subprocess

Beats = collections.namedtuple("Beats", "at spent marks")
Beats.__doc__ = """Times in seconds of the machine: of beats; (time, CPU seconds so far); (time, word) of what the script marked."""

# For the machine's script. `beats_of FILE OFFSET` has calls of a function recorded; `watch CGROUP WORD` notes what a
# group has spent, twenty times a second, under that word; `mark WORD...` notes something; `told` prints all.
SHELL = """
trace=/sys/kernel/tracing
beats_of() {
	echo mono >$trace/trace_clock
	echo 2048 >$trace/buffer_size_kb
	echo "p:beat $1:$2" >$trace/uprobe_events
	echo 1 >$trace/events/uprobes/beat/enable
}
mark() { echo "$*" >$trace/trace_marker; }
watch() {
	mkdir -p $1
	while read -r _ usec <$1/cpu.stat; do
		mark "spent $2 $usec"
		sleep 0.05
	done 2>/dev/null
}
told() {
	echo 0 >$trace/events/uprobes/beat/enable
	grep -v '^#' $trace/trace
}
# A group of its own, without controllers, so that it changes nothing: joins the caller to it.
join() {
	mkdir -p /sys/fs/cgroup/$1
	echo $(exec sh -c 'echo $PPID') >/sys/fs/cgroup/$1/cgroup.procs
}
"""

LINE = re.compile(r"^\s*(\S.*)-(\d+)\s+\[\d+\]\s.*?(\d+\.\d+): (\w+): (.*)$")


def offset(path, symbol):
    """Where in a file a function begins, as the kernel wants to know it."""
    def told(*options):
        words = ["readelf", "-W", *options, str(path)]
        return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()

    for line in told("--syms", "--dyn-syms"):
        words = line.split()
        if len(words) >= 8 and words[7].split("@")[0] == symbol and words[6] != "UND":
            address = int(words[1], 16)
            break
    else:
        raise SystemExit(f"{path} has no function {symbol}")
    for line in told("--segments"):
        words = line.split()
        if len(words) >= 6 and words[0] == "LOAD":
            begin, virtual, size = int(words[1], 16), int(words[2], 16), int(words[4], 16)
            if virtual <= address < virtual + size:
                return hex(address - virtual + begin)
    raise SystemExit(f"{path} has {symbol} nowhere in the file")


def parse(lines):
    """Of what `told` prints: Beats by the command's name, and by the word given to `watch`, in one."""
    all_ = collections.defaultdict(lambda: Beats([], [], []))
    for line in lines:
        match = LINE.match(line)
        if not match:
            continue
        command, at, event, text = match[1], float(match[3]), match[4], match[5]
        words = text.split()
        if event == "beat":
            all_[command].at.append(at)
        elif event == "tracing_mark_write" and words[:1] == ["spent"]:
            all_[words[1]].spent.append((at, int(words[2]) / 1e6))
        elif event == "tracing_mark_write":
            all_[words[0]].marks.append((at, " ".join(words[1:])))
    return all_


def windows(times, begin, end, length=1.0):
    """Beats/s in windows of so many seconds between whole beats; 0 where none comes."""
    rates, k, start = [], 0, begin
    while start + length <= end:
        while k < len(times) and times[k] < start:
            k += 1
        last = k
        while last < len(times) and times[last] < start + length:
            last += 1
        if k < last < len(times):
            rates.append((last - k) / (times[last] - times[k]))
        else:
            rates.append(0.0)
        start += length
    return rates
