from slipstream.core.dispatch.carrying cimport OpCore
from slipstream.core.vocab.records cimport OpBase, Spec, TensorBase
