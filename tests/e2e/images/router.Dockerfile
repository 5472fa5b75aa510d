# vllm-router. The context is made by images.py.
ARG BASE=python:3.11-slim
FROM ${BASE}
COPY router /opt/router
ENV PYTHONPATH=/opt/router PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
USER 65534:65534
