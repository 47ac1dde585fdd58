from slipstream.core.vocab.records cimport OpBase, TensorBase
