// SPDX-License-Identifier: GPL-2.0-only
/*
 * crowd SOCKET UID PROCESSES EACH - a user's processes that subscribe to advice as often as they can, and stay
 *
 * Prints how many subscriptions there are and how many were refused, and why the last was. Ends with its standard input.
 */
#define _GNU_SOURCE
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct outcome {
	unsigned int taken, refused;
	char why[128];
};

static int report[2];

static void subscribe(const struct sockaddr_un *address, unsigned int each)
{
	struct outcome outcome = { 0 };
	char said[sizeof(outcome.why)] = "";

	for (unsigned int i = 0; i < each; i++) {
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);

		if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)))
			err(1, "cannot connect");
		/* The page is not even taken. */
		ssize_t got = recv(fd, said, sizeof(said) - 1, MSG_PEEK);

		if (got > 6 && !memcmp(said, "error:", 6)) {
			outcome.refused++;
			said[got] = 0;
			memcpy(outcome.why, said, sizeof(said));
		} else if (got > 0) {
			outcome.taken++;
		}
	}
	if (write(report[1], &outcome, sizeof(outcome)) != sizeof(outcome))
		err(1, "cannot report");
	close(report[1]);
	/* Shared with the first of them; it has nothing to read until it ends. */
	while (read(0, said, sizeof(said)) > 0)
		;
	_exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct outcome all = { 0 }, one;

	if (argc != 5 || strlen(argv[1]) >= sizeof(address.sun_path) || pipe(report))
		errx(1, "usage: crowd SOCKET UID PROCESSES EACH");
	strcpy(address.sun_path, argv[1]);
	uid_t uid = strtoul(argv[2], NULL, 10);
	unsigned int processes = strtoul(argv[3], NULL, 10), each = strtoul(argv[4], NULL, 10);

	if (uid != getuid() && setresuid(uid, uid, uid))
		err(1, "cannot be user %s", argv[2]);
	for (unsigned int i = 0; i < processes; i++) {
		pid_t pid = fork();

		if (pid < 0)
			err(1, "cannot make process %u", i);
		if (!pid)
			subscribe(&address, each);
	}
	close(report[1]);
	while (read(report[0], &one, sizeof(one)) == sizeof(one)) {
		all.taken += one.taken;
		all.refused += one.refused;
		if (*one.why)
			memcpy(all.why, one.why, sizeof(all.why));
	}
	printf("%u %u %s\n", all.taken, all.refused, all.why);
	fflush(stdout);
	while (read(0, &one, sizeof(one)) > 0)
		;
	return 0;
}
