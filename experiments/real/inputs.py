# SPDX-License-Identifier: GPL-2.0-only
"""inputs.py FOLDER [x264] - what the programs of experiments/real-programs work on

Text, a picture, sound, a film, a scene and a C file, all made of numbers: the same on every machine. Nothing
is fetched; with x264 parts of films, to be put together. They are as large as programs need to run for some seconds on a virtual machine that is twenty
times slower than a real one.
"""

import array
import math
import pathlib
import random
import sys


def text(some, size):
    """Words of syllables, the frequent ones short, as in a language (Zipf), in lines and paragraphs."""
    syllables = [a + b for a in "bcdfglmnprst" for b in ("a", "e", "i", "o", "u", "en", "ar")]
    words = ["".join(some.choice(syllables) for _ in range(1 + n // 400)) for n in range(1600)]
    parts, length = [], 0
    while length < size:
        sentence = [words[int(1600 ** some.random()) - 1] for _ in range(some.randrange(5, 16))]
        part = " ".join(sentence).capitalize() + some.choice([".\n", ". ", ". ", ".\n\n"])
        parts.append(part)
        length += len(part)
    return "".join(parts)[:size].encode()


def picture(some, width, height):
    """PPM: smooth colours, rings, and noise."""
    pixels = bytearray()
    for y in range(height):
        for x in range(width):
            ring = math.sin(((x - width / 3) ** 2 + (y - height / 2) ** 2) / 900)
            noise = some.randrange(24)
            pixels += bytes((100 + int(80 * ring) + noise, x * 230 // width + noise, y * 230 // height + noise))
    return b"P6\n%d %d\n255\n" % (width, height) + bytes(pixels)


def sound(some, seconds, rate=44100):
    """WAV, 16 bits, two channels: chords that fade, and noise."""
    samples = array.array("h")
    for n in range(int(seconds * rate)):
        t = n / rate
        fade = 1 - t * 4 % 1
        pitch = 220 * 2 ** (int(t * 4) * 7 % 12 / 12)
        tone = sum(math.sin(2 * math.pi * pitch * k * t) / k for k in (1, 2, 3)) * fade
        for side in (0.9, 1.1):
            samples.append(int(9000 * tone * side + some.randrange(-400, 400)))
    if sys.byteorder == "big":
        samples.byteswap()
    data = samples.tobytes()

    def little(value, size=4):
        return value.to_bytes(size, "little")

    form = little(1, 2) + little(2, 2) + little(rate) + little(rate * 4) + little(4, 2) + little(16, 2)
    return b"RIFF" + little(36 + len(data)) + b"WAVEfmt " + little(16) + form + b"data" + little(len(data)) + data


def film(some, width, height, frames, speed=1, noise=6, waves=(9, 13), step=4):
    """YUV4MPEG2: a pattern that moves, a square that crosses it, and noise. Waves are 2 pi times that long."""
    out = [b"YUV4MPEG2 W%d H%d F25:1 Ip A1:1 C420jpeg\n" % (width, height)]
    for frame in range(frames):
        luma = bytearray()
        for y in range(height):
            for x in range(width):
                value = 110 + 60 * math.sin((x + 3 * speed * frame) / waves[0]) * math.cos((y - 2 * speed * frame) / waves[1])
                if 0 <= x - step * frame % width < 32 and 0 <= y - height // 3 < 32:
                    value = 230 - (x ^ y) % 64
                luma.append(int(value) + some.randrange(noise))
        plane = width * height // 4
        colour = bytes(128 + (n + frame) % 40 for n in range(plane))
        out += [b"FRAME\n", bytes(luma), colour, colour[::-1]]
    return b"".join(out)


def frames(film):
    """Without the head."""
    return film[film.index(b"\n") + 1:]


def source(some, functions):
    """C without headers: structures, loops, switches and calls, no two functions alike."""
    lines = ["struct item { int key, value; struct item *next; };", "extern int visit(struct item *, int);"]
    for n in range(functions):
        a, b, c = (some.randrange(2, 60) for _ in range(3))
        size, op = c + 8, some.choice("+-^|")
        lines += [
            f"int work{n}(struct item *list, const unsigned char *text, int length)", "{",
            f"\tint i, sum = {a}, table[{size}] = {{0}};",
            f"\tfor (i = 0; i < length; i++) {{\n\t\ttable[text[i] % {size}] += i {op} {b};",
            f"\t\tswitch (text[i] & {some.choice((7, 15))}) {{",
        ]
        lines += [f"\t\tcase {k}: sum {some.choice(('+=', '-=', '^='))} text[i] {some.choice('*+^')} "
                  f"{some.randrange(1, 99)}; break;" for k in range(some.randrange(3, 8))]
        lines += [
            f"\t\tdefault: sum = sum * {some.choice((3, 5, 31))} + table[i % {size}];", "\t\t}", "\t}",
            f"\tfor (; list && list->key != {b}; list = list->next)",
            f"\t\tif (list->value > sum % {a})\n\t\t\tsum += visit(list, {c});",
        ]
        if n:
            lines.append(f"\tif (sum & {some.choice((1, 2, 4))})\n"
                         f"\t\tsum += work{some.randrange(n)}(list, text, length / 2);")
        lines += ["\treturn sum;", "}"]
    return ("\n".join(lines) + "\n").encode()


def scene(some, spheres):
    """For tachyon: spheres that mirror each other above a floor, two lights."""
    def surface(red, green, blue, opacity=1.0, mirror=0.2):
        return (f"TEXTURE AMBIENT 0.1 DIFFUSE {0.9 - mirror} SPECULAR {mirror} OPACITY {opacity} "
                f"COLOR {red:.2f} {green:.2f} {blue:.2f} TEXFUNC 0")

    lines = [
        "BEGIN_SCENE", "RESOLUTION 192 144", "CAMERA", "ZOOM 1.2", "ASPECTRATIO 1.0", "ANTIALIASING 1", "RAYDEPTH 5",
        "CENTER 0 3 -9", "VIEWDIR 0 -0.2 1", "UPDIR 0 1 0", "END_CAMERA",
        "LIGHT CENTER 6 9 -7 RAD 0.1 COLOR 0.8 0.8 0.8", "LIGHT CENTER -8 5 -4 RAD 0.1 COLOR 0.4 0.4 0.5",
        "PLANE CENTER 0 0 0 NORMAL 0 1 0", surface(0.8, 0.8, 0.9),
    ]
    for n in range(spheres):
        x, y, z = some.uniform(-5, 5), some.uniform(0.3, 4), some.uniform(-3, 8)
        lines += [f"SPHERE CENTER {x:.3f} {y:.3f} {z:.3f} RAD {some.uniform(0.15, 0.6):.3f}",
                  surface(some.random(), some.random(), some.random(), 0.4 if n % 3 == 0 else 1.0)]
    return ("\n".join([*lines, "END_SCENE"]) + "\n").encode()


def main():
    folder = pathlib.Path(sys.argv[1])
    files = {
        "text": lambda some: text(some, 1_400_000),
        "page": lambda some: text(some, 250_000),
        "picture.ppm": lambda some: picture(some, 560, 560),
        "sound.wav": lambda some: sound(some, 6),
        "film.y4m": lambda some: film(some, 320, 192, 4),
        "work.c": lambda some: source(some, 7),
        "scene": lambda some: scene(some, 60),
    }
    # The seventeenth picture would be the first: where they are put together nothing leaps. A leap is a picture that takes several times as much.
    seamless = {"waves": (24 / math.pi, 16 / math.pi), "step": 10}
    if sys.argv[2:] == ["x264"]:
        files = {
            # Upright: an encoder works on as many pictures at once as they have lines for.
            "film-head": lambda some: film(some, 160, 384, 0),
            "film-calm": lambda some: frames(film(some, 160, 384, 16, **seamless)),
            "film-busy": lambda some: frames(film(some, 160, 384, 16, 2, 20, **seamless)),
        }
    for name, make in files.items():
        # A seed of its own: a change to one leaves the others as they were.
        (folder / name).write_bytes(make(random.Random(name)))


main()
