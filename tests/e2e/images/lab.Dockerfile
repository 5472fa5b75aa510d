# The emulated engine and the load generator: the simulation and the lab on top of the operator's image. It answers to
# vLLM's command line, so that the sample Deployment runs as it is.
ARG BASE=servingpool-operator:e2e
FROM ${BASE}
COPY vllm /usr/local/bin/vllm
COPY packages /opt/lab
USER 0
RUN python3 -m compileall -q -f --invalidation-mode unchecked-hash /opt/lab
USER 65532:65532
ENV PYTHONPATH=/opt/lab
LABEL org.opencontainers.image.title=servingpool-lab
ENTRYPOINT []
CMD ["vllm", "serve", "--help"]
