"""What a user can do about a wait, by what asked for it."""

from __future__ import annotations

READ = ("keep it on the device: gather results in a list or a running sum, and read them once "
        "after the loop")
BRANCH = ("choose on the device with where(condition, a, b), or look once every so many steps")
COUNT = "the result's size depends on data: "
MENDS = {
    "item": READ, "tolist": READ, "float": READ, "int": READ, "complex": READ,
    "bool": BRANCH,
    "__index__": "index with a tensor of one dim, x[i.view(1)], or keep a Python number beside it",
    "print": "print every so many steps, or outside of the loop",
    "cpu": "copy with to('cpu', non_blocking=True): what reads the copy waits, the host goes on "
           "until then",
    "to": "copy with to('cpu', non_blocking=True): what reads the copy waits, the host goes on "
          "until then",
    "numpy": "keep it on the device, or copy it early with to('cpu', non_blocking=True)",
    "save": "save every so many steps, or hand save() copies that to('cpu', non_blocking=True) "
            "made earlier",
    "copy_": "let the target be pinned memory (pin_memory()) and pass non_blocking=True",
    "nonzero": COUNT + "nonzero(size=n) is padded and waits for nothing; x[mask] = value and "
                       "where(mask, a, b) need no places",
    "masked_select": COUNT + "masked_select(mask, size=n) is padded and waits for nothing; "
                             "where(mask, x, 0) and x[mask] = value need no count",
    "masked_scatter": "it checks that the source has enough elements: where(mask, source, x) "
                      "takes a source of x's shape",
    "unique": COUNT + "do it once, outside of the loop, or sort() and compare neighbours",
    "unique_consecutive": COUNT + "do it once, outside of the loop, or compare neighbours",
    "index": COUNT + "where(mask, a, b) needs no places",
    "index_put": COUNT + "one value for a mask needs no count, and where(mask, values, x) takes "
                         "values of x's shape",
    "index_put_": COUNT + "x[mask] = value with one value, or one for each place behind the mask's "
                          "dims, needs no count; where(mask, values, x) takes values of x's shape",
    "equal": "(a == b).all() stays on the device",
    "allclose": "isclose(a, b).all() stays on the device",
    "one_hot": "pass num_classes=, the number of classes",
    "normal": "give a std that is a number: then nothing has to be looked at",
    "normal_of": "give a std that is a number: then nothing has to be looked at",
    "bincount": COUNT + "scatter_add into zeros of a size that you know",
    "repeat_interleave": "pass output_size=, the sum of the repeats",
    "pinned copy": "let more work pass between the copy and what reads it",
    "synchronize": "what reads a result waits for it by itself; to measure time record events, "
                   "and synchronize once at the end",
    "Stream.synchronize": "let the other stream wait on the device: stream.wait_stream(other)",
    "Event.synchronize": "let a stream wait on the device: stream.wait_event(event); query() asks "
                         "without waiting",
    "resize": "make the tensor as large as it will be at first",
    "pickle": "pickle every so many steps, or outside of the loop",
    "graph capture": "capture before the loop, and replay in it",
    "empty_cache": "leave the memory with the allocator: it gives it back by itself when it has "
                   "to",
}
# Where a call waits since it calls others.
INSIDE = {"to": "the CPU computes it: let it work on a tensor that is there, or do it once outside "
                "of the loop"}
ELSE = "do it once outside of the loop, or outside of the no_sync() scope"


def mend_of(name: str, reason: str = "") -> str:
    """What to do about a wait of the call ``name``, which came from ``reason`` inside it."""
    return MENDS.get(name) or INSIDE.get(reason) or MENDS.get(reason, ELSE)
