cdef extern from *:
    """
    #include <stddef.h>
    #include <string.h>
    typedef int (*slip_launch_call)(void *, unsigned, unsigned, unsigned, unsigned, unsigned,
                                    unsigned, unsigned, void *, void **, void **);
    typedef int (*slip_graph_call)(void *, void *);
    typedef int (*slip_event_call)(void *);
    typedef int (*slip_clock_call)(float *, void *, void *);
    typedef struct {
        void *function;
        unsigned x, y, z, u, v, w, shared;
        void **parameters;
        void **extra;
        void *kernel;
        void *context;
    } slip_node;
    /* The context that the running thread was last given. */
    static __thread size_t slip_context;
    static int slip_is_current(size_t context) { return slip_context == context; }
    static void slip_set_current(size_t context) { slip_context = context; }
    typedef int (*slip_node_call)(void *, void *, const slip_node *);
    typedef int (*slip_add_call)(void **, void *, void **, size_t, const slip_node *);

    /* A whole parameter block: (1, pointer), (2, its size), end. */
    #define SLIP_EXTRA(block, n) \
        size_t size = (size_t)(n); \
        void *extra[5] = {(void *)1, (void *)(block), (void *)2, &size, NULL}

    static int slip_launch(size_t call, size_t function, unsigned x, unsigned y, unsigned z,
                           unsigned u, unsigned v, unsigned w, unsigned shared, size_t stream,
                           char *block, Py_ssize_t n) {
        int status;
        SLIP_EXTRA(block, n);
        Py_BEGIN_ALLOW_THREADS
        status = ((slip_launch_call)call)((void *)function, x, y, z, u, v, w, shared,
                                          (void *)stream, NULL, extra);
        Py_END_ALLOW_THREADS
        return status;
    }
    /* The largest parameter block that every card takes. */
    #define SLIP_LARGEST 4096

    /* The same with a block of words and a tail, put together on the stack. */
    static int slip_launch_words(size_t call, size_t function, unsigned x, unsigned y, unsigned z,
                                 unsigned u, unsigned v, unsigned w, unsigned shared,
                                 size_t stream, size_t words, Py_ssize_t nbytes, char *tail,
                                 Py_ssize_t n) {
        char block[SLIP_LARGEST];
        memcpy(block, (const void *)words, (size_t)nbytes);
        memcpy(block + nbytes, tail, (size_t)n);
        return slip_launch(call, function, x, y, z, u, v, w, shared, stream, block, nbytes + n);
    }
    static int slip_launch_graph(size_t call, size_t executable, size_t stream) {
        int status;
        Py_BEGIN_ALLOW_THREADS
        status = ((slip_graph_call)call)((void *)executable, (void *)stream);
        Py_END_ALLOW_THREADS
        return status;
    }
    static int slip_record(size_t call, size_t event, size_t stream) {
        int status;
        Py_BEGIN_ALLOW_THREADS
        status = ((slip_graph_call)call)((void *)event, (void *)stream);
        Py_END_ALLOW_THREADS
        return status;
    }
    static int slip_query(size_t call, size_t event) {
        int status;
        Py_BEGIN_ALLOW_THREADS
        status = ((slip_event_call)call)((void *)event);
        Py_END_ALLOW_THREADS
        return status;
    }
    static int slip_elapsed(size_t call, float *spent, size_t start, size_t end) {
        int status;
        Py_BEGIN_ALLOW_THREADS
        status = ((slip_clock_call)call)(spent, (void *)start, (void *)end);
        Py_END_ALLOW_THREADS
        return status;
    }
    static int slip_set_node(size_t call, size_t executable, size_t node, size_t function,
                             unsigned x, unsigned y, unsigned z, unsigned u, unsigned v,
                             unsigned w, unsigned shared, char *block, Py_ssize_t n) {
        SLIP_EXTRA(block, n);
        slip_node changed = {(void *)function, x, y, z, u, v, w, shared, NULL, extra, NULL, NULL};
        return ((slip_node_call)call)((void *)executable, (void *)node, &changed);
    }
    /* After another node, or after none. */
    static int slip_add_node(size_t call, size_t graph, size_t after, size_t *made,
                             size_t function, unsigned x, unsigned y, unsigned z, unsigned u,
                             unsigned v, unsigned w, unsigned shared, char *block,
                             Py_ssize_t n) {
        SLIP_EXTRA(block, n);
        slip_node added = {(void *)function, x, y, z, u, v, w, shared, NULL, extra, NULL, NULL};
        void *before = (void *)after, *node = NULL;
        int status = ((slip_add_call)call)(&node, (void *)graph, after ? &before : NULL,
                                           after != 0, &added);
        *made = (size_t)node;
        return status;
    }
    """
    bint slip_is_current(size_t context)
    void slip_set_current(size_t context)
    int slip_launch(size_t call, size_t function, unsigned x, unsigned y, unsigned z, unsigned u,
                    unsigned v, unsigned w, unsigned shared, size_t stream, char *block,
                    Py_ssize_t n)
    int slip_launch_words(size_t call, size_t function, unsigned x, unsigned y, unsigned z,
                          unsigned u, unsigned v, unsigned w, unsigned shared, size_t stream,
                          size_t words, Py_ssize_t nbytes, char *tail, Py_ssize_t n)
    int slip_launch_graph(size_t call, size_t executable, size_t stream)
    int slip_record(size_t call, size_t event, size_t stream)
    int slip_query(size_t call, size_t event)
    int slip_elapsed(size_t call, float *spent, size_t start, size_t end)
    int slip_set_node(size_t call, size_t executable, size_t node, size_t function, unsigned x,
                      unsigned y, unsigned z, unsigned u, unsigned v, unsigned w, unsigned shared,
                      char *block, Py_ssize_t n)
    int slip_add_node(size_t call, size_t graph, size_t after, size_t *made, size_t function,
                      unsigned x, unsigned y, unsigned z, unsigned u, unsigned v, unsigned w,
                      unsigned shared, char *block, Py_ssize_t n)

cdef class HotCalls:
    cdef object driver
    cdef readonly bint direct
    cdef size_t launcher, graph_launcher, node_setter, node_adder, recorder, query, clock
    cdef public Py_ssize_t kernel_launches, graph_launches, graph_kernel_nodes
    cdef public Py_ssize_t node_updates, event_records
    cpdef object use(self, size_t context)
    cpdef object launch(self, size_t function, object shape, size_t stream, bytes block)
    cpdef bint launch_words(self, size_t function, tuple shape, size_t stream, size_t words,
                            Py_ssize_t nbytes, bytes tail) except -1
    cpdef object launch_graph(self, size_t executable, size_t stream)
    cpdef object set_kernel_node(self, size_t executable, size_t node, size_t function,
                                 object shape, bytes block)
    cpdef size_t add_kernel_node(self, size_t graph, size_t after, size_t function, object shape,
                                 bytes block) except? 0
    cpdef object record_event(self, size_t event, size_t stream)
    cpdef bint query_event(self, size_t event) except -1
    cpdef double elapsed(self, size_t start, size_t end) except? -1
    cpdef object failure(self, str call, int status)

cpdef object use_context(object driver, size_t context)
