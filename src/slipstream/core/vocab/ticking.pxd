cdef extern from *:
    """
    #include <time.h>
    static CYTHON_INLINE long long slip_clock(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (long long)now.tv_sec * 1000000000LL + now.tv_nsec;
    }
    #if defined(__x86_64__)
    #include <cpuid.h>
    #include <x86intrin.h>
    /* The clock waits for all that the processor has begun; its counter of ticks does not.  A
       millisecond at most is reckoned from ticks since the clock was read last, at the rate that
       they had lately.  Where the processor does not say that the rate is steady, as one of a
       sandbox may not, it counts once two stretches had the same. */
    static unsigned long long slip_tick, slip_ticks, slip_first_tick;
    static long long slip_moment, slip_first_moment, slip_latest;
    static double slip_rate;
    /* Whether ticks are read at all, and whether the processor vouches for their rate. */
    static int slip_steady = -1, slip_vouched;
    static void slip_forget_rate(unsigned long long tick, long long moment) {
        slip_first_tick = tick;
        slip_first_moment = moment;
        slip_ticks = 0;
        slip_rate = 0;
    }
    static long long slip_read_clock(void) {
        unsigned long long tick, spent;
        long long moment, passed;
        unsigned a = 0, b = 0, c = 0, d = 0;
        int tries = 0;
        double rate;
        /* Both at one time: the thread may be put aside between them. */
        do {
            tick = __rdtsc();
            moment = slip_clock();
            spent = __rdtsc() - tick;
        } while (slip_steady && spent > 2000 && ++tries < 4);
        passed = moment - slip_first_moment;
        if (spent > 2000) {
            /* Next time again; a clock that is as slow as this always is read as it is. */
            tick -= slip_ticks;
            if (slip_steady < 0)
                slip_steady = 0;
        } else if (slip_steady < 0) {
            slip_vouched = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 256);
            slip_steady = 1;
            slip_forget_rate(tick, moment);
        } else if (slip_steady && passed > 10000000) {
            rate = tick > slip_first_tick ? (double)passed / (double)(tick - slip_first_tick) : 0;
            if (!(rate > 0.01 && rate < 100) ||
                    (slip_rate > 0 && (rate > 1.001 * slip_rate || rate < 0.999 * slip_rate))) {
                slip_forget_rate(tick, moment);
            } else {
                if (slip_vouched || slip_rate > 0)
                    slip_ticks = (unsigned long long)(1e6 / rate);
                if (passed > 1000000000 || !(slip_vouched || slip_rate > 0)) {
                    slip_first_tick = tick;
                    slip_first_moment = moment;
                }
                slip_rate = rate;
            }
        }
        slip_tick = tick;
        slip_moment = moment;
        if (moment > slip_latest)
            slip_latest = moment;
        return slip_latest;
    }
    static CYTHON_INLINE long long slip_nanoseconds(void) {
        unsigned long long ticks = __rdtsc() - slip_tick;
        long long moment;
        if (ticks >= slip_ticks)
            return slip_read_clock();
        moment = slip_moment + (long long)((double)(long long)ticks * slip_rate);
        if (moment > slip_latest)
            slip_latest = moment;
        return slip_latest;
    }
    #else
    static CYTHON_INLINE long long slip_nanoseconds(void) {
        return slip_clock();
    }
    #endif
    """
    long long slip_nanoseconds() noexcept
