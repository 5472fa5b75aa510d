# llama-server, a model of random weights and vllm-router. The context is made by images.py.
ARG BASE=python:3.11-slim
FROM ${BASE}
COPY llama-server /opt/llama-server
COPY model.gguf /model.gguf
COPY router /opt/router
ENV PYTHONPATH=/opt/router PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
USER 65534:65534
