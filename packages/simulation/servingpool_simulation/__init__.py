"""A fleet of modelled vLLM replicas on virtual time: what the emulator, the simulator and `make demo` run."""
