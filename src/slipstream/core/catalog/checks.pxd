from slipstream.core.vocab.records cimport TensorBase
