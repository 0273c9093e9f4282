/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions that a program meant, from a library that stands before theirs. */
#ifndef SCX_HETERO_REAL_H
#define SCX_HETERO_REAL_H

/* Looked up; where it is not to be found the program ends, for it was called. */
__attribute__((visibility("hidden"))) void *scx_hetero_real(const char *name);

/* The function that the program meant. Looked up once; to look twice does no harm. */
#define REAL(name)								\
({										\
	static typeof(&name) real;						\
	typeof(&name) found = __atomic_load_n(&real, __ATOMIC_RELAXED);		\
	if (!found) {								\
		found = (typeof(&name))scx_hetero_real(#name);			\
		__atomic_store_n(&real, found, __ATOMIC_RELAXED);		\
	}									\
	found;									\
})

#endif /* SCX_HETERO_REAL_H */
