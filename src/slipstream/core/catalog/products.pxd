from slipstream.core.vocab.records cimport Spec, TensorBase
