/* SPDX-License-Identifier: MIT */
/*
 * What scx_hetero advises this process (docs/advice.md): one file that needs libc alone.
 *
 *	static struct scx_hetero_advice advice = SCX_HETERO_ADVICE_INIT;
 *	struct scx_hetero_advice_record now;
 *
 *	if (scx_hetero_advice_changed(&advice) && !scx_hetero_advice_read(&advice, &now))
 *		resize_pool(now.threads);
 *
 * Nothing here fails, waits or changes errno, and none needs the scheduler to be there: a
 * subscription connects by itself, at the earliest a second after one has started. While nothing
 * changes changed() costs a load, and a look at the coarse clock.
 *
 * A subscription is one thread's at a time.
 */
#ifndef SCX_HETERO_ADVICE_H
#define SCX_HETERO_ADVICE_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SCX_HETERO_ADVICE_SOCKET "/run/scx_hetero/advice.sock"
#define SCX_HETERO_ADVICE_MAGIC 0x31414853u /* "SHA1" on a little-endian machine */
#define SCX_HETERO_ADVICE_VERSION 1u
#define SCX_HETERO_ADVICE_TYPES 4
#define SCX_HETERO_ADVICE_CPUS 1024

/* What contends with this process most. */
enum scx_hetero_advice_class {
	SCX_HETERO_ADVICE_NONE,
	SCX_HETERO_ADVICE_LLC,
	SCX_HETERO_ADVICE_L2,
	SCX_HETERO_ADVICE_BANDWIDTH,
	SCX_HETERO_ADVICE_SIBLING,
	SCX_HETERO_ADVICE_POWER,
	SCX_HETERO_ADVICE_WAIT,
};

struct scx_hetero_advice_type {
	uint32_t cpus; /* that this process may use; 0 where its affinity allows none */
	uint32_t free; /* of them, what others leave, in thousandths of a CPU */
	uint32_t speed; /* of this process's threads there, thousandths of the fastest type's */
	uint32_t zero;
};

/* The page, in the machine's byte order. Numbers in thousandths where it says so. */
struct scx_hetero_advice_record {
	uint32_t magic;
	uint32_t version;
	uint32_t sequence; /* changes with anything here; odd while that is being written; 0: nothing yet */
	uint32_t threads; /* that finish soonest, each with work by the speed of its core type */
	uint32_t threads_equal; /* the same, where all get equal work */
	uint32_t fast_cores; /* what `threads` are worth together, thousandths of a fast core */
	uint32_t company; /* CPUs that others want, thousandths */
	uint32_t types; /* of which there are `type`, fastest first */
	uint32_t interference; /* enum scx_hetero_advice_class */
	uint32_t slowdown; /* of the thread that suffers most, thousandths; 0 is unknown */
	uint32_t confidence; /* in `interference`, thousandths */
	uint32_t culprit; /* the process that disturbs most; 0 is none */
	uint32_t culprit_part; /* of all that disturbs, thousandths */
	uint32_t nr_place; /* of `place` */
	uint32_t zero[2];
	struct scx_hetero_advice_type type[SCX_HETERO_ADVICE_TYPES];
	uint8_t more[384]; /* 0 */
	uint8_t type_of_cpu[SCX_HETERO_ADVICE_CPUS]; /* index of its type + 1; 0: no such CPU */
	uint16_t place[SCX_HETERO_ADVICE_CPUS]; /* CPUs with most room for `threads`, best first */
	uint8_t rest[512]; /* 0 */
};

/* What a program may tell: see scx_hetero_advice_tell(). */
enum scx_hetero_advice_kind {
	SCX_HETERO_ADVICE_TIME = 1, /* what `number` threads have done */
	SCX_HETERO_ADVICE_PHASE = 2, /* it is in phase `number` from now on */
	SCX_HETERO_ADVICE_MEMBER = 3, /* thread `number` belongs to the team */
	SCX_HETERO_ADVICE_NO_MEMBER = 4, /* and no longer */
};

struct scx_hetero_advice_frame {
	uint32_t kind;
	uint32_t number;
	uint64_t rate; /* work per time, in any unit; 0 is unknown */
	uint32_t waited; /* part of the threads' time in barriers, thousandths + 1; 0 is unknown */
	uint32_t zero[3];
};

struct scx_hetero_advice {
	int fd; /* + 1; 0 is none */
	pid_t pid; /* that connected: a child of fork() has a subscription of its own */
	const struct scx_hetero_advice_record *page;
	uint32_t seen; /* sequence */
	time_t looked; /* after the connection, monotonic s */
	const char *socket; /* NULL: $SCX_HETERO_ADVICE_SOCKET, or the usual one */
};

#define SCX_HETERO_ADVICE_INIT { 0, 0, NULL, 0, 0, NULL }

static inline void scx_hetero_advice_close(struct scx_hetero_advice *self)
{
	int error = errno;

	if (self->page)
		munmap((void *)(uintptr_t)self->page, sizeof(*self->page));
	if (self->fd)
		close(self->fd - 1);
	self->fd = 0;
	self->page = NULL;
	self->seen = 0;
	errno = error;
}

