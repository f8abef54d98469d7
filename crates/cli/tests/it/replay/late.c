/* Preloaded into QEMU: makes the thread of a guest's CPU late, as a busy host does now and then.
 *
 * A guest that halts is left by a jump (cpu_loop_exit, accel/tcg/cpu-exec-common.c, QEMU 7.2). Before that jump the CPU is marked
 * as halted, and only after it QEMU adds up what it executed. Here the jump waits until the main loop has gone round meanwhile,
 * or for PATIENCE_MS where the two threads keep each other out. Each jump that waited is a byte in the file that PAGELAB_LATE
 * names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 500, EXCP_HLT = 0x10001, WORDS_BEHIND = 512 };

static atomic_long rounds;

int ppoll(struct pollfd *files, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    int (*next)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *) = dlsym(RTLD_NEXT, "ppoll");
    if (gettid() == getpid())
        rounds++;
    return next(files, count, timeout, mask);
}

/* Whether the CPU that the buffer is a part of leaves because it halts: its exception_index lies behind its jmp_env. */
static int halts(const void *buffer)
{
    const uint32_t *word = (const uint32_t *)((const char *)buffer + sizeof(sigjmp_buf));
    for (int at = 0; at < WORDS_BEHIND; at++)
        if (word[at] == EXCP_HLT)
            return 1;
    return 0;
}

static void be_late(void)
{
    const struct timespec moment = { .tv_nsec = 1000000 };
    long before = rounds;
    int log = open(getenv("PAGELAB_LATE"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (write(log, ".", 1) != 1)
        abort();
    close(log);
    /* The first round may have been under way. The signal does nothing but wake the main loop (qemu_signal_init, util/main-loop.c). */
    for (int waited = 0; rounds < before + 2 && waited < PATIENCE_MS; waited++) {
        kill(getpid(), SIGALRM);
        nanosleep(&moment, NULL);
    }
}

void __longjmp_chk(sigjmp_buf buffer, int value)
{
    void (*next)(sigjmp_buf, int) = dlsym(RTLD_NEXT, "__longjmp_chk");
    if (gettid() != getpid() && halts(buffer))
        be_late();
    next(buffer, value);
    abort();
}
