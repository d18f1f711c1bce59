/*
 * Calls an IPAM plugin as a container runtime does, as cheaply as one can: what Node.js takes to start a process is as much as
 * what is measured.
 *
 * cni-calls PLUGIN CONFIGURATION PREFIX CALLS PARALLEL: ADD for PREFIX-0, PREFIX-1, … Prints the seconds that all took, those of
 * the processors (its own and the plugin's), and then the milliseconds of each, a line each.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double of(struct timeval spent) { return (double)spent.tv_sec + (double)spent.tv_usec / 1e6; }

static int call(char *plugin, const char *configuration, const char *prefix, int number) {
  char container[256], answer[65536];
  snprintf(container, sizeof container, "CNI_CONTAINERID=%s-%d", prefix, number);
  char *env[] = {"CNI_COMMAND=ADD", container, "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/none", "CNI_PATH=/opt/cni/bin",
                 getenv("PATH") == NULL ? "PATH=" : getenv("PATH") - strlen("PATH="), NULL};
  char *args[] = {plugin, NULL};
  int ends[2];
  pid_t pid;
  posix_spawn_file_actions_t files;
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, configuration, O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  int failed = posix_spawn(&pid, plugin, &files, NULL, args, env);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  size_t length = 0;
  for (ssize_t got; length < sizeof answer - 1; length += (size_t)got)
    if ((got = read(ends[0], answer + length, sizeof answer - 1 - length)) <= 0) break;
  answer[length] = 0;
  close(ends[0]);
  int status = -1;
  if (failed != 0 || waitpid(pid, &status, 0) < 0 || status != 0) {
    fprintf(stderr, "%s failed: %s\n", plugin, failed != 0 ? strerror(failed) : answer);
    return -1;
  }
  return 0;
}

int main(int count, char **words) {
  if (count != 6) return 2;
  int calls = atoi(words[4]), parallel = atoi(words[5]);
  size_t size = sizeof(int) + sizeof(double) * (size_t)calls;
  double *took = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (took == MAP_FAILED) return 1;
  int *next = (int *)(took + calls);
  double began = seconds();
  for (int one = 0; one < parallel; one++) {
    if (fork() != 0) continue;
    for (int number; (number = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED)) < calls;) {
      double at = seconds();
      if (call(words[1], words[2], words[3], number) != 0) _exit(1);
      took[number] = seconds() - at;
    }
    _exit(0);
  }
  int failed = 0;
  for (int status; wait(&status) > 0;) failed |= status;
  double all = seconds() - began;
  struct rusage spent;
  getrusage(RUSAGE_CHILDREN, &spent);
  printf("%f\n%f\n", all, of(spent.ru_utime) + of(spent.ru_stime));
  for (int number = 0; number < calls; number++) printf("%f\n", took[number] * 1000);
  return failed != 0;
}
