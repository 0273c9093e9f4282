// SPDX-License-Identifier: MIT
/*
 * A session's connection to the scheduler: lines of JSON over a Unix socket, and the page
 * that goes along with the first. Nothing here waits, and nothing fails but for a second.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#define PAGE 4096
#define NS_PER_S 1000000000ull
/* When it is asked again after it refused: its reasons do not pass within a second. */
#define AFTER_REFUSAL (10 * NS_PER_S)

/* Bytes that any request has room in. */
#define REQUEST 4096

static void hang_up(struct scx_hetero_hb *hb, enum state state, int error)
{
	if (hb->socket >= 0)
		close(hb->socket);
	hb->socket = -1;
	hb->state = state;
	hb->error = error;
	hb->answered = 0;
}

void connection_forget(struct scx_hetero_hb *hb)
{
	hang_up(hb, STATE_NONE, ENOTCONN);
	STORE(&hb->words, &hb->own);
	if (hb->page)
		munmap(hb->page, PAGE);
	hb->page = NULL;
	if (hb->memfd >= 0)
		close(hb->memfd);
	hb->memfd = -1;
}

/* A page that the scheduler can read and none can shorten. */
static int make_page(struct scx_hetero_hb *hb)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int fd = memfd_create("scx_hetero_heartbeat", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct words *page;

	if (fd < 0)
		return -1;
	if (ftruncate(fd, PAGE) || fcntl(fd, F_ADD_SEALS, seals))
		goto fail;
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		goto fail;
	/* A thread that beats at this moment may lose that beat, once. */
	*page = hb->own;
	hb->page = page;
	hb->memfd = fd;
	__atomic_store_n(&hb->words, page, __ATOMIC_RELEASE);
	return 0;
fail:
	close(fd);
	return -1;
}

/* Writes the request that begins so; its length. */
static int request(const struct scx_hetero_hb *hb, const char *begin, char *text)
{
	int n = snprintf(text, REQUEST, "{\"%s\":{", begin);
	uint32_t i;

	if (!strcmp(begin, "open")) {
		n += snprintf(text + n, REQUEST - n, "\"version\":%u,\"name\":\"%s\",",
			      SCX_HETERO_HB_VERSION, hb->name);
		if (hb->pid)
			n += snprintf(text + n, REQUEST - n, "\"pid\":%d,", hb->pid);
		if (hb->children)
			n += snprintf(text + n, REQUEST - n, "\"children\":true,");
	}
	n += snprintf(text + n, REQUEST - n, "\"weight\":%u,\"tids\":[", hb->weight);
	for (i = 0; i < hb->nr_tids; i++)
		n += snprintf(text + n, REQUEST - n, i ? ",%d" : "%d", hb->tids[i]);
	return n + snprintf(text + n, REQUEST - n, "]}}\n");
}

static int send_request(struct scx_hetero_hb *hb, const char *begin, int with_page)
{
	char text[REQUEST];
	struct iovec part = { text, (size_t)request(hb, begin, text) };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t sent;

	if (with_page) {
		struct cmsghdr *header;

		memset(&control, 0, sizeof(control));
		message.msg_control = control.bytes;
		message.msg_controllen = sizeof(control.bytes);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &hb->memfd, sizeof(int));
	}
	sent = sendmsg(hb->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent == (ssize_t)part.iov_len)
		return 0;
	if (sent >= 0)
		errno = EAGAIN;
	return -1;
}

/* {"session":7} or {"error":"why"}, to whatever was asked last. */
static void take_answer(struct scx_hetero_hb *hb, char *line)
{
	static const char error[] = "{\"error\":\"";
	char *end;

	if (strncmp(line, error, sizeof(error) - 1)) {
		hb->state = STATE_ACCEPTED;
		return;
	}
	line += sizeof(error) - 1;
	end = strrchr(line, '"');
	if (end)
		*end = 0;
	snprintf(hb->refusal, sizeof(hb->refusal), "%s", line);
	/* What is refused to a session that there is already leaves it as it was. */
	if (hb->state == STATE_ASKED) {
		hang_up(hb, STATE_REFUSED, 0);
		hb->retry_ns = scx_hetero_hb_now_ns() + AFTER_REFUSAL;
	}
}

static void read_answers(struct scx_hetero_hb *hb)
{
	while (hb->socket >= 0) {
		size_t room = sizeof(hb->answer) - 1 - hb->answered;
		ssize_t got = recv(hb->socket, hb->answer + hb->answered, room, MSG_DONTWAIT);
		char *end;

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got <= 0) {
			hang_up(hb, STATE_NONE, got ? errno : ECONNRESET);
			return;
		}
		hb->answered += (uint32_t)got;
		hb->answer[hb->answered] = 0;
		while (hb->socket >= 0 && (end = strchr(hb->answer, '\n'))) {
			size_t taken = (size_t)(end - hb->answer) + 1;

			*end = 0;
			take_answer(hb, hb->answer);
			if (hb->socket < 0)
				return;
			hb->answered -= (uint32_t)taken;
			memmove(hb->answer, hb->answer + taken, hb->answered + 1);
		}
		/* No answer of a scheduler is that long. */
		if (hb->answered == sizeof(hb->answer) - 1)
			hang_up(hb, STATE_NONE, EPROTO);
	}
}

static void begin(struct scx_hetero_hb *hb)
{
	hb->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (hb->socket < 0 ||
	    connect(hb->socket, (const struct sockaddr *)&hb->address, sizeof(hb->address)) ||
	    (!hb->page && make_page(hb))) {
		hang_up(hb, STATE_NONE, errno);
		return;
	}
	hb->state = STATE_ASKED;
	if (send_request(hb, "open", 1)) {
		int error = errno;

		/* A scheduler that has no room says so at once. */
		read_answers(hb);
		if (hb->state != STATE_REFUSED)
			hang_up(hb, STATE_NONE, error);
		return;
	}
	read_answers(hb);
}

void connection_look(struct scx_hetero_hb *hb)
{
	uint64_t now = scx_hetero_hb_now_ns();
	int error = errno;

	read_answers(hb);
	if (hb->state == STATE_NONE || (hb->state == STATE_REFUSED && hb->retry_ns <= now))
		begin(hb);
	STORE(&hb->look_ns, now + NS_PER_S);
	errno = error;
}

void connection_change(struct scx_hetero_hb *hb)
{
	int error = errno;

	/* Half a request is none: the scheduler hears of the session by the next connection. */
	if ((hb->state == STATE_ASKED || hb->state == STATE_ACCEPTED) &&
	    send_request(hb, "change", 0))
		hang_up(hb, STATE_NONE, errno);
	errno = error;
	connection_look(hb);
}
