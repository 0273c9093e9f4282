#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""example.py [--rate BEATS] [--beats N] - a Python program that must be so fast

The library by ctypes: `Heartbeat` is all that a program of your own needs to take from here.
"""

import argparse
import ctypes
import hashlib


class Options(ctypes.Structure):
    """struct scx_hetero_hb_options"""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("rate", ctypes.c_double),
        ("period_ns", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_uint64),
        ("weight", ctypes.c_uint32),
        ("window", ctypes.c_uint32),
        ("pid", ctypes.c_int32),
        ("nr_tids", ctypes.c_uint32),
        ("tids", ctypes.POINTER(ctypes.c_int32)),
        ("socket", ctypes.c_char_p),
        ("children", ctypes.c_uint32),
    ]


class Heartbeat:
    """A session: `with Heartbeat("name", rate=30) as heartbeat: ... heartbeat.beat()`"""

    def __init__(self, name, **options):
        self.lib = ctypes.CDLL("libscx_hetero_heartbeat.so.1", use_errno=True)
        self.lib.scx_hetero_hb_open.restype = ctypes.c_void_p
        for rate in ("global", "window", "instant"):
            getattr(self.lib, f"scx_hetero_hb_{rate}_rate").restype = ctypes.c_double
        self.lib.scx_hetero_hb_count.restype = ctypes.c_uint64
        given = Options(size=ctypes.sizeof(Options), name=name.encode(), **options)
        self.session = self.lib.scx_hetero_hb_open(ctypes.byref(given))
        if not self.session:
            raise OSError(ctypes.get_errno(), "a session with these options makes no sense")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lib.scx_hetero_hb_close(ctypes.c_void_p(self.session))
        self.session = None

    def beat(self, beats=1):
        self.lib.scx_hetero_hb_beats(ctypes.c_void_p(self.session), ctypes.c_uint64(beats))

    def count(self):
        return self.lib.scx_hetero_hb_count(ctypes.c_void_p(self.session))

    def rate(self, which="window"):
        """Beats per second: of all ("global"), of the last ones ("window"), of the last ("instant")."""
        return getattr(self.lib, f"scx_hetero_hb_{which}_rate")(ctypes.c_void_p(self.session))

    def state(self):
        text = ctypes.create_string_buffer(256)
        size = ctypes.c_size_t(len(text))
        self.lib.scx_hetero_hb_state(ctypes.c_void_p(self.session), text, size)
        return text.value.decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=10.0, help="beats per second (10)")
    parser.add_argument("--beats", type=int, default=100, help="how many (100)")
    args = parser.parse_args()
    with Heartbeat("example", rate=args.rate) as heartbeat:
        digest = b"x" * (1 << 20)
        for _ in range(args.beats):
            digest = hashlib.sha512(digest).digest() * (1 << 14)
            heartbeat.beat()
        print(f"{heartbeat.count()} beats, {heartbeat.rate('global'):.1f} per second, "
              f"{heartbeat.rate():.1f} of late; {heartbeat.state()}")


if __name__ == "__main__":
    main()
