// SPDX-License-Identifier: GPL-2.0-only
/*
 * An LZ77 compressor in the manner of LZ4, with hash chains: byte loads, short
 * loops of unknown length, and branches that follow the text. Every block is
 * decompressed again and compared.
 *
 * A code below 128 stands for that many literals and one more, which follow it;
 * one from 128 on for a match, longer by MIN_MATCH, at the two-byte distance that
 * follows.
 */
#include <stdlib.h>
#include <string.h>

#include "programs.h"

#define BLOCK 16384
#define WORDS 512
#define MAX_WORD 8
#define HASHES 4096
#define CHAIN 6 /* candidates tried for each match */
#define MIN_MATCH 4
#define MAX_MATCH (127 + MIN_MATCH)
#define NOWHERE UINT16_MAX

struct lz {
	uint64_t rng;
	uint8_t word[WORDS][MAX_WORD];
	uint8_t length[WORDS];
	uint16_t head[HASHES]; /* the latest place with that hash */
	uint16_t previous[BLOCK]; /* the one before each */
	uint8_t text[BLOCK + MAX_WORD];
	uint8_t packed[BLOCK + BLOCK / 128 + 1];
	uint8_t unpacked[BLOCK];
};

/* Like prose, words repeat, and some more than others. */
static void write_text(struct lz *lz)
{
	for (size_t at = 0; at < BLOCK;) {
		uint32_t a = random_below(&lz->rng, WORDS), b = random_below(&lz->rng, WORDS);
		uint32_t word = a < b ? a : b;

		memcpy(lz->text + at, lz->word[word], MAX_WORD);
		at += lz->length[word];
	}
}

/* Enters place @at into the chains; returns the place before it with that hash. */
static uint16_t enter(struct lz *lz, size_t at)
{
	uint32_t four, hash;

	memcpy(&four, lz->text + at, sizeof(four));
	hash = four * 2654435761u >> 20;
	lz->previous[at] = lz->head[hash];
	lz->head[hash] = at;
	return lz->previous[at];
}

static size_t longest_match(const struct lz *lz, size_t at, uint16_t candidate, size_t *distance)
{
	size_t limit = BLOCK - at < MAX_MATCH ? BLOCK - at : MAX_MATCH, best = 0;

	for (int i = 0; i < CHAIN && candidate != NOWHERE; i++) {
		size_t length = 0;

		while (length < limit && lz->text[candidate + length] == lz->text[at + length])
			length++;
		if (length > best) {
			best = length;
			*distance = at - candidate;
		}
		candidate = lz->previous[candidate];
	}
	return best;
}

static size_t put_literals(struct lz *lz, size_t to, size_t from, size_t end)
{
	while (from < end) {
		size_t n = end - from < 128 ? end - from : 128;

		lz->packed[to++] = n - 1;
		memcpy(lz->packed + to, lz->text + from, n);
		to += n;
		from += n;
	}
	return to;
}

static size_t pack(struct lz *lz)
{
	size_t to = 0, at = 0, literals = 0, distance = 0;

	memset(lz->head, 0xff, sizeof(lz->head)); /* NOWHERE */
	while (at + MIN_MATCH <= BLOCK) {
		size_t length = longest_match(lz, at, enter(lz, at), &distance);

		if (length < MIN_MATCH) {
			at++;
			continue;
		}
		to = put_literals(lz, to, literals, at);
		lz->packed[to++] = 128 + length - MIN_MATCH;
		lz->packed[to++] = distance & 0xff;
		lz->packed[to++] = distance >> 8;
		literals = at + length;
		while (++at < literals)
			if (at + MIN_MATCH <= BLOCK)
				enter(lz, at);
	}
	return put_literals(lz, to, literals, BLOCK);
}

static void unpack(struct lz *lz, size_t size)
{
	const uint8_t *from = lz->packed, *end = from + size;
	uint8_t *to = lz->unpacked;

	while (from < end) {
		unsigned int code = *from++;

		if (code < 128) {
			memcpy(to, from, code + 1);
			to += code + 1;
			from += code + 1;
		} else {
			size_t length = code - 128 + MIN_MATCH, distance = from[0] | from[1] << 8;

			/* A match may reach into itself: byte by byte. */
			for (; length > 0; length--, to++)
				*to = *(to - distance);
			from += 2;
		}
	}
}

static void *create(const struct options *options)
{
	struct lz *lz = allocate(sizeof(*lz));

	lz->rng = start_random(options->seed);
	for (int i = 0; i < WORDS; i++) {
		for (int j = 0; j < MAX_WORD; j++)
			lz->word[i][j] = 'a' + random_below(&lz->rng, 26);
		lz->length[i] = 3 + random_below(&lz->rng, MAX_WORD - 2);
		lz->word[i][lz->length[i] - 1] = ' ';
	}
	return lz;
}

static uint64_t unit(void *state)
{
	struct lz *lz = state;
	uint64_t sum = 0;
	size_t size;

	write_text(lz);
	size = pack(lz);
	unpack(lz, size);
	if (memcmp(lz->text, lz->unpacked, BLOCK))
		fail("compress: what was decompressed is not what was compressed");
	for (size_t i = 0; i < size; i++)
		sum = sum * 31 + lz->packed[i];
	return sum;
}

const struct program compress = {
	.name = "compress",
	.summary = "compresses text and decompresses it again",
	.create = create,
	.unit = unit,
	.destroy = free,
};
