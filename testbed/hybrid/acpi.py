# SPDX-License-Identifier: GPL-2.0-or-later
"""The ACPI table by which Linux finds a machine's performance levels (CPPC).

QEMU has none. Each CPU that there is gets a `_CPC`, most of which are registers that the plugin
answers (amd.c), and general purpose event 7 says that their highest performance has changed.
"""
import struct

CAP1, ENABLE, REQ = 0xC00102B0, 0xC00102B1, 0xC00102B3
MPERF, APERF = 0xE7, 0xE8
HIGHEST_PERF_CHANGED = 0x85


def length(body):
    """An AML PkgLength, which counts itself, and what it is the length of."""
    for size in range(1, 5):
        n = len(body) + size
        if size == 1 and n < 1 << 6:
            return bytes([n]) + body
        if size > 1 and n < 1 << (8 * size - 4):
            rest = [n >> (8 * i + 4) & 0xFF for i in range(size - 1)]
            return bytes([(size - 1) << 6 | n & 0xF, *rest]) + body
    raise ValueError(f"{len(body)} bytes of AML")


def integer(n):
    for prefix, code in ((0x0A, "<B"), (0x0B, "<H"), (0x0C, "<I")):
        if n < 1 << 8 * struct.calcsize(code):
            return bytes([prefix]) + struct.pack(code, n)
    raise ValueError(n)


def cpu(apic_id):
    """The device that QEMU has for an APIC id, as a name in AML."""
    return b"\\\x2f\x03_SB_CPUSC%03X" % apic_id


def register(address, width=0, offset=0):
    """A field of an MSR, in a buffer; with no width, none."""
    space = 0x7F if width else 0
    resource = struct.pack("<BHBBBBQ", 0x82, 12, space, width, offset, 4 if width else 0, address)
    resource += b"\x79\x00"
    return b"\x11" + length(integer(len(resource)) + resource)


def cpc(lowest_mhz, nominal_mhz):
    none = register(0)
    entries = [
        integer(23), integer(3),
        register(CAP1, 8, 24), register(CAP1, 8, 16), register(CAP1, 8, 8), register(CAP1, 8),
        none,                                                        # guaranteed
        register(REQ, 8, 16), register(REQ, 8, 8), register(REQ, 8), # desired, least and most
        none, none, none,                    # tolerance, its window, when counters wrap
        register(MPERF, 64), register(APERF, 64),
        none, register(ENABLE, 1), none, none, register(REQ, 8, 24), # energy preference
        none, integer(lowest_mhz), integer(nominal_mhz),
    ]
    return b"\x08_CPC\x12" + length(bytes([len(entries)]) + b"".join(entries))


def table(cpus):
    """An SSDT: for each APIC id its lowest and nominal clock in MHz."""
    body = b""
    for apic_id, (lowest, nominal) in cpus.items():
        body += b"\x10" + length(cpu(apic_id) + cpc(lowest, nominal))
    changed = b"".join(b"\x86" + cpu(i) + integer(HIGHEST_PERF_CHANGED) for i in cpus)
    method = b"\x14" + length(b"_E07\x00" + changed)
    body += b"\x10" + length(b"\\_GPE" + method)
    header = struct.pack("<4sIBB6s8sI4sI", b"SSDT", 36 + len(body), 2, 0, b"SCXHET", b"CPPC    ", 1,
                         b"SCXH", 1)
    sum_ = -sum(header + body) & 0xFF
    return header[:9] + bytes([sum_]) + header[10:] + body
