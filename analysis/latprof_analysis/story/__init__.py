"""Why a message was slow: what CPUs, sockets and queues did meanwhile, as arrays."""