/* Takes the page, if it has come. */
static inline void scx_hetero_advice_take(struct scx_hetero_advice *self)
{
	uint32_t greeting[4] = { 0, 0, 0, 0 };
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov;
	struct msghdr message;
	struct cmsghdr *part;
	ssize_t got;
	void *page;
	int fd = -1;

	memset(&message, 0, sizeof(message));
	iov.iov_base = greeting;
	iov.iov_len = sizeof(greeting);
	message.msg_iov = &iov;
	message.msg_iovlen = 1;
	message.msg_control = &control;
	message.msg_controllen = sizeof(control);
	got = recvmsg(self->fd - 1, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	part = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (part && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(part), sizeof(fd));
	if (fd >= 0 && got == (ssize_t)sizeof(greeting) && greeting[0] == SCX_HETERO_ADVICE_MAGIC &&
	    greeting[1] == SCX_HETERO_ADVICE_VERSION &&
	    greeting[2] == sizeof(struct scx_hetero_advice_record)) {
		page = mmap(NULL, sizeof(struct scx_hetero_advice_record), PROT_READ, MAP_SHARED, fd, 0);
		if (page != MAP_FAILED)
			self->page = (const struct scx_hetero_advice_record *)page;
	}
	if (fd >= 0)
		close(fd);
	/* Refused, or of another version: it is tried again a second later. */
	if (!self->page)
		scx_hetero_advice_close(self);
}

/* As secure_getenv(), which is not declared everywhere: whoever runs a setuid program does not choose its socket. */
static inline const char *scx_hetero_advice_getenv(const char *name)
{
	return getauxval(AT_SECURE) ? NULL : getenv(name);
}

/* Out of line: while there is no page, and once a second. */
__attribute__((noinline, cold, unused)) static void
scx_hetero_advice_look(struct scx_hetero_advice *self, time_t now)
{
	int error = errno, fd;
	const char *path =
		self->socket ? self->socket : scx_hetero_advice_getenv("SCX_HETERO_ADVICE_SOCKET");
	struct sockaddr_un to;
	char byte;
	ssize_t got;

	if (self->fd && self->pid != getpid())
		scx_hetero_advice_close(self);
	if (self->fd && !self->page)
		scx_hetero_advice_take(self);
	if (now != self->looked) {
		self->looked = now;
		if (self->page) {
			got = recv(self->fd - 1, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
			/* The scheduler has ended, or says why it hangs up. */
			if (got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
				scx_hetero_advice_close(self);
		}
		if (!path || !*path)
			path = SCX_HETERO_ADVICE_SOCKET;
		memset(&to, 0, sizeof(to));
		to.sun_family = AF_UNIX;
		if (!self->fd && strlen(path) < sizeof(to.sun_path)) {
			memcpy(to.sun_path, path, strlen(path));
			fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
			if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to))) {
				close(fd);
				fd = -1;
			}
			self->fd = fd + 1;
			self->pid = getpid();
		}
	}
	errno = error;
}

/* Whether there is advice that read() has not read yet. */
static inline int scx_hetero_advice_changed(struct scx_hetero_advice *self)
{
	struct timespec now;

	if (!clock_gettime(CLOCK_MONOTONIC_COARSE, &now) && (!self->page || now.tv_sec != self->looked))
		scx_hetero_advice_look(self, now.tv_sec);
	return self->page && __atomic_load_n(&self->page->sequence, __ATOMIC_RELAXED) != self->seen;
}

/* Reads what is advised; -1 if there is nothing (also: it is just being written). */
static inline int scx_hetero_advice_read(struct scx_hetero_advice *self,
					 struct scx_hetero_advice_record *record)
{
	const volatile struct scx_hetero_advice_record *page = self->page;
	uint32_t sequence;

	if (!page)
		return -1;
	for (int tries = 0; tries < 100; tries++) {
		sequence = __atomic_load_n(&self->page->sequence, __ATOMIC_ACQUIRE);
		memcpy(record, (const void *)(uintptr_t)page, sizeof(*record));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!(sequence & 1) &&
		    __atomic_load_n(&self->page->sequence, __ATOMIC_RELAXED) == sequence) {
			self->seen = sequence;
			record->sequence = sequence;
			/* Whoever serves it, no reader looks beyond its arrays. */
			if (record->types > SCX_HETERO_ADVICE_TYPES)
				record->types = SCX_HETERO_ADVICE_TYPES;
			if (record->nr_place > SCX_HETERO_ADVICE_CPUS)
				record->nr_place = SCX_HETERO_ADVICE_CPUS;
			return sequence ? 0 : -1;
		}
	}
	return -1;
}

/*
 * Tells the scheduler something, if it takes it at once. Ten times a second are enough.
 * `waited` is in thousandths, negative if it is not known.
 */
static inline void scx_hetero_advice_tell(struct scx_hetero_advice *self,
					  enum scx_hetero_advice_kind kind, uint32_t number,
					  uint64_t rate, int waited)
{
	struct scx_hetero_advice_frame frame;
	int error = errno;
	ssize_t sent;

	if (!self->page || self->pid != getpid())
		return;
	memset(&frame, 0, sizeof(frame));
	frame.kind = kind;
	frame.number = number;
	frame.rate = rate;
	frame.waited = waited < 0 ? 0 : (uint32_t)(waited > 1000 ? 1000 : waited) + 1;
	sent = send(self->fd - 1, &frame, sizeof(frame), MSG_DONTWAIT | MSG_NOSIGNAL);
	/* Half a frame would have all that follow misread. */
	if (sent > 0 && sent != (ssize_t)sizeof(frame))
		scx_hetero_advice_close(self);
	errno = error;
}

#ifdef __cplusplus
}
#endif

#endif /* SCX_HETERO_ADVICE_H */
