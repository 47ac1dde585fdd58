# What runs for every call is typed; the rest is compiled as it stands.
from slipstream.core.launch.cuda.backend cimport CudaBackend
from slipstream.core.vocab.records cimport TensorBase
