"""What goes between the processes of a DataLoader, as bytes."""

from __future__ import annotations

import io
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import slipstream as ss


def _reduced(tensor: ss.Tensor) -> Any:
    """What a tensor is pickled as on its way to another process, a queue's way too.

    Raises RuntimeError for one whose history would be lost in silence.
    """
    if tensor.grad_fn is not None:
        raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad, "
                           "since autograd does not support crossing process boundaries.  If you "
                           "just want to transfer the data, call detach() on the tensor before "
                           "serializing (e.g., putting it on the queue).")
    return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


ForkingPickler.register(ss.Tensor, _reduced)


def packed(message: Any) -> bytes:
    """A message as bytes; raises what pickle raises for something that cannot be sent."""
    stream = io.BytesIO()
    ForkingPickler(stream, pickle.HIGHEST_PROTOCOL).dump(message)
    return stream.getvalue()


def unpacked(message: Any) -> Any:
    """A message as it was before it was packed for another process."""
    return pickle.loads(message) if isinstance(message, bytes) else message
