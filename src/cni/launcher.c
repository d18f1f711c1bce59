/*
 * The plugin as container runtimes start it: hands the call to the node's agent and prints the answer. Node.js alone takes
 * 40 ms to start, this a third of a millisecond. See src/agent/socket.ts for the protocol, ops/decisions/0021-cni-start.md for the
 * reasons.
 *
 * Where no agent answers it becomes ipledger-cni.mjs, which lies beside it and asks the service; without Node.js it fails
 * with the specification's code 11, and the runtime tries again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define LARGEST (1024 * 1024)
/* A test does not wait as long as a runtime. */
#ifndef PATIENCE_S
#define PATIENCE_S 60
#endif
#define DEFAULT_SOCKET "/run/ipledger/agent.sock"
/* As in src/cni/cni-error.ts. */
#define VERSIONS "[\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]"

extern char **environ;

static char config[LARGEST + 1];
static char answer[LARGEST + 1];

/* The string that follows "key": in the configuration. No string within has an unescaped quote, so that only a key matches.
 * Answers 0 if there is none, -1 if it has an escape or is too long. */
static int field(const char *key, char *to, size_t size) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\"", key);
  for (const char *at = config; (at = strstr(at, quoted)) != NULL; at++) {
    const char *value = at + strlen(quoted);
    value += strspn(value, " \t\r\n");
    if (*value++ != ':') continue;
    value += strspn(value, " \t\r\n");
    if (*value++ != '"') continue;
    size_t length = strcspn(value, "\"\\");
    if (value[length] != '"' || length >= size) return -1;
    memcpy(to, value, length);
    to[length] = 0;
    return 1;
  }
  return 0;
}

static int versions(void) {
  char version[16] = "1.0.0";
  field("cniVersion", version, sizeof version);
  printf("{\"cniVersion\":\"%s\",\"supportedVersions\":" VERSIONS "}", version);
  return 0;
}

static int fail(int code, const char *message) {
  char version[16] = "1.0.0";
  field("cniVersion", version, sizeof version);
  printf("{\"cniVersion\":\"%s\",\"code\":%d,\"msg\":\"%s\"}", version, code, message);
  return 1;
}

static int send_all(int to, const char *text, size_t length) {
  while (length > 0) {
    ssize_t sent = send(to, text, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return -1;
    text += sent;
    length -= (size_t)sent;
  }
  return 0;
}

/* Reads to the end, at most LARGEST bytes. Answers how many; -1: it failed, or there are more. */
static ssize_t read_all(int from, char *to) {
  size_t length = 0;
  for (;;) {
    ssize_t got = read(from, to + length, LARGEST + 1 - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    length += (size_t)got;
    if (length > LARGEST) return -1;
  }
  to[length] = 0;
  return (ssize_t)length;
}

/* One that is there and too slow may have done what was asked, so that nobody else is asked. */
static int no_answer(void) {
  return errno == EAGAIN ? fail(11, "the agent of this node does not answer") : -1;
}

/* Answers the exit code; -1: no agent answered. */
static int ask_agent(size_t length) {
  struct sockaddr_un agent = {.sun_family = AF_UNIX, .sun_path = DEFAULT_SOCKET};
  if (field("agentSocket", agent.sun_path, sizeof agent.sun_path) < 0)
    return fail(7, "ipam.agentSocket: must be at most 107 bytes, without escapes");
  int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct timeval patience = {.tv_sec = PATIENCE_S};
  setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  /* Also of connect, which waits while the agent's queue is full. */
  setsockopt(to, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (to < 0 || connect(to, (struct sockaddr *)&agent, sizeof agent) != 0) return no_answer();
  for (char **one = environ; *one != NULL; one++) {
    if (strncmp(*one, "CNI_", 4) != 0) continue;
    if (send_all(to, *one, strlen(*one)) != 0 || send_all(to, "\n", 1) != 0) return no_answer();
  }
  if (send_all(to, "\n", 1) != 0 || send_all(to, config, length) != 0) return no_answer();
  shutdown(to, SHUT_WR);
  ssize_t got = read_all(to, answer);
  if (got < 0) return no_answer();
  char *end = memchr(answer, '\n', (size_t)got);
  if (end == NULL || (answer[0] != '0' && answer[0] != '1')) return -1;
  if (answer[1] == ' ') fprintf(stderr, "%.*s\n", (int)(end - answer - 2), answer + 2);
  fwrite(end + 1, 1, (size_t)(answer + got - end - 1), stdout);
  return fflush(stdout) == 0 ? answer[0] - '0' : 1;
}

/* Returns only if it can't be done. */
static void become_node(size_t length) {
  char path[PATH_MAX + 16];
  ssize_t got = readlink("/proc/self/exe", path, PATH_MAX);
  int input = memfd_create("configuration", MFD_CLOEXEC);
  if (got <= 0 || input < 0) return;
  strcpy(path + got, ".mjs");
  if (access(path, R_OK) != 0 || write(input, config, length) != (ssize_t)length) return;
  lseek(input, 0, SEEK_SET);
  dup2(input, STDIN_FILENO);
  execlp("node", "node", path, (char *)NULL);
}

int main(void) {
  ssize_t length = read_all(STDIN_FILENO, config);
  if (length < 0) {
    config[0] = 0;
    return fail(5, "the configuration on stdin cannot be read, or is larger than 1 MiB");
  }
  for (char **one = environ; *one != NULL; one++)
    if (strncmp(*one, "CNI_", 4) == 0 && strchr(*one, '\n') != NULL)
      return fail(4, "a CNI_ variable has a line break");
  const char *command = getenv("CNI_COMMAND");
  if (command != NULL && strcmp(command, "VERSION") == 0) return versions();
  int code = ask_agent((size_t)length);
  if (code >= 0) return code;
  become_node((size_t)length);
  return fail(11, "no agent of ipledger answers on this node, and Node.js or ipledger-cni.mjs is missing");
}
