// SPDX-License-Identifier: GPL-2.0-only
/* See real.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "real.h"

/* Runtimes of OpenMP that were loaded for a plugin alone, where RTLD_NEXT does not look. */
static const char *const runtimes[] = { "libgomp", "libomp", "libiomp5" };

struct search {
	unsigned skip;
	char path[PATH_MAX];
};

static bool is_runtime(const char *path)
{
	for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++)
		if (strstr(path, runtimes[i]))
			return strlen(path) < PATH_MAX;
	return false;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *data)
{
	struct search *search = data;

	(void)size;
	if (!is_runtime(info->dlpi_name) || search->skip--)
		return 0;
	strcpy(search->path, info->dlpi_name);
	return 1;
}

/*
 * Libraries are opened one by one after dl_iterate_phdr(), which holds a lock of the loader's: dlopen() takes another one before that,
 * and a thread that is in dlopen() meanwhile would wait for this one for ever.
 */
static void *look_in_runtimes(const char *name)
{
	for (unsigned nth = 0;; nth++) {
		struct search search = { .skip = nth };
		void *library, *found;

		if (!dl_iterate_phdr(look_at, &search))
			return NULL;
		library = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
		found = library ? dlsym(library, name) : NULL;
		if (found)
			return found;
	}
}

void *scx_hetero_real(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		found = look_in_runtimes(name);
	if (!found) {
		fprintf(stderr, "scx_hetero's library for LD_PRELOAD: cannot find the real %s; run this "
			"program without LD_PRELOAD\n", name);
		abort();
	}
	return found;
}
