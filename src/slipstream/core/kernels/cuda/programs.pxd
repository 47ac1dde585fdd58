# What runs for every call is typed; the rest is compiled as it stands.
from slipstream.core.vocab.records cimport TensorBase
