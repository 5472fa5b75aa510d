# The emulated engine and the load generator: the operator's own packages, another program. It answers to vLLM's
# command line, so that the sample Deployment runs as it is.
ARG BASE=servingpool-operator:e2e
FROM ${BASE}
COPY vllm /usr/local/bin/vllm
LABEL org.opencontainers.image.title=servingpool-lab
ENTRYPOINT []
CMD ["vllm", "serve", "--help"]
