from slipstream.core.launch.cuda.chains cimport Chains
from slipstream.core.launch.cuda.counts cimport Counts
from slipstream.core.launch.cuda.launches cimport Launch, Part
from slipstream.core.launch.cuda.memo cimport Graph, Memo, Window
from slipstream.core.launch.cuda.sends cimport Begun, Sends, Work, work_of
from slipstream.core.launch.cuda.words cimport Words
from slipstream.core.native.beats cimport Beat
from slipstream.core.native.hot cimport HotCalls
from slipstream.core.vocab.modes cimport ModeState, ModeTable
from slipstream.core.vocab.ring cimport Ring
from slipstream.core.vocab.records cimport Spec, Storage, TensorBase

cdef ModeTable modes
cdef Py_ssize_t LEAST, MOST, RARITY, STEADY, LONG, SHORT, BEYOND

cdef class Queue:
    cdef public object owner
    cdef public object driver
    cdef public Counts counts
    cdef public Memo memo
    cdef public HotCalls hot
    cdef public bint simulated
    cdef public size_t stream
    cdef public int number
    cdef public Window window
    cdef public Window spare
    cdef public object recent
    cdef public object taken
    cdef public Py_ssize_t sequence
    cdef public bint deferred
    cdef public bint sending
    cdef public bint recording
    cdef public bint asleep
    cdef public Beat beat
    cdef public bint shared
    cdef public unsigned long long mark
    cdef public Py_ssize_t ticks
    cdef public unsigned long long stretch
    cdef public unsigned long long before
    cdef public Py_ssize_t repeats
    cdef public object lock
    cdef public object workspace
    cdef public object capture
    cdef public list scratches
    cdef public object timer
    cdef public dict lasting
    cdef public Py_ssize_t since
    cdef public Py_ssize_t length
    cdef public Chains chains
    cdef public bint due
    cdef public unsigned long long lately
    cdef public unsigned long long later
    cdef public size_t author
    cpdef object record_operands(self, Launch launch, tuple operands, tuple numbers)
    cpdef object record_addresses(self, Launch launch, tuple addresses, tuple numbers)
    cpdef object note_uses(self, tuple operands, Py_ssize_t sequence)
    cpdef object note_waiting(self)
    cpdef object finish(self, Launch launch, tuple numbers)
    cpdef object boundary(self)
    cpdef object send(self, str reason)
    cpdef object send_window(self, str reason)
    cpdef object dispatch(self, Window window, str reason)
    cpdef object drain(self)
    cpdef bint tick(self) except -1
    cpdef object watch_drain(self)

cdef Window fresh_window(Queue queue)
cdef object note_operands(Queue queue, tuple operands)
cdef object look_back(Queue queue, Launch launch, tuple operands, Py_ssize_t start)
cdef object end_chain(Queue queue, Launch launch, tuple operands)
cdef object end_window(Queue queue, Launch launch, Py_ssize_t count)
cdef object hand_over(Queue queue, Window window, str reason)
cdef tuple graph_of(Queue queue, Window window, str reason)
cdef object launch_whole(Queue queue, Window window, Graph graph)
cdef object launch_rest(Queue queue, Window window, str reason)
cdef object launch_one(Queue queue, Launch launch, Words words, Py_ssize_t start,
                       Py_ssize_t count)
cdef object note_trace(Window window, ModeState state)
