"""Numbers that the layouts of row and column kernels go by: threads, bytes, blocks."""

from __future__ import annotations

WARP = 32
BLOCK = 256
# Threads of a row that is too long for registers, and most threads of one that is not.
LONG_BLOCK = 512
MOST_THREADS = 1024
# Bytes that a thread may keep in registers, and in how many vectors; fewer in the largest blocks.
KEPT_BYTES = 256
KEPT_BYTES_LARGE = 128
KEPT_VECTORS = 8
# The same of elements in the largest blocks, where the program can do with one walk less.
KEPT_ELEMENTS = 32
# How many values a thread computes in unrolled code, about: more take long to compile.
UNROLLED = 640
# Rows are spread over more threads while there are fewer in all than this; while there are more
# than this many threads, the same ones take several short rows at once.
BUSY_THREADS = 65536
MANY_THREADS = 1 << 18
MOST_TURNS = 4
# Rows that blocks of half the most threads keep in shared memory: two such blocks go together on
# the larger cards.  Shared memory that a kernel needs beside its rows.
HALF_SHARED = 108 << 10
STATIC_BYTES = 4096
# How many blocks of a cluster share a row that would have one of the most threads.
SHARED_BY = 2
# Vectors that a thread takes at once from there.
SHELF_BATCH = 2
# What is read again for its results is split between blocks only where rows are few and long; a
# few more where no block can keep a row.
FEW_ROWS = 64
FEW_ENDLESS_ROWS = 264
LONG_ROW = 65536
# Elements from which a text of its own pays that asks for no ends.
EXACT = 1 << 20
LARGEST_KEPT = 216 << 10
# Blocks of a split kernel, about: while the last ones end, others idle.  Rows that are never split;
# bytes of each block at least; how far a thread walks down columns.
BLOCKS = 4224
# The same where a kernel reads once only: each block pays for its start, its joining and its ticket
# while it asks for nothing, and this many are one round of 132 processors that hold four.
SINGLE_BLOCKS = 528
MANY_ROWS = 2112
CHUNK_BYTES = 32768
WALK = 8
# Bytes of parts that the last block of a column kernel joins, at most where others are busy too.
JOINED_BYTES = 16384
FEW_BLOCKS = 264
# Parts that a thread of it asks for at once, and bytes of them.
MOST_PARTS = 8
PART_BYTES = 64
# Blocks that run at once where a processor holds four.
WAVE = 528
# Threads of a block where there are no more blocks than that, if what each has found takes so few
# bytes of registers, or the last block has many parts to join; else threads ask for more at once.
TALL_BLOCK = 512
LIGHT_BYTES = 32
FEW_PARTS = 32
# Bytes that a thread asks for at once; the blocks of such kernels that a processor should hold, if
# so few bytes of a thread's registers are in use.
BATCH_BYTES = 128
LARGE_BATCH = 4
RESIDENT = 4
# The same where more addresses are in registers, down columns or of many operands; with places.
RESIDENT_FAR = 3
RESIDENT_PLACES = 2
RESIDENT_BYTES = 150
MANY_OPERANDS = 3
# Accumulators of a thread in a column kernel: shared memory holds them for a whole block, and for
# one of the tallest if they are fewer.
COLUMN_BYTES = 160
TALL_BYTES = 64
MOST_COLUMNS = 8
# The same, and bytes of a thread's vector, at least, where one operand is read.
LONE_COLUMNS = 4
LONE_BYTES = 8
# Narrow blocks of columns: of lengths above and up to these, where there are no more elements in
# all; their threads; so many side by side that they read whole sectors of this many bytes; most
# vectors that a thread asks for at once.
NARROW_LEAST = 64
NARROW_LENGTH = 4096
NARROW_ELEMENTS = 1 << 21
NARROW_BLOCK = 512
SECTOR = 32
NARROW_BATCH = 4
