# The router and the model on top of a real vLLM. The context is made by images.py.
ARG BASE=servingpool-vllm-cpu:e2e
FROM ${BASE}
COPY model /model
COPY router /opt/router
COPY lib /opt/lib
ENV PYTHONPATH=/opt/router:/opt/vllm LD_LIBRARY_PATH=/opt/lib
USER 65534:65534
