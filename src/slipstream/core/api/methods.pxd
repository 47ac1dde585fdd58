from slipstream.core.dispatch.op cimport Op
