from slipstream.core.native.beats cimport slip_beat

cdef extern from *:
    """
    #include <pthread.h>
    #include <stdlib.h>
    #include <time.h>
    #define SLIP_LOOK_NS 1000000L
    /* Looks without news after which the watch sleeps until work is recorded, and the longest
       such sleep: whoever records reads `asleep` without a barrier and may miss it. */
    #define SLIP_QUIET 500
    #define SLIP_SLEEP_NS 20000000L
    static slip_beat *volatile slip_beats = NULL;
    static volatile int slip_stopping = 0;
    static int slip_watching = 0;
    static PyObject *slip_drain = NULL;
    static pthread_mutex_t slip_bed = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t slip_alarm = PTHREAD_COND_INITIALIZER;
    static pthread_t slip_thread;

    static slip_beat *slip_new_beat(void) {
        slip_beat *beat = (slip_beat *)calloc(1, sizeof(slip_beat));
        if (beat == NULL) return NULL;
        beat->next = slip_beats;
        slip_beats = beat;
        return beat;
    }
    static void slip_ring(void) {
        pthread_mutex_lock(&slip_bed);
        pthread_cond_signal(&slip_alarm);
        pthread_mutex_unlock(&slip_bed);
    }
    static void slip_record(slip_beat *beat) {
        beat->recorded++;
        if (beat->asleep) { beat->asleep = 0; slip_ring(); }
    }
    static void slip_note_waiting(slip_beat *beat, long long count) {
        beat->sent = beat->recorded - count;
    }
    static void slip_call_drain(void) {
        PyGILState_STATE state;
        if (slip_stopping) return;
        state = PyGILState_Ensure();
        if (!slip_stopping) {
            PyObject *result = PyObject_CallObject(slip_drain, NULL);
            if (result == NULL) PyErr_WriteUnraisable(slip_drain);
            Py_XDECREF(result);
        }
        PyGILState_Release(state);
    }
    static void slip_doze(void) {
        struct timespec until;
        slip_beat *beat;
        pthread_mutex_lock(&slip_bed);
        for (beat = slip_beats; beat != NULL; beat = beat->next) beat->asleep = 1;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += SLIP_SLEEP_NS;
        if (until.tv_nsec >= 1000000000L) { until.tv_nsec -= 1000000000L; until.tv_sec++; }
        if (!slip_stopping) pthread_cond_timedwait(&slip_alarm, &slip_bed, &until);
        pthread_mutex_unlock(&slip_bed);
    }
    static void *slip_watch(void *unused) {
        struct timespec pause = {0, SLIP_LOOK_NS};
        slip_beat *beat;
        int quiet = 0;
        (void)unused;
        while (!slip_stopping) {
            int moved = 0, waits = 0;
            nanosleep(&pause, NULL);
            for (beat = slip_beats; beat != NULL; beat = beat->next) {
                long long recorded = beat->recorded;
                if (recorded != beat->seen) { moved = 1; beat->seen = recorded; }
                else if (recorded != beat->sent) waits = 1;
            }
            if (waits) slip_call_drain();
            quiet = moved || waits ? 0 : quiet + 1;
            if (quiet >= SLIP_QUIET) { slip_doze(); quiet = SLIP_QUIET - 1; }
        }
        return NULL;
    }
    static int slip_start_watch(PyObject *drain) {
        int failed;
        if (slip_watching) return 0;
        Py_INCREF(drain);
        slip_drain = drain;
        slip_stopping = 0;
        failed = pthread_create(&slip_thread, NULL, slip_watch, NULL);
        slip_watching = !failed;
        return failed;
    }
    static void slip_stop_watch(void) {
        if (!slip_watching) return;
        slip_stopping = 1;
        slip_ring();
        Py_BEGIN_ALLOW_THREADS
        pthread_join(slip_thread, NULL);
        Py_END_ALLOW_THREADS
        slip_watching = 0;
    }
    """
    slip_beat *slip_new_beat()
    void slip_record(slip_beat *beat)
    void slip_note_waiting(slip_beat *beat, long long count)
    int slip_start_watch(object drain)
    void slip_stop_watch()
