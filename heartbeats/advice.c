/* SPDX-License-Identifier: MIT */
/* scx_hetero_advice.h as functions, for languages that have no use for a header of C. */
#include <stdlib.h>

#include "scx_hetero_advice.h"

#define EXPORTED __attribute__((visibility("default")))

_Static_assert(sizeof(struct scx_hetero_advice_record) == 4096, "the page");
_Static_assert(offsetof(struct scx_hetero_advice_record, type) == 64, "types");
_Static_assert(offsetof(struct scx_hetero_advice_record, type_of_cpu) == 512, "CPUs");
_Static_assert(offsetof(struct scx_hetero_advice_record, place) == 1536, "place");
_Static_assert(sizeof(struct scx_hetero_advice_frame) == 32, "frames");

/* A subscription at a socket, NULL the usual one; or NULL: no memory. */
EXPORTED struct scx_hetero_advice *scx_hetero_advice_new(const char *socket)
{
	struct scx_hetero_advice *self = calloc(1, sizeof(*self));

	if (self && socket) {
		self->socket = strdup(socket);
		if (!self->socket) {
			free(self);
			return NULL;
		}
	}
	return self;
}

EXPORTED void scx_hetero_advice_free(struct scx_hetero_advice *self)
{
	if (!self)
		return;
	scx_hetero_advice_close(self);
	free((void *)(uintptr_t)self->socket);
	free(self);
}

/* 1: there is news, and `record` has it; 0: no news; -1: no advice. */
EXPORTED int scx_hetero_advice_poll(struct scx_hetero_advice *self,
				    struct scx_hetero_advice_record *record)
{
	if (scx_hetero_advice_changed(self))
		return scx_hetero_advice_read(self, record) ? -1 : 1;
	return self->page && self->seen ? 0 : -1;
}

EXPORTED void scx_hetero_advice_say(struct scx_hetero_advice *self, uint32_t kind, uint32_t number,
				    uint64_t rate, int waited)
{
	scx_hetero_advice_tell(self, (enum scx_hetero_advice_kind)kind, number, rate, waited);
}
