/* A small pool of sleeping threads, started when a run first has use for them. */
#include "runner.h"

#if defined(_WIN32)

void slip_parallel(slip_task task, void *context, int64_t tasks, int threads) {
    (void)threads;
    for (int64_t index = 0; index < tasks; index++) task(context, index);
}

int slip_started(void) { return 0; }

#else

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define THREADS_MOST 256
#define STACK_BYTES (1 << 20)

typedef struct {
    slip_task task;
    void *context;
    int64_t tasks;
    atomic_llong next;    /* the first task that nobody has taken */
} work;

static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER; /* one run at a time has the pool */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static work *current;         /* what the helpers are asked to do */
static int wanted, busy;      /* helpers still to join it; helpers that are at it */
static int started, watching; /* threads of the pool; whether forks are watched */

static void take_tasks(work *w) {
    for (;;) {
        const int64_t index = atomic_fetch_add(&w->next, 1);
        if (index >= w->tasks) return;
        w->task(w->context, index);
    }
}

static void *helper(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!wanted) pthread_cond_wait(&wake, &lock);
        wanted--;
        busy++;
        work *w = current;
        pthread_mutex_unlock(&lock);
        take_tasks(w);
        pthread_mutex_lock(&lock);
        if (--busy == 0) pthread_cond_signal(&done);
    }
    return NULL;
}

/* A child has none of its parent's threads, and locks in whatever state they were. */
static void in_child(void) {
    pthread_mutex_init(&owner, NULL);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&wake, NULL);
    pthread_cond_init(&done, NULL);
    started = wanted = busy = 0;
}

static void start_helpers(int count) {
    pthread_attr_t attributes;
    if (!watching) watching = pthread_atfork(NULL, NULL, in_child) == 0;
    if (started >= count || pthread_attr_init(&attributes) != 0) return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    /* Signals are for the threads of Python: a helper must not swallow what would wake one. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < count) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, helper, NULL) != 0) break;
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

int slip_started(void) { return started; }

void slip_parallel(slip_task task, void *context, int64_t tasks, int threads) {
    work w = {task, context, tasks, 0};
    if (threads <= 1 || tasks <= 1 || pthread_mutex_trylock(&owner) != 0) {
        take_tasks(&w);
        return;
    }
    int helpers = threads <= THREADS_MOST ? threads - 1 : THREADS_MOST;
    start_helpers(helpers);
    helpers = helpers < started ? helpers : started;
    helpers = helpers < tasks - 1 ? helpers : (int)(tasks - 1);
    pthread_mutex_lock(&lock);
    current = &w;
    wanted = helpers;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    take_tasks(&w);
    pthread_mutex_lock(&lock);
    wanted = 0;
    while (busy) pthread_cond_wait(&done, &lock);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&owner);
}

#endif
