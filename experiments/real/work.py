# SPDX-License-Identifier: GPL-2.0-only
"""What python3 does: queens on a board, and the words of a text, counted and sorted."""

import sys


def queens(size, row=0, columns=0, left=0, right=0):
    if row == size:
        return 1
    count = 0
    for column in range(size):
        bit = 1 << column
        if not (columns | left | right) & bit:
            count += queens(size, row + 1, columns | bit, (left | bit) << 1, (right | bit) >> 1)
    return count


def words(text):
    counts = {}
    for word in text.split():
        word = word.strip(".").lower()
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]


with open(sys.argv[2]) as file:
    text = file.read(int(sys.argv[3]))
print(queens(int(sys.argv[1])), words(text))
