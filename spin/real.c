// SPDX-License-Identifier: GPL-2.0-only
/* See real.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "real.h"

/* Runtimes of OpenMP that were loaded for a plugin alone, where RTLD_NEXT does not look. */
static const char *const runtimes[] = { "libgomp", "libomp", "libiomp5" };

struct search {
	const char *name;
	void *found;
};

static int look_in(struct dl_phdr_info *info, size_t size, void *data)
{
	struct search *search = data;

	(void)size;
	for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]) && !search->found; i++) {
		void *library;

		if (!strstr(info->dlpi_name, runtimes[i]))
			continue;
		library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
		if (library)
			search->found = dlsym(library, search->name);
	}
	return search->found != NULL;
}

void *scx_hetero_real(const char *name)
{
	struct search search = { name, dlsym(RTLD_NEXT, name) };

	if (!search.found)
		dl_iterate_phdr(look_in, &search);
	if (!search.found) {
		fprintf(stderr, "scx_hetero's library for LD_PRELOAD: cannot find the real %s; run this "
			"program without LD_PRELOAD\n", name);
		abort();
	}
	return search.found;
}
