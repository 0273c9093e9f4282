/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SCX_HETERO_OMPT_H
#define SCX_HETERO_OMPT_H

#include <stdbool.h>

/* This thread begins or ends to wait in a barrier of libomp; does nothing where there is no advice. */
#ifdef SCX_HETERO_WITH_ADVICE
__attribute__((visibility("hidden"))) void ompt_waits(bool begins);
#else
static inline void ompt_waits(bool begins)
{
	(void)begins;
}
#endif

#endif /* SCX_HETERO_OMPT_H */
